"""What a pod's event says of its processes that the warden ended, or would have ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from nodeagent.core.messages import Done
from nodeagent.core.samples import MIB

#: Outcomes of nodeagent/warden/ending.py, in words.
_BECAME: Final[Mapping[str, str]] = {
    "ended": "was killed",
    "asked": "was asked to end and is killed after its grace period",
    "gone": "had ended by itself",
    "other": "was left alone: it is not in the pod any more",
    "refused": "could not be killed: the kernel refused",
}
_DRY: Final = "would be killed; the warden is in dry run and kills nobody"


def note(done: Done) -> str:
    """Return one sentence: use, cap, and what became of the largest process; the others are counted."""
    deed = done.deed
    above = f"{deed.used_bytes // MIB} MiB of {_printable(deed.device)} are in use, the cap is {deed.cap_mib} MiB"
    if not deed.victims:
        return above
    process = f"process {_printable(deed.victims[0].name) or 'without a name'}"
    more = f"; so for {others} more" if (others := len(deed.victims) - 1 + done.more) else ""
    return f"{above}: {process} {_became(done)}{more}"


def _became(done: Done) -> str:
    if done.deed.is_dry:
        return _DRY
    outcome = done.outcomes[0] if done.outcomes else ""
    return _BECAME.get(outcome, "is in an unknown state")


def _printable(name: str) -> str:
    """A process chooses its name: no line ends and no signs that hide others."""
    return "".join(sign if sign.isprintable() else "?" for sign in name)
