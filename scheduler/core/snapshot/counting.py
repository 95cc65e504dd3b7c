"""Counting one node from all that is known of it, or as it would be if something else had happened there."""

from __future__ import annotations

from scheduler.core.assumed.assumed import Commits
from scheduler.core.model.records import NodeRecord
from scheduler.core.model.seen_pods import Pods
from scheduler.core.model.settings import Settings
from scheduler.core.nodes.kept_room import count_kept
from scheduler.core.nodes.node_usage import Occupancy, occupancy
from scheduler.core.snapshot.supposed import AS_IT_IS, Supposed


def count_node(
    node: NodeRecord | None,
    name: str,
    *,
    pods: Pods,
    commits: Commits,
    settings: Settings,
    supposed: Supposed = AS_IT_IS,
) -> Occupancy:
    """Count what is used of a node. ``node``: its record; None where it is not known."""
    bound = [pod for pod in pods.bound_to(name) if pod.uid not in supposed.evicted]
    used = occupancy(
        node,
        pods=bound,
        reservations=map(supposed.reservation, pods.reserved_on(name)),
        charges=supposed.charges(commits.charges_at(name)),
        settings=settings,
    )
    kept = supposed.kept(commits.intents.kept_at(name))
    return count_kept(used, kept, pods=bound, node=node, settings=settings)
