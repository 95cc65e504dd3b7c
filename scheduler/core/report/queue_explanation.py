"""Why a queue gets what it gets, and when it is served, of a cluster that was listed once.

The arithmetic of its divisions is shown step by step, as the division itself noted it (queues/fair_share.py), and its
turn as a decision would give it, if it looked at all that waits.

A cluster that decides (scheduler/core/cluster.py) needs NumPy and the scheduling queue, which take longer to import
than queues to count. Pods, commits and queues are kept here by the same modules; ranks, amounts and the order are
computed by the decision's own functions. Nothing is placed here, so neither nodes nor NumPy are needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Final

import msgspec

from scheduler.core.assumed.commits import Commits
from scheduler.core.convert import bounds
from scheduler.core.convert.nodes import node_record
from scheduler.core.convert.pod_groups import pod_group_record, queue_record
from scheduler.core.convert.pod_lists import AlikePods
from scheduler.core.convert.pods import bind_request_record
from scheduler.core.groups.priority import GroupPriorities, priority_class_record
from scheduler.core.groups.quorum import Succeeded, quorum
from scheduler.core.model.priority_order import Candidate, Rank, order_members, rank_alone
from scheduler.core.model.quota import DIMENSIONS, QueueRecord, Resources
from scheduler.core.model.records import NodeRecord, PodGroupRecord, PodRecord, SeenPod
from scheduler.core.model.seen_pods import Elsewhere, News, Pods
from scheduler.core.model.settings import NodePool, Settings
from scheduler.core.model.verdict import Verdict
from scheduler.core.queues.accounts import Accounts, Use
from scheduler.core.queues.fair_share import TOP, DivisionRecord, Records, use_by_number
from scheduler.core.queues.order import QueueOrder, RankedQueue
from scheduler.core.queues.queues import Queues
from scheduler.core.queues.tree import Row, TreeQueue
from scheduler.core.queues.use import is_fixed, of_pods
from scheduler.core.queues.use_over_time import NOT_COUNTED, Ppb, Source, UseOverTime
from scheduler.core.report.queue_view import Amounts, QueueView, Say, Why, amounts, children, queue_view, shown, why
from wire.core import Node, Pod, PriorityClass
from wire.crds.bindrequest import BindRequest
from wire.crds.podgroup import PodGroup
from wire.crds.queue import Queue


class Listed(msgspec.Struct, frozen=True):
    """All that turns and shares of queues depend on, counted. To be read only."""

    queues: Queues
    pods: Pods
    groups: Mapping[tuple[str, str], PodGroupRecord]
    commits: Commits
    succeeded: Succeeded


class ListedQueues:
    """Takes the objects that queues depend on. Read pods first: only what counts of them is kept.

    ``pool``: of whose scheduler queues are counted, whose queues alone are then to be given; None: the cluster is not
    divided.
    """

    def __init__(self, pool: NodePool | None = None) -> None:
        self._settings = Settings(pool=pool)
        self._alike = AlikePods(self._settings)
        self._pods = Pods()
        self._commits = Commits(self._pods, settings=self._settings, changed=_tell_nobody, touched=_tell_nobody)
        self._nodes: dict[str, NodeRecord] = {}
        self._groups: dict[tuple[str, str], PodGroupRecord] = {}
        self._elsewhere = Elsewhere(pool, self._groups)
        self._priorities = GroupPriorities(self._groups, _tell_nobody)
        self._succeeded = Succeeded()
        self._queues = Queues(_tell_nobody, pool=pool)

    def read_pod(self, pod: Pod) -> SeenPod:
        """Keep of a pod what is counted."""
        return self.interned(self._alike.read(pod))

    def interned(self, seen: SeenPod) -> SeenPod:
        """Return a pod that was read with the classes that are kept here.

        Of too many names of resources the first are kept: pods may be read before nodes, which say what they offer.
        """
        if seen.record is None:
            return seen
        cls = seen.record.cls
        if (demand := bounds.first_resources(cls.demand)) is not cls.demand:
            cls = msgspec.structs.replace(cls, demand=demand)
        record = msgspec.structs.replace(seen.record, cls=self._pods.intern(cls))
        return msgspec.structs.replace(seen, record=record)

    def count(
        self,
        nodes: Iterable[Node],
        pods: Iterable[SeenPod],
        *,
        found: Iterable[Queue],
        groups: Iterable[PodGroup] = (),
        requests: Iterable[BindRequest] = (),
        classes: Iterable[PriorityClass] = (),
        used: UseOverTime = NOT_COUNTED,
    ) -> Listed:
        """Count everything, once."""
        self._priorities.classes.replace(map(priority_class_record, classes))
        for node in nodes:
            self._nodes[node.metadata.name] = node_record(node)
        for group in (pod_group_record(each, self._settings.pool) for each in groups):
            self._groups[group.namespace, group.name] = group
            if group.planned:
                self._commits.promises.put(group)
        for request in map(bind_request_record, requests):
            if request is not None:
                self._commits.hand_overs.put(request)
        for seen in pods:
            self._take(seen)
        self._queues.records.replace(map(queue_record, found))
        self._queues.note_use_over_time(used)
        for name, record in self._nodes.items():
            self._queues.count_node(record, self._pods.bound_to(name))
        self._queues.mark(self._pods.records)
        self._queues.count(self._row_of)
        return Listed(self._queues, self._pods, self._groups, self._commits, self._succeeded)

    def _take(self, seen: SeenPod) -> None:
        if seen.succeeded is not None:
            self._succeeded.put(seen.succeeded)
        if seen.has_ended:
            self._commits.pod_gone(seen.uid)
            return
        if seen.reservation is not None:
            self._pods.put_reservation(seen.reservation)
            self._commits.reservation_seen(seen.reservation, None)
        record = None if seen.record is None else self._priorities.counted(self._elsewhere.seen(seen.record))
        if record is not None and self._pods.put(record) is News.CONTENT:
            self._commits.pod_seen(seen.uid, is_bound=bool(record.node))

    def _row_of(self, uid: str) -> Row | None:
        pod = self._pods.records[uid]
        group = self._groups.get((pod.namespace, pod.pod_group)) if pod.pod_group else None
        charges = () if pod.node else self._commits.charges_of(uid)
        return self._queues.row(pod, group, charges, self._nodes.get(pod.node))


def _tell_nobody(*_: object) -> None:
    return


class Turn(msgspec.Struct, frozen=True, gc=False):
    """A pod alone, or a gang with the members that come next.

    ``use``: what these count for in the queue while they wait; ``least``: the least that they come to use there.
    """

    of: PodRecord | PodGroupRecord
    rank: Rank
    use: Resources
    least: Use

    def is_settled(self) -> bool:
        """Never: nothing is decided here."""
        return False


def order_of_turns(listed: Listed, accounts: Accounts) -> QueueOrder[Turn]:
    """Return the order of all pods and gangs that wait in queues which can be used. ``accounts``: of these queues."""
    order: QueueOrder[Turn] = QueueOrder(accounts)
    for turn in (*_alone(listed), *_gangs(listed)):
        queue = accounts.tree.leaf(turn.least.queue)
        if not isinstance(queue, Verdict):
            order.put(queue, turn.rank, turn)
    return order


def _unplaced(listed: Listed) -> Iterator[PodRecord]:
    pods = map(listed.pods.records.__getitem__, listed.pods.unbound)
    return (pod for pod in pods if not (pod.deleting or listed.commits.is_spoken_for(pod.uid)))


def _alone(listed: Listed) -> Iterator[Turn]:
    queues = listed.queues
    for pod in _unplaced(listed):
        if not (pod.pod_group or pod.gated or pod.blocker):
            least = Use(pod.queue, queues.least(pod.cls), is_fixed(pod, None))
            yield Turn(pod, rank_alone(pod), queues.asked(pod.cls), least)


def _gangs(listed: Listed) -> Iterator[Turn]:
    waiting: dict[tuple[str, str], list[PodRecord]] = {}
    for pod in _unplaced(listed):
        if pod.pod_group:
            waiting.setdefault((pod.namespace, pod.pod_group), []).append(pod)
    for key, pods in waiting.items():
        group = listed.groups.get(key)
        if group is not None:
            yield _gang(listed, group, order_members(pods))


def _gang(listed: Listed, group: PodGroupRecord, waiting: list[PodRecord]) -> Turn:
    queues, members = listed.queues, listed.pods.members(group.namespace, group.name)
    state = quorum(group, members, listed.commits.is_in_flight, listed.succeeded.of(group, members))
    come_next = state.next_up(waiting)
    are_fixed = any(is_fixed(pod, group) for pod in waiting)  # they have one priority
    return Turn(
        of=group,
        rank=Candidate(waiting, group, above=state.above_in_turn).rank,
        use=of_pods(come_next, queues.asked),
        least=Use(group.queue, of_pods(come_next, queues.least), are_fixed),
    )


#: The unit that each dimension is counted in.
_UNITS: Final = ("milli", "bytes", "nano")
#: Use over time by number of the queue; None where it does not count.
_Use = Sequence[Ppb] | None


class StepView(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """One step. ``kind``: quota, round or leftover; ``priority`` of the queues that it is for, None for all.

    ``offered``: what was left before it. ``given``: in the order of the division's queues.
    """

    kind: str
    priority: int | None
    offered: int
    given: tuple[int, ...]


class PartView(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """A queue that takes part in a division, in one resource. -1: unlimited."""

    queue: str
    priority: int
    quota: int
    limit: int
    weight_millionths: int
    requested: int
    fair_share: int
    #: What it used of the cluster over time, in billionths, where that counts.
    used_ppb: int | None = None


class DivisionView(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """One division: amounts in ``unit``. ``left``: what nobody gets."""

    resource: str
    unit: str
    total: int
    queues: tuple[PartView, ...]
    steps: tuple[StepView, ...]
    left: int


class LevelView(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """The divisions of one queue's share among the queues below it; ``below`` "": of the cluster, or node pool."""

    below: str
    divisions: tuple[DivisionView, ...]


class NextView(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """What a queue gives next: a pod, or as many of a PodGroup as come next. ``held_back``: why its queue can't."""

    kind: str
    namespace: str
    name: str
    queue: str
    requested: Amounts
    held_back: Why | None = None


class TurnView(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """A queue in the order. ``after_by``: what puts it behind the one before it (queues/order.py), "" for the first."""

    queue: str
    next: NextView
    after_by: str = ""


class OrderView(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """The order of the queues below one that have something to give."""

    below: str
    turns: tuple[TurnView, ...]


class Explanation(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """Everything about one queue. ``path``: itself first, then each above it. Levels and orders from the top down.

    The last level is that of the queues below it, if it has some. ``next``: what it gives next, None: nothing waits.
    ``use_stale_since_s``: use over time counts for nobody, as Prometheus answered then for the last time (seconds since
    the epoch, 0: never); None: it counts, or was never to count.
    """

    name: str
    path: tuple[QueueView, ...]
    unusable: Why | None = None
    levels: tuple[LevelView, ...] = ()
    orders: tuple[OrderView, ...] = ()
    next: NextView | None = None
    use_stale_since_s: int | None = None


def explanation(listed: Listed, name: str, say: Say) -> Explanation | None:
    """Explain the queue of this name; None if there is no such object."""
    queues, records = listed.queues, Records()
    chain = _chain(queues, name)
    if not chain:
        return None
    made = queues.recorded_accounts(records)
    below = children(queues.records.all())
    path = tuple(queue_view(each, queues, made, say, below=below.get(each.name, ())) for each in chain)
    queue = made.tree.find(name)
    if queue is None:
        return Explanation(name=name, path=path, unusable=path[0].unusable)
    parents = [TOP, *reversed(queue.path)]
    turns = _Turns(order_of_turns(listed, queues.accounts()), made, say)
    used = use_by_number(made.tree, queues.used) if queues.used.is_counted else None
    return Explanation(
        name=name,
        path=path,
        levels=tuple(_level(made, parent, records.of[parent], used) for parent in parents if parent in records.of),
        orders=tuple(order for parent in parents if (order := turns.below(parent)).turns),
        next=turns.next_of(queue),
        use_stale_since_s=queues.used.since_s if queues.used.source is Source.STALE else None,
    )


def _chain(queues: Queues, name: str) -> list[QueueRecord]:
    """A queue and those above it, as far as they are there; each once."""
    found: dict[str, QueueRecord] = {}
    while name not in found and (record := queues.records.get(name)) is not None:
        found[name] = record
        name = record.parent
    return list(found.values())


# --- divisions -------------------------------------------------------------------------------------------------------
def _level(made: Accounts, parent: int, records: Sequence[DivisionRecord], used: _Use) -> LevelView:
    tree = made.tree
    numbers = tree.top if parent == TOP else tree.queues[parent].children
    divisions = (_division(made, numbers, at, record, used=used) for at, record in enumerate(records))
    return LevelView(below="" if parent == TOP else tree.queues[parent].name, divisions=tuple(divisions))


def _division(made: Accounts, numbers: Sequence[int], at: int, record: DivisionRecord, *, used: _Use) -> DivisionView:
    return DivisionView(
        resource=DIMENSIONS[at],
        unit=_UNITS[at],
        total=record.total,
        queues=tuple(_part(made, number, at, used) for number in numbers),
        steps=tuple(
            StepView(kind=step.kind.value, priority=step.priority, offered=step.offered, given=step.given)
            for step in record.steps
        ),
        left=record.left,
    )


def _part(made: Accounts, number: int, at: int, used: _Use) -> PartView:
    record, account, of = made.tree.queues[number].record, made.of[number], itemgetter(at)
    return PartView(
        queue=record.name,
        priority=record.priority,
        quota=shown(of(record.quota)),
        limit=shown(of(record.limit)),
        weight_millionths=of(record.weight),
        requested=of(account.asked),
        fair_share=of(account.fair),
        used_ppb=None if used is None else used[number][at],
    )


# --- turns -----------------------------------------------------------------------------------------------------------
class _Turns:
    """Who is next, as a decision would have it."""

    def __init__(self, order: QueueOrder[Turn], made: Accounts, say: Say) -> None:
        self._order = order
        self._made = made
        self._say = say

    def below(self, parent: int) -> OrderView:
        """The queues below one, in order."""
        ranking = self._order.ranking(parent)
        name = "" if parent == TOP else self._made.tree.queues[parent].name
        return OrderView(below=name, turns=tuple(self._turns(ranking)))

    def next_of(self, queue: TreeQueue) -> NextView | None:
        """What a queue gives next."""
        return next((self._next(each) for each in self._order.ranking(queue.parent) if each.queue == queue), None)

    def _turns(self, ranking: Sequence[RankedQueue[Turn]]) -> Iterator[TurnView]:
        for before, each in pairwise([None, *ranking]):
            if each is not None:
                by = "" if before is None else each.after(before).value
                yield TurnView(queue=each.queue.name, next=self._next(each), after_by=by)

    def _next(self, ranked: RankedQueue[Turn]) -> NextView:
        turn = ranked.first
        refused = self._made.refusal(turn.least)
        return NextView(
            kind="PodGroup" if isinstance(turn.of, PodGroupRecord) else "Pod",
            namespace=turn.of.namespace,
            name=turn.of.name,
            queue=turn.least.queue,
            requested=amounts(turn.use),
            held_back=why(refused, self._say) if isinstance(refused, Verdict) else None,
        )
