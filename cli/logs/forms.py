"""How a line is written: as JSON for programs, or as text for people. One record is one line in both.

Names and messages come from users and from servers: a character that does not print is written as an escape, so nobody
can forge a line or move a cursor. What is long is cut: an annotation has up to 256 KiB.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
from collections.abc import Mapping
from typing import Any, Final

from typing_extensions import override

from cli.logs.secrets import without_secrets
from cli.printable import line
from kube.telemetry.logevents import EVENT, FIELDS

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
