"""Hostile runs of each kind: dialects, MIG slices, claims, extended resources, a tenant that means harm."""

from __future__ import annotations

import os
import random

import pytest

from gpu.dialects.settings import DialectSettings, ReplicasSettings
from simulator.nodes import shape
from simulator.nodes.shape import parse
from simulator.world import World
from tests.simulation.planted.bugs import BUGS
from tests.whole import IS_WHOLE
from verification.hostile import made_devices, tenant
from verification.hostile.actions import Action, CreatePod, DeletePod
from verification.hostile.coverage_marks import WITH_CLAIMS
from verification.hostile.crowding import PODS, PROMISED, SHAPES, mixed
from verification.hostile.faults import drawing
from verification.hostile.run import Outcome, run
from verification.hostile.scenario import Scenario, Script, Switches, encode, scenario_of

# 500 pods in the words of all systems on twenty nodes with cards of three sizes: every invariant holds.

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


# S18 and L1 of slices are judged in each, beside all that is judged in other hostile runs, under all faults.

#: MOORAGE_MIG=200: as many seeds, for a search; without it these.
_MIG_SEEDS = range(1, 1 + (int(os.environ.get("MOORAGE_MIG", "0")) or (24 if IS_WHOLE else 4)))


@pytest.mark.parametrize("seed", _MIG_SEEDS)
def test_whatever_happens_while_slices_are_made_every_invariant_holds(seed: int) -> None:
    told = made_devices.slices_scenario(seed)
    outcome = run(told, limit_cpu_s=60.0)
    script = encode(Script(violates="", story=f"slices on demand, seed {seed}", scenario=told)).decode()
    assert outcome.violations == (), "\n".join([*map(str, outcome.violations[:5]), *outcome.events, script])


def test_where_nothing_goes_wrong_slices_are_made_and_pods_are_bound() -> None:
    worlds: list[World] = []
    assert run(made_devices.slices_scenario(1, kinds=()), show=worlds.append).violations == ()
    writes = [entry for entry in worlds[0].server.audit if entry.user == "scheduler" and entry.code < 300]
    assert sum(entry.resource == "gpunodes" for entry in writes) >= 3
    assert sum(entry.resource == "bindrequests" or entry.subresource == "binding" for entry in writes) >= 5


# Claims of devices and of volumes in hostile runs: none is given twice, no pod is bound too early, none is forgotten.

# S15 to S17 and L7 are judged in each, beside all that is judged in other hostile runs, under all faults.

#: MOORAGE_CLAIMS=200: as many seeds, for a search; without it these.
_CLAIMS_SEEDS = range(1, 1 + (int(os.environ.get("MOORAGE_CLAIMS", "0")) or (24 if IS_WHOLE else 4)))


@pytest.mark.parametrize("seed", _CLAIMS_SEEDS)
def test_whatever_happens_to_claims_every_invariant_holds(seed: int) -> None:
    told = scenario_of(seed, with_claims=True)
    outcome = run(told, limit_cpu_s=60.0)
    script = encode(Script(violates="", story=f"claims, seed {seed}", scenario=told)).decode()
    assert outcome.violations == (), "\n".join([*map(str, outcome.violations[:5]), *outcome.events, script])


@pytest.mark.parametrize("seed", _CLAIMS_SEEDS[: max(2, len(_CLAIMS_SEEDS) // 2)])
def test_whatever_devices_draw_on_or_have_to_do_first_every_invariant_holds(seed: int) -> None:
    told = made_devices.enriched_scenario(seed)
    outcome = run(told, limit_cpu_s=60.0)
    script = encode(Script(violates="", story=f"claims and their drivers, seed {seed}", scenario=told)).decode()
    assert outcome.violations == (), "\n".join([*map(str, outcome.violations[:5]), *outcome.events, script])


@pytest.mark.timeout(600)
def test_where_nothing_goes_wrong_pods_with_claims_of_each_kind_are_bound() -> None:
    bound: set[str] = set()
    for seed in range(1, 4):
        scenario = scenario_of(seed, (), with_claims=True)
        having = {
            action.name: [field for field in ("claims", "templates", "volumes") if getattr(action, field)]
            for action in scenario.actions
            if isinstance(action, CreatePod)
        }
        worlds: list[World] = []
        assert run(scenario, show=worlds.append).violations == ()
        for entry in worlds[0].server.audit:
            if entry.subresource == "binding" and entry.code < 300:
                bound.update(having.get(entry.name, ()))
    assert bound == {"claims", "templates", "volumes"}


# Claims that the scheduler makes, in hostile runs: for extended resources, and for shares of GPUs.

# S15 to S17, S19 and L7 are judged in each, beside all that is judged in other hostile runs, under all faults.

#: MOORAGE_EXTENDED=200: as many seeds, for a search; without it these.
_EXTENDED_SEEDS = range(1, 1 + (int(os.environ.get("MOORAGE_EXTENDED", "0")) or 5))
#: What these come to; the others take a crash between two writes, or two schedulers at once.
_REACHED = {
    *("claim made", "claim named in a status", "share given by a claim", "made claim deleted"),
    *("claim taken from a status",),
}


@pytest.mark.timeout(600)
def test_whatever_happens_to_claims_that_the_scheduler_makes_every_invariant_holds() -> None:
    reached: set[str] = set()
    for seed in _EXTENDED_SEEDS:
        told = made_devices.claims_scenario(seed)
        outcome = run(told, limit_cpu_s=60.0)
        script = encode(
            Script(violates="", story=f"claims for extended resources, seed {seed}", scenario=told)
        ).decode()
        assert outcome.violations == (), "\n".join([*map(str, outcome.violations[:5]), *outcome.events, script])
        reached.update(mark for mark in outcome.marks if mark in WITH_CLAIMS)
    assert reached >= _REACHED


SLICES_SHAPES = ("1x2x80GiB", "1x2x3g.20gb+2x1g.10gb", "1x1x80GiB+1x3g.20gb")
#: Halves of large slices, quarters of small ones, whole ones by a name of their own, thirds of cards.
ENTRIES = ("mig-3g.20gb:small:2", "mig-1g.10gb:tiny:4", "mig-1g.10gb:medium:1", "gpu:sharedgpu:3")
ASKS = ({"small": 1}, {"small": 2}, {"tiny": 1}, {"tiny": 3}, {"medium": 1}, {"sharedgpu": 1}, {"small": 1, "tiny": 1})
SLICES_PODS = 40
DURATION_S = 120.0
#: MOORAGE_SLICES=50: as many seeds, for a search; without it these.
SEEDS = range(1, 1 + (int(os.environ.get("MOORAGE_SLICES", "0")) or (12 if IS_WHOLE else 2)))


def scenario(seed: int, *, is_calm: bool = False) -> Scenario:
    """Pods that come and go, most of them for parts of slices, and any faults."""
    rng = random.Random(f"{seed}/slices")
    actions: list[Action] = []
    for number in range(SLICES_PODS):
        at_s = round(rng.uniform(0, DURATION_S), 3)
        limits = {f"nvidia.com/{name}": str(count) for name, count in rng.choice(ASKS).items()}
        run_s = rng.choice([None, 10.0, 30.0])
        actions.append(CreatePod(at_s=at_s, name=f"p-{number}", limits={"main": limits}, run_s=run_s))
        if rng.random() < 0.3:
            actions.append(DeletePod(at_s=at_s + round(rng.uniform(0, 40), 3), name=f"p-{number}"))
    kinds = () if is_calm else None
    faults = drawing.draw(
        rng, shape.parse(SLICES_SHAPES), kinds=kinds, schedulers=1, binders=1, duration_s=DURATION_S
    )  # fmt: skip
    settings = Switches(dialects=DialectSettings(replicas=ReplicasSettings(entries=ENTRIES)))
    ends_s = (*(action.at_s for action in actions), *(fault.end_s for fault in faults))
    return Scenario(
        seed=seed,
        shapes=SLICES_SHAPES,
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
    assert outcome.served["replicas"] >= SLICES_PODS // 2


TENANT_SEEDS = range(1, 41) if IS_WHOLE else (1, 2, 6)
#: One in which it moves PodGroups under their pods to other queues, in queues with limits.
_MOVES_GROUPS = 46


@pytest.mark.parametrize("seed", TENANT_SEEDS)
def test_every_invariant_holds_beside_a_tenant_that_means_harm(seed: int) -> None:
    scenario = tenant.scenario(seed)
    outcome = run(scenario, limit_cpu_s=60.0)
    violations = [f"{each.invariant} at {each.at_s:.3f} s: {each.text}" for each in outcome.violations[:5]]
    script = Script(violates=outcome.violations[0].invariant if violations else "", scenario=scenario)
    assert not violations, "\n".join([*violations, *outcome.events, encode(script).decode()])


def test_what_it_gets_by_moving_groups_is_found() -> None:
    """With a scheduler that counts pods by their current labels and PodGroups, as KAI does."""
    outcome = run(tenant.scenario(_MOVES_GROUPS), parts=BUGS["Q-relabelled"].parts, limit_cpu_s=60.0)
    assert outcome.broken & {"S6", "L3"}
