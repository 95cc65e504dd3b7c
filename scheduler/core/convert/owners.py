"""Which pods belong to a gang: by their PodGroup, by their labels, by the Job that owns them (as in KAI).

Pods don't repeat what their Job says. KAI reads ``batch-min-member`` on the Job, and follows its owners. Of Jobs only
the metadata is kept, and only what matters. A pod whose Job was not seen yet waits for it, since watches of two kinds
come in no order. A Job that is never seen (it was deleted, and its pod is left) doesn't hold its pod for ever: after a
time the pod is one alone. While Jobs can't be read, a pod whose Job is not known waits without limit: the Job may ask
for several pods at once.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from functools import lru_cache
from hashlib import blake2b
from sys import intern
from typing import Final

import msgspec

from scheduler.core.convert import bounds
from scheduler.core.model.facts import Facts, Membership
from scheduler.core.model.records import PlainOwner, PodRecord
from scheduler.core.model.verdict import Code, Verdict
from wire import gangs, names
from wire.core import Job, Named, ObjectMeta, OwnerReference, Pod

_MOST_DIGITS = 9
#: The field of a pod that names a PodGroup of Kubernetes' own.
_GROUP = "spec.schedulingGroup"
#: KAI's annotations that its pod-grouper turns into a structure of the PodGroup; nothing here reads them.
_KAIS_SEGMENTS = (names.SEGMENT_SIZE, names.SEGMENT_TOPOLOGY_REQUIRED)
_KAIS_STRUCTURE = (*_KAIS_SEGMENTS, names.TOPOLOGY_REQUIRED)
#: KAI's annotations by which pods prefer a place together; they keep no pod waiting, and nothing looks at them.
_KAIS_PREFERENCES = (names.SEGMENT_TOPOLOGY_PREFERRED, names.TOPOLOGY_PREFERRED)


def asked_elsewhere(pod: Pod) -> str:
    """By what ``pod`` asks to be started with others in a way that is not carried out; "" if by nothing.

    That counts for pods that name no PodGroup: one that is named alone says how many start together.
    """
    return ", ".join(filter(None, [*_upstream(pod), asked_by(pod.metadata)]))


def asked_by(meta: ObjectMeta) -> str:
    """The labels and annotations that ask for a gang in such a way, of a pod or of its owner; "" if there are none."""
    found = [*gangs.written(meta.labels, meta.annotations), *kais_structure(meta.annotations)]
    if _least(meta.annotations) != 1:
        found.append(f"annotation {names.BATCH_MIN_MEMBER}")
    return ", ".join(found)


def is_translated(pod: Pod) -> bool:
    """Whether words of another scheduler name a gang, of which the podgrouper makes a PodGroup."""
    meta = pod.metadata
    found = gangs.written(meta.labels, meta.annotations)
    return _GROUP in _upstream(pod) or any(word in gangs.TRANSLATED for word in found)


def not_carried_out(asked: str) -> str:
    """The detail of a verdict about such a pod, with what helps."""
    return f"starting together by {asked} (without a PodGroup in annotation {names.POD_GROUP_NAME})"


def _upstream(pod: Pod) -> Iterator[str]:
    if (pod.metadata.annotations or {}).get(names.IGNORE_WORKLOAD_API) == "true":
        return
    if pod.spec.workload_ref:
        yield "spec.workloadRef"
    if pod.spec.scheduling_group:
        yield _GROUP


def kais_structure(annotations: dict[str, str] | None) -> list[str]:
    """Annotations of KAI's that ask for a structure of the gang or a place for it."""
    return [f"annotation {name}" for name in _KAIS_STRUCTURE if annotations and annotations.get(name)]


def kais_segments(annotations: Mapping[str, str] | None) -> list[str]:
    """Of these, what a PodGroup says of its own parts by its subgroups alone."""
    return [f"annotation {name}" for name in _KAIS_SEGMENTS if annotations and annotations.get(name)]


def preferences(annotations: Mapping[str, str] | None) -> list[str]:
    """Annotations of KAI's that prefer a place for pods together and have no effect."""
    return [name for name in _KAIS_PREFERENCES if annotations and annotations.get(name)]


def _least(annotations: dict[str, str] | None) -> int:
    """How many pods start together by KAI's annotation: 1 without it, 0 for what can't be read."""
    text = (annotations or {}).get(names.BATCH_MIN_MEMBER)
    if text is None:
        return 1
    return max(1, int(text)) if text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS else 0


def asks_more_than(annotations: dict[str, str] | None, minimum: int) -> bool:
    """Whether KAI's annotation asks for more pods at once than ``minimum``, or can't be read."""
    least = _least(annotations)
    return least == 0 or least > max(1, minimum)


def gang_kind(pod: Pod) -> str:
    """Kind of the gang that ``pod`` is a part of by its owner or labels, "" if it is a pod alone.

    Pods of a Job, ReplicaSet or StatefulSet are pods alone, as far as they say themselves (owners.py).
    """
    return gang_kind_of(pod.metadata)


def gang_kind_of(meta: ObjectMeta) -> str:
    """The same of a pod or of its owner."""
    for owner in meta.owner_references or ():
        if is_gang_kind(_api_group(owner), owner.kind):
            return owner.kind
    labels = meta.labels or {}
    return next((kind for label, kind in gangs.LABELS.items() if labels.get(label)), "")


def is_gang_kind(group: str, kind: str) -> bool:
    """Whether pods of an owner of this kind start together."""
    return kind in gangs.KINDS.get(group, ())


def _api_group(owner: OwnerReference) -> str:
    return owner.api_version.partition("/")[0]


#: As hexadecimal digits these are fewer characters than a UID has, however long a reference is.
_DIGEST_BYTES: Final = 16
#: Pods of one owner come one after another. Longer references than any object's are not remembered.
_REMEMBERED: Final = 1024
_LONGEST: Final = 512


def identity(namespace: str, owner: OwnerReference) -> str:
    """Return what tells an owner from all others: a digest of its group, kind, namespace, name and UID.

    A tenant writes what it likes into the references of its own pods. By the UID alone, a pod would share what is
    known of another namespace's workload: which nodes refused it, how often it was evicted, what its Job says.
    """
    version, kind, name, uid = owner.api_version, owner.kind, owner.name, owner.uid
    is_usual = len(version) + len(kind) + len(name) + len(uid) <= _LONGEST
    return (_remembered if is_usual else _digest)(namespace, version, kind, name, uid)


def _digest(*parts: str) -> str:
    namespace, api_version, *others = parts
    group = api_version.rpartition("/")[0]
    # No text of JSON has a lone surrogate once it is decoded.
    return intern(blake2b("\0".join((namespace, group, *others)).encode(), digest_size=_DIGEST_BYTES).hexdigest())


_remembered: Final = lru_cache(_REMEMBERED)(_digest)


def controller_of(meta: ObjectMeta) -> str:
    """Identity of the owner that controls an object, or ""."""
    for owner in meta.owner_references or ():
        if owner.controller:
            return identity(meta.namespace, owner)
    return ""


def controller_uid(meta: ObjectMeta) -> str:
    """UID of the owner that controls an object, or "": to be compared with the UID of a pod of the same namespace."""
    return next((bounds.name(owner.uid) for owner in meta.owner_references or () if owner.controller), "")


#: A pod waits for its Job for this time: a watch that is interrupted is resumed within it, as a rule.
_PATIENCE_NS: Final = 10_000_000_000
_JOB: Final = ("batch", "Job")
_VERSION: Final = "batch/v1"
_LONGEST_NAME: Final = 253
#: What a verdict names while Jobs can't be read.
_JOBS: Final = "jobs.batch"
#: Of the kinds of ``gangs.PLAIN`` those that own pods and are followed here, and the one that may own a ReplicaSet.
_REPLICA_SET: Final = "ReplicaSet"
_FOLLOWED: Final = frozenset({_REPLICA_SET, "StatefulSet"})
_DEPLOYMENT: Final = "Deployment"
_APPS: Final = "apps"


class PlainRecord(msgspec.Struct, frozen=True, gc=False):
    """A ReplicaSet, StatefulSet or Deployment, by its identity.

    ``stated``: what it says of the group of its pods. ``above``: the Deployment of a ReplicaSet; no other owner is
    followed, since tenants write owner references, also in a circle. ``stranger``: the kind of another owner, of which
    only the podgrouper knows. ``is_skipped``: its pods are not grouped.
    """

    key: str
    kind: str
    stated: frozenset[tuple[str, str]]
    above: PlainOwner | None
    stranger: str
    is_skipped: bool


def plain_record(kind: str) -> Callable[[Named], PlainRecord]:
    """Return what reads objects of a kind."""

    def read(obj: Named) -> PlainRecord:
        meta = obj.metadata
        own = OwnerReference(api_version=f"{_APPS}/v1", kind=kind, name=meta.name, uid=meta.uid)
        above = _only_owner(meta)
        is_deployed = kind == _REPLICA_SET and above is not None and _is_of_apps(above, {_DEPLOYMENT})
        return PlainRecord(
            key=identity(meta.namespace, own),
            kind=kind,
            stated=stated(meta),
            above=_plain(above, meta.namespace) if above is not None and is_deployed else None,
            stranger=bounds.name(above.kind) if above is not None and not is_deployed else "",
            is_skipped=_is_skipped(meta),
        )

    return read


def stated(meta: ObjectMeta) -> frozenset[tuple[str, str]]:
    """What an object says of the group of its pods, or a pod of its own; annotations may be long."""
    return frozenset((name, bounds.name(value)) for name, value in gangs.stated(meta.labels, meta.annotations))


def plain_owner_of(meta: ObjectMeta) -> PlainOwner | None:
    """The ReplicaSet or StatefulSet that owns a pod which is to be grouped if that says so."""
    owner = _only_owner(meta)
    if owner is None or not _is_of_apps(owner, _FOLLOWED) or is_ungrouped(meta):
        return None
    return _plain(owner, meta.namespace)


def unknown_owner_of(meta: ObjectMeta) -> str:
    """Kind of a pod's owner of which nothing but the podgrouper's word tells whether the pod starts alone; or ""."""
    owner = _only_owner(meta)
    if owner is None or gangs.is_plain(owner.api_version, owner.kind) or is_ungrouped(meta):
        return ""
    return "" if (owner.api_version.partition("/")[0], owner.kind) == _JOB else bounds.name(owner.kind)


def _only_owner(meta: ObjectMeta) -> OwnerReference | None:
    """The owner of what has one. What has several is grouped by none of them."""
    owners = meta.owner_references or ()
    return owners[0] if len(owners) == 1 else None


def is_ungrouped(meta: ObjectMeta) -> bool:
    """Whether nobody makes a PodGroup for a pod: it says so, or the podgrouper has."""
    return names.ALONE in (meta.annotations or {}) or _is_skipped(meta)


def _is_skipped(meta: ObjectMeta) -> bool:
    return (meta.annotations or {}).get(names.SKIP_POD_GROUPER) == "true"


def _is_of_apps(owner: OwnerReference, kinds: Container[str]) -> bool:
    return owner.api_version.partition("/")[0] == _APPS and owner.kind in kinds


def _plain(owner: OwnerReference, namespace: str) -> PlainOwner:
    return PlainOwner(intern(owner.kind), identity(namespace, owner), owner.name[:_LONGEST_NAME])


class JobRecord(msgspec.Struct, frozen=True, gc=False):
    """A Job, by its identity. ``verdict``: why its pods without a PodGroup are not started; None: they are alone."""

    key: str
    verdict: Verdict | None


def job_record(job: Job) -> JobRecord:
    """Read a Job."""
    meta = job.metadata
    key = identity(meta.namespace, OwnerReference(api_version=_VERSION, kind=_JOB[1], name=meta.name, uid=meta.uid))
    if kind := gang_kind_of(meta):
        return JobRecord(key, Verdict(code=Code.NO_POD_GROUP, detail=kind))
    asked = asked_by(meta)
    if not asked:
        return JobRecord(key, None)
    detail = not_carried_out(f"{asked} of Job {meta.name}")
    return JobRecord(key, Verdict(code=Code.UNSUPPORTED_CONSTRAINT, detail=detail))


def job_of(meta: ObjectMeta) -> tuple[str, str]:
    """Identity and name of the Job among a pod's owners, each "" if there is none."""
    for owner in meta.owner_references or ():
        if (owner.api_version.partition("/")[0], owner.kind) == _JOB:
            return identity(meta.namespace, owner), owner.name[:_LONGEST_NAME]
    return "", ""


class Owners:
    """Jobs by identity: a pod of another namespace that names the UID of a Job is none of its pods.

    ``changed`` is called when decisions on pods may change, ``touched`` for each of them.
    ``workloads_are_grouped``: a pod of any Job is grouped by Moorage, so it waits until it names a PodGroup.
    """

    def __init__(
        self, changed: Callable[[], None], touched: Callable[[str], None], *, workloads_are_grouped: bool = False
    ) -> None:
        self._are_grouped = workloads_are_grouped
        self._changed = changed
        self._touched = touched
        self.jobs: Facts[str, JobRecord] = Facts(self._job_changed, read_changed=self._read_changed)
        self.plain: dict[str, Facts[str, PlainRecord]] = {
            kind: Facts(self._plain_changed, read_changed=self._read_changed)
            for kind in (*sorted(_FOLLOWED), _DEPLOYMENT)
        }
        #: ReplicaSets by their Deployment.
        self._of_deployment: Membership[str] = Membership()
        #: Pods (UIDs) that wait, by their Job, ReplicaSet or StatefulSet.
        self._of_job: Membership[str] = Membership()
        #: Pods (UIDs) that wait for an owner to be seen, for which and since when.
        self._unseen: dict[str, tuple[str, int]] = {}

    def _job_changed(self, job: JobRecord) -> None:
        for uid in self._of_job.at(job.key):
            self._touched(uid)
        self._changed()

    def _plain_changed(self, record: PlainRecord) -> None:
        is_there = self.plain[record.kind].get(record.key) is not None
        self._of_deployment.move(record.key, record.above.key if is_there and record.above is not None else "")
        below = [uid for key in (record.key, *self._of_deployment.at(record.key)) for uid in self._of_job.at(key)]
        for uid in below:
            self._touched(uid)
        if below:
            self._changed()

    def _read_changed(self) -> None:
        for uid in self._of_job.everybody():
            self._touched(uid)
        self._changed()

    def put_pod(self, pod: PodRecord) -> None:
        """Take a pod as it is now."""
        owner = pod.job or (pod.plain_owner.key if pod.plain_owner is not None else "")
        self._of_job.move(pod.uid, "" if pod.node else owner)

    def drop_pod(self, uid: str) -> None:
        """A pod is gone."""
        self._unseen.pop(uid, None)
        self._of_job.move(uid, "")

    def verdict(self, pod: PodRecord, now_ns: int) -> Verdict | None:
        """Why a pod may not be started alone by what its owner says, or because nothing is known of that yet."""
        if pod.pod_group:
            return None
        if pod.plain_owner is not None:
            return self._of_plain(pod, pod.plain_owner, now_ns) if self._are_grouped else None
        if not pod.job:
            return None
        if self._are_grouped and not pod.is_ungrouped:
            return Verdict(code=Code.NOT_GROUPED, detail=_JOB[1])
        job = self.jobs.get(pod.job)
        if job is not None:
            return job.verdict
        return self._not_seen(pod, f"Job {pod.job_name}", _JOBS, is_current=self.jobs.is_current, now_ns=now_ns)

    def _of_plain(self, pod: PodRecord, owner: PlainOwner, now_ns: int) -> Verdict | None:
        """Whether a ReplicaSet or StatefulSet, or the Deployment above, says more than the pod: then it is grouped."""
        table = self.plain[owner.kind]
        record = table.get(owner.key)
        if record is None:
            kinds, name = f"{owner.kind.lower()}s.{_APPS}", f"{owner.kind} {owner.name}"
            return self._not_seen(pod, name, kinds, is_current=table.is_current, now_ns=now_ns)
        if record.is_skipped:
            return None
        if record.above is not None:
            return self._of_plain(pod, record.above, now_ns)
        kind = record.stranger or (record.kind if record.stated - pod.stated else "")
        return Verdict(code=Code.NOT_GROUPED, detail=kind) if kind else None

    def _not_seen(self, pod: PodRecord, name: str, kinds: str, *, is_current: bool, now_ns: int) -> Verdict | None:
        if not is_current:
            self._unseen.pop(pod.uid, None)
            return Verdict(code=Code.NOT_READ, detail=kinds)
        awaited, since_ns = self._unseen.get(pod.uid, ("", 0))
        if awaited != name:
            self._unseen[pod.uid] = name, (since_ns := now_ns)
        if now_ns < since_ns + _PATIENCE_NS:
            return Verdict(code=Code.OWNER_NOT_SEEN, detail=name)
        return None

    def next_change_ns(self, pod: PodRecord) -> int:
        """When a pod is waited for no longer because its owner was not seen."""
        return self._unseen[pod.uid][1] + _PATIENCE_NS
