"""Why a class fits nowhere: reasons counted over nodes, and the smallest change known to help.

A node that may not be used at all counts once, with the first reason; one that may counts for each thing it lacks.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, count

import numpy as np

from gpu.request import FractionAsk
from gpu.slices import slice_resource
from scheduler.core.assumed.slow_nodes import Doubt
from scheduler.core.devices.device_choice import choose_devices, without_silent
from scheduler.core.devices.device_fit import Pool, cards_hold, largest_mib, pools_of
from scheduler.core.explain.ruled_out import ruled_out
from scheduler.core.explain.shortfall import missing
from scheduler.core.explain.units import GPU_MEMORY, GPU_SHARE, UNITS, Lack, unit
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
from scheduler.core.scores.binpack import BINPACK
from scheduler.core.scores.ranking import Ranking
from scheduler.core.snapshot.node_mask import NodeMask
from scheduler.core.snapshot.statement import Statement
from wire import names

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
    lacks = [*_resource_lacks(statement, cls, settings), *_device_lacks(statement, cls)]
    reasons += [NodeReason(k.kind, k.resource, int(np.count_nonzero(k.where & usable))) for k in lacks]
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
    """Nodes that have all that is asked, but take nobody before they have answered (slow_nodes.py)."""
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
    if volumes := volume_limits.coming_of_class(cls, statement.attaching.limited_driver):
        full = ~statement.attaching.fits(volumes, slice(None))
        lacks.append(Lack("volumes", "", "", full, np.zeros(len(statement.nodes), np.int64)))
    if cls.unbound:
        for why, where in statement.binding.refusals(cls.unbound).items():
            lacks.append(Lack(why.value, "", "", where, np.zeros(len(statement.nodes), np.int64)))
    if (aligned := cls.constraints.aligned) is not None:
        crowded = ~statement.aligning.fits(table, aligned, slice(None))
        lacks.append(Lack("numa-free", "", "", crowded, np.zeros(len(statement.nodes), np.int64)))
    if cls.devices:
        for kind, where in statement.allocating.refusals(cls.devices).items():
            lacks.append(Lack(kind, "", "", where, np.zeros(len(statement.nodes), np.int64)))
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
