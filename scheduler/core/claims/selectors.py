"""Selectors of device classes and requests: which devices an expression takes.

An expression is compiled once, and evaluated once per *distinct* device: cut to the attributes and capacities that it
names. Of 80,000 devices of five models that are five evaluations. The library is behind ``Compiler``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol

from scheduler.core.model.devices import DeviceKind

#: Bytes of expressions and of their answers that are kept. A namespace has this part of them at most.
_MOST_BYTES: Final = 64 << 20
_SHARE: Final = 2
#: Bytes of a device that is kept apart, of each of its entries, and of an expression.
_OF_DEVICE: Final = 240
_OF_ENTRY: Final = 16
_OF_EXPRESSION: Final = 2_000
#: Operations of about a microsecond: to compile an expression, beside one for each character, each of its words, and
#: each of its loops.
_COMPILING: Final = 300
_OF_WORD: Final = 12
_OF_LOOP: Final = 300
#: The most operations that compiling an expression may take.
MOST_COMPILING: Final = 40_000
#: What it takes to hand an attribute or a capacity of a device to the library.
_HANDING: Final = 4
_TEXT: Final = r"'(?:[^'\\]|\\.)*+'|\"(?:[^\"\\]|\\.)*+\""
_WORDS: Final = re.compile(rf"\w+|{_TEXT}|[^\w\s]", re.DOTALL)
#: Where all texts have an end.
_CLOSED: Final = re.compile(rf"(?:[^'\"]|{_TEXT})*+", re.DOTALL)
#: Words of CEL that may make a loop.
LOOPS: Final = re.compile(r"\b(?:all|exists|exists_one|filter|map)\b")

_DEVICE: Final = re.compile(r"\bdevice\b")
#: A field of the device. Any other use of ``device`` may read all of it.
_FIELD: Final = re.compile(
    r"\bdevice\b(?:\.(?:driver|allowMultipleAllocations)\b"
    r"|\.(?P<kind>attributes|capacity)\[(?P<quote>[\"'])(?P<domain>[A-Za-z0-9.-]+)(?P=quote)\]\.(?P<name>\w+)\b(?!\s*\())"
)


class SelectorFailed(Exception):
    """Raised where an expression can't be compiled, or has no answer for a device. The text is for the pod."""


class NotEvaluated(Exception):
    """Raised where evaluating would take more than is allowed now."""


#: Characters of an expression, or of a text about it, that a pod is shown.
LONGEST_SHOWN: Final = 200


def shown(expression: str) -> str:
    """An expression as texts for the pod have it."""
    return repr(expression[:LONGEST_SHOWN])


class Asked(NamedTuple):
    """Expressions that all have to be true: those of a class, and those of a claim in this namespace."""

    of_class: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    namespace: str = ""


class Matcher(Protocol):
    """A compiled expression. ``effort``: operations of an evaluation at most; ``size_bytes``: what it occupies."""

    effort: int
    size_bytes: int

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


def compiling_effort(expression: str) -> int:
    """What it takes to compile an expression at most, in operations of about a microsecond."""
    words = len(_WORDS.findall(expression)) if _CLOSED.fullmatch(expression) else len(expression)
    return _COMPILING + len(expression) + _OF_WORD * words + _OF_LOOP * len(LOOPS.findall(expression))


class _Apart:
    """Devices as far as expressions that name the same read them, each with a number."""

    __slots__ = ("cut", "numbers", "size_bytes", "users")

    def __init__(self, names: Named | None) -> None:
        self.cut = Cut(names)
        self.numbers: dict[DeviceKind, int] = {}
        self.size_bytes = 0
        #: How many expressions use it.
        self.users = 0

    def number(self, kind: DeviceKind) -> int:
        """The number of a device, a new one if it has none."""
        number = self.numbers.get(kind)
        if number is None:
            number = self.numbers[kind] = len(self.numbers)
            self.size_bytes += _OF_DEVICE + _OF_ENTRY * (len(kind.attributes) + len(kind.capacity))
        return number


_UNKNOWN, _FALSE, _TRUE, _FAILED = range(4)


class _Judged:
    """One expression and its answers, by the number of a device."""

    __slots__ = ("_bare_bytes", "answers", "apart", "matcher", "names", "said", "size_bytes")

    def __init__(self, matcher: Matcher | str, names: Named | None, apart: _Apart, size_bytes: int) -> None:
        #: A text: why it can't be evaluated.
        self.matcher = matcher
        self.names = names
        self.apart = apart
        self.answers = bytearray()
        #: Texts about devices for which it has no answer.
        self.said: dict[int, str] = {}
        self.size_bytes = self._bare_bytes = size_bytes

    def answer(self, number: int | None) -> int:
        """What is known of the device of this number."""
        return _UNKNOWN if number is None or number >= len(self.answers) else self.answers[number]

    def learn(self, number: int, matcher: Matcher, kind: DeviceKind) -> int:
        """Evaluate it on the device of this number."""
        if number >= len(self.answers):
            more = number + 1 - len(self.answers)
            self.answers.extend(bytes(more))
            self.size_bytes += more
        try:
            answer = _TRUE if matcher.matches(kind) else _FALSE
        except SelectorFailed as error:
            answer, self.said[number] = _FAILED, str(error)
            self.size_bytes += _OF_DEVICE + len(self.said[number])
        self.answers[number] = answer
        return answer

    def forget(self) -> int:
        """Drop all answers, and the devices, which no other expression may use; return the bytes."""
        freed = self.size_bytes - self._bare_bytes + self.apart.size_bytes
        self.size_bytes, self.apart.size_bytes = self._bare_bytes, 0
        self.answers.clear()
        self.said.clear()
        self.apart.numbers.clear()
        return freed


class _Share:
    """What is kept for one namespace, the oldest expression first."""

    __slots__ = ("apart", "judged", "size_bytes", "used_at")

    def __init__(self) -> None:
        self.judged: dict[str, _Judged] = {}
        self.apart: dict[Named | None, _Apart] = {}
        self.size_bytes = 0
        #: What all evaluations had taken when it was used last.
        self.used_at = -1

    def add(self, expression: str, matcher: Matcher | str) -> _Judged:
        """Keep an expression that was compiled."""
        names = named(expression)
        apart = self.apart.setdefault(names, _Apart(names))
        apart.users += 1
        compiled = 0 if isinstance(matcher, str) else matcher.size_bytes
        judged = _Judged(matcher, names, apart, _OF_EXPRESSION + 4 * len(expression) + compiled)
        self.judged[expression] = judged
        return judged

    def drop_oldest(self) -> int:
        """Drop the oldest expression, or the answers of the only one; return the bytes."""
        if len(self.judged) == 1:
            (only,) = self.judged.values()
            return only.forget()
        judged = self.judged.pop(next(iter(self.judged)))
        judged.apart.users -= 1
        if judged.apart.users:
            return judged.size_bytes
        del self.apart[judged.names]
        return judged.size_bytes + judged.apart.size_bytes


class Selectors:
    """Expressions that were seen, with their answers. A memo only: nothing changes by asking it.

    Each namespace has a share of it, half of all at most: beyond it, its own oldest expressions are dropped. Where all
    is full, the share goes that was used least recently. Classes have one share together.
    """

    def __init__(self, compiler: Compiler, *, most_bytes: int = _MOST_BYTES) -> None:
        self._compiler = compiler
        #: By namespace, those that were used least recently first.
        self._shares: dict[str, _Share] = {}
        self._most_bytes = most_bytes
        #: About what all shares occupy.
        self.size_bytes = 0
        #: What compiling and evaluating has taken so far, in operations of about a microsecond.
        self.effort_spent = 0
        #: Where that has to end; None: nowhere.
        self._ends_at: int | None = None

    def spend_at_most(self, operations: int | None) -> None:
        """From now on, raise NotEvaluated in place of evaluating more, once this much has been spent. None: never."""
        self._ends_at = None if operations is None else self.effort_spent + operations

    def _spend(self, operations: int) -> None:
        if self._ends_at is not None and self.effort_spent >= self._ends_at:
            raise NotEvaluated
        self.effort_spent += operations

    def take(self, asked: Asked, kind: DeviceKind) -> bool:
        """Whether all expressions are true of a device.

        Raises SelectorFailed with the text of the first that fails, and NotEvaluated.
        """
        for expression in asked.of_class:
            if not self._takes("", expression, kind):
                return False
        for expression in asked.own:  # noqa: SIM110 - as above: this is done for each device
            if not self._takes(asked.namespace, expression, kind):
                return False
        return True

    def _takes(self, namespace: str, expression: str, kind: DeviceKind) -> bool:
        share = self._shares.get(namespace)
        judged = None if share is None else share.judged.get(expression)
        if share is None or judged is None:
            share, judged = self._compiled(namespace, expression)
        if share.used_at != self.effort_spent:
            share.used_at = self.effort_spent
            self._shares[namespace] = self._shares.pop(namespace)
        if isinstance(judged.matcher, str):
            raise SelectorFailed(judged.matcher)
        apart = judged.apart
        cut = apart.cut(kind)
        number = apart.numbers.get(cut)
        answer = judged.answer(number)
        if answer == _UNKNOWN:
            self._spend(judged.matcher.effort + _HANDING * (len(cut.attributes) + len(cut.capacity)))
            before = judged.size_bytes + apart.size_bytes
            number = apart.number(cut)
            answer = judged.learn(number, judged.matcher, cut)
            said = judged.said.get(number, "")
            self._grow(share, judged.size_bytes + apart.size_bytes - before)
            if answer == _FAILED:
                raise SelectorFailed(said)
        elif answer == _FAILED and number is not None:
            raise SelectorFailed(judged.said[number])
        return answer == _TRUE

    def _compiled(self, namespace: str, expression: str) -> tuple[_Share, _Judged]:
        effort = compiling_effort(expression)
        matcher: Matcher | str
        if effort > MOST_COMPILING:
            matcher = (
                f"selector {shown(expression)}: compiling it may take {effort:,} microseconds; "
                f"{MOST_COMPILING:,} are allowed"
            )
        else:
            self._spend(effort)
            try:
                matcher = self._compiler(expression)
            except SelectorFailed as error:
                matcher = str(error)
        share = self._shares.setdefault(namespace, _Share())
        judged = share.add(expression, matcher)
        self._grow(share, judged.size_bytes)
        return share, judged

    def _grow(self, share: _Share, more: int) -> None:
        """Count bytes that a share has got, and drop what is too much."""
        share.size_bytes += more
        self.size_bytes += more
        while share.size_bytes > self._most_bytes // _SHARE and (freed := share.drop_oldest()):
            share.size_bytes -= freed
            self.size_bytes -= freed
        while self.size_bytes > self._most_bytes:
            namespace = next((name for name, each in self._shares.items() if each is not share), None)
            if namespace is None:
                return
            self.size_bytes -= self._shares.pop(namespace).size_bytes
