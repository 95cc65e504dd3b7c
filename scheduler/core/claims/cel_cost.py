"""An upper bound of what evaluating a CEL expression takes, before it is evaluated: the library can't be interrupted.

The bound follows from the checked expression and from the sizes that Kubernetes allows: an attribute has 64 characters
at most, a device 32 attributes and capacities. Every function has a price by the sizes of its arguments, and a bound of
the size of its result. A function without a price is refused. Prices are measured times of the library, twice to four
times as much (tests/scheduler/core/claims/test_cel_cost.py measures them again).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

#: The most that an evaluation may take, in microseconds.
MOST_US: Final = 5_000
_NS: Final = 1_000
_MOST_NS: Final = MOST_US * _NS
#: Every evaluation.
_BEGINNING: Final = 25_000
_NODE: Final = 200
_TURN: Final = 300
_SELECTING: Final = 400
#: A loop that makes a list copies it in every turn.
_COPYING: Final = 200
#: A function in Python, and each value that is converted for it.
_PYTHON: Final = 40_000
_CONVERTING: Final = 2_000
#: The library compiles a pattern in every evaluation: for each step of its program, for each pair of steps (ranges of
#: repetitions are nested), and for each step and character of the text.
_COMPILING_STEP: Final = 1_500
_COMPILING_PAIR: Final = 5
_MATCHING: Final = 60
#: Steps of a class of Unicode, of all but some characters, and of any character.
_UNICODE: Final = 8_000
_ALL_BUT: Final = 60
_ANY: Final = 8
_CHARACTERS_PER_VALUE: Final = 32
#: Kubernetes' own limits (resource/v1): characters of a value or name, attributes and capacities of a device.
_LONGEST: Final = 64
_ENTRIES: Final = 32


class NotBounded(Exception):
    """Raised for an expression that may take too long. The text says why."""


class Size(msgspec.Struct, frozen=True, gc=False):
    """How large a value is at most: as a text in bytes, as a list or map in entries, and in values of all depths."""

    text: int = 0
    count: int = 0
    total: int = 1
    of: Size | None = None

    @property
    def each(self) -> Size:
        """What an entry of it is at most; of a text, which has none, itself."""
        return self if self.of is None else self.of


_SCALAR: Final = Size()
_NONE: Final = Size(total=0)


def text_of(length: int) -> Size:
    """A text of this length."""
    return Size(text=length, total=1 + length // _CHARACTERS_PER_VALUE)


def _list_of(count: int, each: Size | None, total: int | None = None) -> Size:
    return Size(count=count, total=1 + (count * (each or _NONE).total if total is None else total), of=each)


def _larger(sizes: Sequence[Size]) -> Size:
    """What is at least as large as each of these."""
    if len(sizes) == 1:
        return sizes[0]
    inner = [each.of for each in sizes if each.of is not None]
    return Size(
        text=max((each.text for each in sizes), default=0),
        count=max((each.count for each in sizes), default=0),
        total=max((each.total for each in sizes), default=1),
        of=_larger(inner) if inner else None,
    )


def device_size(domains: int) -> Size:
    """The variable ``device``, where maps have this many empty domains beside those of the device."""
    # An attribute may be a version, which is a list (cel.py).
    value = Size(text=_LONGEST, count=5, total=9, of=text_of(_LONGEST))
    inner = Size(text=_LONGEST, count=_ENTRIES, total=_ENTRIES * 12, of=value)
    outer = Size(text=_LONGEST, count=_ENTRIES + domains, total=_ENTRIES * 15 + 3 * domains, of=inner)
    return Size(count=4, total=_ENTRIES * 16 + 6 * domains, of=outer)


#: Fields of the device that are no maps.
_OF_DEVICE: Final = {"driver": text_of(_LONGEST), "allowMultipleAllocations": _SCALAR}


# --- prices of functions ---------------------------------------------------------------------------------------------
#: Nanoseconds of a call, and the size of its result.
Price = tuple[int, Size]
_Rule = Callable[[Sequence[Size]], Price]


def _plain(cost: int, result: Size = _SCALAR) -> _Rule:
    return lambda _: (cost, result)


def _scan(price: int, *, longer: int = 1, more: int = 0) -> _Rule:
    """Reads its first argument once, for ``price`` a character. Its text is ``longer`` times as long, and ``more``."""
    return lambda sizes: (1_000 + price * sizes[0].text, text_of(longer * sizes[0].text + more))


def _find(sizes: Sequence[Size]) -> Price:
    """Looks for its second argument in the first."""
    return 600 + 30 * sizes[0].text + sizes[0].text * sizes[1].text // 5, _SCALAR


def _equal(sizes: Sequence[Size]) -> Price:
    return 300 + 900 * min(each.total for each in sizes), _SCALAR


def _plus(sizes: Sequence[Size]) -> Price:
    one, other = sizes[0], sizes[-1]
    total = one.total + other.total
    joined = Size(text=one.text + other.text, count=one.count + other.count, total=total, of=_of_both(one, other))
    return 300 + 150 * total, joined


def _of_both(one: Size, other: Size) -> Size | None:
    inner = [each.of for each in (one, other) if each.of is not None]
    return _larger(inner) if inner else None


def _in(sizes: Sequence[Size]) -> Price:
    container = sizes[1]
    return 600 + 1_100 * container.count * min(sizes[0].total, container.each.total), _SCALAR


def _index(sizes: Sequence[Size]) -> Price:
    return _SELECTING + sizes[1].text, sizes[0].each


def _split(sizes: Sequence[Size]) -> Price:
    length = sizes[0].text
    return 2_000 + 800 * (length + 1), _list_of(length + 1, text_of(length), total=2 * length + 2)


def _replace(sizes: Sequence[Size]) -> Price:
    length, part, instead = (each.text for each in sizes[:3])
    result = length + (length + 1) * instead
    return 1_500 + 500 * (length + 1) + 4 * result + length * part // 3, text_of(result)


def _join(sizes: Sequence[Size]) -> Price:
    count = sizes[0].count
    result = count * (sizes[0].each.text + (sizes[1].text if len(sizes) > 1 else 0))
    return 1_000 + 500 * count + 2 * result, text_of(result)


def _format(sizes: Sequence[Size]) -> Price:
    pattern, values = sizes[0], sizes[1]
    # A number with a precision has up to 1,400 digits; a value of a list or map is written with its marks.
    result = pattern.text + values.count * 1_400 + values.total * 3 * _CHARACTERS_PER_VALUE
    return 5_000 + 1_000 * (pattern.text + values.total) + 2 * result, text_of(result)


def _convert(sizes: Sequence[Size]) -> Price:
    return 1_500 + 10 * sizes[0].text, text_of(max(_LONGEST, sizes[0].text))


def _same(cost: int) -> _Rule:
    """Its result is one of its arguments, or an entry of the first."""
    return lambda sizes: (cost, _larger([*sizes, sizes[0].each]) if sizes else _NONE)


def _moment(sizes: Sequence[Size]) -> Price:
    """A part of a moment, perhaps in a time zone, whose file may be read."""
    return (3_000 if len(sizes) == 1 else 1_000_000), _SCALAR


def _python(a_character: int, result: Callable[[Sequence[Size]], Size]) -> _Rule:
    """A function of cel.py."""

    def price(sizes: Sequence[Size]) -> Price:
        converted = sum(each.total + each.text // _CHARACTERS_PER_VALUE for each in sizes)
        characters = sum(max(each.text, each.each.text) for each in sizes)
        return _PYTHON + _CONVERTING * converted + a_character * characters, result(sizes)

    return price


def _read(a_character: int, result: Callable[[Sequence[Size]], Size]) -> _Rule:
    """A function of cel.py that takes a text."""
    return lambda sizes: (_PYTHON + (a_character + 10) * sizes[0].text, result(sizes))


def _number(_: Sequence[Size]) -> Size:
    return _SCALAR


def _amount(sizes: Sequence[Size]) -> Size:
    digits = _LONGEST + sum(max(each.text, each.each.text) for each in sizes)
    return _list_of(1, text_of(digits))


def _version(sizes: Sequence[Size]) -> Size:
    return _list_of(5, text_of(sizes[0].text + _LONGEST))


_QUICK: Final = (
    *("_-_", "_*_", "_/_", "_%_", "-_", "!_", "_&&_", "_||_", "@not_strictly_false"),
    *("optional.none", "hasValue"),
)
_PASSING: Final = ("optional.of", "optional.ofNonZeroValue", "value", "or", "orValue", "dyn", "first", "last")
_ORDERS: Final = ("_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_")
_MOMENTS: Final = (
    *("getFullYear", "getMonth", "getDayOfYear", "getDayOfMonth", "getDate", "getDayOfWeek"),
    *("getHours", "getMinutes", "getSeconds", "getMilliseconds"),
)
_FUNCTIONS: Final[Mapping[str, _Rule]] = {
    **dict.fromkeys(_QUICK, _plain(0)),
    **dict.fromkeys(_ORDERS, _equal),
    **dict.fromkeys(_MOMENTS, _moment),
    **dict.fromkeys(("contains", "indexOf", "lastIndexOf", "startsWith", "endsWith"), _find),
    **dict.fromkeys(("int", "uint", "double", "bool", "timestamp", "duration", "bytes", "string"), _convert),
    **dict.fromkeys(("lowerAscii", "upperAscii", "trim", "reverse", "charAt", "substring"), _scan(40)),
    **dict.fromkeys(_PASSING, _same(500)),
    **dict.fromkeys(("_[_]", "_[?_]", "_?._"), _index),
    **dict.fromkeys(("major", "minor", "patch", "compareTo", "isLessThan", "isGreaterThan"), _python(1_000, _number)),
    **dict.fromkeys(("sign", "isInteger", "asInteger", "asApproximateFloat"), _python(10, _number)),
    **dict.fromkeys(("add", "sub"), _python(10, _amount)),
    "isQuantity": _read(10, _number),
    "quantity": _read(10, _amount),
    "isSemver": _read(1_000, _number),
    "semver": _read(1_000, _version),
    "strings.quote": _scan(60, longer=6, more=2),
    "_+_": _plus,
    "@in": _in,
    "size": _scan(5),
    "type": _plain(500),
    "_?_:_": lambda sizes: (0, _larger(sizes[1:])),
    "split": _split,
    "replace": _replace,
    "join": _join,
    "format": _format,
}

# --- patterns --------------------------------------------------------------------------------------------------------
#: Every repetition here is bounded or can't be tried in two ways, so that a pattern is read once.
_TIMES: Final = re.compile(r"\{(\d{1,9})(,?)(\d{0,9})\}")
_ESCAPE: Final = re.compile(r"\\(?:[pPx]\{[^}]{0,64}\}|[pP].|x..|[0-7]{1,3}|.)", re.DOTALL)
_CLASS: Final = re.compile(r"\[\^?\]?(?:\\.|\[:\^?\w{1,16}:\]|[^\]\\])*+\]", re.DOTALL)


def pattern_size(pattern: str) -> int:
    """At most how many steps the program of a regular expression has. Raises NotBounded."""
    # Sizes of groups that are open, and of the last atom, which a repetition repeats.
    open_, last, at, total, has_classes = [0], 0, 0, 0, True
    while at < len(pattern):
        mark, size, end = pattern[at], 0, at + 1
        if mark == "(":
            open_.append(2)
            total += 2
        elif mark == ")" and len(open_) > 1:
            last = open_.pop()
            open_[-1] += last
        elif mark == "{" and (times := _TIMES.match(pattern, at)):
            again = max(int(times[1]), int(times[3] or 0)) + (1 if times[2] and not times[3] else 0)
            size, end = last * max(0, again - 1) + again, times.end()
            last *= max(1, again)
        elif mark == "\\" and (escape := _ESCAPE.match(pattern, at)):
            size, end = _escape_size(escape[0]), escape.end()
            last = size
        elif mark == "[" and has_classes and (listed := _CLASS.match(pattern, at)):
            size, end = _class_size(listed[0]), listed.end()
            last = size
        else:
            # Where one class has no end, no later one has.
            has_classes = has_classes and mark != "["
            size = last = _ANY if mark == "." else len(mark.encode())
        open_[-1] += size
        total += size
        if total > _MOST_NS:
            raise NotBounded("a pattern repeats too often")
        at = end
    return total * (2 if "(?" in pattern or r"\Q" in pattern else 1) + 8


def _escape_size(written: str) -> int:
    return _UNICODE if written[1] in "pP" else _ALL_BUT if written[1] in "DSWB" else _ANY


def _class_size(listed: str) -> int:
    if listed.isascii() and listed[1] != "^" and not {"\\", ":"} & {*listed}:
        return len(listed)
    named = listed.count(r"\p") + listed.count(r"\P") + listed.count("[:")
    return _ALL_BUT + _ANY * len(listed) + _UNICODE * named


def pattern_cost(pattern: str, length: int) -> int:
    """Nanoseconds that it takes to look for a pattern in a text of this length."""
    steps = pattern_size(pattern)
    return 10_000 + steps * (_COMPILING_STEP + _COMPILING_PAIR * steps + _MATCHING * (length + 1))


# --- the checked expression, as the library serializes it (cel.expr.CheckedExpr) -------------------------------------
_Fields = Mapping[int, Sequence[bytes]]
_FIXED: Final = {1: 8, 5: 4}


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def _fields(data: bytes) -> dict[int, list[bytes]]:
    """Texts and messages by the numbers of their fields; numbers are left out."""
    found: dict[int, list[bytes]] = {}
    at, end = 0, len(data)
    while at < end:
        # Numbers of fields are below 16, so a key is one byte; and so are most lengths.
        key, length = data[at], data[at + 1]
        at += 2
        kind = key & 7
        if kind in _FIXED:
            at += _FIXED[kind] - 1
            continue
        if length > 127:
            length, at = _varint(data, at - 1)
        if kind:
            found.setdefault(key >> 3, []).append(data[at : at + length])
            at += length
    return found


def _text(fields: Mapping[int, Sequence[bytes]], number: int) -> str:
    return fields[number][0].decode() if number in fields else ""


_CONST, _IDENT, _SELECT, _CALL, _LIST, _STRUCT, _LOOP = range(3, 10)
_ANY_VALUE, _CHECKED_EXPR, _TEXT = 2, 4, 6


class Bound(NamedTuple):
    """What an evaluation takes at most, beside handing the device over; and how large the value is at most."""

    us: int
    size: Size


def bound(serialized: bytes, domains: int) -> Bound:
    """The bound of a checked expression. Raises NotBounded.

    ``domains``: how many empty maps a device may get beside its own (cel.py).
    """
    device = device_size(domains)
    walk = _Walk(device)
    walk.spend(_BEGINNING + 200 * domains)
    checked = _fields(_fields(serialized)[_ANY_VALUE][0])[_CHECKED_EXPR][0]
    found = walk.size(checked, {"device": device})
    walk.spend(_CONVERTING * found.total)
    return Bound(-(-walk.spent_ns // _NS), found)


class _Walk:
    """Adds up what parts of an expression take."""

    def __init__(self, device: Size) -> None:
        self.spent_ns = 0
        self._device = device
        #: How often the part is evaluated that is looked at.
        self._times = 1

    def spend(self, cost_ns: int) -> None:
        self.spent_ns += cost_ns * self._times
        if self.spent_ns > _MOST_NS:
            raise NotBounded(f"it may take more than {MOST_US:,} microseconds for a device")

    def size(self, node: bytes, names: Mapping[str, Size]) -> Size:
        """At most how large its value is."""
        self.spend(_NODE)
        for kind, parts in _fields(node).items():
            rule = _KINDS.get(kind)
            if rule is not None:
                return rule(self, _fields(parts[0]), names)
        raise NotBounded("a part of it is of a kind that has no price")

    def constant(self, fields: _Fields, _: Mapping[str, Size]) -> Size:
        return next((text_of(len(values[0])) for values in fields.values()), _SCALAR)

    def ident(self, fields: _Fields, names: Mapping[str, Size]) -> Size:
        # What is no variable is the name of a type.
        return names.get(_text(fields, 1), _SCALAR)

    def select(self, fields: _Fields, names: Mapping[str, Size]) -> Size:
        self.spend(_SELECTING)
        operand = self.size(fields[1][0], names)
        return _OF_DEVICE.get(_text(fields, 2), operand.each) if operand is self._device else operand.each

    def call(self, fields: _Fields, names: Mapping[str, Size]) -> Size:
        function = _text(fields, 2)
        # Targets come before arguments.
        listed = [*fields.get(1, ()), *fields.get(3, ())]
        sizes = [self.size(each, names) for each in listed]
        if function == "matches":
            return self._match(listed[1], sizes)
        rule = _FUNCTIONS.get(function)
        if rule is None:
            raise NotBounded(f"function {function} has no price")
        cost_ns, result = rule(sizes)
        self.spend(cost_ns)
        return result

    def _match(self, pattern: bytes, sizes: Sequence[Size]) -> Size:
        constants = _fields(pattern).get(_CONST)
        if constants is None:
            raise NotBounded("a pattern is not written as a text")
        self.spend(pattern_cost(_text(_fields(constants[0]), _TEXT), sizes[0].text))
        return _SCALAR

    def listed(self, fields: _Fields, names: Mapping[str, Size]) -> Size:
        sizes = [self.size(each, names) for each in fields.get(1, ())]
        self.spend(150 * len(sizes))
        return _list_of(len(sizes), _larger(sizes) if sizes else None, sum([each.total for each in sizes]))

    def mapped(self, fields: _Fields, names: Mapping[str, Size]) -> Size:
        if fields.get(1):
            raise NotBounded("it makes a message")
        entries = [_fields(each) for each in fields.get(2, ())]
        sizes = [self.size(entry[at][0], names) for entry in entries for at in (3, 4)]
        self.spend(300 * len(sizes))
        return _list_of(len(entries), _larger(sizes) if sizes else None, sum([each.total for each in sizes]))

    def loop(self, fields: _Fields, names: Mapping[str, Size]) -> Size:
        """A loop of a macro; one over an empty list gives a variable its value."""
        variable, second, accumulator = (_text(fields, number) for number in (1, 8, 3))
        over, begin = (self.size(fields[number][0], names) for number in (2, 4))
        turns = over.count
        if not turns:
            return self.size(fields[7][0], {**names, accumulator: begin})
        inner = {**names, variable: over.each, second: over.each, accumulator: begin}
        before, self._times = self._times, self._times * turns
        self.spend(_TURN)
        self.size(fields[5][0], inner)
        # A turn adds to a list what it adds to an empty one, or makes a single value.
        step = self.size(fields[6][0], inner)
        end = begin
        if step.count:
            self.spend(_COPYING * turns * step.count)
            end = _list_of(turns * step.count, step.of, turns * step.total)
        self._times = before
        return self.size(fields[7][0], {**names, accumulator: end})


_KINDS: Final[Mapping[int, Callable[[_Walk, _Fields, Mapping[str, Size]], Size]]] = {
    _CONST: _Walk.constant,
    _IDENT: _Walk.ident,
    _SELECT: _Walk.select,
    _CALL: _Walk.call,
    _LIST: _Walk.listed,
    _STRUCT: _Walk.mapped,
    _LOOP: _Walk.loop,
}
