"""Who may be taken for a need by each action, in which order, and what proves that nobody helps.

See docs/design/preemption.md. The order is KAI's reversed: the queue that would be served last goes first, with what
was taken of it off; in it the lowest priority, surplus before cores, the newest.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.preemption import Action, Bound, Kept, KeptPods, NoVictims
from scheduler.core.model.quota import NOTHING, UNITS, UNLIMITED, Resources
from scheduler.core.model.verdict import Code, Verdict
from scheduler.core.nodes.table import GPUS, Bools, Device, Int64s
from scheduler.core.preemption import protection
from scheduler.core.preemption.capacity import Counting, KeptSlots, asked, free_now, slots
from scheduler.core.preemption.need import Need
from scheduler.core.preemption.protection import Budgets
from scheduler.core.preemption.reclaim import Rules
from scheduler.core.preemption.trial import Trial
from scheduler.core.preemption.victim_table import ResidentTable, Tenants
from scheduler.core.preemption.victim_units import EMPTY, Pricing
from scheduler.core.queues.accounts import Use
from scheduler.core.queues.tree import TreeQueue
from wire.units import SECOND_NS


@dataclass(frozen=True, slots=True)
class Least:
    """What a need takes at least, however its members are chosen: ``pods`` by class, ``count`` and claim of all."""

    pods: dict[PodClass, int]
    count: int
    claim: Resources


def least(need: Need, trial: Trial) -> Least:
    """The least that a need takes, and all that are equal to it."""
    one, times = _least_of_one(need, trial), len(need.all)
    return Least({cls: count * times for cls, count in one.pods.items()}, one.count * times, one.claim.times(times))


def _least_of_one(need: Need, trial: Trial) -> Least:
    counts, wanted = Counter(pod.cls for pod in need.pods), _wanted(need)
    others = len(need.pods) - wanted
    pods = {cls: count - others for cls, count in counts.items() if count > others}
    of = [trial.queues.least(cls) for cls in counts]
    claim = NOTHING
    for cls, count in pods.items():
        claim = claim.plus(trial.queues.least(cls).times(count))
    rest = wanted - sum(pods.values())
    return Least(pods, wanted, claim.plus(Resources(*map(min, *of, of[0])).times(rest)))


def _wanted(need: Need) -> int:
    """How many of its pods it needs at least."""
    if need.quorum is None:
        return 1
    return min(len(need.pods), max(need.quorum.of_all, need.quorum.costs(need.pods)[0]))


def reach(trial: Trial, wanted: Least, kept: KeptSlots | None = None) -> bool:
    """Whether nodes hold a need as the statement stands, as far as counting tells. ``kept``: of that statement."""
    for cls, count in wanted.pods.items():
        held = slots(trial.statement, cls) if kept is None else kept.of(cls)
        if int(np.minimum(held, count).sum()) < count:
            return False
    return len(wanted.pods) < 2 or all(_suffice(trial, wanted, None))


def reaches_without(trial: Trial, wanted: Least, gone: Bools, devices: Tenants) -> bool:
    """Whether nodes hold a need once all units of these rows are gone; if not, no evictions of some of them help.

    Any eviction of a part of the set leaves no more free on any node, and a node holds no more pods of a class than
    ``slots`` says. Bound B takes all units of pods that may be preempted at all, C those that may be taken for this
    need: by the rules with nobody taken before (what a queue has left only shrinks), by priority, protection, and
    budgets.
    """
    for cls, count in wanted.pods.items():
        ways = (Counting(trial, trial.residents, way, devices).without(gone) for way in cls.ways())
        held = np.maximum.reduce(list(ways))
        if int(np.minimum(held, count).sum()) < count:
            return False
    return len(wanted.pods) < 2 or all(_suffice(trial, wanted, gone))


def _suffice(trial: Trial, wanted: Least, gone: Bools | None) -> Iterator[bool]:
    """For each resource, whether there is enough of it for all classes together: what is free, and what units hold."""
    needed = Counter[int]()
    for cls, count in wanted.pods.items():
        ways = [dict(asked(trial.statement, way)) for way in cls.ways()]
        for row in set.intersection(*(set(way) for way in ways)):
            needed[row] += count * min(way[row] for way in ways)
    rows = sorted(needed.keys() | {GPUS})
    has = np.maximum(free_now(trial, rows), 0).sum(axis=1)
    if gone is not None:
        unit = trial.residents.pods.of["unit"]
        has += trial.residents.demands(trial, rows)[:, (unit != EMPTY) & gone[unit]].sum(axis=1)
        has[rows.index(GPUS)] += sum(map(_come_back, trial.statement.table.devices))
    for row, amount in needed.items():
        yield int(has[rows.index(row)]) >= amount


def _come_back(devices: Iterable[Device]) -> int:
    """Shared GPUs that come back at most when all tenants go; those that are idle or on their way back are free."""
    return sum(device.is_gpu and not (device.is_idle or device.is_leaving) for device in devices)


#: How far a search came before it was answered no.
_FARTHEST: Final = (
    Bound.NEVER,
    Bound.DELAY,
    Bound.CLAIMS,
    Bound.GIVEN_UP,
    Bound.QUEUE,
    Bound.CANDIDATES,
    Bound.NODES,
    None,
)


def no_victims(candidates: Candidates, bound: Bound | None, code: Code | None = None) -> NoVictims:
    """No room, with what keeps others. ``bound``: what proves it; ``code``: what the queue says."""
    kept = tuple(candidates.kept[why] for why in Kept if why in candidates.kept)
    times = [each.until_s for each in kept if each.until_s]
    return NoVictims(bound=bound, queue_code=code, kept=kept, until_s=min(times, default=0))


def joined(refused: Sequence[NoVictims]) -> NoVictims:
    """One answer for all actions: proven if each is."""
    kept: dict[Kept, list[KeptPods]] = {}
    for each in (each for answer in refused for each in answer.kept):
        kept.setdefault(each.why, []).append(each)
    times = [answer.until_s for answer in refused if answer.until_s]
    last = max(refused, key=lambda answer: _FARTHEST.index(answer.bound))
    return NoVictims(
        bound=last.bound,
        queue_code=last.queue_code,
        kept=tuple(_together(why, parts) for why, parts in kept.items()),
        until_s=min(times, default=0),
    )


def _together(why: Kept, parts: Sequence[KeptPods]) -> KeptPods:
    times = [part.until_s for part in parts if part.until_s]
    pods, nano = sum(part.pods for part in parts), sum(part.nano_gpu for part in parts)
    return KeptPods(why, pods, nano, min(times, default=0))


_PLACES: Final = 1 << 32
_VOID: Final = 1_000
_TOP: Final = -1
#: Queues may hold more than 64 bits count: a pod that names its node itself asks what it likes.
_MOST: Final = 1 << 61


def permitted(table: ResidentTable, rows: Int64s, rules: Rules) -> Int64s:
    """Rows of the units that may be taken one after the other, in order. ``rows``: as ``in_queue`` has them."""
    return _Merging(table, rules, rows).all()


def in_queue(table: ResidentTable, able: Bools) -> Int64s:
    """Rows in the order in which they go in one queue. It follows from the units alone, not from their rows."""
    rows = np.flatnonzero(able)
    of = {name: table.units.of[name][rows] for name in ("priority", "is_core", "created_s", "uid", "place")}
    order = np.lexsort((of["place"], -of["uid"], -of["created_s"], of["is_core"], of["priority"]))
    keys = np.stack([of[name][order] for name in ("priority", "is_core", "created_s", "uid")])
    return _by_whole_uids(table, rows[order], keys)


def _by_whole_uids(table: ResidentTable, rows: Int64s, keys: Int64s) -> Int64s:
    """Put those in order that are equal but for what the column of UIDs leaves out of them."""
    equal = (keys[:, 1:] == keys[:, :-1]).all(axis=0)
    tied = np.flatnonzero(np.r_[equal, False] | np.r_[False, equal])
    if not len(tied):
        return rows
    runs, uids = np.cumsum(np.r_[True, ~equal])[tied], [_uid(table, row) for row in rows[tied].tolist()]
    newest = np.array(sorted(range(len(tied)), key=uids.__getitem__, reverse=True), np.int64)
    rows[tied] = rows[tied][newest[np.argsort(runs[newest], kind="stable")]]
    return rows


def _uid(table: ResidentTable, row: int) -> str:
    unit = table.residents[row]
    return "" if unit is None else unit.uid


def amounts(table: ResidentTable, rows: Int64s) -> Int64s:
    """What units count for, by dimension."""
    return np.stack([table.units.of[name][rows] for name in ("cpu", "mem", "gpu")])


@dataclass(slots=True)
class _Merging:
    """Merges the units of queues, from below upward. ``rows``: in the order that they have in one queue."""

    table: ResidentTable
    rules: Rules
    rows: Int64s
    _of_leaf: dict[int, Int64s] = field(default_factory=dict)

    def all(self) -> Int64s:
        """Those of all queues."""
        if self.rules.action is Action.PREEMPT:
            return self.rows
        leaves = self.table.units.of["leaf"][self.rows]
        order = np.argsort(leaves, kind="stable")
        numbers, starts = np.unique(leaves[order], return_index=True)
        parts = np.split(self.rows[order], starts[1:]) if len(numbers) else []
        self._of_leaf = dict(zip(numbers.tolist(), parts, strict=True))
        return self._merged(self.rules.accounts.tree.top)

    def _below(self, number: int) -> Int64s:
        """Those below a queue; of one that parts from the taker's as many as it has to give."""
        queue, path = self.rules.accounts.tree.queues[number], self.rules.taker.path
        none = self.rows[:0]
        rows = self._merged(queue.children) if queue.children else self._of_leaf.get(number, none)
        parts = number not in path and (queue.parent == _TOP or queue.parent in path)
        return self._cut(number, rows) if parts and len(rows) else rows

    def _merged(self, numbers: Sequence[int]) -> Int64s:
        parts = [(number, rows) for number, rows in ((each, self._below(each)) for each in numbers) if len(rows)]
        if len(parts) < 2:
            return parts[0][1] if parts else self.rows[:0]
        rows = np.concatenate([part for _, part in parts])
        return rows[np.lexsort(self._keys(parts))]

    def _keys(self, parts: Sequence[tuple[int, Int64s]]) -> list[Int64s]:
        """The key of its queue at each unit's turn (order.py), last criterion first, the largest first."""
        accounts, queues = self.rules.accounts, self.rules.accounts.tree.queues
        numbers = [number for number, _ in parts]
        lengths = [len(rows) for _, rows in parts]

        def each(values: Sequence[Sequence[int]]) -> Int64s:
            return np.repeat(_counted(values).reshape(len(parts), -1).T, lengths, axis=1)

        kept = each([self.rules.kept[number] for number in numbers])
        kept -= np.concatenate([_before(amounts(self.table, rows)) for _, rows in parts], axis=1)
        fair = each([accounts.of[number].fair for number in numbers])
        quota = each([queues[number].record.quota for number in numbers])
        most = [accounts.of[number].allocatable for number in numbers]
        ties = sorted(
            range(len(numbers)),
            key=lambda at: ((*reversed(most[at]),), queues[numbers[at]].record.created, queues[numbers[at]].name),
        )
        rank = np.argsort(np.array(ties))
        shares = each(most)
        return [
            -np.repeat(rank, lengths),
            -_dominant(kept, shares, accounts.total),
            -((kept > 0) & (shares == 0)).any(axis=0).astype(np.int64),
            each([[queues[number].record.priority] for number in numbers])[0],
            -(~(kept <= quota).all(axis=0)).astype(np.int64),
            -(kept > fair).all(axis=0).astype(np.int64),
        ]

    def _cut(self, number: int, rows: Int64s) -> Int64s:
        rules, leaf = self.rules, self.rules.accounts.tree.queues[number]
        kept, most, quota = _counted([rules.kept[number], rules.accounts.of[number].allocatable, leaf.record.quota])
        left = kept[:, None] - _before(amounts(self.table, rows))
        gives = (left > most[:, None]).any(axis=0)
        if rules.is_within_quota(leaf):
            gives |= (left > quota[:, None]).any(axis=0)
        return rows if gives.all() else rows[: int(gives.argmin())]


def _counted(values: Sequence[Sequence[int]]) -> Int64s:
    """Amounts as an array, none of them beyond what it can count on with."""
    return np.array([[min(amount, _MOST) for amount in each] for each in values], np.int64)


def _before(each: Int64s) -> Int64s:
    """The sums of all before each one."""
    sums: Int64s = np.cumsum(each, axis=1) - each
    return sums


def _dominant(kept: Int64s, most: Int64s, total: Resources) -> Int64s:
    """The largest part that is kept of what a queue may come to use, in parts of 2^32: as in order.py."""
    parts = []
    for at, unit in enumerate(UNITS):
        share = np.where(most[at] >= UNLIMITED, total[at], most[at])
        void = kept[at].astype(np.float64) * _VOID / unit
        parts.append(np.where(share > 0, kept[at] / np.maximum(share, 1), void))
    dominant: Int64s = np.floor(np.minimum(np.maximum.reduce(parts) * _PLACES, _MOST)).astype(np.int64)
    return dominant


_NONE: Final = Counter[int]()


def by_budgets(table: ResidentTable, sequence: Int64s, budgets: Budgets, rules: Rules) -> Int64s:
    """Those of a sequence that budgets allow together; a core of which surplus is left out stays as well."""
    if budgets.forbid_nothing:
        return sequence
    taken, kept, lost = Counter[int](), dict[int, None](), dict[int, Resources]()
    for row in sequence.tolist():
        unit = table.residents[row]
        if unit is None or not kept.keys() >= set(table.surplus_of(row)):
            continue
        more = _NONE if rules.outgrows_budgets(unit, lost) else budgets.takes(unit.pods)
        if more is None or not budgets.allow(taken, more):
            continue
        taken += more
        rules.take(unit, lost)
        kept[row] = None
    return np.array(list(kept), np.int64)


def of_low_priority(table: ResidentTable, sequence: Int64s, is_enough: Callable[[Int64s], bool]) -> Int64s:
    """Those of a sequence up to the lowest priority that is enough."""
    priorities = table.units.of["priority"][sequence]
    for most in np.unique(priorities).tolist():
        pool: Int64s = sequence[priorities <= most]
        if len(pool) == len(sequence) or is_enough(pool):
            return pool
    return sequence


def of_low_rank(table: ResidentTable, able: Int64s, rules: Rules, is_enough: Callable[[Int64s], bool]) -> Int64s:
    """Those that may be taken up to the lowest rank that is enough; ``is_enough`` is asked a few times."""
    kinds = 2 * table.units.of["leaf"][able] + table.units.of["is_core"][able]
    queues, there = rules.accounts.tree.queues, np.flatnonzero(np.bincount(kinds)).tolist()
    ranks = {kind: rules.rank(queues[kind // 2], is_core=bool(kind % 2)) for kind in there}
    in_order = sorted({*ranks.values()})
    if len(in_order) < 2:
        return able
    place_of = np.zeros(max(ranks) + 1, np.int64)
    place_of[there] = [in_order.index(rank) for rank in ranks.values()]
    places = place_of[kinds]
    most = bisect_left(range(len(in_order) - 1), True, key=lambda at: is_enough(able[places <= at]))
    pool: Int64s = able[places <= most]
    return pool


def by_size(table: ResidentTable, able: Bools, rules: Rules, *, largest_first: bool = False) -> Int64s:
    """Units that may be taken one after the other: the smallest first, so that most may, or the largest.

    By GPUs, then CPU, then memory; cores that have surplus come after it.
    """
    rows, sign = in_queue(table, able), -1 if largest_first else 1
    return _permitted(table, rows, [sign * table.units.of[name][rows] for name in ("mem", "cpu", "gpu")], rules)


def by_cost(table: ResidentTable, able: Bools, rules: Rules, pricing: Pricing) -> Int64s:
    """Units that may be taken one after the other: the lowest priority first, then those with which least is lost."""
    rows = in_queue(table, able)
    losses = [pricing.loss(unit) for unit in table.at(rows.tolist())]
    ranks = {loss: rank for rank, loss in enumerate(sorted(set(losses)))}
    cheap = np.array([ranks[loss] for loss in losses], np.int64)
    return _permitted(table, rows, [cheap, table.units.of["priority"][rows]], rules)


def _permitted(table: ResidentTable, rows: Int64s, keys: Sequence[Int64s], rules: Rules) -> Int64s:
    """Those that may be taken one after the other by these keys, the last one first; cores after their surplus."""
    has_surplus = np.array([bool(table.surplus_of(row)) for row in rows.tolist()], np.bool_)
    order = np.lexsort((*keys, has_surplus))
    lost: dict[int, Resources] = {}
    kept: dict[int, None] = {}
    for row in rows[order].tolist():
        unit = table.residents[row]
        if unit is None or not rules.may_take(unit, lost) or not kept.keys() >= set(table.surplus_of(row)):
            continue
        rules.take(unit, lost)
        kept[row] = None
    return np.array(list(kept), np.int64)


_OfLeaf = Callable[[TreeQueue], int]


@dataclass(slots=True)
class Candidates:
    """``able``: rows of units that may be taken first of all. ``kept``: pods by what keeps them."""

    able: Bools
    kept: dict[Kept, KeptPods] = field(default_factory=dict)

    def keep(self, why: Kept, *, pods: int, nano: int, until_s: int = 0) -> None:
        """Count pods that something keeps; ``until_s``: the first time at which that ends without an event."""
        if not pods:
            return
        known = self.kept.get(why, KeptPods(why, 0, 0))
        times = [at for at in (known.until_s, until_s) if at]
        self.kept[why] = KeptPods(why, known.pods + pods, known.nano_gpu + nano, min(times, default=0))


@dataclass(slots=True)
class Sieve:
    """Of one need and action. ``own``: the namespace that it takes from alone; None: from all."""

    trial: Trial
    rules: Rules
    budgets: Budgets
    table: ResidentTable
    own: str | None = None

    def find_candidates(self) -> Candidates:
        """Look at all units and pods."""
        leaves = self.rules.accounts.tree.queues
        asked_of = np.array([not leaf.children and self.rules.may_ask(leaf) for leaf in leaves], np.bool_)
        candidates = Candidates(self.table.is_filled() & asked_of[self.table.units.of["leaf"]])
        for key, pods in self.table.kept.items():
            if asked_of[key.leaf]:
                candidates.keep(key.why, pods=pods, nano=self.table.kept_nano[key])
        self._by_rules(candidates)
        self._by_time(candidates, asked_of)
        self._by_evictions(candidates)
        self._by_namespace(candidates)
        self._by_budgets(candidates)
        return candidates

    def _out(self, candidates: Candidates, why: Kept, which: Bools, until_s: Int64s | None = None) -> None:
        """Take units out that something keeps; a core of which surplus stays does, too."""
        out = candidates.able & which
        if not out.any():
            return
        candidates.able &= ~out
        cores = self.table.units.of["core"][out]
        held = np.zeros_like(out)
        held[cores[cores != EMPTY]] = True
        held &= candidates.able
        candidates.able &= ~held
        out |= held
        first = 0 if until_s is None else int(until_s[out].min())
        gpus = self.table.units.of["gpu"]
        pods = np.count_nonzero(out[self.table.pods.of["unit"]] & (self.table.pods.of["unit"] != EMPTY))
        candidates.keep(why, pods=int(pods), nano=int(gpus[out].sum()), until_s=first)

    def _by_rules(self, candidates: Candidates) -> None:
        rules, units = self.rules, self.table.units.of
        if rules.action is Action.PREEMPT:
            self._out(candidates, Kept.PRIORITY, units["priority"] >= rules.priority)
            return
        gives = self._of_leaves(lambda leaf: rules.gives(leaf, {}))
        self._out(candidates, Kept.IN_SHARE, gives[units["leaf"]] == 0)

    def _by_time(self, candidates: Candidates, asked_of: Bools) -> None:
        """Cores that have not run for their minimum time."""
        rules, units, wall_s = self.rules, self.table.units.of, self.trial.wall_s
        tree, settings = rules.accounts.tree, self.trial.settings
        least_s = self._of_leaves(
            lambda leaf: (
                -(-protection.minimum_ns(tree, rules.action, settings, taker=rules.taker, victim=leaf) // SECOND_NS)
            )
        )
        if not (least_s[asked_of] > 0).any():
            return
        since_s = np.minimum(np.where(units["started_s"] > 0, units["started_s"], wall_s), wall_s)
        mine_s = least_s[units["leaf"]]
        until_s = since_s + mine_s
        self._out(candidates, Kept.MIN_RUNTIME, (units["is_core"] == 1) & (mine_s > 0) & (until_s > wall_s), until_s)

    def _of_leaves(self, value: _OfLeaf) -> Int64s:
        """A number for each leaf that may be asked, by number."""
        leaves = self.rules.accounts.tree.queues
        may = self.rules.may_ask
        return np.array([value(leaf) if not leaf.children and may(leaf) else 0 for leaf in leaves], np.int64)

    def _by_evictions(self, candidates: Candidates) -> None:
        """Groups that were evicted not long ago."""
        trial, started_s = self.trial, self.table.units.of["started_s"]
        until_s = np.zeros(len(started_s), np.int64)
        for row in self.table.owned_by(trial.evicted.keys()):
            unit = self.table.residents[row]
            evicted = trial.evicted.get(unit.owner) if unit is not None else None
            until_s[row] = protection.protected_until_s(evicted, int(started_s[row]), trial.wall_s)
        self._out(candidates, Kept.PROTECTED, until_s > 0, until_s)

    def _by_namespace(self, candidates: Candidates) -> None:
        """Leave out others, of a namespace that takes from itself alone: of a group all or none are its own."""
        for row in np.flatnonzero(candidates.able).tolist() if self.own is not None else ():
            unit = self.table.residents[row]
            candidates.able[row] = unit is not None and unit.pods[0].namespace == self.own

    def _by_budgets(self, candidates: Candidates) -> None:
        if not self.budgets.forbid_nothing:
            which = np.zeros(len(candidates.able), np.bool_)
            for row in np.flatnonzero(candidates.able).tolist():
                unit = self.table.residents[row]
                if unit is not None and not self.rules.outgrows_budgets(unit, {}):
                    which[row] = self.budgets.takes(unit.pods) is None
            self._out(candidates, Kept.BUDGET, which)


class Allowed(NamedTuple):
    """Nothing proves that nobody helps: ``rules`` of the action, and who may be taken by them."""

    rules: Rules
    candidates: Candidates


@dataclass(slots=True)
class SearchScope:
    """One need's, or that of several equal ones together. ``wanted``: the least that they take."""

    need: Need
    trial: Trial
    leaf: TreeQueue
    wanted: Least
    budgets: Budgets = field(init=False)
    _tenants: Tenants | None = None
    #: Whether nodes would hold it if all were gone that may be preempted at all; None: not counted yet.
    _nodes_reach: bool | None = None

    def __post_init__(self) -> None:
        trial = self.trial
        self.budgets = trial.counted
        taken = map(trial.pods.records.get, trial.taken) if trial.budgets else ()
        self.budgets.spend(pod for pod in taken if pod is not None and not pod.deleting)

    def of_first(self, count: int) -> SearchScope:
        """That of the first of several equal needs."""
        need = self.need.first(count)
        return SearchScope(need, self.trial, self.leaf, least(need, self.trial), self._tenants)

    @property
    def tenants(self) -> Tenants:
        """Shared devices, read when they are first asked for."""
        if self._tenants is None:
            self._tenants = self.trial.tenants_read.of(self.trial, self.trial.residents)
        return self._tenants

    def rules(self, action: Action, claim: Resources) -> Rules:
        """Those of one action, for what the need claims."""
        use = Use(self.need.queue, claim, self.need.is_fixed)
        return Rules(action, self.trial.accounts, self.leaf, use, self.need.priority, self.trial.settings)

    def allowed(self, action: Action) -> Allowed | NoVictims:
        """Who may be taken, or what proves that no evictions that are permitted help."""
        rules = self.rules(action, self.wanted.claim)
        if not rules.is_entitled():
            return NoVictims(bound=Bound.QUEUE)
        own = self.need.pods[0].namespace if self.need.own_until_s else None
        candidates = Sieve(self.trial, rules, self.budgets, self.trial.residents, own).find_candidates()
        refused = self._bounded(candidates)
        return Allowed(rules, candidates) if refused is None else refused

    def largest(self, action: Action) -> tuple[SearchScope, Allowed] | None:
        """The most of several equal needs that no bound speaks against together; None if that is no more than one."""
        found, least, most = None, 1, len(self.need.all) + 1
        while most - least > 1:
            # All of them first: mostly that is it.
            middle = len(self.need.all) if most > len(self.need.all) else (most + least) // 2
            scope = self.of_first(middle)
            allowed = scope.allowed(action)
            if isinstance(allowed, Allowed):
                found, least = (scope, allowed), middle
            else:
                most = middle
        return found

    def _bounded(self, candidates: Candidates) -> NoVictims | None:
        verdict = self._refusal_without(candidates)
        if verdict is not None:
            return no_victims(candidates, Bound.QUEUE, verdict.code)
        if self._nodes_reach is not False and self._reaches_without(candidates.able):
            return None
        if self._nodes_reach is None:
            self._nodes_reach = self._reaches_without(self.trial.residents.is_filled())
        return no_victims(candidates, Bound.CANDIDATES if self._nodes_reach else Bound.NODES)

    def _reaches_without(self, gone: Bools) -> bool:
        return reaches_without(self.trial, self.wanted, gone, self.tenants)

    def _refusal_without(self, candidates: Candidates) -> Verdict | None:
        """What the taker's queue says if all that may be taken were gone."""
        trial, of = self.trial, self.trial.residents.units.of
        claim = Use(self.need.queue, self.wanted.claim, self.need.is_fixed)
        if trial.accounts.refusal(claim) is None:
            return None
        mark, leaves = trial.accounts.checkpoint(), of["leaf"]
        for number in np.unique(leaves[candidates.able]).tolist():
            mine = candidates.able & (leaves == number)
            amounts = Resources(*(int(of[name][mine].sum()) for name in ("cpu", "mem", "gpu")))
            trial.accounts.release(Use(trial.accounts.tree.queues[number].name, amounts))
        verdict = trial.accounts.refusal(claim)
        trial.accounts.rollback(mark)
        return verdict
