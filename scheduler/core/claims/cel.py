"""CEL expressions of selectors, by the CEL organisation's library (cel-expr-python), imported with the first of them.

The library has wheels for Linux with glibc (x86_64, aarch64) and macOS (arm64). Where it is missing everything else
works, and claims with selectors wait with that as their reason. What Kubernetes' environment has and this one has not
(functions of lists, sets, IP addresses, URLs; numbers of two kinds compared) does not compile: the claim waits, too.

The library has no types of our own, so a quantity is a map and a version a list of text: by that, functions of one name
tell them apart, and equal values are equal. Amounts are whole nano and exact. Errors are ValueError: the library makes
errors of the expression of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, Final

from scheduler.core.claims import cel_cost
from scheduler.core.claims.selectors import LONGEST_SHOWN, LOOPS, SelectorFailed, shown
from scheduler.core.model.devices import DeviceKind, Value
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


MISSING: Final = "the Python package cel-expr-python is not installed, so that selectors can't be evaluated"
#: What the library occupies for each byte of a serialized expression, measured.
_BYTES_COMPILED: Final = 16
#: A map that is indexed by text, and one of which anything else is asked.
_INDEXED: Final = re.compile(r"\bdevice\.(?:attributes|capacity)\s*\[\s*([\"'])(?P<domain>[^\"'\\]*)\1\s*\]")
_MAPS: Final = re.compile(r"\bdevice\b(?!\.(?:driver|allowMultipleAllocations)\b)")


#: Version 0.1.3 of the library mixes up the variables of these two groups where one expression has both: some answers
#: are wrong (tests/oracle/test_selectors.py). Either group alone has the answers of Kubernetes.
_BINDS: Final = re.compile(r"\b(?:bind|optMap|optFlatMap)\b")
MIXED: Final = "has cel.bind, optMap or optFlatMap beside all, exists, exists_one, filter or map; write it without one"


def compile_selector(expression: str) -> CelMatcher:
    """Compile an expression. Raises SelectorFailed with the library's text."""
    if _BINDS.search(expression) and LOOPS.search(expression):
        raise _failed(expression, MIXED)
    try:
        compiled = environment().compile(expression)
    except ImportError:
        raise SelectorFailed(MISSING) from None
    except RuntimeError as error:
        raise _failed(expression, str(error)) from None
    kind = compiled.return_type().name()
    if kind not in {"BOOL", "DYN"}:
        raise _failed(expression, f"is of type {kind}, and has to be true or false")
    return CelMatcher(expression, compiled)


class CelMatcher:
    """A compiled expression. Raises SelectorFailed for one that may take too long to evaluate."""

    def __init__(self, expression: str, compiled: Any) -> None:
        self._expression = expression
        self._compiled = compiled
        #: Domains for which a device without them has an empty map, as in Kubernetes. Where an expression does more
        #: with the maps than to index them, it could tell such a map from none: there they are left out.
        indexed = list(_INDEXED.finditer(expression))
        is_only_indexed = len(indexed) == len(_MAPS.findall(expression))
        self._domains = frozenset(each["domain"] for each in indexed) if is_only_indexed else frozenset()
        serialized = compiled.serialize()
        self.size_bytes = _BYTES_COMPILED * len(serialized)
        try:
            self.effort = cel_cost.bound(serialized, len(self._domains)).us
        except cel_cost.NotBounded as error:
            raise _failed(expression, str(error)) from None

    def matches(self, device: DeviceKind) -> bool:
        """Whether it is true of a device. Raises SelectorFailed."""
        try:
            result = self._compiled.eval(data={"device": self._data(device)})
            value = result.value()
        except (RuntimeError, ValueError) as error:
            raise _failed(self._expression, str(error)) from None
        if result.type().name() == "BOOL":
            return bool(value)
        raise _failed(self._expression, str(value) if result.type().name() == "ERROR" else "is neither true nor false")

    def _data(self, device: DeviceKind) -> dict[str, Any]:
        attributes: dict[str, dict[str, Any]] = {domain: {} for domain in self._domains}
        capacity: dict[str, dict[str, Any]] = {domain: {} for domain in self._domains}
        for name, value in device.attributes:
            domain, _, own = name.rpartition("/")
            attributes.setdefault(domain or device.driver, {})[own] = _plain(name, value)
        for name, amount in device.capacity:
            domain, _, own = name.rpartition("/")
            capacity.setdefault(domain or device.driver, {})[own] = of_nano(amount.nano)
        return {
            "driver": device.driver,
            "attributes": attributes,
            "capacity": capacity,
            "allowMultipleAllocations": device.is_shared,
        }


def _plain(name: str, value: Value) -> Any:
    if not value.kind:
        raise SelectorFailed(f"attribute {name}: its value is of a kind that is not supported")
    if value.kind != "version":
        return value.value
    try:
        return version(str(value.value))
    except ValueError as error:
        raise SelectorFailed(f"attribute {name}: {error}") from None


def _failed(expression: str, text: str) -> SelectorFailed:
    return SelectorFailed(f"selector {shown(expression)}: {text[:LONGEST_SHOWN]}")


@cache
def environment() -> Any:
    """What expressions may use, of the library and of Kubernetes."""
    from cel_expr_python import cel  # noqa: PLC0415 - 35 MiB that only clusters with selectors need
    from cel_expr_python.ext import ext_bindings, ext_optional, ext_strings  # noqa: PLC0415 - as above

    extensions = [ext_bindings.ExtBindings(), ext_strings.ExtStrings(), ext_optional.ExtOptional()]
    variables = {"device": cel.Type.Map(cel.Type.STRING, cel.Type.DYN)}
    return cel.NewEnv(variables=variables, extensions=extensions, functions=list(_functions(cel)))


def _functions(cel: Any) -> Iterator[Any]:
    """Kubernetes' functions on quantities and versions."""
    kinds = cel.Type
    text, truth, number = kinds.STRING, kinds.BOOL, kinds.INT
    amount, parsed = kinds.Map(text, text), kinds.List(text)

    of_both: list[tuple[Any, Callable[..., int]]] = [(amount, compare), (parsed, compare_versions)]
    yield _function(cel, "quantity", (quantity, amount, [text]))
    yield _function(cel, "isQuantity", (is_quantity, truth, [text]))
    yield _function(cel, "semver", (version, parsed, [text]), (normalized, parsed, [text, truth]))
    yield _function(cel, "isSemver", (is_version, truth, [text]), (is_normalized_version, truth, [text, truth]))
    yield _method(cel, "compareTo", *((compare, number, [kind, kind]) for kind, compare in of_both))
    yield _method(cel, "isLessThan", *((partial(_is_less, compare), truth, [kind, kind]) for kind, compare in of_both))
    yield _method(
        cel, "isGreaterThan", *((partial(_is_greater, compare), truth, [kind, kind]) for kind, compare in of_both)
    )
    yield _function(cel, "sign", (sign, number, [amount]))
    yield _method(cel, "isInteger", (is_integer, truth, [amount]))
    yield _method(cel, "asInteger", (as_integer, number, [amount]))
    yield _method(cel, "asApproximateFloat", (as_float, kinds.DOUBLE, [amount]))
    for name, change in (("add", add), ("sub", sub)):
        yield _method(cel, name, (change, amount, [amount, amount]), (change, amount, [amount, number]))
    for at, name in enumerate(("major", "minor", "patch"), 1):
        yield _method(cel, name, (partial(part, number=at), number, [parsed]))


def _is_less(compare: Callable[..., int], one: Any, other: Any) -> bool:
    return compare(one, other) < 0


def _is_greater(compare: Callable[..., int], one: Any, other: Any) -> bool:
    return compare(one, other) > 0


def _declared(cel: Any, name: str, overloads: tuple[tuple[Any, Any, list[Any]], ...], *, is_member: bool) -> Any:
    listed = [
        cel.Overload(f"k8s_{name}_{at}", return_type=result, parameters=of, is_member=is_member, impl=impl)
        for at, (impl, result, of) in enumerate(overloads)
    ]
    return cel.FunctionDecl(name, listed)


def _function(cel: Any, name: str, *overloads: tuple[Any, Any, list[Any]]) -> Any:
    return _declared(cel, name, overloads, is_member=False)


def _method(cel: Any, name: str, *overloads: tuple[Any, Any, list[Any]]) -> Any:
    return _declared(cel, name, overloads, is_member=True)
