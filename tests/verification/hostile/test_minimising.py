from __future__ import annotations

from collections.abc import Sequence

import pytest

from verification.hostile.actions import CreatePod
from verification.hostile.minimising import minimise, smallest
from verification.hostile.scenario import Scenario, Switches


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


def test_either_of_two_is_enough() -> None:
    assert len(smallest(range(9), lambda kept: 2 in kept or 7 in kept)) == 1


def scenario(pods: int) -> Scenario:
    actions = tuple(CreatePod(at_s=float(i), name=f"p-{i}", gpus=i) for i in range(pods))
    return Scenario(
        seed=1, shapes=("2x4x80GiB", "1x1x24GiB"), settings=Switches(stop_s=5.0), actions=actions, calm_s=9.0
    )


def gpus(tried: Scenario) -> list[int]:
    return [action.gpus for action in tried.actions if isinstance(action, CreatePod)]


def test_actions_nodes_cards_and_settings_that_do_not_matter_go() -> None:
    def fails(tried: Scenario) -> bool:
        return 5 in gpus(tried) and max(len(node.cards_mib) for node in tried.nodes) >= 2

    found = minimise(scenario(9), fails)
    assert gpus(found) == [5]
    assert found.shapes == ("1x2x80GiB",)
    assert found.settings == Switches()


def test_it_stops_after_so_many_tries_with_the_smallest_yet() -> None:
    tries: list[Scenario] = []

    def fails(tried: Scenario) -> bool:
        tries.append(tried)
        return {0, 8} <= set(gpus(tried))

    found = minimise(scenario(9), fails, tries=7)
    assert len(tries) == 7
    assert {0, 8} <= set(gpus(found))
    assert len(found.actions) <= 9
