"""When a device is ill, and when it is well again: a step function over the driver's events and looks at the device.

NVIDIA's plugin never calls a device well again. Here a cause has to be gone, and then a time has to pass without a
sign. Which XIDs count, and what cures them: nodeagent/core/xids.py, by NVIDIA's catalogue, and the two variables of
NVIDIA's plugin v0.20. Row remapping: NVIDIA's "GPU memory error management". Not seen on real hardware yet.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from nodeagent.core import xids
from nodeagent.core.xids import Cure

_SECOND_NS: Final = 1_000_000_000
#: A device that is ill this often within this time is taken out.
_MOST_ILLNESSES: Final = 3
_WITHIN_NS: Final = 24 * 3600 * _SECOND_NS
#: Looks without an answer, one after the other, before a device is ill.
_LOST_LOOKS: Final = 2


class State(Enum):
    """Only a device that is WELL is offered."""

    WELL = "well"
    ILL = "ill"
    HEALING = "healing"
    OUT = "out"


class RecoveryAction(Enum):
    """What the driver asks for (nvmlDeviceGpuRecoveryAction_t)."""

    NONE = 0
    GPU_RESET = 1
    NODE_REBOOT = 2
    DRAIN_P2P = 3
    DRAIN_AND_RESET = 4
    RECOVER_IMEX_DOMAIN = 5
    BUS_RESET = 6
    SYSTEM_REBOOT = 7
    #: One that a newer driver has.
    OTHER = -1

    @classmethod
    def of(cls, number: int) -> RecoveryAction:
        """Return the action of a number of the driver's."""
        return next((each for each in cls if each.value == number), cls.OTHER)


@dataclass(frozen=True, slots=True)
class Rules:
    """Which XIDs count, and how long a device rests. None: all of them."""

    ignored: frozenset[int] | None = frozenset()
    counted: frozenset[int] | None = frozenset()
    healing_ns: int = 60 * _SECOND_NS

    def counts(self, xid: int) -> bool:
        """Whether an XID makes a device ill. One that is named as counted counts, wherever else it is named."""
        if self.counted is None or xid in self.counted:
            return True
        return self.ignored is not None and xid not in self.ignored and xids.counts(xid)


#: With these a program that starts can use the device.
_USABLE: Final = frozenset({None, RecoveryAction.NONE, RecoveryAction.DRAIN_P2P, RecoveryAction.RECOVER_IMEX_DOMAIN})


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What the driver says of a device when it is asked. None: it does not say.

    ``is_listed``: it is among the driver's devices. ``answers``: it has a handle and tells its memory. ``driver`` is
    another text after the driver was loaded again.
    """

    is_listed: bool = True
    answers: bool = True
    recovery: RecoveryAction | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    processes: int | None = None
    driver: str = ""

    @property
    def asks(self) -> bool:
        """Whether the driver asks for something without which the device can't be used."""
        return self.recovery not in _USABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The state of one device since ``since_ns``, and why it is not well.

    ``was_away``: it did not answer, or the driver asked for an action, since it is ill. ``ill_at_ns``: when it fell ill
    within the last day.
    """

    state: State = State.WELL
    reason: str = ""
    since_ns: int = 0
    cure: Cure = Cure.RESET
    driver: str = ""
    was_away: bool = False
    lost_looks: int = 0
    ill_at_ns: tuple[int, ...] = ()

    @property
    def is_well(self) -> bool:
        """Whether the device is offered."""
        return self.state is State.WELL


def on_xid(health: Health, xid: int, now_ns: int, *, rules: Rules, driver: str = "") -> Health:
    """Take an XID of the driver. ``driver``: as in Look, when the event came."""
    if not rules.counts(xid):
        return health
    meaning = xids.meaning_of(xid)
    reason = f"Xid{xid}: {meaning}" if meaning else f"Xid{xid}"
    return _ill(health, reason, now_ns, cure=xids.cure_of(xid), driver=driver)


def on_fault(health: Health, reason: str, now_ns: int, *, driver: str = "") -> Health:
    """Take another event that makes a device ill: a double-bit ECC error, a GPU that is not available."""
    return _ill(health, reason, now_ns, cure=Cure.RESET, driver=driver)


def on_look(health: Health, look: Look, now_ns: int, *, rules: Rules) -> Health:
    """Take a look at the device."""
    if health.state is State.OUT:
        return health
    if look.remap_failed:
        return _out(health, "RowRemapFailed", now_ns)
    if health.state is State.ILL:
        return _when_ill(health, look, now_ns)
    lost = 0 if look.answers else health.lost_looks + 1
    if (sign := _sign(health, look, lost)) is not None:
        return _ill(health, sign[0], now_ns, cure=sign[1], driver=look.driver)
    if health.state is State.HEALING and now_ns - health.since_ns >= rules.healing_ns:
        return Health(since_ns=now_ns, ill_at_ns=_recent(health, now_ns))
    return replace(health, lost_looks=lost) if health.lost_looks != lost else health


def _sign(health: Health, look: Look, lost: int) -> tuple[str, Cure] | None:
    """A reason to fall ill, and what cures it."""
    if not look.is_listed:
        return "NotListed: the driver has no such GPU", Cure.ANSWER
    if lost >= _LOST_LOOKS or (lost and health.state is State.HEALING):
        return "GpuLost: it does not answer", Cure.ANSWER
    if look.asks and look.recovery is not None:
        return f"RecoveryAction: {look.recovery.name}", Cure.RESET
    return None


def on_cleared(health: Health, now_ns: int) -> Health:
    """Take an administrator's word that a device that was taken out is mended. It rests, as after each illness."""
    if health.state is not State.OUT:
        return health
    return Health(state=State.HEALING, reason="cleared", since_ns=now_ns)


def _when_ill(health: Health, look: Look, now_ns: int) -> Health:
    is_away = not (look.is_listed and look.answers) or look.asks
    if is_away:
        return health if health.was_away else replace(health, was_away=True)
    if look.remap_pending or not _is_cured(health, look):
        return health
    return replace(health, state=State.HEALING, since_ns=now_ns, was_away=False, lost_looks=0)


def _is_cured(health: Health, look: Look) -> bool:
    if health.cure is Cure.ANSWER or health.was_away or look.driver != health.driver:
        return True
    return health.cure is Cure.IDLE and look.processes == 0


def _ill(health: Health, reason: str, now_ns: int, *, cure: Cure, driver: str) -> Health:
    """Fall ill. A device that is ill already keeps its first reason, and needs the stronger of two cures."""
    if health.state is State.OUT:
        return health
    if health.state is State.ILL:
        # A second fault after a reset is a fault of the life that it came in.
        stronger = cure if health.cure is not Cure.RESET else Cure.RESET
        return replace(health, cure=stronger, driver=driver, was_away=False)
    times = (*_recent(health, now_ns), now_ns)
    if len(times) >= _MOST_ILLNESSES:
        return _out(replace(health, ill_at_ns=times), f"{reason}; ill {len(times)} times in a day", now_ns)
    return Health(state=State.ILL, reason=reason, since_ns=now_ns, cure=cure, driver=driver, ill_at_ns=times)


def _out(health: Health, reason: str, now_ns: int) -> Health:
    return Health(state=State.OUT, reason=reason, since_ns=now_ns, ill_at_ns=health.ill_at_ns)


def _recent(health: Health, now_ns: int) -> tuple[int, ...]:
    return tuple(at for at in health.ill_at_ns if now_ns - at < _WITHIN_NS)
