"""Queues of a cluster that was listed once, counted as the scheduler counts them, and whose turn it is there.

A cluster that decides (scheduler/core/cluster.py) needs NumPy and the scheduling queue, which take longer to import
than queues to count. Pods, commits and queues are kept here by the same modules; ranks, amounts and the order are
computed by the decision's own functions. Nothing is placed here, so neither nodes nor NumPy are needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from scheduler.core.assumed.commits import Commits
from scheduler.core.convert import bounds
from scheduler.core.convert.nodes import node_record
from scheduler.core.convert.pod_groups import pod_group_record
from scheduler.core.convert.pod_lists import AlikePods
from scheduler.core.convert.pods import bind_request_record
from scheduler.core.convert.queues import queue_record
from scheduler.core.groups.quorum import Succeeded, quorum
from scheduler.core.model.priority_order import Candidate, Rank, order_members, rank_alone
from scheduler.core.model.quota import Resources
from scheduler.core.model.records import NodeRecord, PodGroupRecord, PodRecord, SeenPod
from scheduler.core.model.seen_pods import Elsewhere, News, Pods
from scheduler.core.model.settings import NodePool, Settings
from scheduler.core.model.verdict import Verdict
from scheduler.core.queues.accounts import Accounts, Use
from scheduler.core.queues.order import QueueOrder
from scheduler.core.queues.queues import Queues
from scheduler.core.queues.sums import Row
from scheduler.core.queues.use import is_fixed, of_pods
from scheduler.core.queues.use_over_time import NOT_COUNTED, UseOverTime
from wire.core import Node, Pod
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
        used: UseOverTime = NOT_COUNTED,
    ) -> Listed:
        """Count everything, once."""
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
        record = None if seen.record is None else self._elsewhere.seen(seen.record)
        if record is not None and self._pods.put(record) is News.CONTENT:
            self._commits.pod_seen(seen.uid, is_bound=bool(record.node))

    def _row_of(self, uid: str) -> Row | None:
        pod = self._pods.records[uid]
        group = self._groups.get((pod.namespace, pod.pod_group)) if pod.pod_group else None
        charges = () if pod.node else self._commits.charges_of(uid)
        return self._queues.row(pod, group, charges, self._nodes.get(pod.node))


def _tell_nobody(*_: str) -> None:
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
