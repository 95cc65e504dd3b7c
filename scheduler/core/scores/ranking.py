"""The order of nodes for a class: one number a node and class, the smallest wins, NOWHERE if the class doesn't fit.

The numbers of a class are computed once for all nodes and then again only for nodes that were charged since, so that
the ten-thousandth pod costs no look over ten thousand nodes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec
import numpy as np

from gpu import limits
from gpu.request import MigAsk
from scheduler.core.assumed.attempts import Doubt
from scheduler.core.devices.device_fit import NOWHERE, cards_hold, choose_answered, largest_mib, pools_of, rule_of
from scheduler.core.filters.registry import OK
from scheduler.core.model.pod_class import PodClass, Weights
from scheduler.core.model.settings import Settings
from scheduler.core.nodes import volume_limits
from scheduler.core.nodes.table import CPU, GPUS, MEMORY, PODS, Bools, Int8s, Int64s, Selection
from scheduler.core.scores.preferences.preferred import NOT_FITTING, ByDomain, Preferred, divided, preferred_of
from scheduler.core.scores.registry import SCORES, score_of
from scheduler.core.scores.score import KEY_BITS, Look, Scores, Wanted
from scheduler.core.snapshot.node_count import NodeMask, both
from scheduler.core.snapshot.pod_counts import PodCounts
from scheduler.core.snapshot.rule_columns import Flipped, RuleColumns, columns_of
from scheduler.core.snapshot.statement import Statement


class OpenRanks:
    """Ranks of nodes as their groups have them, those of closed nodes NOWHERE.

    Rules about other pods leave some nodes open. Nodes are in groups by the coarse labels that rules look at
    (``NodeGroups``). The least rank of each group is kept, and computed again only where a rank has changed, or a node
    was opened or closed.
    """

    __slots__ = ("_firsts", "_groups", "_least", "_ranks", "_rules")

    def __init__(self, rules: RuleColumns) -> None:
        self._rules = rules
        self._groups = rules.groups
        #: In the order of groups; empty until it is made.
        self._ranks: Int64s = np.zeros(0, np.int64)
        #: Of each group its least rank, and the first position that has it.
        self._least: Int64s = np.full(self._groups.count, NOWHERE)
        self._firsts: Int64s = np.zeros(self._groups.count, np.int64)

    def forget(self) -> None:
        """All ranks may be others."""
        self._ranks = np.zeros(0, np.int64)

    def best(self, keys: Int64s, changed: Iterable[int]) -> int | None:
        """The first of the positions with the least rank that is open; None if there is none.

        ``keys``: ranks by position. ``changed``: positions whose rank is another one since this was asked last.
        """
        flipped = self._rules.flipped()
        if flipped is None or not len(self._ranks):
            self._make(keys)
        else:
            self._change(keys, changed, flipped)
        closing = self._rules.closing_groups
        if len(closing) == 1:
            return None if closing[0] or self._least[0] == NOWHERE else int(self._firsts[0])
        least = np.where(closing, NOWHERE, self._least)
        rank = least.item(least.argmin())
        return None if rank == NOWHERE else int(np.minimum.reduce(self._firsts[least == rank]))

    def _make(self, keys: Int64s) -> None:
        ranks = np.where(self._rules.open_nodes, keys, NOWHERE)
        order = self._groups.order
        self._ranks = ranks if order is None else ranks[order]
        for group in range(self._groups.count):
            self._look_at(group)

    def _change(self, keys: Int64s, changed: Iterable[int], flipped: Flipped) -> None:
        is_open, at, of = self._rules.open_nodes, self._groups.at, self._groups.of
        stale: set[int] = set()
        for position in {*changed, *flipped.single}:
            rank = keys.item(position) if is_open.item(position) else NOWHERE
            self._ranks[position if at is None else at.item(position)] = rank
            stale.add(of.item(position))
        for positions in flipped.several:
            ranks = np.where(is_open[positions], keys[positions], NOWHERE)
            self._ranks[positions if at is None else at.take(positions)] = ranks
            stale.update(of.take(positions).tolist())
        for group in stale:
            self._look_at(group)

    def _look_at(self, group: int) -> None:
        starts, order = self._groups.starts, self._groups.order
        start, end = starts[group], starts[group + 1]
        if start == end:
            return
        first = start + int(self._ranks[start:end].argmin())
        self._least[group] = self._ranks[first]
        self._firsts[group] = first if order is None else order[first]


_NOTHING = np.zeros(0, np.int64)


class PreferredRanks:
    """Sums of preferences and ranks as the groups of nodes have them.

    Of spread the score is known by domain, of other preferences by node. The largest sum by node of each group is kept,
    with the least rank that has it, and computed again only in groups where a sum or a rank has changed. What domains
    add decides between groups. Where a node begins to fit or no longer does, all scores may differ, so all are computed
    again.
    """

    __slots__ = ("_domains", "_firsts", "_fits", "_groups", "_least", "_most", "_nodes", "_ranks", "_sums")

    def __init__(self, cls: PodClass, counts: PodCounts, weights: Weights) -> None:
        self._nodes: Preferred
        self._domains: ByDomain | None
        self._nodes, self._domains, self._groups = divided(cls, counts, weights)
        #: Nodes that fit; empty until it is made.
        self._fits: Bools = np.zeros(0, np.bool_)
        #: By position in the order of groups: sums by node, NOT_FITTING where none fits, and ranks.
        self._sums, self._ranks = _NOTHING, _NOTHING
        #: Of each group the largest sum, the least rank of those that have it, and the first position of those.
        count = self._groups.count
        self._most, self._least, self._firsts = (np.full(count, each) for each in (NOT_FITTING, NOWHERE, 0))

    def forget(self) -> None:
        """All ranks may be others."""
        self._fits = np.zeros(0, np.bool_)

    def best(self, keys: Int64s, changed: Iterable[int]) -> int | None:
        """The first of the positions with the least rank, of those with the largest sum; None if none fits.

        ``keys``: ranks by position. ``changed``: positions whose rank is another one since this was asked last.
        """
        positions = list(changed)
        is_as_before = len(self._fits) and all((keys.item(at) != NOWHERE) == self._fits.item(at) for at in positions)
        if is_as_before:
            self._change(keys, positions)
            return self._chosen()
        self._fits = keys != NOWHERE
        if not self._fits.any():
            self.forget()
            return None
        self._make(keys)
        return self._chosen()

    def _chosen(self) -> int:
        sums = self._most
        if self._domains is not None:
            # Where no node fits it stays far below all others.
            sums = sums + self._domains.of_groups(self._fits, self._groups)
        if len(sums) == 1:
            return int(self._firsts[0])
        first = int(sums.argmax())
        among = (sums == sums[first]).nonzero()[0]
        if len(among) == 1:
            return int(self._firsts[first])
        ranks = self._least[among]
        return int(np.minimum.reduce(self._firsts[among[ranks == np.minimum.reduce(ranks)]]))

    def _make(self, keys: Int64s) -> None:
        sums, order = self._nodes.of_fitting(self._fits), self._groups.order
        self._sums, self._ranks = (sums.copy(), keys.copy()) if order is None else (sums[order], keys[order])
        for group in range(self._groups.count):
            self._look_at(group)

    def _change(self, keys: Int64s, positions: Iterable[int]) -> None:
        found = self._nodes.changes(self._fits)
        if found is None:
            self._make(keys)
            return
        groups, sums, stale = self._groups, self._nodes.of_fitting(self._fits), set[int]()
        for position in {*positions, *found}:
            at = position if groups.at is None else groups.at.item(position)
            self._ranks[at], self._sums[at] = keys[position], sums[position]
            stale.add(groups.of.item(position))
        for group in stale:
            self._look_at(group)

    def _look_at(self, group: int) -> None:
        start, end = self._groups.starts[group], self._groups.starts[group + 1]
        if start == end:
            return
        sums = self._sums[start:end]
        most = np.maximum.reduce(sums)
        ranks = np.where(sums == most, self._ranks[start:end], NOWHERE)
        first = int(ranks.argmin())
        self._most[group], self._least[group] = most, ranks[first]
        at = start + first
        self._firsts[group] = at if self._groups.order is None else self._groups.order[at]


_EVERYWHERE: Final = slice(None)
#: At most this many nodes are ranked one by one, by plain integers: arrays of this size take longer.
_FEW: Final = 4
#: The most devices to be opened that are distinguished.
_MOST_OPENED: Final = 31
_OPENED_SHIFT: Final = KEY_BITS
#: Of a class without GPUs, which opens nothing.
_HAS_GPU: Final = 1 << KEY_BITS
#: A bit that no rank has.
_LAST: Final = 1 << 62


class Ranking:
    """The rank of every node for one class, kept up to date with the charges of a statement.

    The order, smaller first: nodes that owe no answer for a share that would wait for it (assumed/attempts.py); what
    the class prefers (preferences/), where it prefers something; for pods without GPUs, nodes without them; where the
    score wants it (``opens_last``), fewer devices to be opened; the score's key; of equal ones those that enforce all
    that the class wishes, where it does not insist on that; node name.

    All but preferences and the last two are in one integer, each in bits of its own above the score's key. Arrays that
    are compared one after the other were tried: decisions took 25 to 40 % longer. So classes that prefer nothing have
    none.
    """

    __slots__ = (
        "_admitting",
        "_aligned",
        "_amounts",
        "_changed",
        "_enforces",
        "_is_by_sums",
        "_kept_ranks",
        "_largest_mib",
        "_opens_last",
        "_own",
        "_pools",
        "_prefers_no_gpus",
        "_reservation_asks",
        "_rules",
        "_seen",
        "_statement",
        "_usable",
        "_wanted",
        "asks",
        "cls",
        "keys",
        "known",
        "preferred",
        "rule",
        "score",
    )

    def __init__(self, statement: Statement, cls: PodClass, settings: Settings, scores: Scores = SCORES) -> None:
        self._statement = statement
        self.cls = cls
        self.asks = cls.request.shared
        #: Judgement per position (filters/registry.py), by all but rules about other pods.
        self._admitting = statement.admitting(cls)
        self._rules = columns_of(statement, cls)
        self._aligned = cls.constraints.aligned
        chooses = cls.attached or cls.unbound or cls.devices or self._aligned is not None
        #: Whether sums alone say where it fits: it shares no devices, and nothing is chosen for it.
        self._is_by_sums = not (self.asks or chooses)
        resources = statement.table.resources
        #: Whether every resource asked is one that some node has.
        self.known = all(name in resources for name, _ in cls.demand.extended)
        self._amounts = statement.amounts(cls.demand)
        if cls.backing is not None:
            # Where pods or reservations hold devices of a plugin that is away, less than nothing is left: the driver's
            # devices may be the same ones.
            by_claim = [(resources.index(name), 0) for name in cls.backing.resources if name in resources]
            self._amounts = [*self._amounts, *by_claim]
        self._own = dict(self._amounts)
        reservation = ((CPU, settings.reservation_cpu_milli), (MEMORY, settings.reservation_mem_mib), (PODS, 1))
        asked = self._own
        #: Resource, the pod's own ask, what each device to be opened adds to it.
        self._reservation_asks = [(row, asked.get(row, 0), more) for row, more in reservation if more]
        self._largest_mib = largest_mib(self.asks)
        self._usable = (self._admitting == OK) & self.known
        #: Its shares by the kind of device.
        self._pools = pools_of(self.asks, statement)
        for pool in self._pools:
            self._usable &= pool.is_there(statement.table)
        self._enforces = self._enforcing()
        #: How it chooses devices, and nodes by their devices.
        self.rule = rule_of(cls)
        self._wanted = _wanted(cls)
        self.score = score_of(cls, self._wanted, settings, scores)
        self._prefers_no_gpus = self._wanted is Wanted.CPU and not _has_mig(cls)
        self._opens_last = self._wanted is Wanted.SHARES and self.score.opens_last
        #: What the class prefers; None if it is nothing.
        self.preferred = preferred_of(cls, statement.counts, settings.weights)
        self._seen = len(statement.touched)
        self.keys: Int64s = self._rank(_EVERYWHERE)
        #: The same by what rules leave open, or by preferences; and positions that it does not know of yet.
        self._kept_ranks = self._kept(settings)
        self._changed: set[int] = set()

    def _kept(self, settings: Settings) -> OpenRanks | PreferredRanks | None:
        """What finds the best without a look at all nodes; None where that is done, or the class asks for both."""
        if self._enforces is not None or (self._rules is not None and self.preferred is not None):
            return None
        if self._rules is not None:
            return OpenRanks(self._rules)
        counts = self._statement.counts
        return None if self.preferred is None else PreferredRanks(self.cls, counts, settings.weights)

    def _enforcing(self) -> Bools | None:
        """Nodes that enforce all that the class wishes; None where that makes no difference."""
        wished = limits.needed(self.cls.wishes, by_driver=self.cls.driver_caps, by_agents=self.cls.by_agents)
        if not wished or self.cls.constraints.enforced:
            return None
        there: Bools = self._statement.eligible(msgspec.structs.replace(self.cls.constraints, enforced=wished)) == OK
        return there if there.any() else None

    @property
    def eligible(self) -> Int8s:
        """Judgement per position (filters/registry.py), with what the decision has placed so far."""
        return self._admitting if self._rules is None else self._rules.narrowed(self._admitting)

    @property
    def open(self) -> Bools:
        """Positions that no rule about other pods closes now."""
        return np.ones(len(self.keys), np.bool_) if self._rules is None else self._rules.open

    def best(self, mask: NodeMask = None) -> int | None:
        """Position of the first node in rank, None if the class fits nowhere."""
        self._catch_up()
        keys = self.keys
        if not len(keys):
            return None
        if self._kept_ranks is not None and mask is None and not self._statement.doubts:
            changed, self._changed = self._changed, set()
            return self._kept_ranks.best(keys, changed)
        if self._rules is not None:
            mask = both(mask, self._rules.open)
        if mask is not None:
            keys = np.where(mask, keys, NOWHERE)
        if self.preferred is None:
            return self._first(keys, None)
        return self._first(keys, _most_preferred(keys, self.preferred, may_wait=bool(self._statement.doubts)))

    def _first(self, keys: Int64s, among: Int64s | None) -> int | None:
        """The first in rank of some positions, or of all; of equals first one that enforces what the class wishes."""
        position = int(keys.argmin()) if among is None else int(among[keys[among].argmin()])
        least = keys[position]
        if least == NOWHERE:
            return None
        if self._enforces is None or self._enforces[position]:
            return position
        equals = (self._enforces & (keys == least)).nonzero()[0]
        if among is not None:
            equals = np.intersect1d(equals, among)
        return int(equals[0]) if len(equals) else position

    def fitting(self, mask: NodeMask = None) -> list[int]:
        """Positions of all nodes on which the class fits, as far as ranks tell."""
        self._catch_up()
        fits = self.keys != NOWHERE
        if self._rules is not None:
            fits &= self._rules.open
        return np.flatnonzero(fits if mask is None else fits & mask).tolist()

    def strike(self, position: int) -> None:
        """Take a node out until it is charged again: a closer look found that the class doesn't fit."""
        self.keys[position] = NOWHERE
        self._has_changed(position)

    def _has_changed(self, *positions: int) -> None:
        if self._kept_ranks is not None:
            self._changed.update(positions)

    def in_use(self) -> list[int]:
        """Positions where the class may be and has room, and some share of it would fit on a device that is shared."""
        look = Look(self._statement.table, _EVERYWHERE, self._wanted, self._pools)
        ok = self._usable.copy()
        if self._rules is not None:
            ok &= self._rules.open
        for row, amount in self._amounts:
            ok &= look.free[row] >= amount
        opened = sum(pool.tightest(self._statement.table, _EVERYWHERE)[0] for pool in self._pools)
        return np.flatnonzero(ok & (opened != len(self.asks))).tolist()

    def has_to_open(self, position: int, count: int) -> bool:
        """Rank a node by the devices that a closer look found to be opened there; whether they are more than counted.

        Only where nodes are ranked by that: the order among all others would not change.
        """
        if not self._opens_last:
            return False
        counted = int(self.keys[position]) >> _OPENED_SHIFT & _MOST_OPENED
        more = min(count, _MOST_OPENED) - counted
        if more > 0:
            self.keys[position] += more << _OPENED_SHIFT
            self._has_changed(position)
        return more > 0

    def _catch_up(self) -> None:
        touched = self._statement.touched
        if self._seen == len(touched):
            return
        positions = set(touched[self._seen :])
        self._seen = len(touched)
        if len(positions) * 8 > len(self.keys):
            self.keys = self._rank(_EVERYWHERE)
            if self._kept_ranks is not None:
                self._kept_ranks.forget()
            return
        if self._is_by_sums and len(positions) <= _FEW:
            for position in positions:
                self.keys[position] = self._rank_one(position)
        else:
            selection = np.fromiter(positions, np.int64, len(positions))
            self.keys[selection] = self._rank(selection)
        self._has_changed(*positions)

    def _rank_one(self, position: int) -> int:
        """As ``_rank`` of one node, for a class that fits by sums alone: its node after each placement."""
        table, free = self._statement.table, self._statement.table.free.item
        if not self._usable[position]:
            return NOWHERE
        for row, amount in self._amounts:
            if free(row, position) < amount:
                return NOWHERE
        look = Look(table, slice(position, position + 1), self._wanted, self._pools, demand=self.cls.demand)
        key = int(self.score.keys(look)[0])
        return key | _HAS_GPU if self._prefers_no_gpus and table.total.item(GPUS, position) > 0 else key

    def _rank(self, selection: Selection) -> Int64s:
        look = Look(self._statement.table, selection, self._wanted, self._pools, demand=self.cls.demand)
        ok = self._usable[selection].copy()
        for row, amount in self._amounts:
            ok &= look.free[row] >= amount
        self._narrow_by_choices(ok, selection)
        if self.asks:
            self._narrow(ok, look, selection)
        keys = self.score.keys(look)
        if self._opens_last:
            keys |= np.minimum(look.opened, _MOST_OPENED) << _OPENED_SHIFT
        elif self._prefers_no_gpus:
            keys |= np.where(look.total(GPUS) > 0, _HAS_GPU, 0)
        keys[~ok] = NOWHERE
        if self.asks:
            for position, doubt in self._statement.doubts.items():
                self._put_last(keys, selection, position, doubt)
        return keys

    def _narrow_by_choices(self, ok: Bools, selection: Selection) -> None:
        """Leave only nodes that have volumes, devices and NUMA nodes for the class."""
        if volumes := volume_limits.coming_of_class(self.cls, self._statement.attaching.limited_driver):
            ok &= self._statement.attaching.fits(volumes, selection)
        if self.cls.unbound:
            ok &= self._statement.binding.fits(self.cls.unbound, selection)
        if self.cls.devices:
            ok[ok] = self._statement.allocating.fits(self.cls.devices, _where(ok, selection))
        if self._aligned is not None:
            ok[ok] = self._statement.aligning.fits(self._statement.table, self._aligned, _where(ok, selection))

    def _put_last(self, keys: Int64s, selection: Selection, position: int, doubt: Doubt) -> None:
        """Rank a node that owes an answer, if it is among those looked at."""
        at = np.array([position]) if isinstance(selection, slice) else np.flatnonzero(selection == position)
        devices, node = self._statement.table.devices[position], self._statement.nodes[position]
        if not len(at) or choose_answered(self.asks, devices, node, order=self.score, rule=self.rule) is not None:
            return
        keys[at] = NOWHERE if doubt is Doubt.PROBED else keys[at] | _LAST

    def _narrow(self, ok: Bools, look: Look, selection: Selection) -> None:
        """Leave only nodes that have the devices, open or to be opened, and what their reservations need."""
        table, own = self._statement.table, self._own
        opened, look.tightest = self._pools[0].tightest(table, selection)
        ok &= self._pools[0].spare(table, selection, own) >= opened
        for pool in self._pools[1:]:
            others, tight = pool.tightest(table, selection)
            ok &= pool.spare(table, selection, own) >= others
            opened, look.tightest = opened + others, look.tightest + tight
        look.opened = opened
        for row, asked, more in self._reservation_asks:
            ok &= (opened == 0) | (look.free[row] >= asked + opened * more)
        if self._largest_mib:
            ok &= (opened == 0) | cards_hold(table, selection, self._largest_mib)


def _where(ok: Bools, selection: Selection) -> Int64s:
    """Positions of those looked at that are left."""
    left = np.flatnonzero(ok)
    return left if isinstance(selection, slice) else np.asarray(selection)[left]


def _most_preferred(keys: Int64s, preferred: Preferred, *, may_wait: bool) -> Int64s:
    """Positions of those nodes that the class prefers most, of those that it need not wait for if there are any.

    ``may_wait``: whether there may be nodes that it would wait for. No node has to fit.
    """
    fits = keys != NOWHERE
    if not fits.any():
        return np.zeros(1, np.int64)
    sums = preferred.of_fitting(fits)
    if may_wait and (need_no_waiting := keys < _LAST).any():
        sums = np.where(need_no_waiting, sums, NOT_FITTING)
    most: Int64s = (sums == sums.max()).nonzero()[0]
    return most


def _wanted(cls: PodClass) -> Wanted:
    if cls.request.shared:
        return Wanted.SHARES
    return Wanted.GPUS if cls.demand.gpus else Wanted.CPU


def _has_mig(cls: PodClass) -> bool:
    return any(isinstance(ask, MigAsk) for container in cls.request.containers for ask in container.asks)
