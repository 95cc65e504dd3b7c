"""What a request takes of a device that several claims may have (dynamic-resource-allocation, consumable capacity)."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.core.claims.requests import part_of
from scheduler.core.model.devices import DeviceKind
from tests.scheduler.core.device_objects import device, devices
from wire.quantity import NANO


def _kind(policy: dict[str, Any] | None, value: str = "10") -> DeviceKind:
    capacity = {"memory": {"value": value, **({"requestPolicy": policy} if policy else {})}}
    return devices("n1", device("a", capacity=capacity)).devices[0].kind


_STEPS = {"default": "2", "validRange": {"min": "2", "max": "8", "step": "3"}}
_VALUES = {"default": "1", "validValues": ["1", "4", "8"]}


@pytest.mark.parametrize(
    ("policy", "asked", "taken"),
    [
        # Without a policy: what is asked, and all of it if nothing is.
        (None, 3, 3),
        (None, None, 10),
        (None, 11, None),
        # In steps from the least amount.
        (_STEPS, None, 2),
        (_STEPS, 1, 2),
        (_STEPS, 2, 2),
        (_STEPS, 3, 5),
        (_STEPS, 6, 8),
        (_STEPS, 9, None),
        ({"default": "2", "validRange": {"min": "2"}}, 7, 7),
        ({"default": "2", "validRange": {"min": "2", "max": "6"}}, 7, None),
        # The next of these values.
        (_VALUES, None, 1),
        (_VALUES, 2, 4),
        (_VALUES, 8, 8),
        (_VALUES, 9, None),
        # The default is allowed although it is none of them.
        ({"default": "3", "validValues": ["1", "4"]}, None, 3),
        ({"default": "3", "validValues": ["1"]}, 3, 3),
        ({"default": "3", "validValues": ["1"]}, 2, None),
        ({"default": "3"}, 5, 5),
    ],
)
def test_what_is_asked_is_rounded_up_to_what_is_offered(
    policy: dict[str, Any] | None, asked: int | None, taken: int | None
) -> None:
    part = part_of(_kind(policy), {} if asked is None else {"memory": asked * NANO})
    assert part == (None if taken is None else {"memory": taken * NANO})


def test_steps_are_whole_units() -> None:
    assert part_of(_kind(_STEPS), {"memory": 2 * NANO + 1}) == {"memory": 5 * NANO}


def test_a_capacity_that_is_not_there_can_not_be_had() -> None:
    assert part_of(_kind(None), {"links": NANO}) is None
    assert part_of(devices("n1", device("a")).devices[0].kind, {}) == {}
