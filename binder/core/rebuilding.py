"""The book of a device as its bound pods tell it, for a reservation pod that was lost or is still KAI's."""

from __future__ import annotations

from collections.abc import Sequence

from binder.core.pods import PodView
from gpu import book as device_book
from gpu.book import Book, DeviceFull, Entry, OtherAttempt, Tenant
from gpu.request import FractionAsk
from gpu.share import NANO_PER_DEVICE

#: Attempt of an entry whose pod was bound by KAI, and so carries no grant.
BOUND_BY_KAI = "kai"


def rebuild(group: str, bound: Sequence[PodView]) -> Book | DeviceFull | OtherAttempt:
    """Return the book that these bound pods make; DeviceFull where they were given more than there is."""
    return device_book.join(device_book.EMPTY, [tenant(group, pod) for pod in bound])


def tenant(group: str, pod: PodView) -> Tenant:
    """The entry that a pod bound to this group must have."""
    attempt = pod.grant.attempt if pod.grant else BOUND_BY_KAI
    return Tenant(pod.uid, Entry(_nano(group, pod), attempt, pod.rv, 0, f"{pod.namespace}/{pod.name}", pod.grace_s))


def _nano(group: str, pod: PodView) -> int:
    """What it was granted. Without a grant what its fraction asks; anything else is charged whole, to be safe."""
    for device in pod.grant.devices if pod.grant else ():
        if device.group == group:
            return device.nano
    asks = pod.request.shared if pod.request is not None else ()
    nanos = {ask.nano for ask in asks if isinstance(ask, FractionAsk)}
    return nanos.pop() if len(nanos) == 1 and all(isinstance(ask, FractionAsk) for ask in asks) else NANO_PER_DEVICE
