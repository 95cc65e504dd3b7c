"""Events that come late, twice or out of order tell nothing that is not so."""

from __future__ import annotations

import msgspec

from scheduler.core.convert.nodes import node_record
from scheduler.core.convert.pods import pod_record
from scheduler.core.model.records import PodRecord
from scheduler.core.model.seen_pods import Pods
from scheduler.core.model.settings import Settings
from tests.scheduler.core.objects import bound, changed, cluster, feed, free_gpus, node, pod


def test_an_event_older_than_what_is_known_changes_nothing() -> None:
    before = pod("a", gpus=3)
    made = cluster(node(), bound(before, "n1"), before)
    assert free_gpus(made) == 5


def test_an_event_that_shows_a_bound_pod_unbound_changes_nothing_whatever_its_version() -> None:
    made = cluster(node(), pod("a", gpus=3, bound_to="n1"), pod("a", gpus=3))
    assert free_gpus(made) == 5


def test_an_event_of_a_pod_that_is_gone_does_not_bring_it_back() -> None:
    late = pod("a", gpus=3, bound_to="n1")
    made = cluster(node(), late)
    made.remove_pod("uid-a")
    feed(made, late)
    assert free_gpus(made) == 8


def test_lists_replace_everything_that_is_not_on_them() -> None:
    made = cluster(node(), node("n2"), pod("a", gpus=1, bound_to="n1"), pod("b", gpus=1, bound_to="n1"))
    made.replace_nodes([node_record(node())])
    made.replace_bind_requests([])
    made.replace_pod_groups([])
    assert made.node("n2") is None
    assert made.pods_beside({"uid-b"}) == ["uid-a"]


def _read(number: int) -> PodRecord:
    record = pod_record(pod(f"p{number}", cpu=f"{number}m"), Settings())
    assert record is not None
    return record


def test_classes_of_pods_long_gone_are_dropped_only_when_the_number_of_classes_has_doubled() -> None:
    """Each time costs a walk through all pods."""
    pods = Pods()
    for number in range(1, 1_200):
        record = _read(number)
        pods.intern(record.cls)
        pods.put(record)
    strange = pods.intern(_read(5_000).cls)
    for number in range(6_000, 6_800):
        pods.intern(_read(number).cls)
    assert pods.intern(_read(5_000).cls) is strange
    for number in range(7_000, 7_200):
        pods.intern(_read(number).cls)
    assert pods.intern(_read(5_000).cls) is not strange
    known = pods.records["uid-p1"].cls
    assert pods.intern(_read(1).cls) is known


def test_when_a_node_took_a_pod_up_is_known_and_no_news() -> None:
    placed = pod("a", gpus=3, bound_to="n1")
    made = cluster(node(), placed)
    made.refresh()
    generation = made.generation
    status = msgspec.structs.replace(placed.status, start_time="2026-01-01T00:00:10Z")
    feed(made, changed(msgspec.structs.replace(placed, status=status)))
    record = made.pod("uid-a")
    assert record is not None
    assert (record.started_s, made.generation) == (1_767_225_610, generation)


def test_pods_that_are_being_deleted_are_known_as_such_while_they_have_a_node() -> None:
    made = cluster(node(), pod("waits", deleting=True), pod("runs", bound_to="n1"), pod("goes", bound_to="n1"))
    pods = made.snapshot().pods
    assert [*pods.terminating] == []
    feed(made, changed(pod("goes", bound_to="n1", deleting=True)))
    assert [*pods.terminating] == ["uid-goes"]
    copied = pods.copy()
    made.remove_pod("uid-goes")
    assert ([*pods.terminating], [*copied.terminating]) == ([], ["uid-goes"])
