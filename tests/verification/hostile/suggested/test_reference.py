"""Suggested changes on a cluster that is made of stored objects, and taken back change by change."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kube.client.resources import NODES, POD_GROUPS, PODS, Resource
from scheduler.core.model.settings import Settings
from scheduler.core.what_if.group_changes import GPUS, Asking, Members
from simulator.apiserver.types import ResourceType
from tests.scheduler.core.objects import changed, ended, node, pod, pod_group
from verification.hostile.suggestions import (
    Claim,
    History,
    Past,
    Reference,
    Suggestible,
    WaitUntil,
    is_decided_by,
)
from wire.core import Node, Pod
from wire.crds.podgroup import PodGroup

SETTINGS = Settings()
_KINDS: dict[type, Resource[Any]] = {Node: NODES, Pod: PODS, PodGroup: POD_GROUPS}
BIG = Claim("uid-big", Asking(GPUS, 4))


def told(*steps: tuple[float, Node | Pod | PodGroup], gone: frozenset[int] = frozenset()) -> History:
    """What was stored at which times; the objects of the steps with these numbers are deleted."""
    made = History(kept_s=10_000)
    for number, (at_s, obj) in enumerate(steps):
        kind = _KINDS[type(obj)]
        of = ResourceType(group=kind.group, version=kind.version, plural=kind.plural, kind=kind.kind)
        made.take(of, msgspec.json.encode(obj), is_gone=number in gone, at_s=at_s)
    return made


def helps(history: History, claim: Claim, wall_s: int = 0) -> bool:
    return Reference(SETTINGS, history.objects).helps(claim, wall_s)


def has_helped(history: History, claim: Claim, *, earliest_s: float, now_s: float) -> bool:
    past = Past(Reference(SETTINGS, history.objects), history.changes, int)
    return past.has_helped(claim, earliest_s=earliest_s, now_s=now_s)


CLUSTER = ((0.0, node(gpus=4)), (1.0, pod("big", gpus=8)))
SMALL = pod("small", gpus=1)
ON_NODE = changed(msgspec.structs.replace(SMALL, spec=msgspec.structs.replace(SMALL.spec, node_name="n1")))


@pytest.mark.parametrize(
    ("change", "does"), [(Asking(GPUS, 4), True), (Asking(GPUS, 5), False), (Members(1), False), (WaitUntil(99), False)]
)
def test_a_change_is_tried(change: Suggestible, does: bool) -> None:
    assert helps(told(*CLUSTER), Claim("uid-big", change)) is does


def test_a_gang_starts_with_fewer_pods() -> None:
    members = [(2.0, pod(f"m{number}", gpus=2, group="gang")) for number in range(3)]
    gang = told(CLUSTER[0], (1.0, pod_group("gang", 3)), *members)
    assert helps(gang, Claim("uid-m0", Members(2)))
    assert not helps(gang, Claim("uid-m0", Asking(GPUS, 4)))


def test_a_pod_that_starts_as_it_is_is_told_nothing_false() -> None:
    assert helps(told((0.0, node(gpus=8)), CLUSTER[1]), Claim("uid-big", Members(1)))


def test_a_change_that_helps_no_more_has_helped_until_then() -> None:
    history = told(*CLUSTER, (5.0, SMALL), (100.0, ON_NODE))
    assert not helps(history, BIG)
    assert has_helped(history, BIG, earliest_s=99.0, now_s=200.0)
    assert not has_helped(history, BIG, earliest_s=101.0, now_s=200.0)


def test_a_pod_that_is_gone_was_in_the_way_before() -> None:
    history = told(*CLUSTER, (5.0, ON_NODE), (50.0, ON_NODE), gone=frozenset({3}))
    assert helps(history, BIG)
    past = Past(Reference(SETTINGS, history.objects), [history.changes[-1]], int)
    past.reference.undo(history.changes[-1])
    assert not past.reference.helps(BIG, 0)


def test_a_time_that_is_over_was_ahead_before() -> None:
    made = msgspec.structs.replace(ON_NODE.spec, active_deadline_seconds=100)
    started = msgspec.structs.replace(ON_NODE.status, start_time="1970-01-01T00:00:10Z")
    taken = msgspec.structs.replace(pod("full", gpus=4, bound_to="n1"), status=started)
    taken = msgspec.structs.replace(taken, spec=msgspec.structs.replace(made, containers=taken.spec.containers))
    history = told((0.0, node(gpus=4)), (1.0, pod("next", gpus=4)), (5.0, taken))
    claim = Claim("uid-next", WaitUntil(110))
    assert helps(history, claim, wall_s=50)
    assert not helps(history, claim, wall_s=120)
    assert has_helped(history, claim, earliest_s=100.0, now_s=300.0)
    assert not has_helped(history, claim, earliest_s=120.0, now_s=300.0)


def test_a_change_of_status_alone_is_no_other_state() -> None:
    told_why = msgspec.structs.replace(CLUSTER[1][1].status, message="why")
    history = told(*CLUSTER, (7.0, changed(msgspec.structs.replace(CLUSTER[1][1], status=told_why))))
    assert not Reference(SETTINGS, history.objects).undo(history.changes[-1])
    over = told(*CLUSTER, (5.0, ON_NODE), (9.0, ended(ON_NODE, "Succeeded")))
    assert Reference(SETTINGS, over.objects).undo(over.changes[-1])


def test_old_changes_are_forgotten_and_objects_are_not() -> None:
    history = History(kept_s=50)
    of = ResourceType(group="", version="v1", plural="nodes", kind="Node")
    for at_s, made in ((0.0, node("a")), (10.0, node("b")), (70.0, node("a", gpus=2))):
        history.take(of, msgspec.json.encode(made), is_gone=False, at_s=at_s)
    assert [change.at_s for change in history.changes] == [70.0]
    assert len(history.objects) == 2
    other = ResourceType(group="", version="v1", plural="events", kind="Event")
    assert (is_decided_by(of), is_decided_by(other)) == (True, False)
