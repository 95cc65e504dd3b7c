"""The book of a device as its bound pods tell it, for a reservation pod that was lost or is still KAI's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from gpu import book as device_book
from gpu.book import Book, Entry, NotEntered, Tenant
from gpu.grant import DeviceGrant
from gpu.limits import NO_CAP, Cap, MemoryCaps
from gpu.request import charge_nano
from gpu.share import NANO_PER_DEVICE
from gpu.translate.asked import mode_of
from sharing.pods import PodView
from wire import names

#: Attempt of an entry whose pod was bound by KAI, and so carries no grant.
BOUND_BY_KAI = "kai"


def rebuild(
    group: str, bound: Sequence[PodView], *, card_mib: int = 0, caps: MemoryCaps = MemoryCaps.NONE
) -> Book | NotEntered:
    """Return the book that these bound pods make; DeviceFull where they were given more than there is.

    ``card_mib``: of the smallest card that it can be, 0 if unknown. ``caps``: whose memory caps are written.
    """
    tenants = [tenant(group, pod, card_mib=card_mib, caps=caps) for pod in bound]
    return device_book.join(device_book.EMPTY, tenants)


def resource_of(group: str, bound: Iterable[PodView], *, otherwise: str = names.GPU_RESOURCE) -> str:
    """Of which kind the device of a group is, as its bound pods' grants say; KAI's pods have cards."""
    first = next(iter(bound), None)
    if first is None:
        return otherwise
    devices = first.grant.devices if first.grant is not None else ()
    return next((device.resource for device in devices if device.group == group), names.GPU_RESOURCE)


def tenant(group: str, pod: PodView, *, card_mib: int = 0, caps: MemoryCaps = MemoryCaps.NONE) -> Tenant:
    """The entry that a pod bound to this group must have; ``card_mib`` and ``caps`` as of ``rebuild``."""
    attempt = pod.grant.attempt if pod.grant else BOUND_BY_KAI
    mode = mode_of(pod.recorded) if pod.recorded is not None else ""
    name = f"{pod.namespace}/{pod.name}"
    given = _given(group, pod)
    percent = given.compute_percent if given is not None else 0
    cap = _cap(group, pod, caps)
    entry = Entry(_nano(group, pod, card_mib), attempt, pod.rv, 0, name, pod.grace_s, mode, percent, cap.mib, cap.nano)
    return Tenant(pod.uid, entry, is_bound=True, resource=resource_of(group, [pod]))


class _EntryAndMore(msgspec.Struct, frozen=True, gc=False):
    """What we know of an entry; it may say more."""

    nano: int
    attempt: str
    rv: str
    since: int
    pod: str


_plain: Final = msgspec.json.Decoder(dict[str, Entry])
_richer: Final = msgspec.json.Decoder(dict[str, _EntryAndMore])


def is_of_newer_version(text: str) -> bool:
    """Whether a book that we can't read says all that ours say, and more: then a newer version of us wrote it."""
    try:
        _richer.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):  # the last: what an unknown field says is nested deep
        return False
    try:
        _plain.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        return True
    return False


def may_stand_in_a_book(pod: PodView) -> bool:
    """Whether an unbound pod may have an entry, so that a Binding for it may be on its way.

    Gates are never put on again, and are bound through by nobody; a pod that is being deleted is not bound any more.
    """
    if pod.is_bound or pod.ended or pod.deleting or pod.gated or pod.scheduler != names.SCHEDULER_NAME:
        return False
    return pod.request is None or bool(pod.request.shared)


def _given(group: str, pod: PodView) -> DeviceGrant | None:
    devices = pod.grant.devices if pod.grant is not None else ()
    return next((device for device in devices if device.group == group), None)


def _cap(group: str, pod: PodView, which: MemoryCaps) -> Cap:
    """Its memory cap on the device. None where nobody can say which of its alternatives was taken."""
    devices = pod.grant.devices if pod.grant is not None else ()
    if pod.recorded is not None and pod.recorded.alternatives:
        return NO_CAP
    found = pod.caps(0, which)
    places = [place for place, device in enumerate(devices) if device.group == group]
    return found[places[0]] if places and len(found) == len(devices) else NO_CAP


def _nano(group: str, pod: PodView, card_mib: int) -> int:
    """What it was granted. Without a grant what it asks, as the scheduler counts it; else all, to be safe."""
    if (given := _given(group, pod)) is not None:
        return given.nano
    asks = pod.request.shared if pod.request is not None else ()
    charges = {charge_nano(ask, card_mib) for ask in asks}
    nano = charges.pop() if len(charges) == 1 else None
    return NANO_PER_DEVICE if nano is None else nano
