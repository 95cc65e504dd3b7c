"""The table that users of Aliyun's gpushare know: its columns, with the numbers of this cluster (docs/inspect.md)."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from runtime.options.output import WIDE
from runtime.options.selection import UNITS_MIB
from runtime.output import write
from scheduler.core.report.node_view import UNKNOWN, Answer, DeviceUse, NodeUse, NodeView, node_use
from ui.inspect.values import Inspection
from ui.tables import Kinds, laid_out, terminal_width, told_left_out, wrapped

_GAP: Final = "  "


def show(seen: Inspection, *, unit: str, details: bool, output: str) -> None:
    """Print the summary or the details, or the inspect API's JSON."""
    uses = [(node, node_use(node, unit_mib=UNITS_MIB[unit])) for node in seen.nodes]
    if output == "json":
        write(Answer(tuple(use for _, use in uses)), output)
    else:
        width = None if output == WIDE else terminal_width()
        made = (_details if details else summary)(uses, unit, width)
        sys.stdout.writelines(f"{line}\n" for line in made)
    unknown = [node.name for node in seen.nodes if node.gpus and not node.smallest_card_mib]
    sys.stderr.writelines(f"not known: how much memory the GPUs of {name} have; shown as 0\n" for name in unknown)
    sys.stderr.writelines(f"not read: {note}\n" for note in seen.unread)


def summary(uses: Sequence[tuple[NodeView, NodeUse]], unit: str, width: int | None = None) -> list[str]:
    """A line for each node, and the sum of the cluster. ``width``: the terminal's; None: no column is left out."""
    most = _columns(use for _, use in uses)
    has_pending = any(_pending(use) for _, use in uses)
    header = ["NAME", "IPADDRESS", *(f"GPU{index}(Allocated/Total)" for index in range(most))]
    rows = [[*header, *(["PENDING(Allocated)"] if has_pending else []), f"GPU Memory({unit})"]]
    for node, use in uses:
        slots = [f"{used}/{total}" for used, total in _slots(use, most)]
        pending = [str(_pending(use))] if has_pending else []
        rows.append([use.name, node.address or "-", *slots, *pending, f"{use.used}/{use.total}"])
    left_out: dict[str, None] = {}
    lines = _aligned(_kept(rows, width, left_out))
    return [*lines, *_sum(uses, width=max(len(line) for line in lines)), *_told(left_out, width)]


def _details(uses: Sequence[tuple[NodeView, NodeUse]], unit: str, width: int | None = None) -> list[str]:
    """A table of its pods for each node, and the sum of the cluster."""
    lines: list[str] = []
    left_out: dict[str, None] = {}
    for node, use in uses:
        table = _aligned(_kept(_pods(use), width, left_out))
        block = ["", f"NAME:       {use.name}", f"IPADDRESS:  {node.address or '-'}", "", *table]
        block += [f"Allocated :  {use.used} ({_percent(use.used, use.total)})", f"Total :      {use.total}"]
        lines += [*block, "-" * max(len(line) for line in block)]
    return [*lines, "", *_sum(uses, width=0), f"(in {unit})", *_told(left_out, width)]


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


def _kept(rows: list[list[str]], width: int | None, left_out: dict[str, None]) -> list[list[str]]:
    """The columns that there is room for: those of GPUs are left out from the last one, then the address."""
    if width is None:
        return rows
    titles = rows[0]
    spare = [*(title for title in reversed(titles) if title.startswith("GPU") and title[3:4].isdigit()), "IPADDRESS"]
    natural = [max(len(row[column]) for row in rows) for column in range(len(titles))]
    layout = laid_out(titles, natural, Kinds(spare=spare), width, gap=len(_GAP))
    left_out |= dict.fromkeys(layout.left_out)
    return [[row[column] for column in layout.columns] for row in rows]


def _told(left_out: Collection[str], width: int | None) -> list[str]:
    return ["", *wrapped(told_left_out(left_out), width)] if left_out and width is not None else []


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [_GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
