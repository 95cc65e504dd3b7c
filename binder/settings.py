"""What an administrator may set about the binder."""

from __future__ import annotations

import msgspec

from binder.core.reservation_pod import ReservationTemplate
from gpu.container_devices import Cdi
from gpu.limits import MemoryCaps


class BinderSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Times in seconds of the event loop's clock.

    ``idle_s``: an empty reservation is kept this long for the next share. ``learn_timeout_s``: a reservation pod must
    say by then which device it holds (kai-contract 1.8: 40 s), and a gang must be handed over whole. ``sweep_s``: how
    often everything is looked over, beside what events call for. ``gather_s``: joins of one group that come
    within this time are one write. ``verify_at_once``: devices that are verified side by side. ``make_at_once``:
    reservation pods that are created side by side: what is begun is ended before much more is begun, or a burst of
    first shares would all be bound at its end, and those that wait for their devices with them. ``uneven_idle_s``:
    ``idle_s`` where the cards of a node differ, or a pod looks for one that it names: an empty reservation there tells
    which card is which, so that the pod comes to the one that it needs. ``contended_s``: for so long a device has to be
    seen ill, or somebody else's, before its tenants are moved. ``cdi``: how containers are told their devices.
    ``memory_caps``: whose memory caps are written into books.
    """

    reservation: ReservationTemplate = ReservationTemplate()
    idle_s: float = 10.0
    learn_timeout_s: float = 40.0
    sweep_s: float = 5.0
    gather_s: float = 0.005
    verify_at_once: int = 16
    make_at_once: int = 16
    uneven_idle_s: float = 20.0
    contended_s: float = 30.0
    cdi: Cdi = Cdi.AUTO
    memory_caps: MemoryCaps = MemoryCaps.NONE
