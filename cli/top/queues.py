"""Queues as lines of a terminal: a tree with a bar each, to scale, and what each uses, is due and waits for. Pure.

A bar is as long as the largest share of all. ``#`` is used within the fair share, ``!`` used above it, ``-`` due and
not used, ``.`` the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.text import Text

from cli.inspection.telling import gpus_up
from cli.page.values import QueueLine
from cli.printable import line
from cli.queueing.tree import in_tree
from gpu.share import NANO_PER_DEVICE
from wire.crds.podgroup import DEFAULT_NODE_POOL

_NAME_WIDTH: Final = 24
_INDENT: Final = "  "
_COLUMNS: Final = ("USED", "FAIR", "QUOTA", "LIMIT", "WAITS")
_COLUMN_WIDTH: Final = 7
_WIDEST_BAR: Final = 40
_NARROWEST_BAR: Final = 8
_UNLIMITED: Final = -1
_UNKNOWN: Final = "?"


def queue_lines(queues: Sequence[QueueLine], width: int) -> Iterator[Text]:
    """A head, and a line for each queue, or two where its name is long; each node pool, where there are some, apart."""
    if not queues:
        yield Text("There are no Queues here: there is none, or they can't be read.", style="dim")
        return
    cells = max(_NARROWEST_BAR, min(_WIDEST_BAR, width - _NAME_WIDTH - 1 - _COLUMN_WIDTH * len(_COLUMNS)))
    most = max((max(queue.used_nano, queue.fair_nano) for queue in queues), default=0)
    yield Text("QUEUES, IN GPUS".ljust(_NAME_WIDTH + cells + 1) + _row(_COLUMNS), style="dim")
    pools: dict[str, list[QueueLine]] = {}
    for queue in sorted(queues, key=lambda queue: (queue.node_pool, queue.name)):
        pools.setdefault(queue.node_pool, []).append(queue)
    for pool, of_pool in pools.items():
        if pools.keys() != {""}:
            yield from _broken(f"node pool {line(pool or DEFAULT_NODE_POOL)}", width, style="dim")
        for depth, queue in in_tree(of_pool):
            yield from _queue(depth, queue, most=most, cells=cells, width=width)


def _broken(text: str, width: int, style: str = "") -> Iterator[Text]:
    """All of a text, in as many lines as it takes."""
    yield from (Text(text[at : at + width], style=style) for at in range(0, len(text), max(1, width)))


def _queue(depth: int, queue: QueueLine, *, most: int, cells: int, width: int) -> Iterator[Text]:
    name = _INDENT * depth + line(queue.name)
    if len(name) >= _NAME_WIDTH:
        yield from _broken(name, width)
        name = ""
    said = Text(name.ljust(_NAME_WIDTH), style="yellow" if queue.unusable else "")
    said.append_text(_bar(queue, most, cells)).append(" ")
    if not queue.is_counted:
        unknown = (_UNKNOWN, _UNKNOWN, queue.gpu_quota or "0", queue.gpu_limit or "0", _UNKNOWN)
        yield said.append(_row(["-" if each == "-1" else each for each in unknown]))
        return
    amounts = (queue.used_nano, queue.fair_nano, queue.quota_nano, queue.limit_nano, queue.waiting_nano)
    yield said.append(_row(["-" if amount == _UNLIMITED else gpus_up(amount) for amount in amounts]))
    if queue.unusable:
        yield Text(f"{_INDENT * (depth + 1)}takes nobody: {line(queue.unusable)}", style="yellow")


def _row(cells: Sequence[str]) -> str:
    return "".join(cell.rjust(_COLUMN_WIDTH) for cell in cells)


def _bar(queue: QueueLine, most: int, cells: int) -> Text:
    """What is used is seen, however little it is."""
    if not queue.is_counted:
        return Text("~" * cells, style="dim")
    fair, used = (-(-nano * cells // max(most, NANO_PER_DEVICE // 100)) for nano in (queue.fair_nano, queue.used_nano))
    within = min(fair, used)
    bar = Text("#" * within, style="green")
    bar.append("!" * (used - within), style="yellow")
    bar.append("-" * (fair - within))
    return bar.append("." * (cells - max(fair, used)), style="dim")
