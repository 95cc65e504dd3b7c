"""Kinds of settings: how a value is written, the same on a command line, in a variable and in a file.

A text that can't be read is refused with the text and what is allowed, so that the sentence is the same everywhere.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import msgspec

from gpu.container_devices import Cdi
from runtime import text as durations
from wire.quantity import NANO, MalformedQuantity, parse_nano

_Choice = TypeVar("_Choice", bound=enum.Enum)

#: Switches as KAI's components read them (Go's strconv.ParseBool).
_ON: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_OFF: Final = frozenset({"0", "f", "F", "false", "FALSE", "False"})
_HOST_PORT: Final = "127.0.0.1:12345, [::1]:12345, :12345"
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL_KEY: Final = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_POOL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")
_RESOURCE: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
#: What stands for the id of a trace.
TRACE_ID: Final = "{trace_id}"
_TRACE_ADDRESS: Final = (
    f"http://HOST or https://HOST with {TRACE_ID} once after it, as in https://HOST/trace/{TRACE_ID}"
)
_LONGEST_NAME: Final = 253


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """How a value is written for people, and read.

    ``read`` makes a value of a text, or raises ValueError with the text and what is allowed; ``written`` undoes it.
    ``bare``: what an option without a value means; "": it needs one.
    """

    metavar: str
    allowed: str
    read: Callable[[str], Any]
    written: Callable[[Any], str] = str
    bare: str = ""


def text(metavar: str, allowed: str = "any text") -> Kind:
    """Any text, the empty one too."""
    return Kind(metavar=metavar, allowed=allowed, read=str)


def choice(values: Iterable[str]) -> Kind:
    """One of some words."""
    known = tuple(values)
    allowed = ", ".join(known)

    def read(given: str) -> str:
        if given not in known:
            raise ValueError(f"{given!r} is none of: {allowed}")
        return given

    return Kind(metavar="|".join(known), allowed=allowed, read=read)


def member(of: type[_Choice]) -> Kind:
    """One member of an enumeration, by its value."""
    words = choice(each.value for each in of)
    return Kind(
        metavar=words.metavar,
        allowed=words.allowed,
        read=lambda given: of(words.read(given)),
        written=lambda one: str(one.value),
    )


def seconds(least_s: float = 0.0, *, above: bool = False, most_s: float = durations.LONGEST_S) -> Kind:
    """A duration from ``least_s`` on, or only above it: seconds, as a number."""
    limits = f"{'above' if above else 'at least'} {span(least_s)}, at most {span(most_s)}"

    def read(given: str) -> float:
        value = durations.seconds(given)
        if value < least_s or (above and value <= least_s) or value > most_s:
            raise ValueError(f"{given!r} is out of range; allowed: {durations.ALLOWED}, {limits}")
        return value

    return Kind(metavar="DURATION", allowed=f"a duration, {limits}", read=read, written=span)


def span(value_s: float) -> str:
    """Write a duration as it may be given."""
    for unit, length_s in (("h", 3600), ("m", 60)):
        if value_s and value_s % length_s == 0 and value_s >= 2 * length_s:
            return f"{value_s / length_s:.0f}{unit}"
    return f"{value_s:g}s"


def whole(metavar: str, *, least: int, most: int) -> Kind:
    """A whole number within limits."""
    allowed = f"a whole number from {least} to {most}"

    def read(given: str) -> int:
        if not re.fullmatch(r"[0-9]{1,10}", given) or not least <= int(given) <= most:
            raise ValueError(f"{given!r} is not {allowed}")
        return int(given)

    return Kind(metavar=metavar, allowed=allowed, read=read)


def _pattern(metavar: str, pattern: re.Pattern[str], allowed: str, *, or_none: bool = False) -> Kind:
    def read(given: str) -> str:
        is_right = pattern.fullmatch(given) and len(given) <= _LONGEST_NAME
        if not is_right and not (or_none and not given):
            raise ValueError(f"{given!r} is not {allowed}")
        return given

    return Kind(metavar=metavar, allowed=allowed, read=read)


def _switch(given: str) -> bool:
    if given not in _ON | _OFF:
        raise ValueError(f"{given!r} is neither true nor false")
    return given in _ON


def _cdi(given: str) -> Cdi:
    if given == Cdi.AUTO.value:
        return Cdi.AUTO
    if given not in _ON | _OFF:
        raise ValueError(f"{given!r} is neither auto nor true nor false")
    return Cdi.ON if given in _ON else Cdi.OFF


def _address(given: str) -> tuple[str, int]:
    """Without a host: all IPv4 addresses."""
    host, colon, port = given.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    if not colon or (":" in host and not is_bracketed) or not port.isascii() or not port.isdigit() or len(port) > 5:
        raise ValueError(f"{given!r} is not HOST:PORT, as in {_HOST_PORT}")
    if not 0 < int(port) < 65536:
        raise ValueError(f"{given!r}: a port is a number from 1 to 65535")
    return host.strip("[]"), int(port)


def _ratio(given: str) -> int:
    """In nano-GPU."""
    try:
        nano = parse_nano(given)
    except MalformedQuantity:
        nano = 0
    if not 0 < nano <= NANO:
        raise ValueError(f"{given!r} is not a number above 0 and at most 1, as in 0.1")
    return nano


def _part(nano: int) -> str:
    return f"{Decimal(nano).scaleb(-9).normalize():f}"


def _path(given: str) -> Path:
    if not given:
        raise ValueError("'' is no file; allowed: the path of a file")
    return Path(given)


def _url(given: str) -> str:
    if "@" in given:
        # What stands before it may be a password.
        raise ValueError("a URL with a user is not taken; allowed: https://HOST:PORT, with --token-file")
    if given and not re.fullmatch(r"https?://[^\s/]+(/\S*)?", given):
        raise ValueError(f"{given!r} is not https://HOST:PORT or http://HOST:PORT")
    return given


def _collector(given: str) -> str:
    if "@" in given:
        # What stands before it may be a password.
        raise ValueError("a URL with a user is not taken; allowed: http://HOST:PORT, with --traces-headers-file")
    try:
        parts = urlsplit(given)
        is_right = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0 and given.isprintable()
    except ValueError:
        is_right = False
    if given and not (is_right and not re.search(r"[\s?#]", given)):
        raise ValueError(f"{given!r} is not http://HOST:PORT or https://HOST, with a path or without")
    return given


def _trace_address(given: str) -> str:
    """Where traces are looked at; the id of one is in its path, query or fragment, never in the host."""
    if "@" in given.partition("//")[2].partition("/")[0]:
        # What stands before it may be a password.
        raise ValueError(f"a URL with a user is not taken; allowed: {_TRACE_ADDRESS}")
    before, found, after = given.partition(TRACE_ID)
    try:
        parts = urlsplit(before)
        is_right = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        is_right = False
    names_a_place = len(before.split("/")) > 3 or "?" in before or "#" in before
    is_plain = given.isprintable() and not re.search(r"[\s{}]", before + after)
    if given and not (found and is_right and names_a_place and is_plain):
        raise ValueError(f"{given!r} is not {_TRACE_ADDRESS}")
    return given


SWITCH: Final = Kind(
    metavar="BOOL", allowed="true, false", read=_switch, written=lambda on: "true" if on else "false", bare="true"
)
CDI: Final = Kind(
    metavar="auto|BOOL", allowed="auto, true, false", read=_cdi, written=lambda cdi: str(cdi.value), bare="true"
)
ADDRESS: Final = Kind(
    metavar="HOST:PORT",
    allowed=f"HOST:PORT, as in {_HOST_PORT}",
    read=_address,
    written=lambda at: f"[{at[0]}]:{at[1]}" if ":" in at[0] else f"{at[0]}:{at[1]}",
)
PORT: Final = whole("PORT", least=1, most=65535)
RATIO: Final = Kind(metavar="RATIO", allowed="above 0, at most 1, as in 0.1", read=_ratio, written=_part)
COLLECTOR: Final = Kind(
    metavar="URL", allowed="http://HOST:PORT or https://HOST, with a path or without", read=_collector
)
URL: Final = Kind(metavar="URL", allowed="https://HOST:PORT or http://HOST:PORT", read=_url)
FILE: Final = text("FILE", "the path of a file")
FOLDER: Final = text("FOLDER", "the path of a folder")
PEM_NAME: Final = text("PEM", "the path of a file")
PEM: Final = Kind(metavar="PEM", allowed="the path of a file", read=_path)
IMAGE: Final = _pattern("IMAGE", re.compile(r"[^\s]+"), "the name of an image")
WORD: Final = _pattern("NAME", re.compile(r"[^\s]+"), "a name without spaces")
OBJECT: Final = _pattern(
    "NAME", _NAME, "the name of an object: lower-case letters, digits, dashes and dots; or empty", or_none=True
)
LABEL_KEY: Final = _pattern(
    "KEY", _LABEL_KEY, "the key of a label, as in kai.scheduler/node-pool; or empty", or_none=True
)
POOL: Final = _pattern(
    "VALUE", _POOL, "at most 40 lower-case letters, digits and dashes, as it is part of names; or empty", or_none=True
)
RESOURCE: Final = _pattern("NAME", _RESOURCE, "the name of an extended resource, as in nvidia.com/gpu.shared")
TRACE_ADDRESS: Final = Kind(metavar="URL", allowed=_TRACE_ADDRESS, read=_trace_address)
