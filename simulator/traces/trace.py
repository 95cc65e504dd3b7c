"""A trace: nodes, and pods in the order of their names, as values; and the order in which a run has them arrive.

Read in the form of Alibaba's openb trace: CSV, plain or compressed (``cluster-trace-gpu-v2023``). Nodes: ``sn``,
``cpu_milli``, ``memory_mib``, ``gpu``, and ``model`` if known. Pods: ``name``, ``cpu_milli``, ``memory_mib``,
``num_gpu``, ``gpu_milli`` of each GPU, and if known ``gpu_spec`` (models, with ``|`` between them), ``creation_time``
and ``deletion_time`` in seconds. Other columns and a byte order mark are passed over.

Arrivals follow the published procedure for one seed. All pods of the trace come in random order. Then pods drawn at
random follow, until the GPUs asked reach a load, in percent of those of the nodes; if the trace asks for more than
that, pods drawn at random are left out. Nodes get a random order, in which equals are taken (Weng et al., USENIX ATC
2023, and its simulator).
"""

from __future__ import annotations

import csv
import functools
import gzip
import lzma
from collections.abc import Iterator, MutableSequence
from pathlib import Path
from typing import IO, Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

MILLI_PER_CARD: Final = 1_000
#: Bounds of what is read: more is refused.
MOST_NODES: Final = 100_000
MOST_PODS: Final = 1_000_000
MOST_GPUS: Final = 64
MOST_AMOUNT: Final = 1 << 40


class MalformedTrace(ValueError):
    """Raised when a trace can't be read; the message names file, line, field, value and what is allowed."""


class TraceNode(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A node; ``model``: of its GPUs, "" if unknown."""

    name: str
    cpu_milli: int
    mem_mib: int
    gpus: int
    model: str = ""


class Ask(msgspec.Struct, frozen=True, gc=False, cache_hash=True, kw_only=True):
    """What a pod asks: ``gpus`` devices, ``gpu_milli`` of each (below 1,000 for one device only), of some models."""

    cpu_milli: int
    mem_mib: int
    gpus: int = 0
    gpu_milli: int = 0
    models: tuple[str, ...] = ()

    @property
    def total_milli(self) -> int:
        """Milli-GPU in all."""
        return self.gpus * self.gpu_milli

    @property
    def is_shared(self) -> bool:
        """Whether it asks a part of one GPU."""
        return self.gpus == 1 and self.gpu_milli < MILLI_PER_CARD


class TracePod(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A pod; ``lived_s``: from its creation to its end, None if the trace does not say."""

    name: str
    ask: Ask
    lived_s: int | None = None


class Trace(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Nodes by name and pods by name."""

    nodes: tuple[TraceNode, ...]
    pods: tuple[TracePod, ...]

    def part(self, step: int) -> Trace:
        """Return every ``step``-th node and pod."""
        return Trace(nodes=self.nodes[::step], pods=self.pods[::step])

    @property
    def capacity_milli(self) -> int:
        """Milli-GPU of all nodes."""
        return sum(node.gpus for node in self.nodes) * MILLI_PER_CARD


#: The nodes with GPUs, as in the published experiments; and the pods of a variant.
OPENB_NODES: Final = "openb_node_list_gpu_node"
OPENB_PODS: Final = "openb_pod_list_"
#: A file that unpacks to more is refused.
_MOST_BYTES: Final = 1 << 28
_ENDINGS: Final = (".csv", ".csv.gz", ".csv.xz")


def openb_nodes(folder: Path) -> tuple[TraceNode, ...]:
    """Read the nodes of a folder. Raises MalformedTrace."""
    return read_nodes(_there(folder, OPENB_NODES))


def openb_pods(folder: Path, variant: str) -> tuple[TracePod, ...]:
    """Read the pods of a variant. Raises MalformedTrace."""
    return read_pods(_there(folder, OPENB_PODS + variant))


def openb_variants(folder: Path) -> list[str]:
    """Return the variants that a folder has, sorted."""
    files = (path.name for ending in _ENDINGS for path in folder.glob(f"{OPENB_PODS}*{ending}"))
    return sorted({name.removeprefix(OPENB_PODS).partition(".")[0] for name in files})


def _there(folder: Path, name: str) -> Path:
    found = next((path for ending in _ENDINGS if (path := folder / (name + ending)).is_file()), None)
    if found is None:
        have = ", ".join(openb_variants(folder)) or "none"
        raise MalformedTrace(f"{folder}: no {name}{{{','.join(_ENDINGS)}}}; variants there: {have}")
    return found


def read_nodes(path: Path) -> tuple[TraceNode, ...]:
    """Read a list of nodes, in the order of their names. Raises MalformedTrace."""
    nodes = [
        TraceNode(
            name=row.text("sn"),
            cpu_milli=row.amount("cpu_milli"),
            mem_mib=row.amount("memory_mib"),
            gpus=row.amount("gpu", most=MOST_GPUS),
            model=row.optional("model"),
        )
        for row in _rows(path, MOST_NODES)
    ]
    return tuple(sorted(nodes, key=lambda node: node.name))


def read_pods(path: Path) -> tuple[TracePod, ...]:
    """Read a list of pods, in the order of their names. Raises MalformedTrace."""
    pods = [TracePod(name=row.text("name"), ask=_ask(row), lived_s=_lived_s(row)) for row in _rows(path, MOST_PODS)]
    return tuple(sorted(pods, key=lambda pod: pod.name))


def _ask(row: _Row) -> Ask:
    gpus = row.amount("num_gpu", most=MOST_GPUS)
    milli = min(row.amount("gpu_milli"), MILLI_PER_CARD) if gpus else 0
    if gpus and not milli:
        raise row.refused("gpu_milli", "0", "from 1 to 1000 for a pod with GPUs")
    if gpus > 1 and milli < MILLI_PER_CARD:
        raise row.refused("gpu_milli", str(milli), "1000 for a pod with several GPUs")
    models = row.optional("gpu_spec") if gpus else ""
    return Ask(
        cpu_milli=row.amount("cpu_milli"),
        mem_mib=row.amount("memory_mib"),
        gpus=gpus,
        gpu_milli=milli,
        models=tuple(models.split("|")) if models else (),
    )


def _lived_s(row: _Row) -> int | None:
    if not row.optional("creation_time") or not row.optional("deletion_time"):
        return None
    return max(row.amount("deletion_time") - row.amount("creation_time"), 0)


class _Row:
    """One line of a file, and what to say if a field is wrong."""

    def __init__(self, path: Path, number: int, fields: dict[str, str]) -> None:
        self._place = f"{path}:{number}"
        self._fields = fields

    def optional(self, field: str) -> str:
        return self._fields.get(field) or ""

    def text(self, field: str) -> str:
        found = self.optional(field)
        if not found:
            raise self.refused(field, "", "a name")
        return found

    def amount(self, field: str, *, most: int = MOST_AMOUNT) -> int:
        text = self.optional(field)
        # Digits first: int() takes underscores and other scripts, and is slow on long texts.
        if not (text.isascii() and text.isdigit() and len(text) <= len(str(most)) and int(text) <= most):
            raise self.refused(field, text, f"a whole number from 0 to {most}")
        return int(text)

    def refused(self, field: str, value: str, allowed: str) -> MalformedTrace:
        return MalformedTrace(f"{self._place}: {field}: {value[:40]!r}; allowed: {allowed}")


def _rows(path: Path, most: int) -> Iterator[_Row]:
    try:
        with _opened(path) as file:
            for number, fields in enumerate(csv.DictReader(_lines(file, path)), start=2):
                if number - 1 > most:
                    raise MalformedTrace(f"{path}: more than {most} lines; take a part of them")
                yield _Row(path, number, fields)
    except (OSError, UnicodeDecodeError, EOFError, lzma.LZMAError, csv.Error) as error:
        raise MalformedTrace(f"{path}: not readable as CSV: {error}") from error


def _lines(file: IO[str], path: Path) -> Iterator[str]:
    left = _MOST_BYTES
    while line := file.readline(left + 1):
        left -= len(line)
        if left < 0:
            raise MalformedTrace(f"{path}: more than {_MOST_BYTES} characters")
        yield line


def _opened(path: Path) -> IO[str]:
    if path.suffix == ".xz":
        return lzma.open(path, "rt", encoding="utf-8-sig", newline="")
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


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
