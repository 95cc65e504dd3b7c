"""What tenants use of their shares beside what they hold: rows, their order, sums, cells, and the words. Pure.

Use is what agents report (gpu/node_use.py), in percent of a share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from gpu.mig import GpuPartitioning, Stage
from gpu.node_use import Key, NodeUse, State, TenantUse, idle_nano_seconds
from gpu.share import NANO_PER_DEVICE
from runtime.text import line
from scheduler.conditions.messages import decimal
from scheduler.core.report.node_view import Kind
from ui.inspect.values import Inspection, NodeUseView, TenantUseView, UseView
from ui.tables import Cell, Sheet
from wire.rfc3339 import parse_ns, rfc3339
from wire.units import SECOND_NS

_PERCENT: Final = 100
_NONE: Final = "-"
_UNKNOWN: Final = "?"
NO_AGENTS: Final = "use is not shown: no node agent has reported (docs/node-agent.md)"


class Row(TenantUseView, frozen=True, gc=False, kw_only=True):
    """A share of one device, and where it is. ``state``: how far the node's report counts."""

    node: str
    device: str
    state: State

    @property
    def is_idle(self) -> bool:
        """Whether it may be called idle: only of what a report says of now."""
        return bool(self.idle_since) and self.state is not State.STALE


class Sum(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of one queue, namespace or node. ``unknown``: how many of them have no number.

    Percentages are of shares whose use is known: what is not known is never taken for nothing.
    """

    name: str
    shares: int = 0
    unknown: int = 0
    nano: int = 0
    idle_nano: int = 0
    memory_percent: int | None = None
    sm_percent: int | None = None


def in_order(rows: Iterable[Row], now_ns: int) -> list[Row]:
    """Idle ones first, by what they have cost so far; then those with most that is not used; then what is not known."""

    def key(row: Row) -> tuple[int, int, str, str, str]:
        if row.is_idle:
            return 0, -idle_nano_seconds(row.nano, row.idle_since, now_ns), row.namespace, row.name, row.device
        known = [each for each in (row.memory_percent, row.sm_percent) if each is not None]
        unused = row.nano * (_PERCENT - max(known)) if known else 0
        return (1 if known else 2), -unused, row.namespace, row.name, row.device

    return sorted(rows, key=key)


def sums(rows: Iterable[Row], of: Callable[[Row], str]) -> list[Sum]:
    """Add up by ``of``, those with most that is idle first."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(of(row), []).append(row)
    made = [_sum(name, those) for name, those in groups.items()]
    return sorted(made, key=lambda each: (-each.idle_nano, -each.nano, each.name))


def _sum(name: str, rows: Sequence[Row]) -> Sum:
    return Sum(
        name=name,
        shares=len(rows),
        unknown=sum(row.memory_percent is None for row in rows),
        nano=sum(row.nano for row in rows),
        idle_nano=sum(row.nano for row in rows if row.is_idle),
        memory_percent=_mean([(row.nano, row.memory_percent) for row in rows]),
        sm_percent=_mean([(row.nano, row.sm_percent) for row in rows]),
    )


def _mean(parts: Iterable[tuple[int, int | None]]) -> int | None:
    """Return the mean use of shares in percent, weighed by their size, rounded up; None where no use is known."""
    known = [(nano, percent) for nano, percent in parts if percent is not None]
    held = sum(nano for nano, _ in known)
    return -(-sum(nano * percent for nano, percent in known) // held) if held else None


def percent(value: int | None) -> str:
    """A part of a share."""
    return _UNKNOWN if value is None else f"{value}%"


def limit(enforced: str, strength: str) -> str:
    """How well a memory cap is held, and by what."""
    return f"{strength} ({enforced})" if strength else _NONE


def idle(nano: int, since: str, now_ns: int) -> str:
    """Since when a share is idle, and how much of GPUs that has been."""
    if (since_ns := parse_ns(since)) is None:
        return _NONE
    cost = gpu_hours(idle_nano_seconds(nano, since, now_ns))
    return f"{clock(since, now_ns)} ({age(max(0, now_ns - since_ns))}, {cost} GPU-hours)"


def gpu_hours(nano_seconds: int) -> str:
    """GPU-hours, rounded down to hundredths."""
    return decimal(nano_seconds * 100 // (NANO_PER_DEVICE * 3_600), 100)


def clock(at: str, now_ns: int) -> str:
    """A time for people who look now: of another day with its date. UTC, as the API server has times."""
    at_ns = parse_ns(at)
    if at_ns is None:
        return _UNKNOWN
    said = rfc3339(at_ns)
    time = f"{said[11:16]}Z"
    return time if said[:10] == rfc3339(now_ns)[:10] else f"{said[:10]} {time}"


def age(ns: int) -> str:
    """How long, in its two largest units."""
    seconds = ns // SECOND_NS
    units = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
    first = next((at for at, (_, size) in enumerate(units) if seconds >= size), len(units) - 1)
    said: list[str] = []
    for unit, size in units[first : first + 2]:
        count, seconds = divmod(seconds, size)
        said += [f"{count}{unit}"] if count or not said else []
    return "".join(said)


def partitioning(one: GpuPartitioning) -> str:
    """Say which MIG slices are being made of a GPU, or could not be."""
    gpu = f"GPU {one.index}" if one.index >= 0 else one.uuid
    slices = ", ".join(one.layout) or "none"
    if one.stage is Stage.FAILED:
        return f"MIG slices of {gpu} could not be made ({slices}): {one.why}"
    done = "are being made" if one.stage is Stage.UNDER_WAY else "are asked for"
    return f"MIG slices of {gpu} {done}: {slices}"


def stale(node: str, since: str, now_ns: int) -> str:
    """Say that a node's report is old, and for how long."""
    since_ns = parse_ns(since)
    for_long = f" for {age(max(0, now_ns - since_ns))}" if since_ns is not None else ""
    return f"{node}: its agent has not worked{for_long}; what its pods use now is not known"


#: Columns of a table of devices or pods.
COLUMNS: Final = ("USE", "LIMIT")
_NO_USE: Final = TenantUse()


def use_view(seen: Inspection, reports: Mapping[str, NodeUse], *, at: str) -> UseView:
    """Return what is reported of the shares that are shown, by node. ``at``: now, by the API server's clock."""
    held: dict[str, dict[Key, TenantUseView]] = {}
    for node, key, view in _held(seen):
        held.setdefault(node, {})[key] = view
    nodes = [_node(name, reports[name], held.get(name, {})) for name in sorted(reports)]
    return UseView(at=at, nodes=tuple(nodes))


def _held(seen: Inspection) -> Iterator[tuple[str, Key, TenantUseView]]:
    """All shares that are shown: of nodes, or else of pods."""
    for node in seen.nodes:
        for device in node.devices:
            for one in device.tenants if device.kind is Kind.SHARED else ():
                who = TenantUseView(
                    namespace=one.namespace, name=one.name, uid=one.uid, uuid=device.uuid, nano=one.nano
                )
                yield node.name, (one.uid, device.uuid), who
    for pod in seen.pods if not seen.nodes else ():
        for given in pod.given:
            who = TenantUseView(namespace=pod.namespace, name=pod.name, uid=pod.uid, uuid=given.uuid, nano=given.nano)
            yield pod.node, (pod.uid, given.uuid), who


def _node(name: str, report: NodeUse, held: Mapping[Key, TenantUseView]) -> NodeUseView:
    tenants = (_used(view, report.tenants.get(key, _NO_USE)) for key, view in held.items())
    order = sorted(tenants, key=lambda each: (each.namespace, each.name, each.uuid))
    return NodeUseView(node=name, state=report.state, since=report.since, why=report.why, tenants=tuple(order))


def _used(view: TenantUseView, use: TenantUse) -> TenantUseView:
    return msgspec.structs.replace(
        view,
        memory_percent=use.memory_percent,
        sm_percent=use.sm_percent,
        idle_since=use.idle_since,
        enforced=use.enforced,
        strength=use.strength,
    )


class UseCells:
    """Cells of the columns ``COLUMNS``, by pod and device. ``has_any``: whether an agent has reported at all."""

    def __init__(self, view: UseView) -> None:
        self.has_any = bool(view.nodes)
        self._now_ns = parse_ns(view.at) or 0
        self._of = {(one.uid, one.uuid): (node, one) for node in view.nodes for one in node.tenants}

    def of(self, keys: Iterable[Key]) -> list[Cell]:
        """Of the shares of a row, a line for each."""
        found = [self._of[key] for key in keys if key in self._of]
        if not found:
            return [Cell(_NONE), Cell(_NONE)]
        is_idle = any(one.idle_since for _, one in found)
        use = "\n".join(self._said(node, one) for node, one in found)
        limits = "\n".join(_limit(node, one) for node, one in found)
        return [Cell(use, "yellow" if is_idle else ""), Cell(limits)]

    def _said(self, node: NodeUseView, one: TenantUseView) -> str:
        if node.state is State.STALE:
            return "not known: the report is old"
        said = f"memory {percent(one.memory_percent)}, SM {percent(one.sm_percent)}"
        return f"{said}, idle since {idle(one.nano, one.idle_since, self._now_ns)}" if one.idle_since else said


def _limit(node: NodeUseView, one: TenantUseView) -> str:
    return "?" if node.state is State.STALE else limit(one.enforced, one.strength)


def idle_sheets(view: UseView) -> list[Sheet]:
    """A line for each idle share, the dearest first; no table where nobody is idle."""
    now_ns = parse_ns(view.at) or 0
    rows = [row for node in view.nodes for row in _rows(node) if row.is_idle]
    if not rows:
        return []
    made = [
        (
            Cell(f"{row.namespace}/{row.name}"),
            Cell(row.node),
            Cell(row.device),
            Cell(percent(row.memory_percent)),
            Cell(percent(row.sm_percent)),
            Cell(idle(row.nano, row.idle_since, now_ns), "yellow"),
        )
        for row in in_order(rows, now_ns)
    ]
    columns = ("POD", "NODE", "DEVICE", "MEMORY", "SM", "IDLE SINCE")
    return [Sheet(title="Idle shares:", columns=columns, rows=made, spare=("DEVICE", "SM", "MEMORY"), folds=("POD",))]


def note_sheets(view: UseView, nodes: Sequence[str]) -> list[Sheet]:
    """Lines of what is not known of use, and why. ``nodes``: all that are shown."""
    if not view.nodes:
        return [Sheet(title=NO_AGENTS, columns=(), rows=())]
    now_ns = parse_ns(view.at) or 0
    said = [stale(node.node, node.since, now_ns) for node in view.nodes if node.state is State.STALE]
    said += [f"{node.node}: use is not measured: {line(node.why)}" for node in view.nodes if node.why]
    silent = sorted(set(nodes) - {node.node for node in view.nodes})
    said += [f"without an agent: {', '.join(silent)}"] if silent else []
    if any(node.state is State.UNSURE for node in view.nodes):
        said.append("whether the agents work is not known, so use may be old")
    return [Sheet(title=text, columns=(), rows=()) for text in said]


def _rows(node: NodeUseView) -> Iterator[Row]:
    for one in node.tenants:
        yield Row(**msgspec.structs.asdict(one), node=node.node, device=one.uuid, state=node.state)
