"""Pods alone and gangs of a cluster that was listed once, in the order of their queues' turns.

A decision lines up the same (decide/decide.py) from its backlog, then places them. Nothing is placed here, so neither
nodes nor NumPy are needed; ranks, amounts and the order are computed by the decision's own functions.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from scheduler.core.groups.quorum import quorum
from scheduler.core.model.priority_order import Candidate, Rank, order_members, rank_alone
from scheduler.core.model.quota import Resources
from scheduler.core.model.records import PodGroupRecord, PodRecord
from scheduler.core.model.verdict import Verdict
from scheduler.core.queues.accounts import Accounts, Use
from scheduler.core.queues.order import QueueOrder
from scheduler.core.queues.use import is_fixed, of_pods
from scheduler.core.report.listed_queues import Listed


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
