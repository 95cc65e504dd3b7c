"""The order in which pods of a trace arrive, and the order of nodes: the published procedure for one seed.

All pods of the trace come in random order. Then pods drawn at random follow, until the GPUs asked reach a load, in
percent of those of the nodes; if the trace asks for more than that, pods drawn at random are left out. Nodes get a
random order, in which equals are taken (Weng et al., USENIX ATC 2023, and its simulator).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, MutableSequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from simulator.traces.trace import Trace, TracePod

_LENGTH: Final = 607
_TAP: Final = 273
_FEED: Final = _LENGTH - _TAP
_STEPS: Final = 7_800_000_000_000
_MASK: Final = (1 << 63) - 1
_LEHMER_MODULUS: Final = (1 << 31) - 1
_LEHMER_FACTOR: Final = 48_271
_SEED_OF_TABLE: Final = 1
_INSTEAD_OF_ZERO: Final = 89_482_311

_Words = npt.NDArray[np.uint64]


class GoRandom:
    """Go's ``math/rand`` after ``rand.Seed(seed)``: the published experiments order pods and nodes by its draws.

    An additive lagged Fibonacci generator, a(n) = a(n-607) + a(n-273), whose state is mixed with a table.
    """

    __slots__ = ("_feed", "_state", "_tap")

    def __init__(self, seed: int) -> None:
        words = _words(seed % _LEHMER_MODULUS or _INSTEAD_OF_ZERO, shift=20)
        self._state = [(word ^ mixed) & _MASK for word, mixed in zip(words, _table(), strict=True)]
        self._tap, self._feed = 0, _FEED

    def int63(self) -> int:
        """Draw a number below 2^63."""
        self._tap = (self._tap - 1) % _LENGTH
        self._feed = (self._feed - 1) % _LENGTH
        drawn = self._state[self._feed] = (self._state[self._feed] + self._state[self._tap]) & _MASK
        return drawn

    def below(self, end: int) -> int:
        """Draw a number below ``end``, as ``Intn`` does for ``end`` below 2^31."""
        if end & (end - 1) == 0:
            return self.int63() >> 32 & (end - 1)
        most = (1 << 31) - 1 - (1 << 31) % end
        drawn = self.int63() >> 32
        while drawn > most:
            drawn = self.int63() >> 32
        return drawn % end

    def _scaled_below(self, end: int) -> int:
        """Draw a number below ``end`` as ``Shuffle`` does: by the high half of a product."""
        product = (self.int63() >> 31) * end
        if product & 0xFFFF_FFFF < end:
            least = (1 << 32) % end
            while product & 0xFFFF_FFFF < least:
                product = (self.int63() >> 31) * end
        return product >> 32

    def shuffle(self, items: MutableSequence[Any]) -> None:
        """Bring items into a random order."""
        for i in range(len(items) - 1, 0, -1):
            j = self._scaled_below(i + 1)
            items[i], items[j] = items[j], items[i]

    def permutation(self, count: int) -> list[int]:
        """Draw an order of 0 to ``count`` - 1."""
        drawn = [0] * count
        for i in range(count):
            j = self.below(i + 1)
            drawn[i], drawn[j] = drawn[j], i
        return drawn


def _lehmer(seed: int) -> Iterator[int]:
    """Yield the numbers that fill a state, after twenty that are passed over."""
    x = seed
    for _ in range(20):
        x = x * _LEHMER_FACTOR % _LEHMER_MODULUS
    while True:
        x = x * _LEHMER_FACTOR % _LEHMER_MODULUS
        yield x


def _words(seed: int, *, shift: int) -> list[int]:
    numbers = _lehmer(seed)
    return [next(numbers) << 2 * shift ^ next(numbers) << shift ^ next(numbers) for _ in range(_LENGTH)]


@functools.cache
def _table() -> tuple[int, ...]:
    """Return the words that every state is mixed with, by their place.

    It is the state of the same generator after 7.8 * 10^12 steps, computed by a power of x modulo the characteristic
    polynomial, in some 50 ms.
    """
    words = _words(_SEED_OF_TABLE, shift=10)
    # The n-th term of the sequence is at place FEED - 1 - n, and so on around.
    terms = np.array([words[(_FEED - 1 - n) % _LENGTH] for n in range(_LENGTH)] + [0] * _LENGTH, np.uint64)
    for n in range(_LENGTH, 2 * _LENGTH):
        terms[n] = terms[n - _LENGTH] + terms[n - _TAP]
    power = _power_of_x(_STEPS)
    table = [0] * _LENGTH
    for n in range(_LENGTH):
        term = int((power * terms[n : n + _LENGTH]).sum(dtype=np.uint64))
        table[(_FEED - 1 - _STEPS - n) % _LENGTH] = term & _MASK
    return tuple(table)


def _power_of_x(exponent: int) -> _Words:
    """Return x^exponent modulo x^607 - x^334 - 1, with coefficients modulo 2^64."""
    power = np.zeros(_LENGTH, np.uint64)
    power[0] = 1
    for bit in f"{exponent:b}":
        power = _reduced(np.convolve(power, power))
        if bit == "1":
            power = _reduced(np.concatenate([np.zeros(1, np.uint64), power]))
    return power


def _reduced(product: _Words) -> _Words:
    """Replace high powers by lower ones: x^(607+k) is x^(334+k) + x^k."""
    high = len(product)
    while high > _LENGTH:
        low = max(high - _TAP, _LENGTH)
        part = product[low:high].copy()
        product[low - _TAP : high - _TAP] += part
        product[low - _LENGTH : high - _LENGTH] += part
        high = low
    return product[:_LENGTH].copy()


#: Draws that the published program spends on time-outs of its watches, between pods and nodes.
_WATCHES: Final = 10


class Arrivals(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Pods in the order of arrival; ``ranks``: of each node of the trace, its place in the order of equals."""

    pods: tuple[TracePod, ...]
    ranks: tuple[int, ...]


def arrivals(trace: Trace, seed: int, *, load_percent: int) -> Arrivals:
    """Draw the arrivals of a seed."""
    rng = GoRandom(seed)
    rng.int63()
    pods = list(trace.pods)
    rng.shuffle(pods)
    asked, target = sum(pod.ask.total_milli for pod in pods), load_percent * trace.capacity_milli
    if asked * 100 > target:
        _leave_out(pods, rng, asked, target)
    elif trace.pods:
        _add(pods, rng, target, drawn_from=trace.pods)
    for _ in range(_WATCHES):
        rng.int63()
    return Arrivals(pods=tuple(pods), ranks=tuple(rng.permutation(len(trace.nodes))))


def _leave_out(pods: list[TracePod], rng: GoRandom, asked: int, target: int) -> None:
    while asked * 100 > target:
        asked -= pods.pop(rng.below(len(pods))).ask.total_milli


def _add(pods: list[TracePod], rng: GoRandom, target: int, *, drawn_from: tuple[TracePod, ...]) -> None:
    """Add pods until the next would be too much; the published program looks at one GPU of it."""
    if not any(pod.ask.gpus for pod in drawn_from):
        return
    asked = sum(pod.ask.total_milli for pod in pods)
    while True:
        pod = drawn_from[rng.below(len(drawn_from))]
        if (asked + pod.ask.gpu_milli) * 100 > target:
            return
        asked += pod.ask.total_milli
        pods.append(pod)
