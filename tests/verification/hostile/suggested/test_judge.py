"""Suggested changes in whole runs: what is shown is judged, and what was true a short time ago is no violation."""

from __future__ import annotations

from typing import Any

import msgspec

from verification.hostile.actions import CreatePod, CreatePodGroup
from verification.hostile.run import run
from verification.hostile.scenario import Scenario, Switches

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
