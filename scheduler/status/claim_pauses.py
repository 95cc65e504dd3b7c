"""Says on a pod why nobody is evicted for it: its claims, what its namespace gave up, or budgets of others."""

from __future__ import annotations

from collections.abc import Iterator

from scheduler.core.cluster import Cluster
from scheduler.core.model.preemption import Kept
from scheduler.core.model.records import PodRecord
from scheduler.core.room.claim_pause import ends_s
from scheduler.status.suggestion_texts import gave_up_text, guarded_text, paused_text
from scheduler.watch.cache import Cache


def pause_sentence(cache: Cache, uid: str, *, wall_s: int) -> str:
    """What keeps a pod that waits from taking from others, and until when; "": nothing that is known."""
    failed, pod = cache.room.failed_claims, cache.cluster.pod(uid)
    if pod is None or not cache.cluster.settings.makes_room:
        return ""
    gave_up_s = cache.room.takers_wait.get(pod.namespace, 0)
    if gave_up_s > wall_s:
        return gave_up_text(pod.namespace, gave_up_s)
    found = ((ends_s(failed[key], wall_s), name) for name, key in _not_bound(pod, cache.cluster) if key in failed)
    until_s, name = max(found, default=(0, ""))
    return paused_text(name, until_s) if until_s > wall_s else _guarded(pod, cache.cluster)


def _guarded(pod: PodRecord, cluster: Cluster) -> str:
    """How many pods budgets protect from being evicted for a pod that waits; "": none."""
    refused = cluster.backlog.room_refused(pod.uid, (pod.namespace, pod.pod_group) if pod.pod_group else None)
    kept = () if refused is None else refused.kept
    return next((guarded_text(each.pods) for each in kept if each.why is Kept.BUDGET), "")


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
