"""Says on a pod that nobody is evicted for it for a while, since one of its claims could not be bound."""

from __future__ import annotations

from collections.abc import Iterator

from scheduler.core.cluster import Cluster
from scheduler.core.model.records import PodRecord
from scheduler.core.room.claim_pause import ends_s
from scheduler.status.suggestion_texts import gave_up_text, paused_text
from scheduler.watch.cache import Cache


def pause_sentence(cache: Cache, uid: str, *, wall_s: int) -> str:
    """Name the claim of a pod that waits, and until when it keeps the pod from taking from others; "": none does."""
    failed, pod = cache.room.failed_claims, cache.cluster.pod(uid)
    if pod is None or not cache.cluster.settings.makes_room:
        return ""
    gave_up_s = cache.room.takers_wait.get(pod.namespace, 0)
    if gave_up_s > wall_s:
        return gave_up_text(pod.namespace, gave_up_s)
    found = ((ends_s(failed[key], wall_s), name) for name, key in _not_bound(pod, cache.cluster) if key in failed)
    until_s, name = max(found, default=(0, ""))
    return paused_text(name, until_s) if until_s > wall_s else ""


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
