"""CEL expressions of selectors, by the CEL organisation's library (cel-expr-python), imported with the first of them.

The library has wheels for Linux with glibc (x86_64, aarch64) and macOS (arm64). Where it is missing everything else
works, and claims with selectors wait with that as their reason. What Kubernetes' environment has and this one has not
(functions of lists, sets, IP addresses, URLs; numbers of two kinds compared) does not compile: the claim waits, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, Final

from scheduler.core.claims import cel_cost, cel_values
from scheduler.core.claims.selectors import LONGEST_SHOWN, LOOPS, SelectorFailed, shown
from scheduler.core.model.devices import DeviceKind, Value

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
            capacity.setdefault(domain or device.driver, {})[own] = cel_values.of_nano(amount.nano)
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
        return cel_values.version(str(value.value))
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
    amount, version = kinds.Map(text, text), kinds.List(text)
    values = cel_values

    of_both: list[tuple[Any, Callable[..., int]]] = [(amount, values.compare), (version, values.compare_versions)]
    yield _function(cel, "quantity", (values.quantity, amount, [text]))
    yield _function(cel, "isQuantity", (values.is_quantity, truth, [text]))
    yield _function(cel, "semver", (values.version, version, [text]), (values.normalized, version, [text, truth]))
    yield _function(
        cel, "isSemver", (values.is_version, truth, [text]), (values.is_normalized_version, truth, [text, truth])
    )
    yield _method(cel, "compareTo", *((compare, number, [kind, kind]) for kind, compare in of_both))
    yield _method(cel, "isLessThan", *((partial(_is_less, compare), truth, [kind, kind]) for kind, compare in of_both))
    yield _method(
        cel, "isGreaterThan", *((partial(_is_greater, compare), truth, [kind, kind]) for kind, compare in of_both)
    )
    yield _function(cel, "sign", (values.sign, number, [amount]))
    yield _method(cel, "isInteger", (values.is_integer, truth, [amount]))
    yield _method(cel, "asInteger", (values.as_integer, number, [amount]))
    yield _method(cel, "asApproximateFloat", (values.as_float, kinds.DOUBLE, [amount]))
    for name, change in (("add", values.add), ("sub", values.sub)):
        yield _method(cel, name, (change, amount, [amount, amount]), (change, amount, [amount, number]))
    for at, name in enumerate(("major", "minor", "patch"), 1):
        yield _method(cel, name, (partial(values.part, number=at), number, [version]))


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
