"""500 pods in the words of all systems on twenty nodes with cards of three sizes: every invariant holds."""

from __future__ import annotations

import os

import pytest

from simulator.nodes.shape import parse
from verification.hostile.actions import CreatePod
from verification.hostile.mixed import PODS, PROMISED, SHAPES, mixed
from verification.hostile.run import Outcome, run
from verification.hostile.scenario import Script, encode

pytestmark = pytest.mark.thorough

#: The systems that have a record; "" are those without: KAI's older words, and whole GPUs.
_SYSTEMS = {
    "", "aliyun", "clearml", "hami", "koordinator", "metagpu", "nvfractions", "replicas", "volcano", "volcano-share",
}  # fmt: skip
#: MOORAGE_MIXED=20: as many seeds, for a search; without it this one.
_SEEDS = range(1, 1 + int(os.environ.get("MOORAGE_MIXED", "0"))) or (4,)
#: A run takes some twenty seconds of a processor.
_LIMIT_CPU_S = 240.0


@pytest.mark.parametrize("seed", _SEEDS)
def test_what_every_dialect_promises_holds_in_a_crowd_whatever_happens(seed: int) -> None:
    scenario = mixed(seed)
    outcome = run(scenario, limit_cpu_s=_LIMIT_CPU_S)
    assert not outcome.violations, _told(Script(violates="", story=f"mixed, seed {seed}", scenario=scenario), outcome)
    assert outcome.served.keys() >= _SYSTEMS
    assert sum(outcome.served.values()) >= PODS // 2


def test_the_crowd_is_what_it_says() -> None:
    scenario = mixed(1)
    nodes = parse(SHAPES)
    assert len(nodes) == 20
    assert len({card for node in nodes for card in node.cards_mib}) == 3
    assert sum(isinstance(action, CreatePod) for action in scenario.actions) >= PODS
    assert {fault.kind for fault in scenario.faults} == set(PROMISED)
    assert mixed(1) == scenario


def _told(script: Script, outcome: Outcome) -> str:
    violations = [f"{v.invariant} at {v.at_s:.3f} s: {v.text}" for v in outcome.violations[:5]]
    return "\n".join([*violations, *outcome.events, encode(script).decode()])
