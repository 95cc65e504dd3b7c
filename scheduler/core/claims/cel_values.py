"""Quantities and versions inside CEL expressions, with Kubernetes' functions on them.

The library has no types of our own, so a quantity is a map and a version a list of text: by that, functions of one name
tell them apart, and equal values are equal. Amounts are whole nano and exact. Errors are ValueError: the library makes
errors of the expression of them.
"""

from __future__ import annotations

import re
from typing import Final

from wire.quantity import NANO, MalformedQuantity, parse_nano

Quantity = dict[str, str]
Version = list[str]

_NANO: Final = "nano"
_VERSION: Final = "semver"
_LARGEST: Final = (1 << 63) - 1
_IDENTIFIERS: Final = r"[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*"
#: semver.org, 2.0.0.
_SEMVER: Final = re.compile(
    rf"(?P<major>0|[1-9]\d*)\.(?P<minor>0|[1-9]\d*)\.(?P<patch>0|[1-9]\d*)(?:-(?P<pre>{_IDENTIFIERS}))?(?:\+{_IDENTIFIERS})?",
    re.ASCII,
)


# --- quantities ------------------------------------------------------------------------------------------------------
def of_nano(nano: int) -> Quantity:
    """A quantity of an amount in nano."""
    return {_NANO: str(nano)}


def _nano(value: Quantity) -> int:
    return int(value[_NANO])


def quantity(text: str) -> Quantity:
    """``quantity(string)``."""
    try:
        return of_nano(parse_nano(text))
    except MalformedQuantity as error:
        raise ValueError(str(error)) from error


def is_quantity(text: str) -> bool:
    """``isQuantity(string)``."""
    try:
        parse_nano(text)
    except MalformedQuantity:
        return False
    return True


def compare(one: Quantity, other: Quantity) -> int:
    """``compareTo``: -1, 0 or 1."""
    return (_nano(one) > _nano(other)) - (_nano(one) < _nano(other))


def sign(value: Quantity) -> int:
    """``sign``."""
    return (_nano(value) > 0) - (_nano(value) < 0)


def is_integer(value: Quantity) -> bool:
    """``isInteger``: a whole number of its unit that fits 64 bits."""
    return _nano(value) % NANO == 0 and abs(_nano(value) // NANO) <= _LARGEST


def as_integer(value: Quantity) -> int:
    """``asInteger``."""
    if not is_integer(value):
        raise ValueError("cannot convert value to integer")
    return _nano(value) // NANO


def as_float(value: Quantity) -> float:
    """``asApproximateFloat``."""
    return _nano(value) / NANO


def add(one: Quantity, other: Quantity | int) -> Quantity:
    """``add`` of a quantity or a whole number."""
    return of_nano(_nano(one) + (other * NANO if isinstance(other, int) else _nano(other)))


def sub(one: Quantity, other: Quantity | int) -> Quantity:
    """``sub`` of a quantity or a whole number."""
    return of_nano(_nano(one) - (other * NANO if isinstance(other, int) else _nano(other)))


# --- versions --------------------------------------------------------------------------------------------------------
def version(text: str) -> Version:
    """``semver(string)``. What follows ``+`` tells no versions apart."""
    match = _SEMVER.fullmatch(text)
    if match is None:
        raise ValueError(f"{text[:64]!r} is no semantic version")
    pre = match["pre"] or ""
    if any(len(part) > 1 and part.isdigit() and part[0] == "0" for part in pre.split(".")):
        raise ValueError(f"{text[:64]!r} is no semantic version: a number begins with 0")
    return [_VERSION, match["major"], match["minor"], match["patch"], pre]


def normalized(text: str, is_normalized: bool) -> Version:
    """``semver(string, bool)``: with true, ``v1`` is ``1.0.0``, and numbers may begin with 0."""
    if not is_normalized:
        return version(text)
    parts = text.removeprefix("v").split(".", 2)
    parts = [_without_zeros(part) for part in parts]
    if len(parts) < 3 and any(mark in parts[-1] for mark in "+-"):
        raise ValueError(f"{text[:64]!r} is no semantic version")
    return version(".".join([*parts, "0", "0"][:3]))


def _without_zeros(part: str) -> str:
    left = part.lstrip("0") if len(part) > 1 else part
    return left if left[:1].isdigit() else (f"0{left}" if len(part) > 1 else part)


def is_version(text: str) -> bool:
    """``isSemver(string)``."""
    return is_normalized_version(text, False)


def is_normalized_version(text: str, is_normalized: bool) -> bool:
    """``isSemver(string, bool)``."""
    try:
        normalized(text, is_normalized)
    except ValueError:
        return False
    return True


def compare_versions(one: Version, other: Version) -> int:
    """``compareTo`` by semver.org's precedence: one that is not released yet comes before the release."""
    left, right = _order(one), _order(other)
    return (left > right) - (left < right)


def _order(value: Version) -> tuple[tuple[int, ...], bool, list[tuple[bool, int, str]]]:
    numbers = tuple(map(int, _checked(value)[1:4]))
    pre = value[4]
    parts = [(not part.isdigit(), int(part) if part.isdigit() else 0, part) for part in pre.split(".")] if pre else []
    return numbers, not pre, parts


def _checked(value: Version) -> Version:
    """A list that the author of an expression wrote himself is no version."""
    if len(value) != 5 or value[0] != _VERSION:
        raise ValueError("no semantic version")
    return value


def part(value: Version, number: int) -> int:
    """``major`` (1), ``minor`` (2) and ``patch`` (3)."""
    return int(_checked(value)[number])
