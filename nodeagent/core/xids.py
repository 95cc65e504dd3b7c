"""XIDs, the driver's numbers for faults: which make a device ill, and what cures them.

Source: NVIDIA's Xid Catalog for A100 and newer GPUs (docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, the
table of October 2025, read through the copy that gpud generates from it). ``action`` is the catalogue's immediate
action, as it is spelled there. Numbers that the catalogue calls unused are not listed: they count as unknown ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final


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
