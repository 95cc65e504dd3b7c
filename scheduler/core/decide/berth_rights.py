"""What a queue has a right to for a group that has waited too long, and until when the nodes of a berth are in use."""

from __future__ import annotations

from collections.abc import Sequence

from scheduler.core.decide import queue_use
from scheduler.core.decide.attempts import Attempts
from scheduler.core.decide.berth_choice import needed
from scheduler.core.model.priority_order import Candidate, Rank
from scheduler.core.model.quota import NOTHING, Resources
from scheduler.core.queues import reserved_nodes as rules
from scheduler.core.queues.reserved_nodes import UNKNOWN
from scheduler.core.queues.tree import TreeQueue
from scheduler.core.queues.use import held, queue_of
from scheduler.core.room.need import Need


def is_entitled(attempts: Attempts, need: Need, queue: TreeQueue, rank: Rank) -> bool:
    """Whether a queue is within its fair share with a need, but for what has overtaken it."""
    account = attempts.accounts.of[queue.number]
    use = queue_use.asked(attempts.snapshot, needed(need)).amounts
    if rules.is_entitled(account, use, behind=NOTHING):
        return True
    return rules.is_entitled(account, use, behind=_behind(attempts, queue, rank))


def _behind(attempts: Attempts, queue: TreeQueue, rank: Rank) -> Resources:
    """What the queue uses for groups that come after this one: they have overtaken it."""
    snapshot, total, tree = attempts.snapshot, NOTHING, attempts.accounts.tree
    nodes = {node.name: node for node in attempts.placer.statement.nodes}
    for pod in snapshot.pods.records.values():
        if not (pod.node and pod.queue) or pod.deleting or pod.uid in snapshot.commits.intents.victims:
            continue
        group = snapshot.pod_group(pod.namespace, pod.pod_group) if pod.pod_group else None
        found = tree.find(queue_of(pod, group))
        if found is None or found.number != queue.number:
            continue
        if Candidate([pod], group).rank > rank:
            total = total.plus(held(pod, nodes.get(pod.node)))
    return total


def free_s(attempts: Attempts, queue: str, nodes: Sequence[str]) -> int:
    """When the last pod on these nodes ends that counts in a queue; UNKNOWN if nobody knows.

    ``queue``: of the holder. Seconds since the epoch.
    """
    snapshot, latest_s = attempts.snapshot, attempts.wall_s
    tree = attempts.accounts.tree
    for pod in (pod for name in nodes for pod in snapshot.pods.bound_to(name) if pod.queue):
        group = snapshot.pod_group(pod.namespace, pod.pod_group) if pod.pod_group else None
        leaf = tree.find(queue_of(pod, group))
        is_own = leaf is not None and leaf.name == queue
        ends_s = rules.end_s([pod.cls], pod.started_s, is_own=is_own) if pod.started_s else UNKNOWN
        if ends_s == UNKNOWN:
            return UNKNOWN
        latest_s = max(latest_s, ends_s)
    return latest_s
