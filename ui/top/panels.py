"""Queues, and use of shares, as lines of a terminal. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from rich.cells import cell_len
from rich.text import Text

from gpu.node_use import State, idle_nano_seconds
from gpu.share import NANO_PER_DEVICE
from runtime.text import line
from scheduler.core.report.node_view import Kind
from ui.inspect import use
from ui.inspect.tables import gpus_up, percent_up
from ui.inspect.use import Row, Sum
from ui.page.values import Device, NodeCard, QueueLine
from ui.queues.tables import in_tree
from wire.crds.podgroup import DEFAULT_NODE_POOL

_GAP: Final = "  "
_PODS: Final = ("POD", "NODE", "GPU", "SHARE", "MEMORY", "SM", "LIMIT", "IDLE SINCE")
_IDLE: Final = ("POD", "QUEUE", "NODE", "GPU", "SHARE", "MEMORY", "SM", "IDLE SINCE")
_SUMS: Final = ("SHARES", "HELD", "IDLE", "MEMORY", "SM", "NOT KNOWN")
#: Longer names are cut: pods and nodes of a row have to fit on one line.
_LONGEST: Final = 40
_NO_QUEUE: Final = "no queue"


def use_lines(
    nodes: Sequence[NodeCard], queue_of: Mapping[str, str], *, by: str, now_ns: int, width: int
) -> Iterator[Text]:
    """Tables of pods, of namespaces or queues (``by``), and of nodes, then what is not known and why.

    ``queue_of``: the queue of each pod, by UID. ``width``: of the terminal; names are cut to fit.

    Without an agent there is one line that says so. Of a node whose agent is dead nothing is shown as current.
    """
    if not any(node.use for node in nodes):
        yield Text(use.NO_AGENTS, style="yellow")
        return
    rows = [row for node in nodes if node.use for row in _rows(node)]
    longest = min(_LONGEST, max(12, width // 4))
    told = use.in_order((row for row in rows if row.state is not State.STALE), now_ns)
    yield from _table(_PODS, [(_pod(row, now_ns, longest), row.is_idle) for row in told])
    yield Text()

    def owner(row: Row) -> str:
        return (queue_of.get(row.uid, "") or _NO_QUEUE) if by == "queue" else row.namespace

    for title, of in ((by.upper(), owner), ("NODE", lambda row: row.node)):
        yield from _table((title, *_SUMS), [(_sum(one, longest), False) for one in use.sums(rows, of)])
        yield Text()
    yield from (Text(note, style="yellow") for note in _notes(nodes, now_ns))
    yield Text(
        "Percent are of the share: peak of memory, mean of SM, of 5 minutes. Written every 5 minutes.", style="dim"
    )


def idle_lines(nodes: Sequence[NodeCard], queue_of: Mapping[str, str], *, now_ns: int, width: int) -> Iterator[Text]:
    """Shares that are idle, by what they have cost so far, and what is not known. Arguments as of ``use_lines``."""
    if not any(node.use for node in nodes):
        yield Text(use.NO_AGENTS, style="yellow")
        return
    rows = [row for node in nodes if node.use for row in _rows(node)]
    found = use.in_order((row for row in rows if row.is_idle), now_ns)
    longest = min(_LONGEST, max(12, width // 5))
    if found:
        yield from _table(_IDLE, [(_idle(row, queue_of, now_ns, longest), True) for row in found])
        yield Text()
    yield Text(_idle_sum(found, now_ns), style="bold")
    unknown = sum(row.state is State.STALE or row.memory_percent is None or row.sm_percent is None for row in rows)
    if unknown:
        yield Text(f"shares whose use is not known: {unknown}", style="yellow")
    yield from (Text(note, style="yellow") for note in _notes(nodes, now_ns))


def _rows(node: NodeCard) -> Iterator[Row]:
    """The shares of a node that have a name."""
    for device in node.devices:
        if device.kind != Kind.SHARED.value:
            continue
        for tenant in device.tenants:
            if not tenant.is_hidden and not tenant.is_kept:
                yield Row(
                    namespace=tenant.namespace,
                    name=tenant.name,
                    uid=tenant.uid,
                    uuid=device.uuid,
                    node=node.name,
                    device=_place(device),
                    nano=tenant.nano,
                    state=State(node.use),
                    memory_percent=tenant.memory_percent,
                    sm_percent=tenant.sm_percent,
                    idle_since=tenant.idle_since,
                    enforced=tenant.enforced,
                    strength=tenant.strength,
                )


def _place(device: Device) -> str:
    return str(device.number) if device.number >= 0 else device.uuid


def _pod(row: Row, now_ns: int, longest: int) -> tuple[str, ...]:
    return (
        _cut(f"{row.namespace}/{row.name}", longest),
        _cut(row.node, longest),
        _cut(row.device, longest),
        percent_up(row.nano),
        use.percent(row.memory_percent),
        use.percent(row.sm_percent),
        use.limit(row.enforced, row.strength),
        use.idle(row.nano, row.idle_since, now_ns) if row.is_idle else "-",
    )


def _idle(row: Row, queue_of: Mapping[str, str], now_ns: int, longest: int) -> tuple[str, ...]:
    pod, node, gpu, share, memory, sm, _, since = _pod(row, now_ns, longest)
    return pod, _cut(queue_of.get(row.uid, "") or _NO_QUEUE, longest), node, gpu, share, memory, sm, since


def _idle_sum(rows: Sequence[Row], now_ns: int) -> str:
    if not rows:
        return "no share is idle"
    cost = use.gpu_hours(sum(idle_nano_seconds(row.nano, row.idle_since, now_ns) for row in rows))
    said = f"{len(rows)} idle shares hold" if len(rows) > 1 else "1 idle share holds"
    return f"{said} {gpus_up(sum(row.nano for row in rows))} GPUs, {cost} GPU-hours so far"


def _sum(one: Sum, longest: int) -> tuple[str, ...]:
    return (
        _cut(one.name, longest),
        str(one.shares),
        gpus_up(one.nano),
        gpus_up(one.idle_nano),
        use.percent(one.memory_percent),
        use.percent(one.sm_percent),
        str(one.unknown),
    )


def _notes(nodes: Sequence[NodeCard], now_ns: int) -> Iterator[str]:
    """What is not known of use, and why."""
    yield from (line(use.stale(node.name, node.use_since, now_ns)) for node in nodes if node.use == State.STALE.value)
    yield from (f"{line(node.name)}: use is not measured: {line(node.use_why)}" for node in nodes if node.use_why)
    yield from (f"{line(node.name)}: {line(text)}" for node in nodes for text in node.partitionings)
    silent = [node.name for node in nodes if not node.use]
    if silent:
        yield f"without an agent: {', '.join(map(line, silent))}"
    if any(node.use == State.UNSURE.value for node in nodes):
        yield "whether the agents work is not known: pods of their namespace were not read"
    whole = sum(device.kind == Kind.WHOLE.value for node in nodes for device in node.devices)
    if whole:
        yield f"use is not measured of GPUs that are given out whole: {whole}"


def _table(head: Sequence[str], rows: Iterable[tuple[Sequence[str], bool]]) -> Iterator[Text]:
    """Columns as wide as what is in them; a row that is marked is yellow."""
    there = list(rows)
    widths = [max(cell_len(row[at]) for row in (head, *(cells for cells, _ in there))) for at in range(len(head))]
    yield Text(_joined(head, widths), style="dim")
    for cells, is_marked in there:
        yield Text(_joined(cells, widths), style="yellow" if is_marked else "")


def _joined(cells: Sequence[str], widths: Sequence[int]) -> str:
    return _GAP.join(cell + " " * (width - cell_len(cell)) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _cut(text: str, width: int) -> str:
    said = line(text)
    return said if len(said) <= width else f"{said[: width - 1]}…"


_NAME_WIDTH: Final = 24
_INDENT: Final = "  "
_COLUMNS: Final = ("USED", "FAIR", "QUOTA", "LIMIT", "WAITS")
_COLUMN_WIDTH: Final = 7
_WIDEST_BAR: Final = 40
_NARROWEST_BAR: Final = 8
_UNLIMITED: Final = -1
_UNKNOWN: Final = "?"


def queue_lines(queues: Sequence[QueueLine], width: int) -> Iterator[Text]:
    """A head, and a line for each queue, or two where its name is long; each node pool, where there are some, apart.

    A bar is as long as the largest share of all. ``#`` is used within the fair share, ``!`` used above it, ``-`` due
    and not used, ``.`` the rest.
    """
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
