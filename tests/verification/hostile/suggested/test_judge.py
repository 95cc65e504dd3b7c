"""Suggested changes in whole runs: what is shown is judged, and what was true a short time ago is no violation."""

from __future__ import annotations

import msgspec

from verification.hostile.actions import CreatePod
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


def test_where_nothing_is_suggested_nothing_is_judged() -> None:
    assert run(msgspec.structs.replace(SCENARIO, settings=Switches())).suggested == (0, 0)
