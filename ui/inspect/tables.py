"""An inspection as tables. Numbers are rounded against the reader: what is used up, what is free down.

``--format aliyun`` has the table of Aliyun's gpushare (docs/inspect.md).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from gpu.share import NANO_PER_DEVICE, memory_from_nano
from runtime.options.selection import UNITS_MIB
from scheduler.conditions.messages import closed_text, decimal
from scheduler.core.report.fragmentation import Cause
from scheduler.core.report.node_view import (
    UNKNOWN,
    DeviceUse,
    DeviceView,
    Kind,
    NodeUse,
    NodeView,
    TenantView,
    node_use,
)
from ui.inspect.use import COLUMNS, UseCells, idle_sheets, note_sheets
from ui.inspect.values import GivenView, Inspection, PodView, UnusableView, UseView
from ui.tables import Cell, Kinds, Sheet, aligned, laid_out, told_left_out, wrapped
from wire.crds.podgroup import DEFAULT_NODE_POOL

#: A hundredth of a GPU.
_STEP: Final = NANO_PER_DEVICE // 100
CAUSE_WORDS: Final[Mapping[Cause, str]] = {
    Cause.NOT_READY: "the node is not ready",
    Cause.CORDONED: "the node is cordoned",
    Cause.CLOSED: "the shared GPU takes no further pod",
    Cause.PIECES: "too little is left of the GPU, or too few GPUs of the node",
    Cause.CPU: "CPU is short beside the GPU",
    Cause.MEMORY: "memory is short beside the GPU",
    Cause.POD_SLOTS: "the node's pod slots are used up",
    Cause.SEVERAL: "CPU, memory or pod slots are short, at least two of them",
}


def unusable_sheets(unusable: Iterable[UnusableView]) -> list[Sheet]:
    """A row for each cause why free GPUs fit no pod, for all views; no table where every free GPU fits some pod."""
    rows = [
        (Cell(each.cause.value, "yellow"), Cell(gpus_down(each.nano)), Cell(CAUSE_WORDS[each.cause]))
        for each in unusable
    ]
    if not rows:
        return []
    title = "Free GPUs that no waiting or usual pod can take:"
    return [Sheet(title=title, columns=("CAUSE", "GPUS", "WHY"), rows=rows, prose=("WHY",))]


def gpus_down(nano: int) -> str:
    """A number of free GPUs with two decimals, rounded down."""
    return decimal(nano // _STEP, 100)


_UNKNOWN: Final = "?"
_NONE: Final = "-"
#: Shares are shown in hundredths of a percent.
_NANO_PER_STEP: Final = NANO_PER_DEVICE // 10_000


def cluster_sheets(seen: Inspection, *, wide: bool = False) -> list[Sheet]:
    """A line for each node, then free GPUs that fit no pod, closed devices, shares that are kept, and waiting pods."""
    sheets = [_nodes(seen.nodes, wide=wide), *unusable_sheets(seen.unusable)]
    closed = [(node, device) for node in seen.nodes for device in node.devices if device.closed]
    if closed:
        rows = [(Cell(node.name), Cell(_place(device)), *_closed(device)) for node, device in closed]
        columns = ("NODE", "GPU", "PODS", "WHY")
        folds = ("GPU", "PODS")
        sheets.append(
            Sheet(title="Closed devices:", columns=columns, rows=rows, spare=("PODS",), prose=("WHY",), folds=folds)
        )
    kept = [
        (node, device, one) for node in seen.nodes for device in node.devices for one in device.tenants if one.is_kept
    ]
    if kept:
        rows = [
            (Cell(node.name), Cell(_place(device)), Cell(_name(one)), Cell(_part(one))) for node, device, one in kept
        ]
        title = "Shares kept for pods that are gone, until their nodes confirm it:"
        columns = ("NODE", "GPU", "POD", "SHARE")
        sheets.append(Sheet(title=title, columns=columns, rows=rows, spare=("SHARE",), folds=("GPU", "POD")))
    waiting = [pod for pod in seen.pods if not pod.node]
    if waiting:
        rows = [
            (Cell(f"{pod.namespace}/{pod.name}"), *asked(pod), cell)
            for pod, cell in zip(waiting, reasons(waiting), strict=True)
        ]
        sheets.append(
            Sheet(
                title="Waiting pods:",
                columns=("POD", "DIALECT", "ASKS", "WHY"),
                rows=rows,
                spare=("DIALECT", "ASKS"),
                prose=("ASKS", "WHY"),
                folds=("POD",),
            )
        )
    return [*sheets, *_idle(seen), *_notes(seen)]


def node_sheets(seen: Inspection, *, wide: bool = False) -> list[Sheet]:
    """A table for each node: a line for each device, or for each of its tenants."""
    pods = {pod.uid: pod for pod in seen.pods}
    uses = _uses(seen)
    return [*(_devices(node, pods, uses, wide=wide) for node in seen.nodes), *_notes(seen)]


def pod_sheets(seen: Inspection, *, wide: bool = False) -> list[Sheet]:
    """A line for each pod."""
    uses = _uses(seen)
    columns = ["POD", "PHASE", "NODE", "DIALECT", "ASKS", "GOT", *(COLUMNS if uses else ()), "WHY"]
    columns += ["UUID", "GROUP", "RESERVATION", "PODGROUP"] if wide else []
    rows = [_pod(pod, cell, uses, wide=wide) for pod, cell in zip(seen.pods, reasons(seen.pods), strict=True)]
    spare, prose = ("DIALECT", "ASKS", "GOT", "PHASE"), ("ASKS", "GOT", "USE", "WHY")
    return [Sheet(columns=columns, rows=rows, spare=spare, prose=prose, folds=("POD",)), *_notes(seen)]


def _uses(seen: Inspection) -> UseCells | None:
    """Cells of use; None where it was not asked for, or no agent has reported."""
    cells = UseCells(seen.use) if isinstance(seen.use, UseView) else None
    return cells if cells is not None and cells.has_any else None


def _idle(seen: Inspection) -> list[Sheet]:
    return idle_sheets(seen.use) if isinstance(seen.use, UseView) else []


def _notes(seen: Inspection) -> list[Sheet]:
    """What is not known of use."""
    nodes = {node.name for node in seen.nodes} | {pod.node for pod in seen.pods if pod.given}
    return note_sheets(seen.use, sorted(nodes)) if isinstance(seen.use, UseView) else []


# --- nodes -------------------------------------------------------------------------------------------------------


def _nodes(nodes: Sequence[NodeView], *, wide: bool) -> Sheet:
    columns = ["NODE", "STATE", "GPU MEMORY", "GPUS", "FREE", "WHOLE", "SHARED", "USED", "LARGEST SHARE"]
    columns += ["ADDRESS", "NODE POOL", "PODS", "MIG SLICES"] if wide else []
    rows = [_node(node, wide=wide) for node in nodes]
    if len(nodes) > 1:
        rows.append(_total(nodes, wide=wide))
    spare = ("WHOLE", "SHARED", "GPU MEMORY", "USED", "LARGEST SHARE")
    return Sheet(columns=columns, rows=rows, spare=spare, prose=("STATE",))


def _node(node: NodeView, *, wide: bool) -> list[Cell]:
    cells = [
        Cell(node.name),
        _state(node),
        Cell(_cards(node)),
        Cell(str(node.gpus)),
        Cell(str(node.free_gpus), "green" if node.free_gpus else ""),
        Cell(str(_count(node.devices, Kind.WHOLE))),
        Cell(str(_count(node.devices, Kind.SHARED))),
        Cell(gpus_up(node.used_nano)),
        Cell(_largest(node)),
    ]
    if wide:
        slices = ", ".join(f"{one.profile}: {one.used} of {one.total}" for one in node.slices)
        cells += [Cell(node.address or _NONE), Cell(node.node_pool or DEFAULT_NODE_POOL)]
        cells += [Cell(str(len(_tenants([node])))), Cell(slices or _NONE)]
    return cells


def _total(nodes: Sequence[NodeView], *, wide: bool) -> list[Cell]:
    devices = [device for node in nodes for device in node.devices]
    cells = [
        "total",
        "",
        "",
        str(sum(node.gpus for node in nodes)),
        str(sum(node.free_gpus for node in nodes)),
        str(_count(devices, Kind.WHOLE)),
        str(_count(devices, Kind.SHARED)),
        gpus_up(sum(node.used_nano for node in nodes)),
        "",
    ]
    return [Cell(text, "bold") for text in [*cells, *(["", "", str(len(_tenants(nodes))), ""] if wide else [])]]


def _state(node: NodeView) -> Cell:
    said = [
        "" if node.is_ready else "not ready",
        "cordoned" if node.is_cordoned else "",
        "MIG" if node.is_mig else "",
        "GPUs offered several times" if node.is_multiplied else "",
        f"{node.unhealthy_gpus} unhealthy" if node.unhealthy_gpus else "",
        f"{node.lost_gpus} lost" if node.lost_gpus else "",
        f"{closed} closed" if (closed := sum(bool(device.closed) for device in node.devices)) else "",
    ]
    text = ", ".join(one for one in said if one)
    return Cell(text, "yellow") if text else Cell("ready")


def _cards(node: NodeView) -> str:
    if not node.smallest_card_mib:
        return _UNKNOWN
    if node.smallest_card_mib == node.largest_card_mib:
        return f"{node.smallest_card_mib} MiB"
    return f"{node.smallest_card_mib}-{node.largest_card_mib} MiB"


def _largest(node: NodeView) -> str:
    """The largest share that fits on one device, where the node takes shares at all."""
    if node.is_mig or node.is_multiplied or not node.is_ready or node.is_cordoned:
        return _NONE
    return percent_down(max((device.free_nano for device in node.devices if not device.closed), default=0))


def _count(devices: Iterable[DeviceView], kind: Kind) -> int:
    return sum(device.kind is kind and device.is_gpu for device in devices)


def _tenants(nodes: Iterable[NodeView]) -> set[str]:
    return {tenant.uid for node in nodes for device in node.devices for tenant in device.tenants}


# --- devices -----------------------------------------------------------------------------------------------------


def _devices(node: NodeView, pods: Mapping[str, PodView], uses: UseCells | None, *, wide: bool) -> Sheet:
    columns = ["GPU", "MEMORY", "STATE", "USED", "FREE", "POD", "SHARE", *(COLUMNS if uses else ()), "DIALECT", "ASKS"]
    columns += ["UUID", "GROUP", "RESERVATION"] if wide else []
    said = _state(node).text
    address = f" ({node.address})" if wide and node.address else ""
    rows = [row for device in node.devices for row in _device(device, pods, uses, wide=wide)]
    pool = f", node pool {node.node_pool}" if node.node_pool else ""
    title = f"{node.name}{address}: {said}{pool}, {node.gpus} GPUs, {gpus_up(node.used_nano)} used"
    slices = "".join(f", MIG {one.profile}: {one.used} of {one.total} used" for one in node.slices)
    return Sheet(
        title=title + slices,
        columns=columns,
        rows=rows,
        spare=("DIALECT", "MEMORY", "ASKS", "FREE", "USED"),
        prose=("STATE", "USE", "ASKS"),
        folds=("GPU", "POD", "SHARE"),
        of=("NODE", node.name),
    )


def _device(
    device: DeviceView, pods: Mapping[str, PodView], uses: UseCells | None, *, wide: bool
) -> Iterator[list[Cell]]:
    """A line for the device with its first tenant, and one for each further tenant."""
    head = [
        Cell(_place(device)),
        Cell(_memory(device.mem_mib)),
        _device_state(device),
        Cell(_amount(device.used_nano, device, up=True)),
        Cell(_NONE if device.closed else _amount(device.free_nano, device, up=False)),
    ]
    held_by = device.reservation or device.device
    tail = [Cell(device.uuid or _NONE), Cell(device.group or _NONE), Cell(held_by or _NONE)] if wide else []
    none = [Cell(_NONE)] * (4 if uses is None else 4 + len(COLUMNS))
    tenants = [_tenant(tenant, pods, device, uses) for tenant in device.tenants] or [none]
    yield [*head, *tenants[0], *tail]
    for further in tenants[1:]:
        yield [*map(_again, head), *further, *map(_again, tail)]


def _again(cell: Cell) -> Cell:
    return msgspec.structs.replace(cell, repeats=True)


def _tenant(tenant: TenantView, pods: Mapping[str, PodView], device: DeviceView, uses: UseCells | None) -> list[Cell]:
    pod = pods.get(tenant.uid)
    said = " (on its way)" if tenant.is_on_its_way else " (kept: its pod is gone)" if tenant.is_kept else ""
    words = asked(pod) if pod else (Cell(_UNKNOWN), Cell(_UNKNOWN))
    use = uses.of([(tenant.uid, device.uuid)]) if uses is not None else []
    return [Cell(_name(tenant)), Cell(_part(tenant) + said), *use, *words]


def _name(tenant: TenantView) -> str:
    return f"{tenant.namespace}/{tenant.name}" if tenant.name else tenant.uid


def _part(tenant: TenantView) -> str:
    return percent_up(tenant.nano) + (f" {tenant.mem_mib} MiB" if tenant.mem_mib else "")


def _device_state(device: DeviceView) -> Cell:
    if device.closed:
        return Cell("closed:\n" + "\n".join(closed_text(why) for why in device.closed), "red")
    if device.kind is Kind.SHARED and not device.tenants:
        return Cell("idle", "dim")
    if device.modes or device.compute_percent:
        compute = [f"{device.compute_percent}% of compute"] * bool(device.compute_percent)
        return Cell(", ".join([device.kind.value, *device.modes, *compute]))
    return Cell(device.kind.value, "green" if device.kind is Kind.FREE else "")


def _closed(device: DeviceView) -> tuple[Cell, Cell]:
    tenants = "\n".join(f"{tenant.namespace}/{tenant.name}" for tenant in device.tenants)
    return Cell(tenants or _NONE), Cell("\n".join(closed_text(why) for why in device.closed), "red")


def _place(device: DeviceView) -> str:
    return str(device.number) if device.is_gpu else device.uuid or _UNKNOWN


def _memory(mem_mib: int) -> str:
    return f"{mem_mib} MiB" if mem_mib else _UNKNOWN


def _amount(nano: int, device: DeviceView, *, up: bool) -> str:
    """A share of a device, and how much memory that is: of what is used, all that is not free."""
    mem_mib = device.mem_mib - memory_from_nano(NANO_PER_DEVICE - nano, device.mem_mib) if up else 0
    mem_mib = mem_mib if up else memory_from_nano(nano, device.mem_mib)
    return (percent_up(nano) if up else percent_down(nano)) + (f" {mem_mib} MiB" if device.mem_mib else "")


# --- pods --------------------------------------------------------------------------------------------------------


def reasons(pods: Sequence[PodView]) -> list[Cell]:
    """Say why each pod does not run; of pods of one group that follow each other, equal reasons once."""
    cells = list(map(why, pods))
    gangs = [(pod.namespace, pod.pod_group) if pod.pod_group else None for pod in pods]
    for at in range(1, len(pods)):
        is_same = gangs[at] is not None and gangs[at] == gangs[at - 1] and cells[at].text == cells[at - 1].text
        if is_same and cells[at].text != _NONE:
            cells[at] = _again(cells[at])
    return cells


def _pod(pod: PodView, reason: Cell, uses: UseCells | None, *, wide: bool) -> list[Cell]:
    phase = pod.phase or "Pending"
    cells = [
        Cell(f"{pod.namespace}/{pod.name}"),
        Cell(phase, {"Running": "green", "Pending": "yellow", "Failed": "red"}.get(phase, "")),
        Cell(pod.node or _NONE),
        *asked(pod),
        Cell(_got(pod)),
        *(uses.of((pod.uid, given.uuid) for given in pod.given) if uses is not None else ()),
        reason,
    ]
    if wide:
        further = ("uuid", "group", "reservation")
        cells += [Cell("\n".join(getattr(given, name) for given in pod.given) or _NONE) for name in further]
        cells.append(Cell(pod.pod_group or _NONE))
    return cells


def asked(pod: PodView) -> tuple[Cell, Cell]:
    """Return the dialect and the words of what a pod asks."""
    if pod.refused:
        return Cell(_UNKNOWN), Cell(f"refused: {pod.refused}", "red")
    return Cell(pod.dialect or _NONE), Cell("\n".join(pod.asks) or "no GPU")


def _got(pod: PodView) -> str:
    if pod.given:
        return "\n".join(_share(given) for given in pod.given)
    return _UNKNOWN if pod.refused and pod.node else f"{pod.whole_gpus} whole" if pod.whole_gpus and pod.node else _NONE


def _share(given: GivenView) -> str:
    where = f"GPU {given.index}" if given.index >= 0 else f"GPU {given.uuid or given.device or _UNKNOWN}"
    amount = percent_up(given.nano) if given.nano else _UNKNOWN
    return f"{amount} of {where}" + (f", {given.mem_mib} MiB" if given.mem_mib else "")


def why(pod: PodView) -> Cell:
    """Say why it does not run: what keeps it now, then what was the matter before."""
    if pod.waits is None:
        return Cell(f"runs, but: {' '.join(pod.not_enforced.split())}", "yellow") if pod.not_enforced else Cell(_NONE)
    waits = pod.waits
    said = ": ".join(text for text in (waits.reason, " ".join(waits.message.split())) if text)
    if waits.on_its_way_to:
        said = f"on its way to {waits.on_its_way_to}"
    elif not said:
        said = "starting" if pod.node else "nobody has looked at it yet"
    failed = f"\nlast attempt: {waits.last_failure}" if waits.last_failure and not pod.node else ""
    return Cell(said + failed, "yellow")


# --- numbers -----------------------------------------------------------------------------------------------------


def percent_up(nano: int) -> str:
    """A share in percent, to two places, rounded up: what is used."""
    return f"{decimal(-(-nano // _NANO_PER_STEP), 100)}%"


def percent_down(nano: int) -> str:
    """A share in percent, to two places, rounded down: what is free."""
    return f"{decimal(nano // _NANO_PER_STEP, 100)}%"


def gpus_up(nano: int) -> str:
    """A number of GPUs with two decimals, rounded up."""
    return decimal(-(-nano // _STEP), 100)


# --- as kubectl inspect gpushare ---------------------------------------------------------------------------------
_GAP: Final = "  "


def aliyun_uses(seen: Inspection, unit: str) -> list[tuple[NodeView, NodeUse]]:
    """The nodes, each as Aliyun's gpushare tells of it."""
    return [(node, node_use(node, unit_mib=UNITS_MIB[unit])) for node in seen.nodes]


def aliyun_summary(uses: Sequence[tuple[NodeView, NodeUse]], unit: str, width: int | None = None) -> list[str]:
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
    lines = aligned(_kept(rows, width, left_out), _GAP)
    return [*lines, *_sum(uses, width=max(len(line) for line in lines)), *_told(left_out, width)]


def aliyun_details(uses: Sequence[tuple[NodeView, NodeUse]], unit: str, width: int | None = None) -> list[str]:
    """A table of its pods for each node, and the sum of the cluster."""
    lines: list[str] = []
    left_out: dict[str, None] = {}
    for node, use in uses:
        table = aligned(_kept(_aliyun_pods(use), width, left_out), _GAP)
        block = ["", f"NAME:       {use.name}", f"IPADDRESS:  {node.address or '-'}", "", *table]
        block += [f"Allocated :  {use.used} ({_whole_percent(use.used, use.total)})", f"Total :      {use.total}"]
        lines += [*block, "-" * max(len(line) for line in block)]
    return [*lines, "", *_sum(uses, width=0), f"(in {unit})", *_told(left_out, width)]


def _aliyun_pods(use: NodeUse) -> list[list[str]]:
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
    return [known.get(index) or (0, _total_of(next(unknown, None))) for index in range(most)]


def _total_of(device: DeviceUse | None) -> int:
    return device.total if device else 0


def _pending(use: NodeUse) -> int:
    return sum(device.used for device in use.devices if device.id == UNKNOWN)


def _sum(uses: Sequence[tuple[NodeView, NodeUse]], *, width: int) -> list[str]:
    used, total = sum(use.used for _, use in uses), sum(use.total for _, use in uses)
    rule = ["-" * width] if width else []
    return [*rule, "Allocated/Total GPU Memory In Cluster:", f"{used}/{total} ({_whole_percent(used, total)})"]


def _whole_percent(used: int, total: int) -> str:
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
