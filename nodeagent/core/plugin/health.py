"""When a device is ill, and when it is well again: a step function over the driver's events and looks at the device.

NVIDIA's plugin never calls a device well again. Here a cause has to be gone, and then a time has to pass without a
sign. Row remapping: NVIDIA's "GPU memory error management". Not seen on real hardware yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from wire.units import SECOND_NS


class Cure(Enum):
    """What shows that a cause is gone, beside a driver that asks for nothing."""

    #: The device answers again.
    ANSWER = "answer"
    #: No process has the device: the fault stayed in those that had it.
    IDLE = "idle"
    #: The device was reset, or the driver loaded again.
    RESET = "reset"


@dataclass(frozen=True, slots=True)
class Xid:
    """One line of the catalogue: the numbers ``first`` to ``last``, and the immediate action; "" where it has none."""

    first: int
    last: int
    meaning: str
    action: str


#: Actions for which the device is as well as before: its programs are restarted, or nothing is done.
_OF_PROGRAMS: Final = frozenset({"RESTART_APP", "IGNORE"})

#: The driver's numbers for faults: which make a device ill, and what cures them, by NVIDIA's Xid Catalog for A100 and
#: newer GPUs (docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, the table of October 2025, read through the
#: copy that gpud generates from it), and by the two variables of NVIDIA's plugin v0.20. ``action`` is the catalogue's
#: immediate action, as it is spelled there. Numbers that the catalogue calls unused are not listed: they count as
#: unknown ones.
CATALOGUE: Final = (
    Xid(8, 8, "channel timed out", "RESTART_APP"),
    Xid(11, 11, "invalid push buffer", "RESTART_APP"),
    Xid(13, 13, "graphics engine exception", "RESTART_APP"),
    Xid(14, 14, "unused", "IGNORE"),
    Xid(25, 25, "illegal push buffer", "RESTART_APP"),
    Xid(31, 31, "memory page fault", "RESTART_APP"),
    Xid(32, 32, "corrupted push buffer", "RESTART_APP"),
    Xid(37, 38, "firmware of the context switch", "IGNORE"),
    Xid(39, 41, "copy engine exception", "RESTART_APP"),
    Xid(43, 43, "channel was reset", "IGNORE"),
    Xid(44, 44, "fault during a context switch", "IGNORE"),
    Xid(45, 45, "channel removed after another fault", "WORKFLOW_XID_45"),
    Xid(46, 46, "GPU timed out", "RESET_GPU"),
    Xid(48, 48, "double-bit ECC error", "WORKFLOW_XID_48"),
    Xid(54, 54, "auxiliary power is not connected", "CHECK_MECHANICALS"),
    Xid(60, 60, "video processor exception", "RESTART_APP"),
    Xid(62, 62, "internal micro-controller halted", "RESET_GPU"),
    Xid(63, 63, "row remapping recorded", "IGNORE"),
    Xid(64, 64, "row remapping failed", "RESET_GPU"),
    Xid(66, 67, "illegal access by the driver", "IGNORE"),
    Xid(68, 68, "video decoder exception", "RESTART_APP"),
    Xid(69, 69, "graphics engine class error", "RESTART_APP"),
    Xid(70, 72, "copy engine error", "RESTART_APP"),
    Xid(74, 74, "NVLink error", "WORKFLOW_NVLINK_ERR"),
    Xid(75, 77, "copy engine error", "RESTART_APP"),
    Xid(78, 78, "vGPU start error", "UPDATE_SWFW"),
    Xid(79, 79, "GPU has fallen off the bus", "RESTART_BM"),
    Xid(80, 80, "corrupted data sent to the GPU", "RESTART_APP"),
    Xid(82, 82, "JPEG decoder error", "RESTART_APP"),
    Xid(83, 84, "video decoder error", "RESTART_APP"),
    Xid(85, 85, "copy engine error", "RESTART_APP"),
    Xid(86, 86, "optical flow error", "RESTART_APP"),
    Xid(88, 89, "video decoder error", "RESTART_APP"),
    Xid(92, 92, "high rate of single-bit ECC errors", "IGNORE"),
    Xid(93, 93, "wear limit of the InfoROM", "IGNORE"),
    Xid(94, 94, "contained memory error", "RESTART_APP"),
    Xid(95, 95, "uncontained memory error", "RESET_GPU"),
    Xid(96, 98, "video decoder error", "RESTART_APP"),
    Xid(99, 105, "JPEG decoder error", "RESTART_APP"),
    Xid(106, 107, "test message of the SMBus interface", "IGNORE"),
    Xid(108, 108, "unused", "IGNORE"),
    Xid(109, 109, "context switch timed out", "RESET_GPU"),
    Xid(110, 110, "security fault", "RESET_GPU"),
    Xid(119, 119, "GSP does not answer", "RESET_GPU"),
    Xid(120, 120, "GSP error", "RESET_GPU"),
    Xid(121, 121, "link to the CPU", "IGNORE"),
    Xid(126, 135, "copy engine error", "RESTART_APP"),
    Xid(136, 136, "NVLink training failed", "RESET_GPU"),
    Xid(137, 137, "NVLink privilege error", "IGNORE"),
    Xid(139, 139, "optical flow error", "RESTART_APP"),
    Xid(140, 140, "unrecovered ECC error", "RESET_GPU"),
    Xid(141, 141, "CUDA fast path error", "IGNORE"),
    Xid(142, 142, "video encoder error", "CONTACT_SUPPORT"),
    Xid(143, 143, "GPU initialization error", "RESET_GPU"),
    Xid(144, 150, "NVLink 5 error", "WORKFLOW_NVLINK5_ERR"),
    Xid(151, 151, "key rotation error", "RESTART_VM"),
    Xid(152, 153, "deep learning accelerator", "IGNORE"),
    Xid(154, 154, "recovery action changed", "XID_154"),
    Xid(155, 155, "NVLink error by software", "RESET_GPU"),
    Xid(156, 156, "resource retired", "RESET_GPU"),
    Xid(157, 157, "resource not retired", "IGNORE"),
    Xid(158, 158, "fatal timeout", "RESET_GPU"),
    Xid(159, 159, "coherent interface error", "CHECK_UVM"),
    Xid(160, 160, "channel retired", "IGNORE"),
    Xid(161, 161, "channel not retired", "IGNORE"),
    Xid(162, 165, "power smoothing", ""),
    Xid(166, 166, "unencrypted NVLink traffic", ""),
    Xid(167, 167, "fatal timeout of PCIe", ""),
    Xid(168, 168, "less memory than before", ""),
    Xid(169, 169, "security processor halted", ""),
    Xid(170, 170, "NVLink interrupt in confidential mode", ""),
    Xid(171, 172, "detail of a double-bit ECC error", ""),
)

#: Where the device is not judged by the catalogue's action, and why.
EXCEPTIONS: Final[Mapping[int, tuple[bool, str]]] = {
    45: (False, "it follows another XID, which counts itself"),
    63: (True, "memory is worn: no new process before the row is remapped"),
    92: (True, "memory is worn: the GPU rests until no process has it"),
    94: (True, "memory is worn: no new process before the row is remapped"),
    109: (False, "as in NVIDIA's plugin; where a reset is needed, the driver's recovery action says so"),
    154: (False, "also reported when a GPU needs nothing any more; each look reads the action itself"),
    **dict.fromkeys(range(162, 166), (False, "it concerns the power supply")),
}

_BY_NUMBER: Final = {number: line for line in CATALOGUE for number in range(line.first, line.last + 1)}


def counts(number: int) -> bool:
    """Whether an XID makes a device ill, where nobody said otherwise. An unknown one does."""
    line = _BY_NUMBER.get(number)
    if line is None:
        return True
    return EXCEPTIONS[number][0] if number in EXCEPTIONS else line.action not in _OF_PROGRAMS


def cure_of(number: int) -> Cure:
    """Return what shows that the cause of an XID is gone. Of an unknown one, and of one without an action: a reset."""
    line = _BY_NUMBER.get(number)
    return Cure.IDLE if line is not None and line.action in _OF_PROGRAMS else Cure.RESET


def meaning_of(number: int) -> str:
    """Return a few words about an XID, for people; "" for an unknown one."""
    line = _BY_NUMBER.get(number)
    return "" if line is None else line.meaning


#: A device that is ill this often within this time is taken out.
_MOST_ILLNESSES: Final = 3
_WITHIN_NS: Final = 24 * 3600 * SECOND_NS
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
    healing_ns: int = 60 * SECOND_NS

    def counts(self, xid: int) -> bool:
        """Whether an XID makes a device ill. One that is named as counted counts, wherever else it is named."""
        if self.counted is None or xid in self.counted:
            return True
        return self.ignored is not None and xid not in self.ignored and counts(xid)


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
    meaning = meaning_of(xid)
    reason = f"Xid{xid}: {meaning}" if meaning else f"Xid{xid}"
    return _ill(health, reason, now_ns, cure=cure_of(xid), driver=driver)


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
