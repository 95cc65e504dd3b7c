"""Kubernetes quantities as exact integers.

The grammar is the documented one of ``resource.Quantity``: a signed decimal number and a suffix out of
``n u m k M G T P E``, ``Ki Mi Gi Ti Pi Ei`` or a decimal exponent. Kubernetes keeps nine decimal places and rounds what
is below them away from zero, so every quantity is a whole number of *nano*: 1e-9 of its unit (a core, a byte, a
device). Floats appear only where JSON has one, and go through their shortest text.

Stricter than Kubernetes in three places, none of which its API server ever writes: a number needs a digit (it reads
``.`` and ``Ki`` as zero), magnitudes above 2^63-1 are refused (it caps some and keeps others), and so are texts of more
than ``LONGEST`` characters, which bounds the work that a hostile text can ask for.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import Final

NANO: Final = 10**9
NANO_PER_MILLI: Final = 10**6
NANO_PER_MIB: Final = NANO * 2**20

LARGEST: Final = 2**63 - 1
LONGEST: Final = 128

ALLOWED: Final = (
    "a number of at most 2^63-1 with a suffix out of n, u, m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei or an exponent "
    f'as in "1e3", in at most {LONGEST} characters'
)

_GRAMMAR: Final = re.compile(
    r"(?P<sign>[+-]?)(?:(?P<whole>[0-9]+)(?:\.(?P<places>[0-9]*))?|\.(?P<bare>[0-9]+))"
    r"(?:(?P<suffix>[KMGTPE]i|[numkMGTPE])|[eE](?P<exponent>[+-]?[0-9]+))?"
)
_POWER_OF_TEN: Final = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}

#: ``LARGEST`` in nano has 28 digits; a product with more digits than this before the point is too large.
_MOST_DIGITS: Final = 28
#: Below this power of ten even ``LONGEST`` nines with ``Ei`` are less than one nano.
_LEAST_POWER: Final = -(LONGEST + 19)


class MalformedQuantity(ValueError):
    """Raised when a value is not a quantity, or not one that fits what it is read for."""

    def __init__(self, value: str | float, allowed: str = ALLOWED) -> None:
        self.value = value
        self.allowed = allowed
        self.shown = _shown(value)
        super().__init__(f"quantity {self.shown} is not {allowed}")


def _shown(value: str | float) -> str:
    """Write the value for a message: shortened, so that a hostile one doesn't fill a log."""
    if isinstance(value, int) and abs(value) > LARGEST:
        return f"of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= 64 else f"{text[:48]}... ({len(text)} characters)"


def parse_nano(value: str | float) -> int:
    """Read the value in nano, exact; digits below one nano round away from zero as Kubernetes does.

    Takes text, or the number that a YAML author wrote without quotes. Raises MalformedQuantity.
    """
    if isinstance(value, str):
        return _from_text(value, value)
    if isinstance(value, bool):
        raise MalformedQuantity(value)
    if isinstance(value, int):
        if abs(value) > LARGEST:
            raise MalformedQuantity(value)
        return value * NANO
    if not math.isfinite(value):
        raise MalformedQuantity(value)
    return _from_text(repr(value), value)


# The pods and nodes of a cluster say few different things, again with each event: a fifth of the time of taking one in.
@lru_cache(maxsize=4096)
def _from_text(text: str, value: str | float) -> int:
    match = _GRAMMAR.fullmatch(text) if len(text) <= LONGEST else None
    if match is None:
        raise MalformedQuantity(value)
    sign, whole, places, bare, suffix, exponent = match.groups()
    places = places or bare or ""
    digits = ((whole or "") + places).lstrip("0")
    if not digits:
        return 0
    power = 9 - len(places) + (int(exponent) if exponent else _POWER_OF_TEN.get(suffix, 0))
    if len(digits) + power > _MOST_DIGITS:
        raise MalformedQuantity(value)
    nano = _scaled(int(digits) * _BINARY.get(suffix, 1), power)
    if nano > LARGEST * NANO:
        raise MalformedQuantity(value)
    return -nano if sign == "-" else nano


def _scaled(amount: int, power: int) -> int:
    """``amount * 10**power`` for a positive amount, rounded up; powers that leave less than one are not computed."""
    if power < _LEAST_POWER:
        return 1
    factor: int = 10 ** abs(power)
    return amount * factor if power >= 0 else -(-amount // factor)


def milli_up(value: str | float) -> int:
    """Read the value in thousandths of its unit, rounded up: what somebody asks for."""
    return -(-parse_nano(value) // NANO_PER_MILLI)


def milli_down(value: str | float) -> int:
    """Read the value in thousandths of its unit, rounded down: what somebody has."""
    return parse_nano(value) // NANO_PER_MILLI


def mib_up(value: str | float) -> int:
    """Read bytes in MiB, rounded up: what somebody asks for."""
    return -(-parse_nano(value) // NANO_PER_MIB)


def mib_down(value: str | float) -> int:
    """Read bytes in MiB, rounded down: what somebody has."""
    return parse_nano(value) // NANO_PER_MIB


def bytes_up(value: str | float) -> int:
    """Read whole bytes, rounded up."""
    return -(-parse_nano(value) // NANO)


def bytes_down(value: str | float) -> int:
    """Read whole bytes, rounded down: what somebody has."""
    return parse_nano(value) // NANO


def whole(value: str | float) -> int:
    """Read a count, as extended resources have it. Raises MalformedQuantity for anything but an integer."""
    count, rest = divmod(parse_nano(value), NANO)
    if rest:
        raise MalformedQuantity(value, "a whole number")
    return count


def decimal_text(nano: int) -> str:
    """Write an amount of nano in the coarsest of its unit, m, u and n that is exact: ``500m``."""
    for suffix, power in (("", 9), ("m", 6), ("u", 3)):
        if nano % 10**power == 0:
            return f"{nano // 10**power}{suffix}"
    return f"{nano}n"


def binary_text(count: int) -> str:
    """Write whole bytes with the largest suffix out of Ki to Ei that is exact: ``8Gi``."""
    suffix = ""
    for larger in _BINARY:
        if count == 0 or count % 1024:
            break
        count, suffix = count // 1024, larger
    return f"{count}{suffix}"
