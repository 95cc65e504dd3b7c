from __future__ import annotations

from collections.abc import Sequence

import pytest

from verification.hostile.actions import CreatePod
from verification.hostile.scenario import Scenario, Switches
from verification.hostile.soak import minimise, smallest


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
