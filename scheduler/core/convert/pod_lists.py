"""Reading the pods of a list, those of equal content once.

Most pods of a long list come from few templates. What is read of a pod follows from its content, and only a few fields
are its own: name, UID, version, creation, node and start, its gang and its owner. So a pod of which an equal one was
read is that record with its own fields. Contents are compared as a whole, in bytes; nothing rests on a hash. Kept for
the time of one list: a scheduler at rest keeps nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from sys import intern
from typing import Final

import msgspec

from gpu.grant import has_ended
from scheduler.core.convert import bounds, demand
from scheduler.core.convert.owners import controller_of, job_of, plain_owner_of
from scheduler.core.convert.pods import is_ours, pod_record, seen_pod, started_s
from scheduler.core.convert.resource_claims import claim_name
from scheduler.core.filters.registry import FILTERS, Filters
from scheduler.core.model.records import PodRecord, SeenPod
from scheduler.core.model.settings import Settings
from wire import gangs, names
from wire.core import Pod, PodSpec, Volume

#: Contents that are kept, and the longest one (bytes): 4 MiB in all at most.
_MOST: Final = 1024
_LONGEST: Final = 4096
#: Labels and annotations that number the pods of one template, or name their Job. Only selectors of pods read them.
_OWN: Final = frozenset(
    {
        "apps.kubernetes.io/pod-index",
        "batch.kubernetes.io/controller-uid",
        "batch.kubernetes.io/job-completion-index",
        "batch.kubernetes.io/job-name",
        "controller-uid",
        "job-name",
        "statefulset.kubernetes.io/pod-name",
        gangs.KUBEFLOW_REPLICA_INDEX,
    }
)
_GROUP: Final = frozenset({names.POD_GROUP_NAME})
_encode: Final = msgspec.msgpack.Encoder().encode


class AlikePods:
    """Reads pods as ``seen_pod`` does, in a fraction of the time where many are alike."""

    def __init__(self, settings: Settings, filters: Filters = FILTERS) -> None:
        self._settings = settings
        self._filters = filters
        #: Content -> a record of a pod that has it.
        self._known: dict[bytes, PodRecord] = {}

    def read(self, pod: Pod) -> SeenPod:
        """Read a pod."""
        return seen_pod(pod, self._settings, self._filters, read=self._record)

    def _record(self, pod: Pod, settings: Settings, filters: Filters) -> PodRecord | None:
        content = self._content(pod)
        if content is None:
            return pod_record(pod, settings, filters)
        known = self._known.get(content)
        if known is not None:
            return _as_of(known, pod)
        record = pod_record(pod, settings, filters)
        if record is not None:
            if len(self._known) >= _MOST:
                self._known.clear()
            self._known[content] = record
        return record

    def _content(self, pod: Pod) -> bytes | None:
        """All that is read of a pod but its own fields; None if it is not kept, or its claims are its own."""
        spec, meta = pod.spec, pod.metadata
        if spec.resource_claims or claim_name(pod):
            return None
        if any(volume.ephemeral is not None for volume in spec.volumes or ()):
            return None
        # Labels and volumes that are no part of the content may be too many of one pod and not of the other. The bytes
        # of labels can't: the content has few, and eight more of 63 characters at most change little.
        if len(meta.labels or ()) > bounds.MOST_LABELS or len(spec.volumes or ()) > bounds.MOST_VOLUMES:
            return None
        if has_ended(pod.status) or not (spec.node_name or is_ours(pod, self._settings)):
            return None
        labels: Mapping[str, str] | None = meta.labels
        annotations: Mapping[str, str] | None = meta.annotations
        if not _selects_pods(spec):
            labels, annotations = _without(labels, _OWN), _without(annotations, _OWN)
        content = _encode(
            (
                _of_template(spec),
                bool(spec.node_name),
                pod.status.phase,
                meta.namespace,
                labels,
                _without(annotations, _GROUP),
                bool((meta.annotations or {}).get(names.POD_GROUP_NAME)),
                [
                    (each.api_version, each.kind, each.controller, bool(each.uid))
                    for each in meta.owner_references or ()
                ],
                meta.deletion_timestamp is not None,
                demand.of_status(pod),
            )
        )
        return content if len(content) <= _LONGEST else None


def _as_of(known: PodRecord, pod: Pod) -> PodRecord:
    """What a pod is of which another one has the content."""
    meta, labels = pod.metadata, pod.metadata.labels or {}
    job, job_name = ("", "") if pod.spec.node_name else job_of(meta)
    return msgspec.structs.replace(
        known,
        uid=meta.uid,
        name=meta.name,
        rv=meta.resource_version,
        created=intern(meta.creation_timestamp or ""),
        node=intern(pod.spec.node_name),
        started_s=started_s(pod) if pod.spec.node_name else 0,
        pod_group=bounds.name((meta.annotations or {}).get(names.POD_GROUP_NAME, "")),
        controller=controller_of(meta),
        job=job,
        job_name=job_name,
        plain_owner=None if pod.spec.node_name else plain_owner_of(meta),
        labels=known.labels if known.labels == labels else bounds.kept_labels(labels),
    )


def _of_template(spec: PodSpec) -> PodSpec:
    """A spec without its node, and without volumes that say nothing (a token's has a name of its own in each pod)."""
    if not spec.node_name and not spec.volumes:
        return spec
    return msgspec.structs.replace(spec, node_name="", volumes=list(_said(spec.volumes or ())))


def _said(volumes: Iterable[Volume]) -> Iterable[Volume]:
    return (volume for volume in volumes if volume != Volume(name=volume.name))


def _selects_pods(spec: PodSpec) -> bool:
    """Whether its rules may read any label of it."""
    return spec.affinity is not None or bool(spec.topology_spread_constraints)


def _without(written: Mapping[str, str] | None, keys: frozenset[str]) -> Mapping[str, str] | None:
    if written is None or keys.isdisjoint(written):
        return written
    return {key: value for key, value in written.items() if key not in keys}
