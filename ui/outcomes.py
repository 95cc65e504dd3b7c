"""Outcomes of a simulation, translations and findings as tables, and a map of the GPUs, for people at a terminal.

Elsewhere translations and findings are lines (cli/manifests/translation.py, cli/manifests/findings.py).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import Final

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from gpu.share import NANO_PER_DEVICE
from scheduler.conditions.messages import decimal
from simulator.checks.violations import HELD, SOUND
from simulator.outcome import Amounts, DeviceOutcome, DeviceShare, NodeOutcome, Outcome, PodOutcome, QueueOutcome
from ui.tables import Cell, Look, Sheet, drawn, plain

_BAR_CELLS: Final = 10
_PALETTE: Final = ("cyan", "magenta", "yellow", "green", "blue", "bright_red", "bright_cyan", "bright_magenta")
_DEVICES_A_ROW: Final = 8
#: A map of more nodes than this is no map any more.
_MOST_NODES: Final = 24
_MOST_TENANTS: Final = 4
_NAME_WIDTH: Final = 14
#: Of a column: its line, and a space on each side.
_EDGES: Final = 3
_NONE: Final = "-"
_CLOSED: Final = ("CAN'T BE USED",)
_PHASES: Final = {"Running": "green", "Succeeded": "green", "Pending": "yellow", "Failed": "red"}


def console() -> Console:
    """Return a console; where there is no terminal, lines are wide enough for the tables."""
    made = Console(highlight=False)
    return made if made.is_terminal else Console(highlight=False, width=140)


def gpu_map(nodes: Sequence[NodeOutcome], *, width: int) -> RenderableType:
    """Draw nodes and GPUs with their tenants, of many nodes those in use first.

    Neither a node's name nor a GPU is lost on narrow terminals.
    """
    if len(nodes) > _MOST_NODES:
        nodes = sorted(nodes, key=lambda node: not any(each.tenants or each.reserved for each in node.devices))
    most = max((len(node.devices) for node in nodes), default=0)
    name_width = min(max((len(node.name) for node in nodes), default=0), max(_NAME_WIDTH, width // 4))
    drawn = {node.name: [_device(device) for device in node.devices] for node in nodes[:_MOST_NODES]}
    widest = max(
        (cell_len(line) for cells in drawn.values() for cell in cells for line in cell.plain.split("\n")), default=0
    )
    columns = max(1, min(most, _DEVICES_A_ROW, (width - name_width - _EDGES - 1) // (widest + _EDGES)))
    table = Table(show_lines=True, header_style="dim", border_style="dim")
    table.add_column("node", min_width=name_width, max_width=name_width, overflow="fold")
    for i in range(columns):
        table.add_column(f"GPU {i}" if most <= columns else "", min_width=_BAR_CELLS, no_wrap=True)
    for name, devices in drawn.items():
        cells = devices if most <= columns else [Text(f"GPU {i}\n") + cell for i, cell in enumerate(devices)]
        for first in range(0, max(1, len(cells)), columns):
            table.add_row(name if first == 0 else "", *cells[first : first + columns])
    if len(nodes) <= _MOST_NODES:
        return table
    return Group(table, Text(f"and {len(nodes) - _MOST_NODES} more nodes", style="dim"))


def pod_table(pods: Sequence[PodOutcome]) -> Sheet:
    """List pods: where they run, which devices their containers saw, how long it took to bind them."""
    rows = [
        [
            Cell(f"{pod.namespace}/{pod.name}"),
            Cell(pod.phase, _PHASES.get(pod.phase, "")),
            Cell(pod.node or _NONE),
            Cell("\n".join(_share(share) for share in pod.devices) or _NONE),
            Cell(_NONE if pod.to_bind_s is None else f"{pod.to_bind_s:.2f} s"),
        ]
        for pod in pods
    ]
    return Sheet(
        title="Pods:",
        columns=("POD", "PHASE", "NODE", "DEVICES SEEN", "BOUND AFTER"),
        rows=rows,
        spare=("BOUND AFTER", "PHASE"),
        prose=("DEVICES SEEN",),
        folds=("POD",),
    )


def waiting_table(pods: Sequence[PodOutcome]) -> Sheet | None:
    """List why pods wait or failed, each reason once, with the pods that it is about; None when there is none."""
    alike: dict[tuple[str, str], list[str]] = {}
    for pod in pods:
        if pod.verdict:
            alike.setdefault((pod.reason, " ".join(pod.verdict.split())), []).append(f"{pod.namespace}/{pod.name}")
    rows = [[Cell(_named(names)), Cell(reason or _NONE), Cell(why)] for (reason, why), names in alike.items()]
    if not rows:
        return None
    columns = ("POD", "REASON", "WHY")
    return Sheet(title="Waiting pods:", columns=columns, rows=rows, spare=("REASON",), prose=("WHY",), folds=("POD",))


def _named(pods: Sequence[str]) -> str:
    """One pod by its name; of several the number, and the first."""
    return pods[0] if len(pods) == 1 else f"{len(pods)} pods: {pods[0]}, ..."


def queue_table(queues: Sequence[QueueOutcome]) -> Sheet | None:
    """List queues, each below its parent: pods, GPUs in use and waited for, and what it may have; None without any."""
    if not queues:
        return None
    has_closed = any(queue.closed for queue in queues)
    depth: dict[str, int] = {}
    rows = []
    for queue in queues:
        depth[queue.name] = 0 if queue.closed else depth.get(queue.parent, -1) + 1
        gpus = map(_gpus, (queue.used, queue.waits_for, queue.quota, queue.limit))
        indented = f"{'  ' * depth[queue.name]}{queue.name}"
        texts = [
            indented,
            str(queue.placed),
            str(queue.waiting),
            *gpus,
            *([queue.closed or _NONE] if has_closed else []),
        ]
        rows.append([Cell(text) for text in texts])
    return Sheet(
        title="Queues:",
        columns=("QUEUE", "PLACED", "WAITING", "GPUS USED", "GPUS AWAITED", "QUOTA", "LIMIT", *(_CLOSED * has_closed)),
        rows=rows,
        spare=("LIMIT", "QUOTA", "WAITING", "PLACED"),
        prose=_CLOSED,
        folds=("QUEUE",),
    )


def print_sheets(sheets: Sequence[Sheet], to: Console, *, is_wide: bool = False) -> None:
    """Print tables within the width of a terminal; elsewhere a line for each row."""
    if to.is_terminal:
        lines = drawn(sheets, to.width, Look(is_wide=is_wide), is_coloured=to.color_system is not None)
    else:
        lines = [line for sheet in sheets for line in ("", *plain(sheet))][1:]
    for line in lines:
        to.print(Text.from_ansi(line), soft_wrap=True)


def _gpus(amounts: Amounts) -> str:
    if amounts.nano_gpu is None:
        return "unlimited"
    return decimal(amounts.nano_gpu, NANO_PER_DEVICE)


def invariants_line(outcome: Outcome, *, details: bool = False) -> Text:
    """Say how many invariants held, and of each whether it did where one did not, or with ``details``."""
    results = outcome.invariants
    if not details and all(result in SOUND for result in results.values()):
        others = [name for name, result in results.items() if result != HELD]
        held = f"{len(results) - len(others)} invariants held"
        return Text(f"{held}; not judged: {', '.join(others)}" if others else held, style="green")
    line = Text("invariants: ")
    for number, (name, result) in enumerate(outcome.invariants.items()):
        line.append(" " if number else "")
        passable = "green" if result == HELD else "dim"
        line.append(f"{name} {result}", style=passable if result in SOUND else "bold red")
        line.append("" if result in SOUND else "\n")
    return line


def show(outcome: Outcome, to: Console, *, details: bool = False, is_wide: bool = False) -> None:
    """Print all of an outcome. ``details``: each invariant by its name. ``is_wide``: no column is left out."""
    to.print(gpu_map(outcome.nodes, width=to.width))
    found = (pod_table(outcome.pods), waiting_table(outcome.pods), queue_table(outcome.queues))
    print_sheets([sheet for sheet in found if sheet is not None], to, is_wide=is_wide)
    to.print()
    if not outcome.idle:
        to.print(f"stopped after {outcome.ended_at_s:g} s, before everything was done", style="yellow")
    to.print(invariants_line(outcome, details=details))


def _device(device: DeviceOutcome) -> Text:
    """Draw one device: a bar of its tenants' shares, and their names below."""
    cell = Text()
    used = 0
    filled = 0
    for tenant in device.tenants:
        used += tenant.nano_gpu
        until = min(_BAR_CELLS, -(-used * _BAR_CELLS // NANO_PER_DEVICE))
        cell.append("█" * (until - filled), style=_colour(tenant.pod))
        filled = until
    cell.append(("▒" if device.reserved else "░") * (_BAR_CELLS - filled), style="dim")
    for tenant in device.tenants[:_MOST_TENANTS]:
        name = tenant.pod.rpartition("/")[2]
        shown = name if len(name) <= _NAME_WIDTH else f"{name[: _NAME_WIDTH - 1]}…"
        cell.append(f"\n{shown} {percent(tenant.nano_gpu)}", style=_colour(tenant.pod))
    if len(device.tenants) > _MOST_TENANTS:
        cell.append(f"\nand {len(device.tenants) - _MOST_TENANTS} more", style="dim")
    return cell


def _share(share: DeviceShare) -> str:
    return f"{share.index}: {share.uuid}  {percent(share.nano_gpu)} = {share.mem_mib} MiB"


def percent(nano: int) -> str:
    """Write a share in percent, with as many places as it needs up to three."""
    return f"{decimal(nano * 100_000 // NANO_PER_DEVICE, 1000)}%"


def _colour(pod: str) -> str:
    return _PALETTE[zlib.crc32(pod.encode()) % len(_PALETTE)]


_LEVELS = {"error": "red", "warning": "yellow", "note": "dim"}
_FACTS = {"refused": "red", "note": "yellow", "change": "dim", "or": "dim"}


def show_facts(rows: Iterable[tuple[str, Sequence[tuple[str, str]]]]) -> None:
    """One row a pod: where it stands, and what is known of it, each fact with what it is about."""
    table = Table(header_style="dim", show_lines=True)
    for title in ("pod", "what Moorage makes of it"):
        table.add_column(title, overflow="fold")
    for place, facts in rows:
        cell = Text()
        for number, (what, text) in enumerate(facts):
            cell.append("\n" if number else "")
            cell.append(f"{what:<9} ", style="dim")
            cell.append(text, style=_FACTS.get(what, ""))
        table.add_row(Text(place), cell)
    console().print(table)


def show_findings(rows: Iterable[tuple[str, str, str]], summary: str) -> None:
    """One row a finding: place, level and words; then the sum."""
    table = Table(header_style="dim")
    for title in ("where", "level", "what"):
        table.add_column(title, overflow="fold")
    for place, level, text in rows:
        table.add_row(Text(place), Text(level, style=_LEVELS.get(level, "")), Text(text))
    if table.row_count:
        console().print(table)
    console().print(Text(summary))
