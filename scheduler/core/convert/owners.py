"""Which owner an object answers to, and what the Job of a pod says about starting together (kai-contract 3.1, 3.2).

Pods don't repeat what their Job says. KAI reads ``batch-min-member`` on the Job, and follows its owners. Of Jobs only
the metadata is kept, and only what matters. A pod whose Job was not seen yet waits for it, since watches of two kinds
come in no order. A Job that is never seen (it was deleted, and its pod is left) doesn't hold its pod for ever: after a
time the pod is one alone. While Jobs can't be read, a pod whose Job is not known waits without limit: the Job may ask
for several pods at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b
from sys import intern
from typing import Final

import msgspec

from scheduler.core.convert import bounds, gang_kinds
from scheduler.core.model.facts import Facts, Membership
from scheduler.core.model.records import PodRecord
from scheduler.core.model.verdict import Code, Verdict
from wire.core import Job, ObjectMeta, OwnerReference

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


class JobRecord(msgspec.Struct, frozen=True, gc=False):
    """A Job, by its identity. ``verdict``: why its pods without a PodGroup are not started; None: they are alone."""

    key: str
    verdict: Verdict | None


def job_record(job: Job) -> JobRecord:
    """Read a Job."""
    meta = job.metadata
    key = identity(meta.namespace, OwnerReference(api_version=_VERSION, kind=_JOB[1], name=meta.name, uid=meta.uid))
    if kind := gang_kinds.gang_kind_of(meta):
        return JobRecord(key, Verdict(code=Code.NO_POD_GROUP, detail=kind))
    asked = gang_kinds.asked_by(meta)
    if not asked:
        return JobRecord(key, None)
    detail = gang_kinds.not_carried_out(f"{asked} of Job {meta.name}")
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
    ``are_grouped``: a pod of any Job is grouped by Moorage, so it waits until it names a PodGroup.
    """

    def __init__(
        self, changed: Callable[[], None], touched: Callable[[str], None], *, are_grouped: bool = False
    ) -> None:
        self._are_grouped = are_grouped
        self._changed = changed
        self._touched = touched
        self.jobs: Facts[str, JobRecord] = Facts(self._job_changed, read_changed=self._read_changed)
        #: Pods (UIDs) that wait, by their Job.
        self._of_job: Membership[str] = Membership()
        #: Pods (UIDs) whose Job was not seen, since when.
        self._unseen: dict[str, int] = {}

    def _job_changed(self, job: JobRecord) -> None:
        for uid in self._of_job.at(job.key):
            self._touched(uid)
        self._changed()

    def _read_changed(self) -> None:
        for uid in self._of_job.everybody():
            self._touched(uid)
        self._changed()

    def put_pod(self, pod: PodRecord) -> None:
        """Take a pod as it is now."""
        self._of_job.move(pod.uid, "" if pod.node else pod.job)

    def drop_pod(self, uid: str) -> None:
        """A pod is gone."""
        self._unseen.pop(uid, None)
        self._of_job.move(uid, "")

    def verdict(self, pod: PodRecord, now_ns: int) -> Verdict | None:
        """Why a pod may not be started alone by what its Job says, or because nothing is known of that yet."""
        if not pod.job or pod.pod_group:
            return None
        if self._are_grouped:
            return Verdict(code=Code.NOT_GROUPED, detail=_JOB[1])
        job = self.jobs.get(pod.job)
        if job is not None:
            return job.verdict
        if not self.jobs.is_current:
            self._unseen.pop(pod.uid, None)
            return Verdict(code=Code.NOT_READ, detail=_JOBS)
        if now_ns < self._unseen.setdefault(pod.uid, now_ns) + _PATIENCE_NS:
            return Verdict(code=Code.OWNER_NOT_SEEN, detail=pod.job_name)
        return None

    def next_change_ns(self, pod: PodRecord) -> int:
        """When a pod is waited for no longer because its Job was not seen."""
        return self._unseen[pod.uid] + _PATIENCE_NS
