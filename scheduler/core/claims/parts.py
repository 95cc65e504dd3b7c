"""Parts of devices that several claims may have at once (consumable capacity, KEP-5075).

All amounts are nano of their unit. What a claim asks is rounded up to what the device's policy offers.
"""

from __future__ import annotations

from collections.abc import Mapping

from scheduler.core.model.device_record import Capacity, DeviceKind, Policy
from wire.quantity import NANO


def part_of(kind: DeviceKind, asked: Mapping[str, int]) -> dict[str, int] | None:
    """What a request takes of each capacity of a device; None if it has less, or if its policy allows no such amount.

    Asked of a device for one claim, too: there it is the least that the device has to have.
    """
    had = dict(kind.capacity)
    if not asked.keys() <= had.keys():
        return None
    part = {name: _amount(capacity, asked.get(name)) for name, capacity in had.items()}
    if any(part[name] > capacity.nano or _is_refused(part[name], capacity.policy) for name, capacity in had.items()):
        return None
    return part


def _amount(capacity: Capacity, asked: int | None) -> int:
    policy = capacity.policy
    if asked is None:
        return capacity.nano if policy is None or policy.default_nano is None else policy.default_nano
    if policy is None:
        return asked
    if policy.least_nano is not None:
        return _rounded_up(asked, policy.least_nano, policy.step_nano)
    return next((each for each in policy.values_nano if asked <= each), asked)


def _rounded_up(asked: int, least: int, step: int | None) -> int:
    """To the least amount, and from there in steps of whole units."""
    if asked < least:
        return least
    if not step:
        return asked
    base, width = -(-least // NANO), -(-step // NANO)
    return (base + -(-(-(-asked // NANO) - base) // width) * width) * NANO


def _is_refused(amount: int, policy: Policy | None) -> bool:
    if policy is None or amount == policy.default_nano:
        return False
    if policy.most_nano is not None and amount > policy.most_nano:
        return True
    if policy.step_nano and policy.least_nano is not None:
        return bool((-(-amount // NANO) - -(-policy.least_nano // NANO)) % -(-policy.step_nano // NANO))
    return bool(policy.values_nano) and policy.least_nano is None and amount not in policy.values_nano
