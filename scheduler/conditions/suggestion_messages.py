"""The one place where suggestions, and what keeps pods from being evicted or a gang below its minimum, become text."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from typing import Final

from scheduler.conditions.messages import decimal
from scheduler.core.cluster import Cluster
from scheduler.core.model.preemption import Bound, Kept
from scheduler.core.model.records import PodRecord
from scheduler.core.preemption.protection import ends_s
from scheduler.core.what_if.edits import Edit
from scheduler.core.what_if.explanation import BelowMinimum
from scheduler.core.what_if.group_changes import CPU, FRACTION, GPU_MEMORY, GPUS, Asking, Members, Tolerating, Without
from scheduler.core.what_if.known_ends import KnownEnd, Wait
from scheduler.core.what_if.node_changes import Ended, MoreNodes, NodeOut
from scheduler.core.what_if.queue_changes import WEIGHT, OtherQueue, QueueAmount
from scheduler.core.what_if.suggestions import Suggestion
from scheduler.watch.cache import Cache

_UNITS: Final = {"cpu": "CPU cores", "memory": "bytes of memory", "gpu": "GPUs"}

#: What keeps pods that could be evicted, after a number of pods.
KEPT_WORDS: Final = {
    Kept.NOT_PREEMPTIBLE: "can't be preempted",
    Kept.PRIORITY: "have the same priority or a higher one",
    Kept.IN_SHARE: "are of queues within their share",
    Kept.MIN_RUNTIME: "have not run for the minimum time of their queue",
    Kept.PROTECTED: "were evicted not long ago",
    Kept.BUDGET: "are protected by a PodDisruptionBudget, or the API server refused to evict them",
    Kept.BUSY: "are terminating, start with others of a gang, or are evicted for another group",
    Kept.RESERVED: "are on nodes that are reserved for a group that has waited longer",
}
#: What proves that no evictions help.
BOUND_WORDS: Final = {
    Bound.QUEUE: "its queue takes no more, even if pods are evicted",
    Bound.NODES: "not even all preemptible pods of the cluster would leave enough",
    Bound.CANDIDATES: "not even all pods that it may take from would leave enough",
    Bound.DELAY: "its own preemptionDelay is not over",
    Bound.NEVER: "its preemptionPolicy is Never",
    Bound.CLAIMS: "one of its claims could not be bound",
    Bound.GIVEN_UP: "pods of its namespace ended again and again soon after others were evicted for them",
}
_BY: Final = {"deadline": "by its activeDeadlineSeconds", "max-runtime": "by its annotation moorage.dev/max-runtime"}


def edit_text(edit: Edit) -> str:  # noqa: C901, PLR0911 - one case for each kind of edit
    """Say what to change, as an imperative."""
    match edit:
        case Asking():
            return f"request {_asked(edit)} per pod"
        case Members(minimum=minimum):
            return f"start with {minimum} pod{'s' * (minimum > 1)} (minMember: {minimum})"
        case Without(field=field, key=key):
            return f"leave out {field} {key}".rstrip()
        case Tolerating():
            return f"tolerate the taint {edit.spelled().removeprefix('tolerate ')}"
        case QueueAmount(queue=queue, field=field, resource=resource):
            of = f"for {_UNITS[resource]}" if field == WEIGHT else _UNITS[resource]
            return f"set the {field} of queue {queue} to {edit.amount_text()} {of}"
        case OtherQueue(queue=queue):
            return f"use queue {queue}"
        case Ended():
            return f"end {edit.spelled().removeprefix('finish ')}"
        case NodeOut():
            return edit.spelled()
        case MoreNodes(count=count, like=like):
            return f"add {count} node{'s' * (count > 1)} like {like}"
        case Wait():
            return wait_text(edit)
        case _:
            return edit.spelled()


def suggestion_text(suggestion: Suggestion) -> str:
    """Say all edits of a suggestion."""
    return " and ".join(map(edit_text, suggestion.edits))


def wait_text(wait: Wait) -> str:
    """Say until when it waits at the latest, and what that assumes."""
    if not wait.ends:
        return f"wait until {time_text(wait.until_s)}, if nothing else changes"
    ends = ", ".join(_end_text(end) for end in wait.ends)
    more = len(wait.uids) - len(wait.ends)
    others = f" and {more} more pods" if more > 0 else ""
    return f"wait until {time_text(wait.until_s)} at the latest, when {ends}{others} ended, if nothing else changes"


def hint_text(edits: Sequence[Edit], *, renewed_s: int) -> str:
    """Say in a pod's condition what would let it start. ``renewed_s``: it is tried again, or taken back, within this.

    A condition names no pods of others.
    """
    said = "; ".join(_until_text(edit) if isinstance(edit, Wait) else edit_text(edit) for edit in edits)
    each = "This change lets it start" if len(edits) == 1 else "Each of these changes, alone, lets it start"
    return f"{each} (tried, and renewed within {renewed_s // 60} minutes): {said}."


def _until_text(wait: Wait) -> str:
    ends = f"{len(wait.uids)} pod{'s' * (len(wait.uids) != 1)}"
    return f"wait until {time_text(wait.until_s)} at the latest, when {ends} ended, if nothing else changes"


def paused_text(claim: str, until_s: int) -> str:
    """Say in a pod's condition that nobody is evicted for it (core/preemption/protection.py)."""
    return f"No pod is evicted for it until {time_text(until_s)}, since claim {claim} could not be bound."


def gave_up_text(namespace: str, until_s: int) -> str:
    """Say in a pod's condition that no pod of another namespace is evicted for it.

    See core/preemption/eviction_history.py.
    """
    return (
        f"No pod of another namespace is evicted for it until {time_text(until_s)}, since pods of namespace "
        f"{namespace} ended again and again soon after others were evicted for them."
    )


def guarded_text(pods: int) -> str:
    """Say in a pod's condition that pods of others may not be evicted for it, and the two causes that has."""
    them = "it" if pods == 1 else "them"
    cause = f"A PodDisruptionBudget allows no eviction of {them}, or the API server refused to evict {them}."
    return f"{_could_go(pods)} protected. {cause}"


def reserved_text(pods: int) -> str:
    """Say in a pod's condition that others stay where nodes are reserved (core/decide/reserved_nodes.py)."""
    return f"{_could_go(pods)} on nodes that are reserved for a group that has waited longer."


def _could_go(pods: int) -> str:
    return "1 pod that could be evicted for it is" if pods == 1 else f"{pods} pods that could be evicted for it are"


def time_text(at_s: int) -> str:
    """A time of the wall clock, in UTC."""
    return datetime.datetime.fromtimestamp(at_s, datetime.UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _end_text(end: KnownEnd) -> str:
    return f"{end.namespace}/{end.name} ({_BY[end.by]})"


def _asked(edit: Asking) -> str:
    amount = edit.amount
    texts = {
        FRACTION: f"{decimal(amount, 10**9)} of a GPU",
        GPU_MEMORY: f"{amount} MiB of GPU memory",
        GPUS: f"{amount} GPU{'s' * (amount > 1)}",
        CPU: f"{decimal(amount, 1000)} CPU cores",
    }
    return texts.get(edit.what, f"{amount} MiB of memory")


def pause_sentence(cache: Cache, uid: str, *, wall_s: int) -> str:
    """What keeps a pod that waits from taking from others, and until when; "": nothing that is known."""
    failed, pod = cache.preemption.failed_claims, cache.cluster.pod(uid)
    if pod is None or not cache.cluster.settings.preemption:
        return ""
    gave_up_s = cache.preemption.takers_wait.get(pod.namespace, 0)
    if gave_up_s > wall_s:
        return gave_up_text(pod.namespace, gave_up_s)
    found = ((ends_s(failed[key], wall_s), name) for name, key in _not_bound(pod, cache.cluster) if key in failed)
    until_s, name = max(found, default=(0, ""))
    return paused_text(name, until_s) if until_s > wall_s else _guarded(pod, cache.cluster)


def _guarded(pod: PodRecord, cluster: Cluster) -> str:
    """How many pods budgets and reserved nodes protect from being evicted for a pod that waits; "": none."""
    refused = cluster.scheduling_queue.preemption_refused(
        pod.uid, (pod.namespace, pod.pod_group) if pod.pod_group else None
    )
    kept = () if refused is None else refused.kept
    texts = {Kept.BUDGET: guarded_text, Kept.RESERVED: reserved_text}
    return " ".join(texts[each.why](each.pods) for each in kept if each.why in texts)


def _not_bound(pod: PodRecord, cluster: Cluster) -> Iterator[tuple[str, str]]:
    """Names and UIDs of a pod's claims that are not bound, or not allocated."""
    for use in pod.claims:
        claim = cluster.storage.claims.get((pod.namespace, use.name))
        if claim is not None and not claim.is_bound:
            yield claim.name, claim.uid
    for each in pod.resource_claims:
        wanted = cluster.claims.claims.get((pod.namespace, each.name))
        if wanted is not None and pod.uid not in wanted.reserved_for:
            yield wanted.name, wanted.uid


def below_minimum_text(gang: BelowMinimum) -> str:
    """Return sentences for people who ask about the gang."""
    lacks = f"{gang.bound} have a node, required are {gang.minimum}"
    if gang.short is not None:
        what, has = ("sub-groups", "are complete") if gang.short.is_of_subgroups else ("pods", "have a node")
        where = f" in sub-group {gang.short.name}" if gang.short.name else ""
        lacks = f"of its {what}{where} {gang.short.present} {has}, required are {gang.short.required}"
    return f"It has been below its minimum since {time_text(gang.since_s)}: {lacks}. {_what_follows(gang)}"


def _what_follows(gang: BelowMinimum) -> str:
    if gang.is_going:
        return "Its pods are being evicted."
    if gang.until_s is None:
        return "Its PodGroup lets it run so without an end."
    assumed = f" (by the default grace period, {gang.assumed_grace_s} s)" if gang.assumed_grace_s else ""
    if gang.left_s:
        until = time_text(gang.until_s)
        return f"{gang.left_s} s are left: its pods are evicted at {until}{assumed} unless it is complete by then."
    return f"Its time is over{assumed}: its pods are evicted, unless waiting pods can complete it."
