"""Why a class fits nowhere: reasons counted over nodes, and the smallest change known to help.

A node that may not be used at all counts once, with the first reason; one that may counts for each resource it lacks,
or else for its volumes, or else for its ResourceClaims, and how much more its devices would have to have free. Nodes
that have the devices, though none that will do, count by rule (device_fit.py): by UUID or index, by the mode and the
compute of their tenants.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, count, zip_longest

import msgspec
import numpy as np

from gpu.node_resources import slice_resource
from gpu.request import FractionAsk, SharedAsk
from gpu.share import NANO_PER_DEVICE
from scheduler.core.assumed.attempts import Doubt
from scheduler.core.devices.device_fit import (
    DeviceFit,
    Pool,
    cards_hold,
    choose_answered,
    choose_devices,
    largest_fit,
    largest_mib,
    pools_of,
    rule_of,
    without_silent,
)
from scheduler.core.filters.place import Place
from scheduler.core.filters.registry import OK
from scheduler.core.filters.resource_claims import ResourceSource
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.settings import Settings
from scheduler.core.model.verdict import Code, NodeReason, Verdict
from scheduler.core.nodes import volume_limits
from scheduler.core.nodes.claim_statement import KEPT, SELECTOR
from scheduler.core.nodes.ledger import MOST_ASKED
from scheduler.core.nodes.table import (
    CONTENDED_DEVICES,
    CPU,
    GPUS,
    ILL_DEVICES,
    LARGEST_CARD,
    MEMORY,
    MIG,
    MULTIPLIED,
    PODS,
    SILENT_DEVICES,
    Bools,
    Int64s,
)
from scheduler.core.scores.packing import BINPACK
from scheduler.core.scores.ranking import Ranking
from scheduler.core.snapshot.node_count import NodeMask
from scheduler.core.snapshot.statement import Statement
from wire import names

#: What is lacking of a resource that is no resource of Kubernetes.
GPU_SHARE = "gpu-share"
GPU_MEMORY = "gpu-memory"
COMPUTE = "compute"

#: What a shortfall is counted in, by resource; GPUs first, since they are what people wait for.
UNITS = {
    GPU_SHARE: "nano_gpu",
    GPU_MEMORY: "gpu_mem_mib",
    COMPUTE: "compute_percent",
    names.GPU_RESOURCE: "gpu",
    names.CPU_RESOURCE: "cpu_milli",
    names.MEMORY_RESOURCE: "mem_mib",
    names.EPHEMERAL_STORAGE_RESOURCE: "ephemeral_mib",
    names.PODS_RESOURCE: "pods",
}


@dataclass(slots=True)
class Lack:
    """One thing that some of the usable nodes lack: which ones, and how much of it each, in ``unit``."""

    kind: str
    resource: str
    unit: str
    where: Bools
    amount: Int64s


def unit(resource: str) -> str:
    """What a shortfall of it is counted in."""
    return UNITS.get(resource, resource)


def missing(statement: Statement, cls: PodClass, pool: Pool, short: Bools) -> Int64s:
    """All that is missing at each position where it is ``short``, in the unit of the first ask.

    The largest ask has the best device, and so on; GPUs that could be opened are among them.
    """
    first = pool.asks[0]
    wanted = sorted((_amount(ask) for ask in pool.asks if type(ask) is type(first)), reverse=True)
    spare = pool.spare(statement.table, slice(None), dict(statement.amounts(cls.demand))) if len(wanted) > 1 else None
    found = np.zeros(len(statement.nodes), np.int64)
    for position in np.flatnonzero(short).tolist():
        node = statement.nodes[position]
        left = [
            largest_fit(first, device, node)
            for device in statement.table.devices[position]
            if device.is_open and device.is_gpu
        ]
        if spare is not None:
            whole = NANO_PER_DEVICE if isinstance(first, FractionAsk) else node.largest_card_mib
            left += [whole] * min(max(int(spare[position]), 0), len(wanted))
        left.sort(reverse=True)
        more = sum(max(ask - has, 0) for ask, has in zip_longest(wanted, left[: len(wanted)], fillvalue=0))
        found[position] = min(more, MOST_ASKED)
    return found


def _amount(ask: SharedAsk) -> int:
    return ask.nano if isinstance(ask, FractionAsk) else min(ask.mem_mib, MOST_ASKED)


PINNED = "pinned"
PINNED_FULL = "pinned-full"
PINNED_WHOLE = "pinned-whole"
PINNED_ROOM = "pinned-room"
EXCLUSION = "exclusion"
_LEAST_HOPE_FIRST = (PINNED, PINNED_WHOLE, PINNED_FULL, PINNED_ROOM, EXCLUSION)
MODE = "mode"


def ruled_out(statement: Statement, cls: PodClass, where: Bools) -> list[Lack]:
    """Nodes that have the devices, though none that the pod's rule allows as far as is known: else it were there."""
    rule = rule_of(cls)
    nothing = np.zeros(len(statement.nodes), np.int64)
    if rule.names_any(cls.request.shared):
        return _pinned(statement, cls, where)
    if not rule.mode and not any(ask.compute_percent for ask in cls.request.shared):
        return []
    others = {kind: np.zeros(len(statement.nodes), np.bool_) for kind in (MODE, COMPUTE)}
    for position in np.flatnonzero(where).tolist():
        if kind := _kept_out_by(statement, cls, position):
            others[kind][position] = True
    missing = _missing_percent(statement, cls, others[COMPUTE])
    return [
        Lack(MODE, "", "", others[MODE], nothing),
        Lack(COMPUTE, "", unit(COMPUTE), others[COMPUTE], missing),
    ]


def _missing_percent(statement: Statement, cls: PodClass, where: Bools) -> Int64s:
    """How much more of the compute the best device would have to have free, of those with room; 0 for several asks."""
    missing = np.zeros(len(statement.nodes), np.int64)
    if len(cls.request.shared) != 1:
        return missing
    ask, rule = cls.request.shared[0], rule_of(cls)
    undemanding = msgspec.structs.replace(ask, compute_percent=0)
    for position in np.flatnonzero(where).tolist():
        fit = DeviceFit(undemanding, statement.nodes[position], rule)
        devices = statement.table.devices[position]
        fitting = (dev.free_compute_percent for dev in devices if fit.nano_on(dev) is not None)
        missing[position] = max(0, ask.compute_percent - max(fitting, default=ask.compute_percent))
    return missing


def _pinned(statement: Statement, cls: PodClass, where: Bools) -> list[Lack]:
    """The nodes by what keeps the pod from the devices that it names."""
    nothing = np.zeros(len(statement.nodes), np.int64)
    found = {kind: np.zeros(len(statement.nodes), np.bool_) for kind in _LEAST_HOPE_FIRST}
    for position in np.flatnonzero(where).tolist():
        found[_why_not(statement, cls, position)][position] = True
    return [Lack(kind, "", "", at, nothing) for kind, at in found.items()]


def _why_not(statement: Statement, cls: PodClass, position: int) -> str:
    """What is in the way on one node: of several devices that are named, of the one for which there is least hope."""
    rule, prospect = rule_of(cls), statement.prospect(position)
    devices, node = statement.table.devices[position], statement.nodes[position]
    if rule.not_uuids and _are_had(statement, cls, position, cls.request.shared):
        return EXCLUSION
    found = set()
    for ask in cls.request.shared:
        pin = rule.pin(ask)
        if pin.is_any or choose_answered((ask,), devices, node, order=BINPACK, rule=rule) is not None:
            continue
        if any(pin.takes(device) for device in prospect.held):
            found.add(PINNED_FULL)
        elif prospect.may_bring(pin):
            found.add(PINNED_ROOM)
        else:
            found.add(PINNED_WHOLE if prospect.is_all and statement.has(position, pin) else PINNED)
    return next((kind for kind in _LEAST_HOPE_FIRST if kind in found), PINNED_FULL)


def _kept_out_by(statement: Statement, cls: PodClass, position: int) -> str:
    """MODE or COMPUTE where a node lacks devices for a pod only because of how the tenants run that are on them."""
    devices, rule, asks = statement.table.devices[position], rule_of(cls), cls.request.shared
    if _are_had(statement, cls, position, asks):
        return ""
    undemanding = tuple(msgspec.structs.replace(ask, compute_percent=0) for ask in asks)
    is_compute = all(dev.suits(rule.mode) for dev in devices) or _are_had(statement, cls, position, undemanding)
    return COMPUTE if is_compute else MODE


def _are_had(statement: Statement, cls: PodClass, position: int, asks: tuple[SharedAsk, ...]) -> bool:
    """Whether a node has devices for these asks, pod slots aside."""
    node, names_ = statement.nodes[position], (str(number) for number in count())
    room = statement.room(position, cls.demand, [node.resource_of(ask.profile) for ask in asks])
    found = choose_devices(
        asks,
        statement.table.devices[position],
        node,
        room=room,
        order=BINPACK,
        new_group=lambda _: next(names_),
        rule=rule_of(cls),
        prospect=statement.prospect(position),
    )
    return found is not None


#: The most pods that vanished that a verdict names.
_MOST_KEPT = 3
INSUFFICIENT = "insufficient"
EXCLUDED = "excluded"
PROBATION = "probation"
CONTENDED = "contended"
SILENT = "silent"
ILL = "ill"

#: Devices that nobody is let on: the reason, and where the table counts them.
_WITHHELD = {CONTENDED: CONTENDED_DEVICES, SILENT: SILENT_DEVICES, ILL: ILL_DEVICES}


def explain(statement: Statement, ranking: Ranking, cls: PodClass, *, settings: Settings, mask: NodeMask) -> Verdict:
    """Say why no node takes a pod of ``cls`` now. ``mask``: nodes where it has not failed lately."""
    usable = ranking.eligible == OK
    excluded = np.zeros(len(usable), np.bool_) if mask is None else ~mask
    reasons = [
        NodeReason(kind, "", int(np.count_nonzero(ranking.eligible == judged)))
        for kind, judged in statement.filters.numbers.items()
    ]
    reasons.append(NodeReason(EXCLUDED, "", int(np.count_nonzero(usable & excluded))))
    usable &= ~excluded
    stages = _stages(statement, cls, settings)
    lacks, open_to = list(chain.from_iterable(stages)), usable.copy()
    for stage in stages:
        reasons += [NodeReason(k.kind, k.resource, int(np.count_nonzero(k.where & open_to))) for k in stage]
        open_to &= ~np.logical_or.reduce([k.where for k in stage]) if stage else True
    reasons.append(NodeReason(PROBATION, "", _on_probation(statement, lacks, usable)))
    reasons += _withheld(statement, cls, lacks, usable)
    kept = [np.flatnonzero(lack.where & usable)[:_MOST_KEPT].tolist() for lack in lacks if lack.kind == KEPT]
    return Verdict(
        code=Code.NO_NODE_FITS,
        node_reasons=tuple(sorted(reason for reason in reasons if reason.nodes)),
        shortfall=_shortfall(lacks, usable),
        kept=statement.allocating.kept_at(chain.from_iterable(kept), _MOST_KEPT) if any(kept) else (),
        selector=_failure(statement, cls, lacks, usable),
    )


def _failure(statement: Statement, cls: PodClass, lacks: Sequence[Lack], usable: Bools) -> str:
    """What is wrong with a selector, on the first node that is out by it."""
    where = next((np.flatnonzero(each.where & usable) for each in lacks if each.kind == SELECTOR), None)
    return "" if where is None or not len(where) else statement.allocating.failure_at(int(where[0]), cls.devices)


def explain_ways(statement: Statement, rankings: Sequence[Ranking], *, settings: Settings, mask: NodeMask) -> Verdict:
    """Say the same of a pod that asks for something else on some nodes: ``rankings`` are one for each kind of node.

    A node that is out of question for every ask is so in each of them; all else is about their own nodes only.
    """
    filters, verdicts = (
        statement.filters,
        [explain(statement, each, each.cls, settings=settings, mask=mask) for each in rankings],
    )
    if len(verdicts) == 1:
        return verdicts[0]
    counts: dict[tuple[str, str], int] = {}
    for verdict in verdicts:
        for reason in verdict.node_reasons:
            key, known = (reason.kind, reason.resource), counts.get((reason.kind, reason.resource), 0)
            counts[key] = max(known, reason.nodes) if reason.kind in filters.numbers else known + reason.nodes
    for apart in (Place, ResourceSource):
        out = [each.eligible == filters.number(apart) for each in rankings]
        counts[apart.kind, ""] = int(np.count_nonzero(np.logical_and.reduce(out)))
    reasons = (NodeReason(kind, resource, nodes) for (kind, resource), nodes in counts.items() if nodes)
    return Verdict(
        code=Code.NO_NODE_FITS,
        node_reasons=tuple(sorted(reasons)),
        shortfall=next((verdict.shortfall for verdict in verdicts if verdict.shortfall is not None), None),
        kept=tuple(dict.fromkeys(each for verdict in verdicts for each in verdict.kept))[:_MOST_KEPT],
        selector=next((verdict.selector for verdict in verdicts if verdict.selector), ""),
    )


def _on_probation(statement: Statement, lacks: list[Lack], usable: Bools) -> int:
    """Nodes that have all that is asked, but take nobody before they have answered (assumed/attempts.py)."""
    return sum(
        doubt is not Doubt.LATE and bool(usable[position]) and not any(lack.where[position] for lack in lacks)
        for position, doubt in statement.doubts.items()
    )


def _withheld(statement: Statement, cls: PodClass, lacks: list[Lack], usable: Bools) -> list[NodeReason]:
    """Nodes that lack devices and have some that nobody is let on, which is why: others can help, and have to know."""
    slices = {slice_resource(ask.profile) for ask in cls.request.shared if ask.profile}
    wanted = {GPU_SHARE, GPU_MEMORY, *slices} if cls.request.is_shared else {names.GPU_RESOURCE}
    short = [lack.where for lack in lacks if lack.resource in wanted]
    if not short:
        return []
    where = np.logical_or.reduce(short) & usable
    extra = statement.table.extra
    return [NodeReason(kind, "", int(np.count_nonzero(where & (extra[row] > 0)))) for kind, row in _WITHHELD.items()]


def _stages(statement: Statement, cls: PodClass, settings: Settings) -> list[list[Lack]]:
    """What nodes lack, in the order of kube-scheduler's plug-ins: a node counts for the first stage that it fails.

    Resources and devices, volumes that a node takes, volumes that there are, ResourceClaims.
    """
    nothing = np.zeros(len(statement.nodes), np.int64)
    own = [*_resource_lacks(statement, cls, settings), *_device_lacks(statement, cls)]
    attached = []
    if volumes := volume_limits.coming_of_class(cls, statement.attaching.limited_driver):
        attached.append(Lack("volumes", "", "", ~statement.attaching.fits(volumes, slice(None)), nothing))
    unbound = statement.binding.refusals(cls.unbound) if cls.unbound else {}
    claimed = statement.allocating.refusals(cls.devices) if cls.devices else {}
    return [
        own,
        attached,
        [Lack(why.value, "", "", where, nothing) for why, where in unbound.items()],
        [Lack(kind, "", "", where, nothing) for kind, where in claimed.items()],
    ]


def _resource_lacks(statement: Statement, cls: PodClass, settings: Settings) -> list[Lack]:
    """What the pod itself lacks, and the reservation pods of devices that would have to be opened for it."""
    table = statement.table
    opened = _opened(statement, cls)
    surcharge = {PODS: 1, CPU: settings.reservation_cpu_milli, MEMORY: settings.reservation_mem_mib}
    lacks: list[Lack] = []
    asked = dict(statement.amounts(cls.demand))
    for row in sorted({*asked, *surcharge} if cls.request.is_shared else asked):
        needed = asked.get(row, 0) + opened * surcharge.get(row, 0)
        missing = needed - table.free[row]
        kind, resource = ("pods", "") if row == PODS else (INSUFFICIENT, table.resources[row])
        lacks.append(Lack(kind, resource, unit(table.resources[row]), (missing > 0) & (needed > 0), missing))
    for name, amount in cls.demand.extended:
        if name not in table.resources:
            everywhere = np.ones(len(statement.nodes), np.bool_)
            missing = np.full(len(statement.nodes), min(amount, MOST_ASKED), np.int64)
            lacks.append(Lack(INSUFFICIENT, name, name, everywhere, missing))
    if (aligned := cls.constraints.aligned) is not None:
        crowded = ~statement.aligning.fits(table, aligned, slice(None))
        lacks.append(Lack("numa-free", "", "", crowded, np.zeros(len(statement.nodes), np.int64)))
    return lacks


def _device_lacks(statement: Statement, cls: PodClass) -> list[Lack]:
    """What keeps shares out: MIG, GPUs that are offered several times, a card of unknown memory, too little left."""
    pools = pools_of(cls.request.shared, statement)
    found = [_slice_lack(statement, cls, pool) for pool in pools if pool.profile]
    found += [lack for pool in pools if not pool.profile for lack in _card_lacks(statement, cls, pool)]
    if pools:
        found += ruled_out(statement, cls, ~np.logical_or.reduce([lack.where for lack in found]))
    return found


def _slice_lack(statement: Statement, cls: PodClass, pool: Pool) -> Lack:
    """Nodes without a slice of a profile that has enough left, among them all that have none at all."""
    resource = slice_resource(pool.profile)
    short = ~(pool.is_there(statement.table) & _has_room(statement, cls, pool))
    return Lack(INSUFFICIENT, resource, resource, short, np.zeros(len(statement.nodes), np.int64))


def _card_lacks(statement: Statement, cls: PodClass, pool: Pool) -> list[Lack]:
    table, asks = statement.table, pool.asks
    nothing = np.zeros(len(statement.nodes), np.int64)
    mig = table.extra[MIG] > 0
    multiplied = (table.extra[MULTIPLIED] > 0) & ~mig
    by_claim = statement.allocating.gives(names.GPU_RESOURCE, table.total[GPUS] == 0)
    short = ~_has_room(statement, cls, pool) & ~mig & ~multiplied & ~by_claim
    blind = np.zeros(len(statement.nodes), np.bool_)
    if any(not isinstance(ask, FractionAsk) for ask in asks):
        blind = short & (table.extra[LARGEST_CARD] == 0) & (table.total[GPUS] > 0)
    short &= ~blind
    resource = GPU_SHARE if isinstance(asks[0], FractionAsk) else GPU_MEMORY
    return [
        Lack("mig", "", "", mig, nothing),
        Lack("multiplied", "", "", multiplied, nothing),
        Lack("claims-only", "", "", by_claim, nothing),
        Lack("no-gpu-memory-label", "", "", blind, nothing),
        Lack(INSUFFICIENT, resource, unit(resource), short, missing(statement, cls, pool, short)),
    ]


def _opened(statement: Statement, cls: PodClass) -> Int64s:
    """Devices that would have to be opened on nodes that have them."""
    found = np.zeros(len(statement.nodes), np.int64)
    for pool in pools_of(cls.request.shared, statement):
        opened, _ = pool.tightest(statement.table, slice(None))
        found += np.where(_has_room(statement, cls, pool), opened, 0)
    return found


def _has_room(statement: Statement, cls: PodClass, pool: Pool) -> Bools:
    """Nodes that have the devices of a kind, open or to be opened, even if they lack other things."""
    table = statement.table
    opened, _ = pool.tightest(table, slice(None))
    big_enough = (opened == 0) | cards_hold(table, slice(None), largest_mib(pool.asks))
    spare = pool.spare(table, slice(None), dict(statement.amounts(cls.demand)))
    fits: Bools = (spare >= opened) & big_enough
    for position, doubt in statement.doubts.items():
        if doubt is Doubt.ON_PROBATION:
            fits[position] &= _fits_beside_silent(statement, cls, position)
    return fits


def _fits_beside_silent(statement: Statement, cls: PodClass, position: int) -> bool:
    """Whether a node on probation has the devices, without those that say nothing (placer.py)."""
    devices, node = without_silent(statement.table.devices[position]), statement.nodes[position]
    asks, names_ = cls.request.shared, (str(number) for number in count())
    room = statement.room(position, cls.demand, [node.resource_of(ask.profile) for ask in asks])
    room.pods = len(asks)  # pod slots are another lack
    found = choose_devices(asks, devices, node, room=room, order=BINPACK, new_group=lambda _: next(names_))
    return found is not None


def _shortfall(lacks: list[Lack], usable: Bools) -> tuple[str, int] | None:
    """The least amount that would help a usable node which lacks one thing only."""
    if not lacks or not usable.any():
        return None
    count = np.add.reduce([lack.where.astype(np.int64) for lack in lacks])
    found: list[tuple[str, int]] = []
    for lack in lacks:
        alone = usable & lack.where & (count == 1) & (lack.amount > 0)
        if alone.any():
            found.append((lack.unit, int(lack.amount[alone].min())))
    order = list(UNITS.values())
    return min(found, key=lambda pair: (order.index(pair[0]) if pair[0] in order else len(order), pair), default=None)
