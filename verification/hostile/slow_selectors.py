"""CEL expressions that take long to evaluate, as a tenant may write them into a claim. The API server takes them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

_A: Final = "device.attributes['gpu.example.com']"
_LONG: Final = "x" * 300
_ONES: Final = ", ".join(["1"] * 1_000)


def known(number: int = 0) -> tuple[str, ...]:
    """Expressions that take 5 to 500 ms each, and none of which takes a device. Another number: other literals."""
    mark = f"'m{number}' == ''"
    return (
        f"cel.bind(a, '{_LONG}', cel.bind(b, a.replace('x', a), b.replace('x', a))) == '' || {mark}",
        f"'{'x' * 5_000}'.matches('(x{{0,100}}){{0,10}}y') || {mark}",
        f"'{'x' * 3_000}'.split('').join('{'y' * 3_000}') == '' || {mark}",
        f"[{_ONES}].map(x, x).size() == 1 || {mark}",
        f"[{_ONES}].filter(x, true).size() == 1 || {mark}",
        f"[{_ONES}].exists(x, semver('1.0.0').isLessThan(semver('1.0.0'))) || {mark}",
        f"[{_ONES}].exists(x, device != device) || {mark}",
        f"[1, 2, 3, 4, 5, 6, 7, 8, 9].exists(a, [{_ONES}].exists(b, a == b + 10)) || {mark}",
        _doubled("a.contains('xxy')", 20) + f" || {mark}",
        _doubled("a.split('').size() == 0", 16) + f" || {mark}",
    )


def _doubled(body: str, times: int) -> str:
    """An expression on a text ``a`` that was doubled this many times."""
    for _ in range(times):
        body = f"cel.bind(a, a + a, {body})"
    return f"cel.bind(a, 'x', {body})"


def at_random(chance: random.Random, depth: int = 5) -> str:
    """An expression of random functions on texts and lists, that are often long, with variables or with loops."""
    return _Written(chance, uses_loops=chance.random() < 0.5).truth(depth)


def text_at_random(chance: random.Random, depth: int = 5) -> str:
    """Likewise, an expression that is a text."""
    return _Written(chance, uses_loops=chance.random() < 0.5).text(depth)


class _Written:
    """Writes one expression. The library can't mix variables and loops (core/claims/cel.py)."""

    def __init__(self, chance: random.Random, *, uses_loops: bool) -> None:
        self._chance = chance
        self._uses_loops = uses_loops
        #: Variables that hold a text.
        self._names: list[str] = []

    def truth(self, depth: int) -> str:
        """An expression that is true or false."""
        if depth <= 0:
            return self._chance.choice(["true", "device.allowMultipleAllocations", "1 > 2"])
        return self._chance.choice([self._nested_truth, self._of_texts, self._of_texts, self._of_values])(depth - 1)

    def _nested_truth(self, depth: int) -> str:
        if self._uses_loops:
            kind = self._chance.choice(["all", "exists", "exists_one"])
            return self._looped(depth, lambda name: f"{kind}({name}, {self.truth(depth)})")
        if self._chance.random() < 0.7:
            value = self.text(depth)
            return self._named(lambda name: f"cel.bind({name}, {value}, {self.truth(depth)})")
        return self._chance.choice(["({}) || ({})", "!({}) && ({})", "({}) == ({})"]).format(
            self.truth(depth), self.truth(depth - 1)
        )

    def _of_texts(self, depth: int) -> str:
        one, other = self.text(depth), self.text(depth - 1)
        listed = self.texts(depth)
        return self._chance.choice(
            [
                f"{one} {self._chance.choice(['==', '<', '!='])} {other}",
                f"{one}.{self._chance.choice(['contains', 'startsWith', 'endsWith'])}({other})",
                f"{one}.{self._chance.choice(['indexOf', 'lastIndexOf'])}({other}) > 3",
                f"{one}.matches('{self._pattern()}')",
                f"{one}.size() > 3",
                f"{one} in {listed}",
                f"{listed} == {self.texts(depth)}",
                f"isQuantity({one})",
                f"isSemver({one}) || isSemver({other}, true)",
                f"semver('1.0.0-' + {one}).isLessThan(semver('1.0.0-x'))",
                f"int({one}) == 1 || double({one}) == 1.0 || bytes({one}) == b'x'",
                f"timestamp({one}) == timestamp({other}) || duration({one}) == duration({other})",
            ]
        )

    def _of_values(self, _: int) -> str:
        return self._chance.choice(
            [
                "device == device",
                f"{_A} == {_A}",
                "[device] == [device, device]",
                "{'a': device} == {'a': device}",
                f"'x' in {_A}",
                f"size({_A}) == 3",
                f"has({_A}.uuid) && {_A}.uuid == 'x'",
                f"device.attributes[?'x'].?y.orValue('z') == {_A}.model",
                "quantity('1Gi').add(quantity('2')).isGreaterThan(quantity('3'))",
                "semver('1.2.3').major() == 2",
                "timestamp('2020-01-01T00:00:00Z').getFullYear() == 2020",
                "optional.of(1).orValue(2) == 3",
                "[1, 2, 3].size() == 3",
            ]
        )

    def text(self, depth: int) -> str:
        """An expression that is a text."""
        chance = self._chance
        if depth <= 0 or chance.random() < 0.15:
            literal = chance.choice(["x", "1", "a.", " ", "0", "xy"]) * chance.choice([1, 1, 8, 64, 300])
            return chance.choice([f"'{literal}'", f"{_A}.uuid", f"{_A}.model", *self._names, *self._names])
        one, other = self.text(depth - 1), self.text(depth - 2)
        return chance.choice(
            [
                f"({one} + {chance.choice([one, other])})",
                f"{one}.replace('{chance.choice(['', 'x', '1', 'xx'])}', {other})",
                f"{one}.replace({other}, {one})",
                f"{one}.{chance.choice(['lowerAscii', 'upperAscii', 'trim', 'reverse'])}()",
                f"{one}.substring({chance.choice('01')})",
                f"strings.quote({one})",
                f"{self.texts(depth - 1)}.join({other})",
                f"'%s%s'.format([{one}, {other}])",
                f"'%s'.format([{self.texts(depth - 1)}])",
                f"'%.900f%b%x'.format([1.5, 7, {one}])",
                f"string(bytes({one}))",
                f"({self.truth(depth - 2)} ? {one} : {other})",
            ]
        )

    def texts(self, depth: int) -> str:
        """An expression that is a list of texts."""
        chance = self._chance
        if depth <= 0 or chance.random() < 0.2:
            return f"['{chance.choice(['x', 'ab', ' '])}'" + ", 'y'" * chance.choice([0, 2, 20, 150]) + "]"
        if self._uses_loops and chance.random() < 0.6:
            if chance.random() < 0.5:
                return self._looped(depth - 1, lambda name: f"map({name}, {self.text(depth - 2)})")
            return self._looped(depth - 1, lambda name: f"filter({name}, {self.truth(depth - 2)})")
        one = self.texts(depth - 1)
        return chance.choice(
            [
                f"({one} + {one})",
                f"{self.text(depth - 1)}.split('{chance.choice(['', 'x', ',', '.'])}')",
                f"[{self.text(depth - 1)}, {self.text(depth - 2)}]",
            ]
        )

    def _looped(self, depth: int, written: Callable[[str], str]) -> str:
        over = self._chance.choice([self.texts(depth - 1), _A, "device.attributes"])
        return self._named(lambda name: f"{over}.{written(name)}")

    def _named(self, written: Callable[[str], str]) -> str:
        """What is written with one more variable."""
        name = f"v{len(self._names)}"
        self._names.append(name)
        try:
            return written(name)
        finally:
            self._names.pop()

    def _pattern(self) -> str:
        atoms = ["x", ".", "[a-z]", "[^x]", "(x|y)", "(xx?)", "[0-9]", "(.*)", "GPU"]
        counts = ["", "", "*", "+", "?", "{1,9}", "{0,60}", "{3}"]
        number = self._chance.choice([1, 3, 9])
        once = "".join(self._chance.choice(atoms) + self._chance.choice(counts) for _ in range(number))
        return self._chance.choice([once, f"^{once}$", f"({once}){{0,10}}y", f"(?i){once}"])
