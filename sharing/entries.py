"""Whether an entry of a book may be taken out (docs/design/protocol.md, step 5: Leave).

``judge`` is given what was read in this order: the reservation first, then the pod, both by quorum. It is the only
place that calls an entry dead.
"""

from __future__ import annotations

import enum

import msgspec

from gpu.book import Entry
from sharing.pods import PodView
from wire.tombstones import is_older
from wire.units import SECOND_NS


class Judgement(enum.Enum):
    """What to do with an entry."""

    #: It is charged for: leave it.
    LIVE = "live"
    #: It can't be bound through any more and uses nothing: take it out.
    DEAD = "dead"
    #: Nobody works on it, but a Binding may still be on its way: fence the pod, then take it out.
    FENCE_FIRST = "fence first"
    #: Not clear yet; look again later.
    WAIT = "wait"


class Evidence(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What is known beside the reads.

    ``group`` of the book. ``pod``: quorum read, None when there is no pod of this UID. ``last``: what is known of a pod
    that is gone: its last state where its deletion was seen, or an earlier state in which it was bound; None when
    nothing is known for sure. ``gone_for_s``: for how long it has been missing, ``heard_for_s``: for how long of that
    its machine has been heard of without a break (sharing/node_liveness.py), ``seen_for_s``: for how long the entry has
    been seen unbound; all by our own monotonic clock, for others' may be wrong. ``has_request``: a BindRequest of this
    attempt is there (quorum).
    """

    group: str
    pod: PodView | None
    last: PodView | None
    gone_for_s: float
    heard_for_s: float
    has_request: bool
    seen_for_s: float


#: A direct attempt that has been seen for less than this may still be at work: longer than any write's time-out
#: (kube.client.api, 10 s).
WRITE_TIMEOUT_S = 15
#: Added to a vanished pod's grace period before its device counts as free.
VANISHED_MARGIN_S = 5
#: A Node stays ready for so long after its kubelet was cut off: kube-controller-manager's node-monitor-grace-period
#: (50 s, 40 s before Kubernetes 1.32) and node-monitor-period (5 s), by their defaults.
STALE_READY_S = 55
#: A kubelet that is connected again lists its pods after a pause of up to so long, while its Node is ready: the
#: reflector of client-go doubles its pause up to 30 s and adds up to as much by chance.
LISTS_AGAIN_S = 60
#: Added to every wait for a vanished pod: by then its kubelet has learned of the deletion, if its Node is still ready.
LEARNS_S = STALE_READY_S + LISTS_AGAIN_S
#: Least time to wait for a vanished pod that was never seen, from when its kubelet learned of the deletion.
UNSEEN_GRACE_S = 60
#: A machine that is not heard of for so long beyond the wait for a pod that vanished counts as gone for good.
LONGEST_SILENCE_S = 3600


def judge(entry: Entry, evidence: Evidence) -> Judgement:
    """Judge one entry."""
    pod = evidence.pod
    if pod is None:
        return _judge_vanished(entry, evidence)
    if pod.ended:
        return Judgement.DEAD
    if pod.is_bound:
        return Judgement.LIVE if evidence.group in pod.held_groups else Judgement.DEAD
    if pod.rv != entry.rv:
        return Judgement.DEAD
    if evidence.has_request:
        return Judgement.LIVE
    return Judgement.FENCE_FIRST if evidence.seen_for_s > WRITE_TIMEOUT_S else Judgement.WAIT


def _judge_vanished(entry: Entry, evidence: Evidence) -> Judgement:
    """A pod that was deleted without its end being seen may still run until its grace period is over.

    That begins when its kubelet learns of the deletion: while the Node object is gone, or not ready, the machine may
    run its containers on and come back. A machine that stays away does not keep the entry for ever.
    """
    last = evidence.last
    if was_over(last):
        return Judgement.DEAD
    grace_s = entry.grace_s if last is None else last.grace_s
    wait_s = vanished_wait_s(grace_s, was_seen=last is not None)
    until_ns = vanished_until_ns(-int(evidence.gone_for_s * SECOND_NS), -int(evidence.heard_for_s * SECOND_NS), wait_s)
    return Judgement.DEAD if until_ns < 0 else Judgement.WAIT


def vanished_wait_s(grace_s: int, *, was_seen: bool = True) -> int:
    """For how long a machine has to be heard of without a break until a vanished pod of this grace period has ended.

    A ready Node may belong to a kubelet that was cut off before the deletion. If the Node is still ready after
    ``STALE_READY_S``, the kubelet was connected in between. It has listed its pods ``LISTS_AGAIN_S`` later, and the
    grace period began by then at the latest.
    """
    wait_s = grace_s + VANISHED_MARGIN_S
    return LEARNS_S + (wait_s if was_seen else max(wait_s, UNSEEN_GRACE_S))


def vanished_until_ns(gone_ns: int, heard_ns: int | None, wait_s: int) -> int:
    """When a vanished pod has ended, if its machine stays as it is: for its share, its claims and its queue alike.

    ``gone_ns``: since when the pod is missing. ``heard_ns``: since when its machine is heard of without a break, None:
    it is silent. ``wait_s``: as ``vanished_wait_s`` says.
    """
    latest_ns = gone_ns + (LONGEST_SILENCE_S + wait_s) * SECOND_NS
    return latest_ns if heard_ns is None else min(latest_ns, max(gone_ns, heard_ns) + wait_s * SECOND_NS)


def was_over(last: PodView | None) -> bool:
    """Whether what is known of a pod that is gone says that nothing of it runs: it was seen to end, or never bound."""
    return last is not None and (last.ended or not last.is_bound)


def is_plain(group: str, pod: PodView | None) -> bool:
    """Whether an entry is surely not suspicious: its pod is bound with the group. Nearly all are, at each sweep."""
    return pod is not None and not pod.ended and pod.is_bound and pod.holds(group)


def is_suspicious(entry: Entry, group: str, pod: PodView | None, *, at_work: bool, seen_for_s: float) -> bool:
    """Whether a cached view makes an entry worth two quorum reads. Wrong either way costs time only."""
    if pod is None or pod.ended:
        return True
    if pod.is_bound:
        return not pod.holds(group)
    if at_work:
        return False
    return is_older(entry.rv, pod.rv) or seen_for_s > WRITE_TIMEOUT_S
