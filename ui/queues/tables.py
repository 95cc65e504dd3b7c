"""``inspect queues``: all queues as a tree, with what each may use, uses and waits for.

Amounts are cores, GB of 10^9 bytes, and GPUs, to two places. Quotas and limits are rounded down; used and requested
amounts and fair shares are rounded up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol, TypeVar

from scheduler.conditions.messages import decimal
from scheduler.core.report.queue_view import WITHOUT_END, Amounts, QueueView
from ui.tables import Cell, Sheet

#: By dimension: what is counted, its unit for one and for several, and how many smallest units make one.
COUNTED: Final = ("CPU cores", "Memory (GB)", "GPUs")
_WORDS: Final = (("core", "cores"), ("GB of memory", "GB of memory"), ("GPU", "GPUs"))
_ONES: Final = (1000, 10**9, 10**9)
_HUNDREDTH: Final = 100
_WEIGHT: Final = 10**6
#: A hundredth of a percent in billionths.
_PERCENT: Final = 10**5
GPU: Final = 2


def amount(at: int, value: int, *, up: bool = False) -> str:
    """An amount of the dimension ``at``, rounded down, or up."""
    if value == WITHOUT_END:
        return "unlimited"
    one = _ONES[at]
    hundredths = -(-value * _HUNDREDTH // one) if up else value * _HUNDREDTH // one
    return decimal(hundredths, _HUNDREDTH)


def named(at: int, value: int, *, up: bool = False) -> str:
    """The same with its unit: ``2 GPUs``."""
    text = amount(at, value, up=up)
    return f"{text} {_WORDS[at][0 if text == '1' else 1]}"


def weight(millionths: int) -> str:
    """A weight."""
    return decimal(millionths, _WEIGHT)


def percent(ppb: int) -> str:
    """A part in billionths, in percent, rounded up."""
    return f"{decimal(-(-ppb // _PERCENT), _HUNDREDTH)}%"


def each_of(amounts: Amounts) -> Sequence[int]:
    """Amounts by dimension."""
    return amounts.cpu_milli, amounts.mem_bytes, amounts.gpu_nano


def requested(amounts: Amounts) -> str:
    """What a workload requests: its GPUs, or where it has none the rest."""
    by_dimension = each_of(amounts)
    if by_dimension[GPU]:
        return named(GPU, by_dimension[GPU], up=True)
    return ", ".join(named(at, value, up=True) for at, value in enumerate(by_dimension) if value) or "nothing"


_INDENT: Final = "  "
_COLUMNS: Final = ("QUOTA", "FAIR SHARE", "ALLOCATED", "REQUESTED", "LIMIT")
_FURTHER: Final = ("NON-PREEMPTIBLE", "TERMINATING", "WEIGHT", "PRIORITY", "PODS")
_NOTHING: Final = "There are no Queues: no pod is limited, even if it names a queue."


class Named(Protocol):
    """A queue that says where it is."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def parent(self) -> str:
        """The name of the queue above it, "" at the top."""
        ...


Q = TypeVar("Q", bound=Named)


def in_tree(queues: Iterable[Q]) -> list[tuple[int, Q]]:
    """Queues with how deep they are: those below a queue follow it. Those in a cycle are at the top."""
    by_name = {queue.name: queue for queue in queues}
    below: dict[str, list[str]] = {}
    for queue in by_name.values():
        below.setdefault(queue.parent, []).append(queue.name)
    met: dict[str, int] = {}
    roots = [queue.name for queue in by_name.values() if queue.parent not in by_name]
    for root in (*roots, *by_name):
        stack = [] if root in met else [(root, 0)]
        while stack:
            name, depth = stack.pop()
            if name in met:
                continue
            met[name] = depth
            stack += [(child, depth + 1) for child in reversed(below.get(name, []))]
    return [(depth, by_name[name]) for name, depth in met.items()]


def tree_sheets(queues: Sequence[QueueView], *, wide: bool = False) -> list[Sheet]:
    """A line for each queue, GPUs alone or all resources; then those that can't be used, and why.

    Each node pool has a table of its own, as its queues divide what its nodes have.
    """
    if not queues:
        return [Sheet(title=_NOTHING, columns=(), rows=())]
    pools: dict[str, list[QueueView]] = {}
    for queue in queues:
        pools.setdefault(queue.node_pool, []).append(queue)
    sheets = [_of_pool(pool, of_pool, wide=wide) for pool, of_pool in sorted(pools.items())]
    unusable = [(queue.name, queue.unusable.message) for queue in queues if queue.unusable is not None]
    if unusable:
        reasons = [(Cell(name), Cell(message, "yellow")) for name, message in unusable]
        title = "Queues that take nobody:"
        sheets.append(Sheet(title=title, columns=("QUEUE", "WHY"), rows=reasons, prose=("WHY",), folds=("QUEUE",)))
    return sheets


def _of_pool(pool: str, queues: Sequence[QueueView], *, wide: bool) -> Sheet:
    columns = ["QUEUE", "RESOURCE", *_COLUMNS, *_FURTHER] if wide else ["QUEUE", *_COLUMNS]
    shown = range(GPU, -1, -1) if wide else [GPU]
    rows = [row for depth, queue in in_tree(queues) for row in _rows(depth, queue, shown, wide=wide)]
    title = "" if wide else "GPUs:"
    if pool:
        title = f"Node pool {pool}:" if wide else f"GPUs of node pool {pool}:"
    spare = ("REQUESTED", "LIMIT", "QUOTA")
    return Sheet(title=title, columns=columns, rows=rows, spare=spare, folds=("QUEUE",))


def _rows(depth: int, queue: QueueView, shown: Sequence[int], *, wide: bool) -> Iterator[list[Cell]]:
    """A line for each resource that is shown. What is of the whole queue is the same in all of them."""
    style = "yellow" if queue.unusable is not None else ""
    for number, at in enumerate(shown):
        repeats = number > 0
        name = Cell(_INDENT * depth + queue.name, style, repeats)
        cells = [
            _cell(queue.quota, at),
            Cell("-") if queue.unusable is not None else _cell(queue.fair_share, at, up=True),
            _cell(queue.allocated, at, up=True),
            _cell(queue.requested, at, up=True),
            _cell(queue.limit, at),
        ]
        if not wide:
            yield [name, *cells]
            continue
        weights = (queue.weight_millionths.cpu, queue.weight_millionths.memory, queue.weight_millionths.gpu)
        yield [
            name,
            Cell(COUNTED[at]),
            *cells,
            _cell(queue.allocated_non_preemptible, at, up=True),
            _cell(queue.terminating, at, up=True),
            Cell(weight(weights[at])),
            Cell(str(queue.priority), repeats=repeats),
            Cell(str(queue.pods), repeats=repeats),
        ]


def _cell(amounts: Amounts, at: int, *, up: bool = False) -> Cell:
    return Cell(amount(at, each_of(amounts)[at], up=up))
