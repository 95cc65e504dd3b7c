"""Which claims on a device contradict each other: what a verification finds in its two LISTs (protocol.md, step 2).

The order matters: the reservation pods are listed before the pods. A tenant that was bound through another
reservation stays charged there until it is bound, so a tenant that is missing from the first list is in the second.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpu.attempts import Cause
from gpu.reservation import Reservation
from sharing.failure import Failure
from sharing.outcome import Disputed, Failed, Verified
from sharing.pods import PodView


def held_alone(held: Reservation, there: Sequence[Reservation]) -> Reservation | Disputed | Failed:
    """Return the reservation as it is listed now, or who else holds its device."""
    now = next((one for one in there if one.uid == held.uid), None)
    if now is None or now.uuid != held.uuid or now.book is None:
        return _claimed(f"reservation pod {held.name} changed")
    return _other_holder(now, there) or now


def used_by_tenants(now: Reservation, pods: Iterable[PodView]) -> Verified | Failed:
    """Whether every live pod that claims the device, or the group, is in the book that was listed before the pods."""
    for pod in pods:
        if (why := _stray(pod, now)) is not None:
            return _claimed(why)
    return Verified(now.group)


def _other_holder(held: Reservation, there: Sequence[Reservation]) -> Disputed | Failed | None:
    """Another reservation of this device: one that is going may just be late to go, as the device is ours now."""
    for other in there:
        if other.uid != held.uid and other.uuid == held.uuid:
            why = f"device {held.uuid} is also held by reservation pod {other.name}"
            return Disputed(held.group, why) if other.deleting or other.is_terminal else _claimed(why)
    return None


def _stray(pod: PodView, held: Reservation) -> str | None:
    """Why a live pod's claim contradicts this reservation, or None."""
    if pod.ended:
        return None
    in_book = held.book is not None and pod.uid in held.book.entries
    name = f"{pod.namespace}/{pod.name}"
    devices = {device.group: device.uuid for device in pod.grant.devices} if pod.grant else {}
    if held.uuid in devices.values() and not in_book:
        return f"device {held.uuid} is used by pod {name}, which is not in its book"
    if held.group in devices and devices[held.group] != held.uuid:
        return f"pod {name} of group {held.group} uses device {devices[held.group]}"
    if held.group in pod.held_groups and not in_book:
        return f"pod {name} is labelled with group {held.group} and is not in its book"
    return None


def _claimed(why: str) -> Failed:
    return Failed(Failure(cause=Cause.DEVICE_CLAIMED, detail=why))
