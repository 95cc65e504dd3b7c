"""Selectors of device classes and requests: which devices an expression takes.

An expression is compiled once, and evaluated once per *distinct* device: cut to the attributes and capacities that it
names. Of 80,000 devices of five models that are five evaluations. The library is behind ``Compiler``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from scheduler.core.model.device_record import DeviceKind

#: The most expressions that are kept compiled, and devices that are kept judged for each.
_MOST_EXPRESSIONS: Final = 1024
_MOST_JUDGED: Final = 1 << 16
#: Operations of about a microsecond: to compile an expression, to evaluate one, and one with loops. The library ends
#: an evaluation after 10,000 turns of loops.
_COMPILING: Final = 200
_EVALUATING: Final = 30
_LOOPING: Final = 3_000
_LOOPS: Final = re.compile(r"\b(?:all|exists|exists_one|filter|map)\b")

_DEVICE: Final = re.compile(r"\bdevice\b")
#: A field of the device. Any other use of ``device`` may read all of it.
_FIELD: Final = re.compile(
    r"\bdevice\b(?:\.(?:driver|allowMultipleAllocations)\b"
    r"|\.(?P<kind>attributes|capacity)\[(?P<quote>[\"'])(?P<domain>[A-Za-z0-9.-]+)(?P=quote)\]\.(?P<name>\w+)\b(?!\s*\())"
)


class SelectorFailed(Exception):
    """Raised where an expression can't be compiled, or has no answer for a device. The text is for the pod."""


class Matcher(Protocol):
    """A compiled expression."""

    def matches(self, device: DeviceKind) -> bool:
        """Whether it takes a device. Raises SelectorFailed."""
        ...


#: Compiles an expression. Raises SelectorFailed.
Compiler = Callable[[str], Matcher]

#: What of a device an expression reads: full names of attributes and of capacities; None: perhaps everything.
Named = tuple[frozenset[str], frozenset[str]]


def named(expression: str) -> Named | None:
    """The attributes and capacities that an expression names, ``domain/name``; None if that can't be told."""
    fields = list(_FIELD.finditer(expression))
    if len(fields) != len(_DEVICE.findall(expression)):
        return None
    found: dict[str, set[str]] = {"attributes": set(), "capacity": set()}
    for field in fields:
        if field["kind"]:
            found[field["kind"]].add(f"{field['domain']}/{field['name']}")
    return frozenset(found["attributes"]), frozenset(found["capacity"])


def named_by_all(expressions: Iterable[str]) -> Named | None:
    """What several expressions name together."""
    attributes: set[str] = set()
    capacity: set[str] = set()
    for expression in expressions:
        each = named(expression)
        if each is None:
            return None
        attributes |= each[0]
        capacity |= each[1]
    return frozenset(attributes), frozenset(capacity)


class Cut:
    """Cuts devices to what is named, so that those which can't be told apart are equal."""

    __slots__ = ("_names", "_of_driver")

    def __init__(self, names: Named | None) -> None:
        self._names = names
        self._of_driver: dict[str, Named] = {}

    def __call__(self, kind: DeviceKind) -> DeviceKind:
        """The device as far as it is named."""
        if self._names is None:
            return kind
        attributes, capacity = self._of_driver.get(kind.driver) or self._written(kind.driver)
        return DeviceKind(
            driver=kind.driver,
            attributes=tuple([each for each in kind.attributes if each[0] in attributes]),
            capacity=tuple([each for each in kind.capacity if each[0] in capacity]),
            is_shared=kind.is_shared,
        )

    def _written(self, driver: str) -> Named:
        """The names as a driver may write them: those of its own domain without it, too."""
        attributes, capacity = (
            frozenset((*names, *(name.removeprefix(f"{driver}/") for name in names if name.startswith(f"{driver}/"))))
            for names in self._names or ()
        )
        self._of_driver[driver] = attributes, capacity
        return attributes, capacity


class _Judged:
    """One expression and its answers."""

    __slots__ = ("_answers", "_cut", "_matcher", "effort")

    def __init__(self, expression: str, compiler: Compiler) -> None:
        #: What it takes to evaluate it, in operations.
        self.effort = _LOOPING if _LOOPS.search(expression) else _EVALUATING
        self._cut = Cut(named(expression))
        self._answers: dict[DeviceKind, bool | SelectorFailed] = {}
        self._matcher: Matcher | SelectorFailed
        try:
            self._matcher = compiler(expression)
        except SelectorFailed as error:
            self._matcher = error

    def takes(self, kind: DeviceKind, spend: Callable[[int], None]) -> bool:
        if isinstance(self._matcher, SelectorFailed):
            raise SelectorFailed(str(self._matcher))
        cut = self._cut(kind)
        answer = self._answers.get(cut)
        if answer is None:
            if len(self._answers) >= _MOST_JUDGED:
                self._answers.clear()
            spend(self.effort)
            answer = self._answers[cut] = _answer(self._matcher, cut)
        if isinstance(answer, SelectorFailed):
            raise SelectorFailed(str(answer))
        return answer


def _answer(matcher: Matcher, kind: DeviceKind) -> bool | SelectorFailed:
    try:
        return matcher.matches(kind)
    except SelectorFailed as error:
        return error


class Selectors:
    """Expressions that were seen, with their answers. A memo only: nothing changes by asking it."""

    def __init__(self, compiler: Compiler) -> None:
        self._compiler = compiler
        self._known: dict[str, _Judged] = {}
        #: What compiling and evaluating has taken so far, in operations of about a microsecond.
        self.effort_spent = 0

    def _spend(self, operations: int) -> None:
        self.effort_spent += operations

    def take(self, expressions: Iterable[str], kind: DeviceKind) -> bool:
        """Whether all expressions are true of a device. Raises SelectorFailed with the text of the first that fails."""
        return all(self._judged(expression).takes(kind, self._spend) for expression in expressions)

    def _judged(self, expression: str) -> _Judged:
        known = self._known.get(expression)
        if known is None:
            if len(self._known) >= _MOST_EXPRESSIONS:
                del self._known[next(iter(self._known))]
            self._spend(_COMPILING)
            known = self._known[expression] = _Judged(expression, self._compiler)
        return known
