"""A compiler of a few expressions for tests: what the rules around selectors do needs no library."""

from __future__ import annotations

import re
from collections import Counter

import msgspec

from scheduler.core.claims.allocation import attribute
from scheduler.core.claims.selectors import SelectorFailed
from scheduler.core.model.devices import DeviceKind
from tests.scheduler.core.device_objects import DRIVER

_EQUALS = re.compile(r'device\.attributes\["(?P<domain>[^"]+)"\]\.(?P<name>\w+) == (?P<value>.+)')


def model(value: str) -> str:
    """An expression that takes devices of a model."""
    return attribute_is("model", f'"{value}"')


def attribute_is(name: str, value: str) -> str:
    return f'device.attributes["{DRIVER}"].{name} == {value}'


class Compiler:
    """Counts what it compiles and evaluates."""

    def __init__(self) -> None:
        self.compiled: Counter[str] = Counter()
        self.evaluated: Counter[str] = Counter()

    def __call__(self, expression: str) -> _Matcher:
        self.compiled[expression] += 1
        parsed = _EQUALS.fullmatch(expression)
        if parsed is None:
            raise SelectorFailed(f"{expression}: can't be read")
        full, value = f"{parsed['domain']}/{parsed['name']}", msgspec.json.decode(parsed["value"])
        return _Matcher(self, expression, full, value)


class _Matcher:
    effort = 30
    size_bytes = 100

    def __init__(self, counting: Compiler, expression: str, name: str, value: object) -> None:
        self._counting = counting
        self._expression = expression
        self._name = name
        self._value = value

    def matches(self, device: DeviceKind) -> bool:
        self._counting.evaluated[self._expression] += 1
        found = attribute(device, self._name)
        if found is None:
            raise SelectorFailed(f"no such key: {self._name}")
        return found.value == self._value
