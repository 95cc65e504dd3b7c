"""Parts of MIG slices in a hostile crowd: beside whole slices, cards and their parts, whatever happens to them."""

from __future__ import annotations

import os
import random

import pytest

from gpu.dialects.settings import DialectSettings, ReplicasSettings
from simulator.nodes import shape
from tests.whole import IS_WHOLE
from verification.hostile.actions import Action, CreatePod, DeletePod
from verification.hostile.faults import drawing
from verification.hostile.run import run
from verification.hostile.scenario import Scenario, Script, Switches, encode

pytestmark = pytest.mark.thorough

SHAPES = ("1x2x80GiB", "1x2x3g.20gb+2x1g.10gb", "1x1x80GiB+1x3g.20gb")
#: Halves of large slices, quarters of small ones, whole ones by a name of their own, thirds of cards.
ENTRIES = ("mig-3g.20gb:small:2", "mig-1g.10gb:tiny:4", "mig-1g.10gb:medium:1", "gpu:sharedgpu:3")
ASKS = ({"small": 1}, {"small": 2}, {"tiny": 1}, {"tiny": 3}, {"medium": 1}, {"sharedgpu": 1}, {"small": 1, "tiny": 1})
PODS = 40
DURATION_S = 120.0
#: MOORAGE_SLICES=50: as many seeds, for a search; without it these.
SEEDS = range(1, 1 + (int(os.environ.get("MOORAGE_SLICES", "0")) or (12 if IS_WHOLE else 2)))


def scenario(seed: int, *, is_calm: bool = False) -> Scenario:
    """Pods that come and go, most of them for parts of slices, and any faults."""
    rng = random.Random(f"{seed}/slices")
    actions: list[Action] = []
    for number in range(PODS):
        at_s = round(rng.uniform(0, DURATION_S), 3)
        limits = {f"nvidia.com/{name}": str(count) for name, count in rng.choice(ASKS).items()}
        run_s = rng.choice([None, 10.0, 30.0])
        actions.append(CreatePod(at_s=at_s, name=f"p-{number}", limits={"main": limits}, run_s=run_s))
        if rng.random() < 0.3:
            actions.append(DeletePod(at_s=at_s + round(rng.uniform(0, 40), 3), name=f"p-{number}"))
    kinds = () if is_calm else None
    faults = drawing.draw(
        rng, shape.parse(SHAPES), kinds=kinds, schedulers=1, binders=1, duration_s=DURATION_S
    )  # fmt: skip
    settings = Switches(dialects=DialectSettings(replicas=ReplicasSettings(entries=ENTRIES)))
    ends_s = (*(action.at_s for action in actions), *(fault.end_s for fault in faults))
    return Scenario(
        seed=seed,
        shapes=SHAPES,
        settings=settings,
        actions=tuple(sorted(actions, key=lambda action: action.at_s)),
        faults=faults,
        calm_s=max(ends_s),
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_happens_no_slice_is_given_out_twice(seed: int) -> None:
    told = scenario(seed)
    outcome = run(told, limit_cpu_s=60.0)
    script = encode(Script(violates="", story=f"slices, seed {seed}", scenario=told)).decode()
    assert outcome.violations == (), "\n".join([*map(str, outcome.violations[:5]), *outcome.events, script])


def test_where_nothing_happens_parts_of_slices_are_served() -> None:
    outcome = run(scenario(1, is_calm=True), limit_cpu_s=60.0)
    assert outcome.violations == ()
    assert outcome.served["replicas"] >= PODS // 2
