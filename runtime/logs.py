"""How a process logs: the form of a line, its level, and how often it is said.

A line is JSON for programs, or text for people; no line has a secret. The level is of our own packages; libraries log
warnings. What is said again and again about the same object is said once a minute.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import math
import re
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final, TextIO

import anyio
from typing_extensions import override

from kube.telemetry.logevents import EVENT, FIELDS, OBJECTS
from kube.telemetry.loglevel import PACKAGES, set_level
from runtime.text import line

REMOVED: Final = "(removed)"

#: Every match of the patterns has one of these: most texts have none, and are read once.
_HINT: Final = re.compile(
    r"eyJ|-----BEGIN|LS0tLS1|@|(?i:authorization|bearer|token|password|secret|-key-data|tls\.key)"
)
_PATTERNS: Final = (
    # PEM of any kind, cut off or not; certificates too.
    (re.compile(r"-----BEGIN [A-Z0-9 ]{1,40}-----.*?(?:-----END [A-Z0-9 ]{1,40}-----|\Z)", re.DOTALL), REMOVED),
    # The same in Base64, as in Secrets and kubeconfigs.
    (re.compile(r"LS0tLS1CRUdJTi[A-Za-z0-9+/=\\n]*"), REMOVED),
    # JSON Web Tokens. A longer header is none, and would be looked for from each of its places to its end.
    (re.compile(r"eyJ[A-Za-z0-9_-]{8,1024}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?"), REMOVED),
    (
        re.compile(r"(?i)(authorization['\"\\]{0,4}\s*[:=,]\s*['\"\\]{0,4})(?:(?:bearer|basic)\s+)?[^\s'\",\\]+"),
        rf"\1{REMOVED}",
    ),
    (re.compile(r"(?i)\b(bearer\s+)[A-Za-z0-9._~+/-]{16,}=*"), rf"\1{REMOVED}"),
    (re.compile(r"(://)[^\s/@:]*:[^\s/@]+@"), rf"\1{REMOVED}@"),
    (
        re.compile(
            r"(?i)(['\"\\]{1,4}(?:[a-z0-9_-]{0,40}(?:token|password|secret)|client-key-data|tls\.key)['\"\\]{1,4}\s*:\s*"
            r"['\"\\]{1,4})[^'\"\\\s]+"
        ),
        rf"\1{REMOVED}",
    ),
)


def without_secrets(text: str) -> str:
    """Return the text without what looks like a secret."""
    if _HINT.search(text) is None:
        return text
    for pattern, instead in _PATTERNS:
        text = pattern.sub(instead, text)
    return text


LONGEST: Final = 4_096
LONGEST_TRACE: Final = 16_384
#: On a record of which others were held back: how many.
REPEATED: Final = "repeated"


class JsonForm(logging.Formatter):
    """An object in ASCII: ``time``, ``level``, ``logger``, ``event`` where there is one, ``message``, fields."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, Any] = {"time": _time(record), "level": record.levelname.lower(), "logger": record.name}
        if event := event_of(record):
            told["event"] = event
        told["message"] = _safe(record.getMessage())
        fields = {name: _plain(value) for name, value in fields_of(record).items() if name not in told}
        if trace := _trace(self, record):
            fields["exception"] = trace
        return json.dumps({**told, **fields, **_repeated(record)})


class TextForm(logging.Formatter):
    """Time, level, logger, event, message, then fields as ``name=value``. An exception's lines follow, set in."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        parts = [_time(record), record.levelname, record.name, event_of(record), line(_safe(record.getMessage()))]
        fields = {**fields_of(record), **_repeated(record)}
        parts += [f"{name}={_quoted(_plain(value))}" for name, value in fields.items()]
        traced = "".join(f"\n    {line(each)}" for each in _trace(self, record).splitlines())
        return " ".join(part for part in parts if part) + traced


def event_of(record: logging.LogRecord) -> str:
    """The name of what a record tells; "" if it has none."""
    return str(getattr(record, EVENT, ""))


def fields_of(record: logging.LogRecord) -> Mapping[str, object]:
    """What a record says about which object."""
    fields = getattr(record, FIELDS, None)
    return fields if isinstance(fields, Mapping) else {}


def _repeated(record: logging.LogRecord) -> dict[str, int]:
    times = getattr(record, REPEATED, 0)
    return {REPEATED: times} if times else {}


def _time(record: logging.LogRecord) -> str:
    at = dt.datetime.fromtimestamp(record.created, dt.UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _plain(value: object) -> object:
    """Numbers, switches and None as they are; a list of them or of texts as a list; all else as text."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(each) for each in value]
    return _safe(str(value))


def _quoted(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    is_plain = text.isprintable() and not any(c in text for c in ' "=') and text
    return text if is_plain or not isinstance(value, str) else json.dumps(text)


def _safe(text: str, longest: int = LONGEST) -> str:
    """Without secrets first: half of one is not known for what it is any more."""
    shown = without_secrets(text)
    return shown if len(shown) <= longest else f"{shown[:longest]}... ({len(shown)} characters)"


def _trace(form: logging.Formatter, record: logging.LogRecord) -> str:
    told = [form.formatException(record.exc_info)] if record.exc_info and record.exc_info[0] else []
    told += [form.formatStack(record.stack_info)] if record.stack_info else []
    return _safe("\n".join(told), LONGEST_TRACE)


WITHIN_S: Final = 60.0
#: The most lines that are known at once; the one known longest is written and forgotten first.
MOST_KNOWN: Final = 4_096
_LONGEST_NAME: Final = 256

Key = tuple[str, int, str, tuple[str, ...]]


class _Known:
    """When a line was last written, how often it was held back since, and the last one that was."""

    __slots__ = ("at_s", "held", "last")

    def __init__(self, at_s: float) -> None:
        self.at_s = at_s
        self.held = 0
        self.last: logging.LogRecord | None = None


class Limited(logging.StreamHandler[TextIO]):
    """Writes records to a stream, repeats of one at most once in ``WITHIN_S``. ``now``: a monotonic clock."""

    def __init__(self, stream: TextIO, *, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream)
        self._now = now
        #: Oldest first.
        self._known: OrderedDict[Key, _Known] = OrderedDict()

    @override
    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno <= logging.DEBUG:
            super().emit(record)
            return
        now_s = self._now()
        self._tell_due(now_s)
        key = _key(record)
        known = self._known.get(key)
        if known is not None:
            known.held += 1
            known.last = record
            return
        self._known[key] = _Known(now_s)
        super().emit(record)
        while len(self._known) > MOST_KNOWN:
            self._tell(self._known.popitem(last=False)[1])

    def tell_due(self) -> None:
        """Write what was held back and is due, though nothing new is said."""
        self.acquire()
        try:
            self._tell_due(self._now())
        finally:
            self.release()

    def tell_all(self) -> None:
        """Write everything that was held back: the process ends."""
        self.acquire()
        try:
            self._tell_due(math.inf)
        finally:
            self.release()

    def _tell_due(self, now_s: float) -> None:
        """What was held back is said as it was last said; what was not is forgotten."""
        due = []
        for key, known in self._known.items():
            if now_s - known.at_s < WITHIN_S:
                break
            due.append(key)
        for key in due:
            known = self._known.pop(key)
            if known.held and now_s < math.inf:
                self._known[key] = _Known(now_s)
            self._tell(known)

    def _tell(self, known: _Known) -> None:
        if known.last is not None:
            setattr(known.last, REPEATED, known.held)
            super().emit(known.last)


def _key(record: logging.LogRecord) -> Key:
    """What makes two records the same: names count, numbers and errors don't."""
    said = [value for name, value in fields_of(record).items() if name in OBJECTS]
    arguments = record.args.values() if isinstance(record.args, dict) else record.args or ()
    names = tuple(each[:_LONGEST_NAME] for each in (*said, *arguments) if isinstance(each, str))
    error = record.exc_info[0] if record.exc_info else None
    names += (error.__name__,) if error is not None else ()
    return record.name, record.levelno, event_of(record) or str(record.msg), names


_LOOK_EVERY_S: Final = 10.0


def begin(level: str, form: str, stream: TextIO | None = None) -> Limited:
    """Let the process log to ``stream`` (stderr), and nowhere else. ``form`` auto: text on a terminal, else JSON."""
    to = stream or sys.stderr
    is_json = form == "json" or (form == "auto" and not to.isatty())
    handler = Limited(to)
    handler.setFormatter(JsonForm() if is_json else TextForm())
    root = logging.getLogger()
    for other in root.handlers[:]:
        root.removeHandler(other)
        other.close()
    root.addHandler(handler)
    root.setLevel(logging.ERROR if level == "error" else logging.WARNING)
    for package in PACKAGES:
        logging.getLogger(package).setLevel(logging.NOTSET)
    set_level(level)
    return handler


async def tell_repeats(handler: Limited) -> None:
    """Tell what is held back when it is due, until cancelled; then tell the rest."""
    try:
        while True:
            await anyio.sleep(_LOOK_EVERY_S)
            handler.tell_due()
    finally:
        handler.tell_all()
