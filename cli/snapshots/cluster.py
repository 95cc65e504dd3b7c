"""A snapshot as the scheduler's own Cluster, fed with what watches would have shown of it.

A kind that is missing counts as one that the scheduler has not read yet: pods that depend on it wait with that reason.
ResourceClaims that are reserved for pods that wait count as reserved by the scheduler that decides on the file.
Only the running scheduler knows of failed attempts, so none has failed here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from cli.snapshots.file import Saved
from scheduler.core.cluster import Cluster
from scheduler.core.convert import owners, pod_groups, selectors, volumes
from scheduler.core.convert.devices import device_class_record, slice_record, taint_rule_record
from scheduler.core.convert.resource_claims import resource_claim_record
from scheduler.core.groups.priority import priority_class_record
from scheduler.core.model.facts import Facts
from scheduler.core.model.settings import Settings
from scheduler.core.preemption import nomination_record
from scheduler.core.queues.use_over_time import NOT_COUNTED, read_counts
from scheduler.core.scores.prices import prices_of, typical_of
from scheduler.watch.preemption_facts import KnownForPreemption

#: By plural: where the records of a kind are kept, and how one is read.
Kept = Mapping[str, tuple[Facts[Any, Any], Callable[[Any], Any]]]


def cluster_of(
    saved: Saved, settings: Settings, *, follows_taint_rules: bool = False
) -> tuple[Cluster, tuple[str, ...]]:
    """Return the cluster, and what of the record of evictions contradicts itself, in words.

    Where the scheduler keeps no record of evictions, no pod is evicted for another, also if ``settings`` allow it.
    ``follows_taint_rules``: its DeviceTaintRules count, as with the scheduler's setting ``device-taint-rules``.
    """
    preemption = settings.preemption and saved.nominations is not None
    cluster = Cluster(msgspec.structs.replace(settings, preemption=preemption))
    room = KnownForPreemption(settings.preemption_settings)
    # A file does not say in which order devices were allocated.
    with cluster.claims.order.listing():
        for name, (facts, read) in _facts(cluster, room, follows_taint_rules=follows_taint_rules).items():
            if name in saved.missing:
                facts.expect()
            facts.replace(map(read, getattr(saved, name)))
    used = read_counts(saved.queue_use) if saved.queue_use else NOT_COUNTED
    cluster.queues.note_use_over_time(NOT_COUNTED if isinstance(used, str) else used)
    for node in saved.nodes:
        cluster.upsert_node(node)
    cluster.replace_pod_groups(saved.podgroups)
    cluster.replace_bind_requests(saved.bindrequests)
    read = cluster.list_reader()
    for pod in saved.pods:
        cluster.take_pod(read(pod))
        if pod.spec.node_name and room.has_budget(pod.metadata.namespace):
            meta = pod.metadata
            room.put_labels(meta.uid, meta.namespace, meta.resource_version, meta.labels or {})
    for held in cluster.claims.held_by_waiting():
        cluster.claims.note_own(held.uid, held.rv)
    problems = tuple(_put_evictions(saved, cluster, room)) if preemption else ()
    if settings.uses_prices:
        cluster.note_prices(prices_of(typical_of(cluster.arrivals.counts())))
    return cluster, problems


def _facts(cluster: Cluster, room: KnownForPreemption, *, follows_taint_rules: bool) -> Kept:
    """Kinds that the scheduler can do without for a while (scheduler/watch/secondary.py)."""
    storage = cluster.storage
    attachments = storage.attachments
    rules: Kept = {"devicetaintrules": (cluster.claims.inventory.rules, taint_rule_record)}
    return {
        "queues": (cluster.queues.records, pod_groups.queue_record),
        "namespaces": (cluster.others.namespaces, selectors.namespace_record),
        "topologies": (cluster.topologies.of_kai, pod_groups.topology_record),
        "priorityclasses": (cluster.priorities.classes, priority_class_record),
        "jobs": (cluster.owners.jobs, owners.job_record),
        "storageclasses": (storage.classes, volumes.storage_class_record),
        "csinodes": (attachments.limits, volumes.limits_record),
        "csidrivers": (storage.offers.drivers, volumes.driver_record),
        "csistoragecapacities": (storage.offers.capacities, volumes.capacity_record),
        "volumeattachments": (attachments.attached, volumes.attachment_record),
        "persistentvolumes": (storage.volumes, volumes.volume_record),
        "persistentvolumeclaims": (storage.claims, volumes.claim_record),
        "poddisruptionbudgets": (room.budgets, selectors.budget_record),
        "deviceclasses": (cluster.claims.inventory.classes, device_class_record),
        **(rules if follows_taint_rules else {}),
        "resourceslices": (cluster.claims.inventory.slices, slice_record),
        "resourceclaims": (cluster.claims.claims, resource_claim_record),
    }


def _put_evictions(saved: Saved, cluster: Cluster, room: KnownForPreemption) -> Iterator[str]:
    """Let nominations stand, and count evictions; name those that contradict others."""
    record = nomination_record.read(saved.nominations or "").record
    room.note_evicted(nomination_record.evictions(record, now_s=saved.wall_s))
    room.note_takers_wait(record.waits)
    for nomination in record.nominations:
        takers = map(cluster.pod, (place.pod_uid for place in nomination.places))
        if any(taker is not None and taker.is_elsewhere for taker in takers):
            continue
        try:
            cluster.commits.nominations.put(nomination)
        except ValueError as error:
            yield str(error)
    cluster.note_preemption_facts(room.facts())
