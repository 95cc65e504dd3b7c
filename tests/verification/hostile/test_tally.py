"""What a soak says at its end, and how it makes a scenario that fails smaller."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from verification.hostile.actions import CreatePod
from verification.hostile.coverage_marks import MARKS, PreemptionCounts
from verification.hostile.scenario import Scenario, Switches
from verification.hostile.soak import Failure, Judged, Tally, minimise, smallest

NO_ROOM = PreemptionCounts()


def judged(
    seed: int,
    *faults: str,
    broken: tuple[str, ...] = (),
    marks: tuple[str, ...] = MARKS,
    room: PreemptionCounts = NO_ROOM,
) -> Judged:
    failure = Failure(seed=seed, invariants=broken, text="", events=()) if broken else None
    return Judged(
        seed=seed,
        writes=1000,
        pods=9,
        virtual_s=1800.0,
        cpu_s=0.5,
        faults=faults,
        marks=marks,
        failure=failure,
        room=room,
    )


#: Of marks that all of four runs reached.
FEWEST = ", ".join(f"{mark!r} in 4" for mark in sorted(MARKS)[:3])


def tally(*runs: Judged, seeds: range = range(1, 5)) -> Tally:
    made = Tally(seeds)
    for run in runs:
        made.take(run)
    return made


def test_it_says_how_many_runs_hours_and_faults_of_each_kind_there_were() -> None:
    told = list(tally(judged(2, "crash", "pause"), judged(1, "crash"), judged(3), judged(4)).lines(8.0))
    assert told == [
        "4 runs in 8 s (0.5/s, 2 s of processor time)",
        "seeds 1-4: all done",
        "simulated: 2.0 hours, 36 pods at rest, 4,000 writes",
        "faults injected: 3 (crash 2, pause 1)",
        f"states reached: {len(MARKS)} of {len(MARKS)} (the fewest runs: {FEWEST})",
        f"runs that reached each: {', '.join(f'{mark} 4' for mark in MARKS)}",
        "every invariant held",
    ]


def test_a_state_that_no_run_reached_is_named() -> None:
    first, *rest = MARKS
    told = list(tally(judged(1, marks=tuple(rest)), judged(2, marks=())).lines(1.0))
    assert f"never reached: {first}" in told
    assert list(tally(judged(3, marks=())).lines(1.0))[4:6] == [
        f"states reached: 0 of {len(MARKS)}",
        f"never reached: {', '.join(MARKS)}",
    ]


@pytest.mark.parametrize(
    ("done", "told"),
    [
        ((), "seeds 1-4: none done"),
        ((1,), "seeds 1-4: 1 done, not all"),
        ((2, 1), "seeds 1-4: 1-2 done, not all"),
        ((4, 1, 2), "seeds 1-4: 1-2 done and 1 beyond, not all"),
        ((2, 3), "seeds 1-4: none in a row done and 2 beyond, not all"),
        ((4, 3, 2, 1), "seeds 1-4: all done"),
    ],
)
def test_a_soak_that_was_stopped_says_through_which_seed_it_got(done: tuple[int, ...], told: str) -> None:
    assert list(tally(*map(judged, done)).lines(1.0))[1] == told


@pytest.mark.parametrize(
    ("needed", "expected"),
    [
        ((), ()),
        ((3,), (3,)),
        ((0, 19), (0, 19)),
        ((2, 3, 5, 7, 11, 13), (2, 3, 5, 7, 11, 13)),
        (range(20), tuple(range(20))),
    ],
)
def test_what_is_not_needed_is_left_out(needed: Sequence[int], expected: tuple[int, ...]) -> None:
    assert tuple(smallest(range(20), lambda kept: set(needed) <= set(kept))) == expected


def scenario(pods: int) -> Scenario:
    actions = tuple(CreatePod(at_s=float(i), name=f"p-{i}", gpus=i) for i in range(pods))
    return Scenario(
        seed=1, shapes=("2x4x80GiB", "1x1x24GiB"), settings=Switches(stop_s=5.0), actions=actions, calm_s=9.0
    )


def gpus(tried: Scenario) -> list[int]:
    return [action.gpus for action in tried.actions if isinstance(action, CreatePod)]


def test_it_stops_after_so_many_tries_with_the_smallest_yet() -> None:
    tries: list[Scenario] = []

    def fails(tried: Scenario) -> bool:
        tries.append(tried)
        return {0, 8} <= set(gpus(tried))

    found = minimise(scenario(9), fails, tries=7)
    assert len(tries) == 7
    assert {0, 8} <= set(gpus(found))
    assert len(found.actions) <= 9
