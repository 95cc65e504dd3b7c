"""Where a pod that waits belongs, looked at again after something has touched it: to a shape, a gang, or nowhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from scheduler.core.model.records import PodRecord
from scheduler.core.model.verdict import Code, Verdict

if TYPE_CHECKING:
    from scheduler.core.cluster import Cluster


def file_touched(cluster: Cluster, now_ns: int) -> None:
    """Take everything into account that has happened since the last decision, time included."""
    backlog = cluster.backlog
    backlog.touch_due(now_ns)
    cluster.touch_all_concerned()
    touched, backlog.touched = backlog.touched, set()
    judge = cluster.judge()
    for uid in sorted(touched):
        _file(cluster, uid, judge, now_ns)
    backlog.wake(cluster.generation)


def _file(cluster: Cluster, uid: str, judge: Callable[[PodRecord], PodRecord], now_ns: int) -> None:
    pod, backlog = cluster.pod(uid), cluster.backlog
    if pod is None or pod.node or pod.deleting or cluster.is_spoken_for(uid):
        backlog.drop(uid)
    elif pod.pod_group:
        backlog.take_out(uid)  # what it says is said by its gang
    elif pod.gated:
        backlog.drop(uid)
    else:
        file_alone(cluster, judge(pod), now_ns)


def file_alone(cluster: Cluster, judged: PodRecord, now_ns: int) -> None:
    """File a pod alone that waits, as it was judged."""
    backlog = cluster.backlog
    verdict, next_ns = obstacle(cluster, judged, now_ns)
    if next_ns is not None:
        backlog.wake_at(next_ns, judged.uid)
    if verdict is not None:
        backlog.hold(judged.uid, verdict)
        return
    setback = cluster.setback(judged.uid)
    is_apart = bool(judged.alone) or (setback is not None and bool(setback.excluded_at(now_ns)))
    backlog.file(judged, is_apart=is_apart)


def obstacle(cluster: Cluster, pod: PodRecord, now_ns: int) -> tuple[Verdict | None, int | None]:
    """Why a pod may not be placed now, whatever the nodes have; and when time alone changes something about that."""
    if pod.blocker is not None:
        return pod.blocker, None
    if (by_owner := cluster.owners.verdict(pod, now_ns)) is not None:
        not_seen = by_owner.code is Code.OWNER_NOT_SEEN
        return by_owner, cluster.owners.next_change_ns(pod) if not_seen else None
    setback = cluster.setback(pod.uid)
    if setback is None:
        return None, None
    is_backing_off = now_ns < setback.until_ns
    verdict = Verdict(code=Code.BACKING_OFF, detail=setback.reason) if is_backing_off else None
    return verdict, setback.next_change_ns(now_ns)
