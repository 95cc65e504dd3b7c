"""Whether a gang that has lost members could be completed now, by members that wait (kai-contract 14.13).

A decision that changes nothing, on a working copy of its own: the gang is decided first, whatever it waits for in the
real ones (its pace, a namespace's share of a decision, an idle reservation that is being given back).
"""

from __future__ import annotations

from scheduler.core.decide import queue_use
from scheduler.core.decide.filing import obstacle
from scheduler.core.decide.placer import Placer
from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.model.priority_order import order_members
from scheduler.core.model.records import PodClass, PodGroupRecord, PodRecord


def candidates(snapshot: Snapshot, group: PodGroupRecord, now_ns: int) -> list[PodRecord]:
    """Members that wait for nothing but room, in their order."""
    waiting = snapshot.waiting_members(group.namespace, group.name, now_ns)
    return order_members(pod for pod in waiting if not pod.gated and obstacle(snapshot, pod, now_ns)[0] is None)


def can_complete(snapshot: Snapshot, group: PodGroupRecord, waiting: list[PodRecord], now_ns: int) -> bool:
    """Whether these members reach the gang's minimum with the room that there is, or that idle reservations hold."""
    state = snapshot.quorum(group)
    if group.unsupported or not waiting or not state.is_reachable(waiting):
        return False
    if snapshot.queues.accounts().refusal(queue_use.least(snapshot, state.needed(waiting))) is not None:
        return False
    missing, placer, hopeless = state.missing(), Placer(snapshot), set[PodClass]()
    for pod in waiting:
        if missing.is_reached:
            break
        if pod.cls in hopeless or not missing.wants(pod) or placer.taken_claim(pod):
            continue
        mask = placer.all_but(pod.cls.excluded)
        if placer.place(pod, mask) or placer.wait_for_device(pod, mask):
            missing.take(pod)
        else:
            hopeless.add(pod.cls)
    return missing.is_reached
