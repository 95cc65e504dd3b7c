"""Suggested changes: read as the product writes them, tried on a cluster of stored objects, judged in whole runs.

What was true a short time ago is no violation: the cluster is taken back change by change.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kube.client.resources import NODES, POD_GROUPS, PODS, Resource
from scheduler.conditions.messages import with_help
from scheduler.conditions.suggestion_messages import hint_text
from scheduler.core.model.settings import Settings
from scheduler.core.what_if.group_changes import CPU, FRACTION, GPU_MEMORY, GPUS, MEMORY, Asking, Members
from scheduler.core.what_if.known_ends import Wait
from simulator.apiserver.types import ResourceType
from tests.scheduler.core.objects import changed, ended, node, pod, pod_group
from verification.hostile.actions import CreatePod, CreatePodGroup
from verification.hostile.run import run
from verification.hostile.scenario import Scenario, Switches
from verification.hostile.suggestions import (
    Claim,
    History,
    Past,
    Reference,
    Sentence,
    Suggestible,
    Unreadable,
    WaitUntil,
    is_decided_by,
    sentence_of,
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


_BIG = CreatePod(at_s=1, name="big", gpus=8)
_OTHERS = tuple(CreatePod(at_s=60 + number, name=f"other-{number}", gpus=2) for number in range(4))
SCENARIO = Scenario(
    seed=1, shapes=("2x4x80GiB",), settings=Switches(suggestions=True), actions=(_BIG, *_OTHERS), calm_s=70.0
)


def test_a_change_that_others_took_the_room_of_is_true_for_as_long_as_its_text_states() -> None:
    outcome = run(SCENARIO)
    assert outcome.violations == ()
    judged, past = outcome.suggested
    assert 0 < past < judged


def test_what_is_shown_is_tried_again_only_when_something_has_changed() -> None:
    """A long pause is looked at once, and not with each Lease that is renewed in it."""
    small = msgspec.structs.replace(SCENARIO, actions=(_BIG,))
    judged, _ = run(small).suggested
    later, _ = run(msgspec.structs.replace(small, calm_s=2_000.0)).suggested
    assert 0 < later <= judged + 2


def test_where_nothing_is_suggested_nothing_is_judged() -> None:
    assert run(msgspec.structs.replace(SCENARIO, settings=Switches())).suggested == (0, 0)


def _share(at_s: float, name: str, fraction: str, **more: Any) -> CreatePod:
    return CreatePod(at_s=at_s, name=name, annotations={"gpu-fraction": fraction}, **more)


def test_a_change_that_helps_because_other_members_have_succeeded_is_true() -> None:
    """Members that ended beside one that waits count for it, in a cluster made of stored objects as well."""
    gang = CreatePodGroup(at_s=1, name="gang", minimum=3)
    ends = [_share(1, f"ends-{number}", "0.3", group="gang", run_s=30) for number in range(3)]
    waits, fills = _share(10, "waits", "0.7", group="gang"), _share(5, "fills", "0.6")
    actions = (gang, *ends, fills, waits)
    outcome = run(msgspec.structs.replace(SCENARIO, shapes=("1x1x80GiB",), actions=actions, calm_s=900.0))
    assert outcome.violations == ()
    judged, past = outcome.suggested
    assert (judged > 0, past) == (True, 0)


_REASON = "no nodes with enough resources were found: 2 node(s) didn't have enough resources: GPUs."
_EDITS: list[Asking | Members] = [
    Asking(FRACTION, 300_000_000),
    Asking(FRACTION, 10_000_000),
    Asking(GPU_MEMORY, 8_000),
    Asking(GPUS, 1),
    Asking(GPUS, 4),
    Asking(CPU, 1_500),
    Asking(MEMORY, 64),
    Members(1),
    Members(7),
]


@pytest.mark.parametrize("edit", _EDITS, ids=lambda edit: edit.spelled())
def test_a_change_is_read_as_it_was_meant(edit: Asking | Members) -> None:
    message = with_help(_REASON, hint_text((edit,), renewed_s=600))
    assert sentence_of(message) == Sentence((edit,), 600)


def test_several_changes_are_read_each() -> None:
    wait = Wait(until_s=1_767_225_661, uids=("a", "b"))
    message = with_help(_REASON, hint_text((wait, *_EDITS), renewed_s=120))
    assert sentence_of(message) == Sentence((WaitUntil(1_767_225_661), *_EDITS), 120)


def test_a_reason_alone_suggests_nothing() -> None:
    assert sentence_of(_REASON) is None


def test_what_is_no_change_is_refused() -> None:
    with pytest.raises(Unreadable, match="pray"):
        sentence_of("This change lets it start (tried, and renewed within 10 minutes): pray.")
