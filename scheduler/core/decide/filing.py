"""Where a pod that waits belongs, looked at again after something has touched it: to a shape, a gang, or nowhere.

This comes before a decision, and is no part of it: it brings the backlog up to date.
"""

from __future__ import annotations

from typing import Final

from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.model.records import PodRecord
from scheduler.core.model.steps import Steps, ended
from scheduler.core.model.verdict import Code, Verdict

#: Pods that are filed in one step; and what one costs, in operations.
_AT_ONCE: Final = 64
_FILING: Final = 8


def file_touched(snapshot: Snapshot, now_ns: int) -> None:
    """Take everything into account that has happened since the last decision, time included."""
    ended(filing_touched(snapshot, now_ns))


def filing_touched(snapshot: Snapshot, now_ns: int) -> Steps[None]:
    """Do so in steps, in a snapshot of which nobody else has the backlog."""
    backlog = snapshot.backlog
    backlog.touch_due(now_ns)
    touched, backlog.touched = backlog.touched, set()
    for number, uid in enumerate(sorted(touched), 1):
        if number % _AT_ONCE == 0:
            yield _AT_ONCE * _FILING
        _file(snapshot, uid, now_ns)
        if (intent := snapshot.commits.intents.holders.get(uid)) is not None:
            backlog.resting.wake((intent.id,))  # it says again what the pod waits for
    backlog.wake(snapshot.generation)


def _file(snapshot: Snapshot, uid: str, now_ns: int) -> None:
    pod, backlog = snapshot.pod(uid), snapshot.backlog
    backlog.said.release(uid)
    if pod is None or pod.node or pod.deleting or snapshot.is_spoken_for(uid):
        backlog.drop(uid)
    elif pod.pod_group:
        backlog.take_out(uid)  # what it says is said by its gang
    elif pod.gated:
        backlog.drop(uid)
    else:
        _file_alone(snapshot, snapshot.judged(pod, now_ns), now_ns)


def _file_alone(snapshot: Snapshot, judged: PodRecord, now_ns: int) -> None:
    backlog = snapshot.backlog
    verdict, next_ns = obstacle(snapshot, judged, now_ns)
    if next_ns is not None:
        backlog.wake_at(next_ns, judged.uid)
    if verdict is not None:
        backlog.hold(judged.uid, verdict)
    else:
        backlog.file(judged, is_apart=bool(judged.alone))


def obstacle(snapshot: Snapshot, pod: PodRecord, now_ns: int) -> tuple[Verdict | None, int | None]:
    """Why a pod may not be placed now on any node; and when time alone changes something about that."""
    if pod.blocker is not None:
        return pod.blocker, None
    if (by_owner := snapshot.owners.verdict(pod, now_ns)) is not None:
        not_seen = by_owner.code is Code.OWNER_NOT_SEEN
        return by_owner, snapshot.owners.next_change_ns(pod) if not_seen else None
    setback = snapshot.setback(pod.uid)
    if setback is None:
        return None, None
    is_backing_off = now_ns < setback.until_ns
    verdict = Verdict(code=Code.BACKING_OFF, detail=setback.reason) if is_backing_off else None
    return verdict, setback.next_change_ns(now_ns)
