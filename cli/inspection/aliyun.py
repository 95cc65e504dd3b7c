"""The table that users of Aliyun's gpushare know: its columns, with the numbers of this cluster (docs/inspect.md)."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Final

from cli.inspection.options import UNITS_MIB
from cli.inspection.values import Inspection
from cli.writing import write
from scheduler.core.report.gpushare import UNKNOWN, Answer, DeviceUse, NodeUse, node_use
from scheduler.core.report.node_view import NodeView

_GAP: Final = "  "


def show(seen: Inspection, *, unit: str, details: bool, output: str) -> None:
    """Print the summary or the details, or the inspect API's JSON."""
    uses = [(node, node_use(node, unit_mib=UNITS_MIB[unit])) for node in seen.nodes]
    if output == "json":
        write(Answer(tuple(use for _, use in uses)), output)
    else:
        sys.stdout.writelines(f"{line}\n" for line in (_details(uses, unit) if details else summary(uses, unit)))
    unknown = [node.name for node in seen.nodes if node.gpus and not node.smallest_card_mib]
    sys.stderr.writelines(f"not known: how much memory the cards of {name} have; shown as 0\n" for name in unknown)
    sys.stderr.writelines(f"not read: {note}\n" for note in seen.unread)


def summary(uses: Sequence[tuple[NodeView, NodeUse]], unit: str) -> list[str]:
    """A line for each node, and the sum of the cluster."""
    most = _columns(use for _, use in uses)
    has_pending = any(_pending(use) for _, use in uses)
    header = ["NAME", "IPADDRESS", *(f"GPU{index}(Allocated/Total)" for index in range(most))]
    rows = [[*header, *(["PENDING(Allocated)"] if has_pending else []), f"GPU Memory({unit})"]]
    for node, use in uses:
        slots = [f"{used}/{total}" for used, total in _slots(use, most)]
        pending = [str(_pending(use))] if has_pending else []
        rows.append([use.name, node.address or "-", *slots, *pending, f"{use.used}/{use.total}"])
    return [*(lines := _aligned(rows)), *_sum(uses, width=max(len(line) for line in lines))]


def _details(uses: Sequence[tuple[NodeView, NodeUse]], unit: str) -> list[str]:
    """A table of its pods for each node, and the sum of the cluster."""
    lines: list[str] = []
    for node, use in uses:
        block = ["", f"NAME:       {use.name}", f"IPADDRESS:  {node.address or '-'}", "", *_aligned(_pods(use))]
        block += [f"Allocated :  {use.used} ({_percent(use.used, use.total)})", f"Total :      {use.total}"]
        lines += [*block, "-" * max(len(line) for line in block)]
    return [*lines, "", *_sum(uses, width=0), f"(in {unit})"]


def _pods(use: NodeUse) -> list[list[str]]:
    most = _columns([use])
    has_pending = _pending(use) > 0
    by_pod: dict[tuple[str, str], list[int]] = {}
    for device in use.devices:
        for pod in device.pods:
            cells = by_pod.setdefault((pod.name, pod.namespace), [0] * (most + 1))
            cells[device.id if device.id != UNKNOWN else most] += pod.used
    header = ["NAME", "NAMESPACE", *(f"GPU{index}(Allocated)" for index in range(most))]
    rows = [[*header, *(["Pending(Allocated)"] if has_pending else [])]]
    rows += [
        [*names, *(str(used) for used in (cells if has_pending else cells[:-1]))] for names, cells in by_pod.items()
    ]
    return rows


def _columns(uses: Iterable[NodeUse]) -> int:
    """As many as the largest node has devices, or higher indexes."""
    return max((max([len(use.devices), *(device.id + 1 for device in use.devices)]) for use in uses), default=0)


def _slots(use: NodeUse, most: int) -> list[tuple[int, int]]:
    """What is used and there of each index. What is used on devices of unknown index is pending; they are there."""
    known = {device.id: (device.used, device.total) for device in use.devices if device.id != UNKNOWN}
    unknown = (device for device in use.devices if device.id == UNKNOWN)
    return [known.get(index) or (0, _total(next(unknown, None))) for index in range(most)]


def _total(device: DeviceUse | None) -> int:
    return device.total if device else 0


def _pending(use: NodeUse) -> int:
    return sum(device.used for device in use.devices if device.id == UNKNOWN)


def _sum(uses: Sequence[tuple[NodeView, NodeUse]], *, width: int) -> list[str]:
    used, total = sum(use.used for _, use in uses), sum(use.total for _, use in uses)
    rule = ["-" * width] if width else []
    return [*rule, "Allocated/Total GPU Memory In Cluster:", f"{used}/{total} ({_percent(used, total)})"]


def _percent(used: int, total: int) -> str:
    return f"{used * 100 // total}%" if total else "0%"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [_GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
