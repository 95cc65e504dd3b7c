"""A trace: nodes, and pods in the order of their names, as values, read in the form of Alibaba's openb trace.

That is CSV, plain or compressed (``cluster-trace-gpu-v2023``). Nodes: ``sn``, ``cpu_milli``, ``memory_mib``, ``gpu``,
and ``model`` if known. Pods: ``name``, ``cpu_milli``, ``memory_mib``, ``num_gpu``, ``gpu_milli`` of each GPU, and if
known ``gpu_spec`` (models, with ``|`` between them), ``creation_time`` and ``deletion_time`` in seconds. Other columns
are passed over, and a byte order mark is.
"""

from __future__ import annotations

import csv
import gzip
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

import msgspec

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
