"""What tenants use, beside what an inspection shows that they hold: data for programs, cells for tables. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from cli.inspection import uses
from cli.inspection.sheets import Cell, Sheet
from cli.inspection.uses import Row
from cli.inspection.values import Inspection, NodeUseView, TenantUseView, UseView
from cli.printable import line
from gpu.nodeuse import Key, NodeUse, State, TenantUse
from scheduler.core.report.node_view import Kind
from wire.rfc3339 import parse_ns

#: Columns of a table of devices or pods.
COLUMNS: Final = ("USE", "LIMIT")
_NONE: Final = "-"
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
        said = f"memory {uses.percent(one.memory_percent)}, SM {uses.percent(one.sm_percent)}"
        return f"{said}, idle since {uses.idle(one.nano, one.idle_since, self._now_ns)}" if one.idle_since else said


def _limit(node: NodeUseView, one: TenantUseView) -> str:
    return "?" if node.state is State.STALE else uses.limit(one.enforced, one.strength)


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
            Cell(uses.percent(row.memory_percent)),
            Cell(uses.percent(row.sm_percent)),
            Cell(uses.idle(row.nano, row.idle_since, now_ns), "yellow"),
        )
        for row in uses.in_order(rows, now_ns)
    ]
    columns = ("POD", "NODE", "DEVICE", "MEMORY", "SM", "IDLE SINCE")
    return [Sheet(title="Idle shares:", columns=columns, rows=made, spare=("DEVICE", "SM", "MEMORY"), folds=("POD",))]


def note_sheets(view: UseView, nodes: Sequence[str]) -> list[Sheet]:
    """Lines of what is not known of use, and why. ``nodes``: all that are shown."""
    if not view.nodes:
        return [Sheet(title=uses.NO_AGENTS, columns=(), rows=())]
    now_ns = parse_ns(view.at) or 0
    said = [uses.stale(node.node, node.since, now_ns) for node in view.nodes if node.state is State.STALE]
    said += [f"{node.node}: use is not measured: {line(node.why)}" for node in view.nodes if node.why]
    silent = sorted(set(nodes) - {node.node for node in view.nodes})
    said += [f"without an agent: {', '.join(silent)}"] if silent else []
    if any(node.state is State.UNSURE for node in view.nodes):
        said.append("whether the agents work is not known, so use may be old")
    return [Sheet(title=text, columns=(), rows=()) for text in said]


def _rows(node: NodeUseView) -> Iterator[Row]:
    for one in node.tenants:
        yield Row(
            namespace=one.namespace,
            name=one.name,
            uid=one.uid,
            node=node.node,
            device=one.uuid,
            nano=one.nano,
            state=node.state,
            memory_percent=one.memory_percent,
            sm_percent=one.sm_percent,
            idle_since=one.idle_since,
            enforced=one.enforced,
        )
