"""What a pod alone, a gang's minimum, or a member beyond it needs, if room is all that keeps it from starting.

Room on nodes, or in its queue: what a limit leaves no room for may fit once others of the queue have gone. What not
even that would change needs none.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from msgspec.structs import replace

from scheduler.core.backlog.sayings import Key
from scheduler.core.decide.attempts import Attempts
from scheduler.core.decide.filing import obstacle
from scheduler.core.groups.surplus import Surplus
from scheduler.core.model.priority_order import order_members
from scheduler.core.model.records import PodGroupRecord, PodRecord
from scheduler.core.model.verdict import Verdict
from scheduler.core.queues.accounts import Accounts, Use, over_limit, over_quota
from scheduler.core.queues.use import is_fixed
from scheduler.core.room.claim_pause import paused_until_s
from scheduler.core.room.need import Need

_NOBODY: Set[str] = frozenset()


def may_be_freed(accounts: Accounts, use: Use) -> bool:
    """Whether a queue would take a use if all that may be preempted there, and below all queues above it, were gone."""
    queue = accounts.tree.leaf(use.queue)
    if isinstance(queue, Verdict):
        return False
    return not any(
        over_limit(accounts.tree.queues[number].record, accounts.of[number].fixed, use.amounts)
        or (use.is_fixed and over_quota(accounts.tree.queues[number].record, accounts.of[number].fixed, use.amounts))
        for number in queue.path
    )


def pod_need(pod: PodRecord, attempts: Attempts) -> Need | None:
    """What a pod alone needs, judged."""
    if not _may_start([pod], attempts) or not _is_ready(pod, attempts):
        return None
    need = Need(
        pods=(_by_plugins(pod),),
        queue=pod.queue,
        priority=pod.priority,
        is_fixed=is_fixed(pod, None),
        created=pod.created,
    )
    return _paused(need, [pod], attempts)


def gang_need(key: Key, attempts: Attempts, served: Set[str] = _NOBODY) -> Need | None:
    """What a gang's minimum lacks, or the member that comes next beyond it. ``served``: UIDs of those who lack none."""
    snapshot, group = attempts.snapshot, attempts.snapshot.pod_group(*key)
    if group is None or group.blocker is not None:
        return None
    if isinstance(attempts.bounds_of(group), Verdict):
        return None  # its Topology is not there
    waiting = order_members(snapshot.waiting_members(*key, attempts.now_ns))
    ready = [pod for pod in waiting if pod.uid not in served and _is_ready(pod, attempts)]
    state = snapshot.quorum(group)
    if not ready or state.is_starting:
        return None
    if state.is_met:
        first = Surplus(group, state.active, ready).take()
        return member_need(first, group, attempts) if first is not None else None
    if not state.is_reachable(ready) or (not state.has_choice(ready) and not _may_start(state.needed(ready), attempts)):
        return None
    need = Need(
        pods=tuple(map(_by_plugins, ready)),
        group=group,
        quorum=state,
        queue=group.queue,
        priority=max(pod.priority for pod in ready),
        is_fixed=all(is_fixed(pod, group) for pod in ready),
        created=group.created,
        delay_ns=group.delay_ns,
    )
    return _paused(need, ready, attempts)


def member_need(pod: PodRecord, group: PodGroupRecord, attempts: Attempts) -> Need | None:
    """What a member beyond the minimum needs. It takes from nobody that its own gang would not take from."""
    if not _is_ready(pod, attempts) or not _may_start([pod], attempts):
        return None
    members = attempts.snapshot.pods.members(group.namespace, group.name)
    need = Need(
        pods=(_by_plugins(pod),),
        group=group,
        queue=group.queue,
        priority=min(pod.priority, *(member.priority for member in members)),
        is_fixed=is_fixed(pod, group),
        created=group.created,
        delay_ns=group.delay_ns,
    )
    return _paused(need, [pod], attempts)


def _by_plugins(pod: PodRecord) -> PodRecord:
    """A pod as it may be placed where device plugins offer its extended resources.

    Nobody goes for devices of claims: what is kept for the pod is counted by what it requests of nodes.
    """
    return pod if not pod.cls.backed else replace(pod, cls=replace(pod.cls, backed=()))


def _is_ready(pod: PodRecord, attempts: Attempts) -> bool:
    if pod.gated or attempts.placer.taken_claim(pod):
        return False
    return obstacle(attempts.snapshot, pod, attempts.now_ns)[0] is None


def _paused(need: Need, pods: Sequence[PodRecord], attempts: Attempts) -> Need:
    """The need with until when it takes from nobody, or from no other namespace. ``pods``: as they are judged."""
    facts, wall_s = attempts.snapshot.room_facts, attempts.wall_s
    until_s = paused_until_s(pods, facts.failed_claims, wall_s)
    own_until_s = facts.takers_wait.get(pods[0].namespace, 0)
    own_until_s = own_until_s if own_until_s > wall_s else 0
    return replace(need, paused_until_s=until_s, own_until_s=own_until_s) if until_s or own_until_s else need


def _may_start(pods: Sequence[PodRecord], attempts: Attempts) -> bool:
    """Whether their queue takes them, or would if others had gone."""
    held = attempts.held_back(pods)
    return held is None or may_be_freed(attempts.accounts, held.use)
