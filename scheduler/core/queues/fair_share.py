"""Fair shares of all queues: the top ones divide the cluster, the children of each divide its share.

Siblings divide what their parent has in KAI's rounds, in integers, one dimension at a time. First each queue gets its
quota, as far as it asks for it. What is left goes to those that ask for more, by weight, in rounds: of one priority
after the other, highest first. A round gives whole units; what is cut off remains to be given at the end, one unit
each, largest remainder first. So one input has one result, in any order.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby, starmap
from operator import attrgetter, itemgetter
from typing import Final, NamedTuple, Protocol

from scheduler.core.model.quota import NOTHING, UNITS, UNLIMITED, Resources
from scheduler.core.queues.tree import Tree, TreeQueue
from scheduler.core.queues.use_over_time import NO_USE, NOT_COUNTED, Ppb, UseOverTime


class StepKind(enum.Enum):
    """What a step of a division gives."""

    #: Quotas, as far as they are asked for.
    QUOTA = "quota"
    #: What is left, by weight, to the queues of one priority.
    ROUND = "round"
    #: Units that rounds cut off, one each.
    LEFTOVER = "leftover"


class Step(NamedTuple):
    """One step. ``offered``: what was left before it. ``given``: to each sibling, in their order.

    ``priority``: of the queues that it is for; None for quotas, which are for all.
    """

    kind: StepKind
    priority: int | None
    offered: int
    given: tuple[int, ...]


class Getting(Protocol):
    """A queue that takes part in a division."""

    fair: int


@dataclass(slots=True)
class DivisionRecord:
    """One division. ``total``: what is divided; ``left``: what nobody gets.

    The division notes its steps itself, for people who ask why a queue gets its share: what is shown is what was
    computed.
    """

    total: int = 0
    left: int = 0
    steps: list[Step] = field(default_factory=list)
    _known: list[int] = field(default_factory=list)
    _left: int = 0

    def begin(self, total: int) -> None:
        """Begin with nothing given."""
        self.total = self._left = total
        self.steps.clear()
        self._known = []

    def note(self, kind: StepKind, siblings: Sequence[Getting], left: int, *, priority: int | None = None) -> None:
        """Note what each got since the step before. A round that gives nothing is none."""
        known = self._known or [0] * len(siblings)
        self._known = [each.fair for each in siblings]
        given = tuple(now - before for now, before in zip(self._known, known, strict=True))
        if kind is StepKind.QUOTA or any(given):
            self.steps.append(Step(kind, priority, max(0, self._left), given))
        self._left = self.left = max(0, left)


_PPB: Final = 10**9


@dataclass(slots=True)
class Sibling:
    """One queue in one dimension. ``weight`` in millionths; ``age``: by it the older comes first (created, name).

    ``used_ppb``: what it used of the cluster over time, 0 where that does not count. ``fair``: the result.
    """

    quota: int
    limit: int
    weight: int
    priority: int
    asked: int
    age: tuple[str, str]
    used_ppb: int = 0
    fair: int = 0

    @property
    def most(self) -> int:
        """More than this it can't use."""
        return min(self.limit, self.asked)


#: A queue, and what was cut off its part of a round. All of a list have one denominator: they are of one round, since a
#: queue that got less than it wants takes part in the next.
_Remainders = list[tuple[Sibling, int]]


def divide(
    total: int,
    siblings: Sequence[Sibling],
    *,
    unit: int,
    weight_milli: int = 1000,
    record: DivisionRecord | None = None,
) -> int:
    """Set the fair share of each, and return what nobody gets.

    Quotas are given in full even where they exceed ``total``. ``unit``: what is given as one piece. ``weight_milli``:
    how much use over time counts, in thousandths. ``record``: takes each step.
    """
    left = total
    for each in siblings:
        each.fair = min(total if each.quota >= UNLIMITED else each.quota, each.most)
        left -= each.fair
    if record is not None:
        record.begin(total)
        record.note(StepKind.QUOTA, siblings, left)
    if left <= 0:
        return 0
    by_priority = sorted(siblings, key=attrgetter("priority"), reverse=True)
    classes = [list(group) for _, group in groupby(by_priority, key=attrgetter("priority"))]
    remainders: list[_Remainders] = []
    for group in classes:
        noting = partial(record.note, StepKind.ROUND, siblings, priority=group[0].priority) if record else None
        left, cut_off = _give_rounds(left, group, unit=unit, weight_milli=weight_milli, noting=noting)
        remainders.append(cut_off)
    for group, cut_off in zip(classes, remainders, strict=True):
        left = _give_remainders(left, cut_off, unit=unit)
        if record is not None:
            record.note(StepKind.LEFTOVER, siblings, left, priority=group[0].priority)
    return left


def _give_rounds(
    left: int, siblings: Sequence[Sibling], *, unit: int, weight_milli: int, noting: Callable[[int], None] | None = None
) -> tuple[int, _Remainders]:
    """Give by weight until nobody wants less than it is offered. Each further round satisfies one queue at least.

    ``noting`` is called after each round, with what is left.
    """
    remainders: _Remainders = []
    again = True
    while left > 0 and again:
        wanting = [each for each in siblings if each.weight > 0 and each.fair < each.most]
        weights = sum(each.weight for each in wanting)
        scores = [_score(each, weights, weight_milli) for each in wanting]
        all_scores = sum(scores)
        if not all_scores:
            break
        offer, again, remainders = left, False, []
        for each, score in zip(wanting, scores, strict=True):
            wants, part = each.most - each.fair, offer * score
            given = wants if wants * all_scores <= part else part // all_scores // unit * unit
            each.fair += given
            left -= given
            if given < wants:
                remainders.append((each, part - given * all_scores))
            again |= wants * all_scores < part
        if noting is not None:
            noting(left)
    return left, remainders


def _score(sibling: Sibling, weights: int, weight_milli: int) -> int:
    """Its part of what is left, by weight, less what it has used above that over time."""
    return max(0, sibling.weight * (1000 + weight_milli) * _PPB - weight_milli * sibling.used_ppb * weights)


def _give_remainders(left: int, remainders: _Remainders, *, unit: int) -> int:
    """Give one unit to each, largest remainder first, then older; never more than it asks."""
    for each, over in sorted(remainders, key=lambda one: (-one[1], one[0].age)):
        given = min(unit, left, each.most - each.fair) if over else 0
        each.fair += given
        left -= given
    return left


#: What is divided among the queues at the top: the cluster, which is no queue.
TOP: Final = -1


@dataclass(slots=True)
class Records:
    """The divisions of all levels, one for each dimension, by the number of the queue whose share is divided."""

    of: dict[int, tuple[DivisionRecord, ...]] = field(default_factory=dict)

    def open(self, parent: int) -> tuple[DivisionRecord, ...]:
        """Make the records of one level."""
        self.of[parent] = made = tuple(DivisionRecord() for _ in UNITS)
        return made


@dataclass(slots=True)
class Divisions:
    """The divisions of one tree as they were made last: one of the same numbers is not made again.

    ``levels``: by the number of the queue whose share is divided, what it was made of, and the shares; ``of``: the same
    of each dimension alone.
    """

    levels: dict[int, tuple[object, list[Resources]]] = field(default_factory=dict)
    of: dict[tuple[int, int], tuple[object, list[int]]] = field(default_factory=dict)


def fair_shares(
    tree: Tree,
    total: Resources,
    asked: Sequence[Resources],
    *,
    used: UseOverTime = NOT_COUNTED,
    records: Records | None = None,
    known: Divisions | None = None,
) -> list[Resources]:
    """The fair share of each queue, by number. ``asked``: what its pods use and wait for, by number.

    ``records``: takes the steps of each division. ``known``: what may be taken over, and takes what is made; of this
    tree.
    """
    dividing = _Dividing(tree, asked, use_by_number(tree, used), used.weight_milli, known or Divisions())
    fair = [NOTHING] * len(tree.queues)
    levels = [(TOP, tree.top), *((queue.number, queue.children) for queue in tree.queues if queue.children)]
    for parent, numbers in levels:
        has = total if parent == TOP else fair[parent]
        if records is None:
            shares = dividing.known_shares(parent, numbers, has)
        else:
            shares = dividing.shares(numbers, has, records.open(parent))
        for number, share in zip(numbers, shares, strict=True):
            fair[number] = share
    return fair


@dataclass(slots=True)
class _Dividing:
    """What all divisions of one time are made of. ``asked``, ``used_ppb``: by number."""

    tree: Tree
    asked: Sequence[Resources]
    used_ppb: Sequence[Ppb]
    weight_milli: int
    known: Divisions

    def known_shares(self, parent: int, numbers: Sequence[int], has: Resources) -> list[Resources]:
        """The shares of the children of a queue, taken over if they were made of the same."""
        made_of = has, self.weight_milli, [self.asked[n] for n in numbers], [self.used_ppb[n] for n in numbers]
        found = self.known.levels.get(parent)
        if found is None or found[0] != made_of:
            by_dimension = [self._known(parent, numbers, at, has[at]) for at in range(len(UNITS))]
            found = self.known.levels[parent] = made_of, _joined(by_dimension)
        return found[1]

    def _known(self, parent: int, numbers: Sequence[int], at: int, has: int) -> list[int]:
        made_of = has, self.weight_milli, [self.asked[n][at] for n in numbers], [self.used_ppb[n][at] for n in numbers]
        found = self.known.of.get((parent, at))
        if found is None or found[0] != made_of:
            found = self.known.of[parent, at] = made_of, self._divided(numbers, at, has, None)
        return found[1]

    def shares(self, numbers: Sequence[int], has: Resources, records: Sequence[DivisionRecord]) -> list[Resources]:
        """The shares of queues side by side, which divide what the one above them has, with each step on record."""
        return _joined([self._divided(numbers, at, has[at], record) for at, record in enumerate(records)])

    def _divided(self, numbers: Sequence[int], at: int, has: int, record: DivisionRecord | None) -> list[int]:
        siblings = [_sibling(self.tree.queues[n], at, self.asked[n], self.used_ppb[n][at]) for n in numbers]
        divide(has, siblings, unit=UNITS[at], weight_milli=self.weight_milli, record=record)
        return [each.fair for each in siblings]


def _joined(by_dimension: Sequence[Sequence[int]]) -> list[Resources]:
    return list(starmap(Resources, zip(*by_dimension, strict=True)))


def use_by_number(tree: Tree, used: UseOverTime) -> list[Ppb]:
    """The use of each queue and of those below it, by number."""
    of = [NO_USE] * len(tree.queues)
    for name, (cpu, mem, gpu) in used.of.items():
        queue = tree.find(name)
        path = () if queue is None else queue.path[:1] if used.is_summed else queue.path
        for number in path:
            before = of[number]
            of[number] = before[0] + cpu, before[1] + mem, before[2] + gpu
    return of


def _sibling(queue: TreeQueue, at: int, asked: Resources, used_ppb: int) -> Sibling:
    record, of = queue.record, itemgetter(at)
    return Sibling(
        quota=of(record.quota),
        limit=of(record.limit),
        weight=of(record.weight),
        priority=record.priority,
        asked=of(asked),
        age=(record.created, record.name),
        used_ppb=used_ppb,
    )


def allocatable(queue: TreeQueue, fair: Resources) -> Resources:
    """How much a queue may come to use before others have the better right: its share, or its quota if that is more.

    KAI's AllocatableShare: the limit where the quota has no end.
    """
    (cpu, mem, gpu), (most_cpu, most_mem, most_gpu) = queue.record.quota, queue.record.limit
    return Resources(
        most_cpu if cpu >= UNLIMITED else min(most_cpu, max(cpu, fair[0])),
        most_mem if mem >= UNLIMITED else min(most_mem, max(mem, fair[1])),
        most_gpu if gpu >= UNLIMITED else min(most_gpu, max(gpu, fair[2])),
    )
