"""What is asked about: a pod alone, or the PodGroup that it is a member of."""

from __future__ import annotations

from scheduler.core.what_if.edits import subject_of_group, subject_of_pod
from tests.scheduler.core.objects import cluster, node, pod, pod_group


def test_a_member_stands_for_its_group_and_those_with_a_node_are_apart() -> None:
    made = cluster(
        node(), pod_group("g", 3), pod("a", group="g"), pod("b", group="g", bound_to="n1"), pod("c", group="g")
    )
    found = subject_of_pod(made.snapshot(), "ns", "a")
    assert found is not None
    assert (found.name, found.uids, [pod.name for pod in found.bound]) == ("g", frozenset({"uid-a", "uid-c"}), ["b"])
    assert found.is_gang
    assert found == subject_of_group(made.snapshot(), "ns", "g")


def test_a_pod_alone_is_itself_and_one_that_is_being_deleted_does_not_wait() -> None:
    made = cluster(node(), pod("a"), pod("gone", deleting=True), pod("lost", group="missing"))
    snapshot = made.snapshot()
    alone, gone, lost = (subject_of_pod(snapshot, "ns", name) for name in ("a", "gone", "lost"))
    assert alone is not None
    assert gone is not None
    assert lost is not None
    assert (alone.uids, alone.group, alone.is_gang) == (frozenset({"uid-a"}), None, False)
    assert gone.waiting == ()
    assert lost.name == "lost"


def test_what_is_not_there_is_nothing() -> None:
    assert subject_of_pod(cluster().snapshot(), "ns", "a") is None
    assert subject_of_group(cluster().snapshot(), "ns", "a") is None


def test_pods_that_request_the_same_are_one_class() -> None:
    made = cluster(
        pod_group("g", 2), pod("a", gpus=1, group="g"), pod("b", gpus=1, group="g"), pod("c", gpus=2, group="g")
    )
    found = subject_of_group(made.snapshot(), "ns", "g")
    assert found is not None
    assert sorted(found.classes().values()) == [("uid-a", "uid-b"), ("uid-c",)]
