"""An explanation in slices is the one made at once. A slice is bounded by work, and repeats by their number."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from scheduler.core.cluster import Cluster
from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.model.settings import Settings
from scheduler.core.what_if import suggestions
from tests.scheduler.core.footprint import footprint
from tests.scheduler.core.nodes.claiming import GPU, claimed, claiming, offered
from tests.scheduler.core.objects import cluster, feed, node, pod, pod_group, queue
from tests.scheduler.core.preemption.scenes import NOON_S, Scene
from ui.explain.explanation import CUT, MOST_OPERATIONS, NO_COPIES, Explaining
from ui.explain.questions import Asked, Unanswered
from ui.explain.views import GroupView
from wire import names
from wire.resource import DeviceClass, DeviceClassSpec

TO_THE_END = 1 << 60
POD = Asked(kind="pod", namespace="ns", name="p", sees_others=True)
GROUP = Asked(kind="podgroup", namespace="ns", name="g", sees_others=True)


@dataclass
class Changing:
    """A cluster of which something changes whenever ``change`` is called."""

    cluster: Cluster
    snapshots: int = 0
    changes: list[str] = field(default_factory=list)

    @property
    def generation(self) -> int:
        return self.cluster.generation

    def snapshot(self) -> Snapshot:
        self.snapshots += 1
        return self.cluster.snapshot()

    def change(self) -> None:
        self.changes.append(f"other{len(self.changes)}")
        feed(self.cluster, node(self.changes[-1], 0))


def explaining(made: Any, asked: Asked) -> Explaining:
    return Explaining(made, asked, now_ns=lambda: 0)


def at_once(made: Cluster, asked: Asked) -> GroupView:
    found = explaining(made, asked)
    while found.is_open:
        found.go_on(NOON_S, is_settled=False, most=TO_THE_END)
    assert found.left_out == ""
    return found.view()


def in_slices(made: Cluster, asked: Asked, most: int) -> tuple[GroupView, int]:
    """The view, and the number of slices; the cluster decides between two of them."""
    found, slices = explaining(made, asked), 0
    while found.is_open:
        found.go_on(NOON_S, is_settled=False, most=most)
        made.decide(0, wall_s=NOON_S)
        slices += 1
    assert found.left_out == ""
    return found.view(), slices


def _spelled(view: GroupView) -> list[str]:
    return [edit.what_if for helps in view.helps for edit in helps.edits]


def crowded() -> Cluster:
    """A pod and a gang wait beside others; running pods may be evicted once a queue has a larger quota."""
    made = Cluster(Settings())
    feed(made, queue("a", gpu=(0, 0, -1)), queue("b", gpu=(8, 1, -1)))
    feed(made, *(node(f"n{number}", 2) for number in range(4)))
    for number in range(8):
        labels = {names.QUEUE_LABEL: "b"}
        feed(made, pod(f"r{number}", gpus=1, bound_to=f"n{number // 2}", labels=labels, priority=50))
    of_a = {names.QUEUE_LABEL: "a"}
    feed(made, pod("p", gpus=2, labels=of_a), pod_group("g", 2, queue="a"))
    feed(made, *(pod(f"g{number}", gpus=2, group="g") for number in range(2)))
    feed(made, *(pod(f"w{number}", gpus=1 + number % 2, labels=of_a) for number in range(6)))
    for _ in range(9):
        made.decide(0, wall_s=NOON_S)
    return made


@pytest.mark.parametrize("asked", [POD, GROUP])
@pytest.mark.parametrize("most", [1, 500, MOST_OPERATIONS])
def test_in_slices_the_answer_is_the_one_made_at_once(asked: Asked, most: int) -> None:
    made = crowded()
    expected = at_once(made, asked)
    assert expected.helps
    before = footprint(made)
    found, slices = in_slices(made, asked, most)
    assert found == expected
    assert footprint(made) == before
    assert slices > 50 or most > 1


@pytest.mark.parametrize("seed", range(25))
def test_so_it_is_in_random_clusters(seed: int) -> None:
    made = cluster(*Scene(seed).objects, settings=Settings())
    kind = "podgroup" if made.snapshot().pod_group("ns", "mine") is not None else "pod"
    asked = Asked(kind=kind, namespace="ns", name="mine", sees_others=True)
    for _ in range(9):
        made.decide(0, wall_s=NOON_S)
    assert in_slices(made, asked, 1)[0] == at_once(made, asked)


def test_a_slice_ends_with_a_try_and_after_its_operations() -> None:
    made = crowded()
    found, smaller = explaining(made, POD), explaining(made, POD)
    for each, most in ((found, TO_THE_END), (smaller, 1)):
        each.go_on(NOON_S, is_settled=False, most=most)
    assert found.is_explained
    assert found.is_open
    assert not found.view().helps
    assert not smaller.is_explained


def test_a_try_is_made_again_when_the_cluster_changes_and_the_answer_is_of_the_cluster_as_it_is() -> None:
    state = Changing(crowded())
    found = explaining(state, POD)
    found.go_on(NOON_S, is_settled=False, most=1)
    assert state.snapshots == 1
    feed(state.cluster, node("new", 2))
    while not found.is_explained:
        found.go_on(NOON_S, is_settled=False, most=1)
    assert state.snapshots == 2
    assert found.view().starts
    assert found.view().nodes == 5


def test_a_cluster_that_changes_before_every_slice_is_explained_all_the_same() -> None:
    """Each try is made at once after it was interrupted three times: so there is an end, and few slices are long."""
    state = Changing(crowded())
    found, slices = explaining(state, POD), 0
    while found.is_open:
        state.change()
        found.go_on(NOON_S, is_settled=False, most=1)
        slices += 1
    expected = at_once(state.cluster, POD)
    assert _spelled(found.view()) == _spelled(expected)
    assert slices > len(suggestions.FINDERS)
    assert found.left_out == ""


def test_a_group_that_is_gone_before_it_is_explained_is_refused() -> None:
    state = Changing(crowded())
    found = explaining(state, POD)
    found.go_on(NOON_S, is_settled=False, most=1)
    state.cluster.remove_pod("uid-p")
    with pytest.raises(Unanswered) as refused:
        found.go_on(NOON_S, is_settled=False, most=1)
    assert refused.value.status == 404


def test_what_is_not_finished_is_said_to_be_cut_and_why_it_waits_can_be_found_at_once() -> None:
    found = explaining(crowded(), POD)
    found.go_on(NOON_S, is_settled=False, most=1)
    found.explain_now(NOON_S, is_settled=False)
    assert found.view().verdict
    assert found.view().helps == ()
    assert found.left_out == CUT


BACKED = DeviceClass(metadata=GPU.metadata, spec=DeviceClassSpec(extended_resource_name=names.GPU_RESOURCE))
#: Devices that all nodes of a rack reach, and no node of the tests.
RACK = {"key": "rack", "operator": "In", "values": ["r1"]}
FABRIC = offered("fabric", nodeSelector={"nodeSelectorTerms": [{"matchExpressions": [RACK]}]})


@pytest.mark.parametrize(
    ("objects", "left_out"),
    [
        ((GPU, claimed(), claiming("p", "c"), FABRIC), (NO_COPIES,)),
        ((GPU, claimed(), claiming("p", "c"), offered("n2")), ()),
        ((GPU, claimed(), claiming("p", "c"), FABRIC, offered("n1")), ()),
        ((BACKED, pod("p", gpus=1), FABRIC), (NO_COPIES,)),
        ((GPU, pod("p", gpus=1), FABRIC), ()),
        ((claiming("p", "c"), FABRIC), ()),
    ],
    ids=["no device", "of a node", "fits", "GPU by a claim", "GPU of a plugin", "no such claim"],
)
def test_devices_that_several_nodes_reach_are_named_as_left_out_where_a_group_waits_for_some(
    objects: tuple[Any, ...], left_out: tuple[str, ...]
) -> None:
    made = cluster(node("n1", 0), *objects)
    made.prepared(0)
    found = explaining(made, POD)
    found.explain_now(NOON_S, is_settled=False)
    assert found.not_looked_at == left_out
