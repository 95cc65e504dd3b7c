"""What happened in a run: every write as the API server answered it, what the machines did, what users and faults did.

Two uses: a digest by which two runs are compared, and a log short enough to be read when an invariant broke.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import anyio
from typing_extensions import override

from simulator.apiserver.calls import Call
from simulator.checks.violations import Violation
from simulator.nodes.ground_truth import Held, Record, Refused, Started, Stopped
from simulator.replicas import is_ours

_READS: Final = frozenset({"get", "list", "watch"})
#: Written beside the work: told to nobody here, and no sign of unrest.
_BESIDE: Final = frozenset({"events", "leases"})
#: Lines that a reader of a log always needs: shown for every violation.
_ALWAYS: Final = ("action", "fault", "error")
_WORD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9./-]{3,}")


@dataclass(slots=True)
class EventLog:
    """Lines in the order in which things happened: (time, what kind, text). Times are the event loop's."""

    start_s: float = 0.0
    lines: list[tuple[float, str, str]] = field(default_factory=list)
    writes: int = 0
    #: When a component of ours last wrote anything but an event or its lease.
    ours_at_s: float = 0.0
    _digest: hashlib._Hash = field(default_factory=hashlib.sha256)

    def note(self, kind: str, text: str) -> None:
        """Add a line."""
        self.lines.append((anyio.current_time(), kind, text))

    def answered(self, call: Call, code: int) -> None:
        """Take a request that was carried out (simulator/apiserver/faults.py)."""
        if call.verb in _READS:
            return
        place = "/".join(part for part in (call.kind.plural, call.namespace, call.name, call.subresource) if part)
        text = f"{call.user}: {call.verb} {place} -> {code}"
        self.writes += 1
        self._digest.update(f"{anyio.current_time():.6f} {text}\n".encode())
        self._digest.update(call.body or b"")
        if call.kind.plural in _BESIDE:
            return
        self.note("write", text)
        if is_ours(call.user):
            self.ours_at_s = anyio.current_time()

    def recorded(self, record: Record) -> None:
        """Take what happened on a machine."""
        text = _told(record)
        if text:
            self.note("machine", text)

    @property
    def last_s(self) -> float:
        """When the last line was noted."""
        return self.lines[-1][0] if self.lines else self.start_s

    @property
    def digest(self) -> str:
        """SHA-256 over all writes with their times, answers and bodies."""
        return self._digest.hexdigest()

    def shortened(self, violation: Violation, *, most: int = 80) -> tuple[str, ...]:
        """The lines before a violation that have to do with it, newest last."""
        until = [line for line in self.lines if line[0] <= violation.at_s]
        known = _names(violation.text)
        about = [line for line in until if line[1] in _ALWAYS or known & _names(line[2])]
        return tuple(_rendered(_folded((about or until)[-4 * most :]), self.start_s))[-most:]


class LogTaker(logging.Handler):
    """Takes what components log: warnings into the event log, and exceptions that nobody expected into a list too."""

    def __init__(self, log: EventLog) -> None:
        super().__init__(logging.WARNING)
        self._log = log
        #: (time, text) of exceptions that were caught at the edge of a component.
        self.exceptions: list[tuple[float, str]] = []

    @override
    def emit(self, record: logging.LogRecord) -> None:
        if record.name == "asyncio":
            return  # tasks of a loop that was stopped in the middle
        text = f"{record.name}: {record.getMessage()}"
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            text = f"{text}: {told_error(error)}"
            self.exceptions.append((anyio.current_time(), text))
        self._log.note("error" if error is not None else "log", text)


def _told(record: Record) -> str:
    match record:
        case Started(pod=pod, node=node, container=container, devices=devices):
            return f"{node}: container {container} of {pod} starts and sees {', '.join(devices) or 'no device'}"
        case Stopped(node=node, pod_uid=uid, container=container):
            return f"{node}: container {container} of pod {uid} is gone"
        case Refused(node=node, pod_uid=uid, reason=reason):
            return f"{node}: pod {uid} is refused: {reason}"
        case Held(node=node, pod_uid=uid, devices=devices):
            return f"{node}: pod {uid} holds {', '.join(devices)}" if devices else ""
        case _:
            return ""


def _names(text: str) -> set[str]:
    """Words that may be names of objects or devices: those with a digit or a slash in them."""
    words = (word.strip(".") for word in _WORD.findall(text))
    return {part for word in words for part in (word, *word.split("/")) if any(c.isdigit() for c in part)}


def _folded(lines: Sequence[tuple[float, str, str]]) -> Iterator[tuple[float, str, int]]:
    """Equal lines that follow each other become one with a count."""
    last: tuple[float, str] | None = None
    count = 0
    for at_s, _, text in lines:
        if last is not None and last[1] == text:
            count += 1
            continue
        if last is not None:
            yield (*last, count)
        last, count = (at_s, text), 1
    if last is not None:
        yield (*last, count)


def _rendered(lines: Iterable[tuple[float, str, int]], start_s: float) -> Iterator[str]:
    for at_s, text, count in lines:
        yield f"{at_s - start_s:9.3f} {text}" + (f" (x{count})" if count > 1 else "")


def told_error(error: BaseException) -> str:
    """The innermost exceptions of a group, each with the place where it was raised."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(told_error(inner) for inner in error.exceptions)
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = f" at {place.tb_frame.f_code.co_filename}:{place.tb_lineno}" if place is not None else ""
    return f"{type(error).__name__}: {error}{where}"
