"""An inspection as tables. Numbers are rounded against the reader: what is used up, what is free down.

Free GPUs that fit no pod, as a table: how many for which cause, and what that means. In one place for all views.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from gpu.share import NANO_PER_DEVICE, memory_from_nano
from scheduler.conditions.messages import closed_text
from scheduler.core.report.fragmentation import Cause
from scheduler.core.report.node_view import DeviceView, Kind, NodeView, TenantView
from ui.inspect.use import COLUMNS, UseCells, idle_sheets, note_sheets
from ui.inspect.values import GivenView, Inspection, PodView, UnusableView, UseView
from ui.tables import Cell, Sheet
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
    """A row for each cause; no table where every free GPU fits some pod."""
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
    hundredths = nano // _STEP
    return f"{hundredths // 100}.{hundredths % 100:02d}".rstrip("0").rstrip(".")


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
        rows = [(Cell(f"{pod.namespace}/{pod.name}"), *asked(pod), why(pod)) for pod in waiting]
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
    rows = [_pod(pod, uses, wide=wide) for pod in seen.pods]
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


def _pod(pod: PodView, uses: UseCells | None, *, wide: bool) -> list[Cell]:
    phase = pod.phase or "Pending"
    cells = [
        Cell(f"{pod.namespace}/{pod.name}"),
        Cell(phase, {"Running": "green", "Pending": "yellow", "Failed": "red"}.get(phase, "")),
        Cell(pod.node or _NONE),
        *asked(pod),
        Cell(_got(pod)),
        *(uses.of((pod.uid, given.uuid) for given in pod.given) if uses is not None else ()),
        why(pod),
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
    return _percent(-(-nano // _NANO_PER_STEP))


def percent_down(nano: int) -> str:
    """A share in percent, to two places, rounded down: what is free."""
    return _percent(nano // _NANO_PER_STEP)


def gpus_up(nano: int) -> str:
    """A number of GPUs with two decimals, rounded up."""
    hundredths = -(-nano * 100 // NANO_PER_DEVICE)
    return f"{hundredths // 100}.{hundredths % 100:02d}".rstrip("0").rstrip(".")


def _percent(steps: int) -> str:
    return f"{steps // 100}.{steps % 100:02d}".rstrip("0").rstrip(".") + "%"
