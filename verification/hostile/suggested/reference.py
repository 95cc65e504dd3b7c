"""Whether a suggested change helps, on a cluster that is made from nothing of the stored objects.

It is the slow way: no cache, no watch, nothing that the scheduler remembers. The group is tried alone and without a
bound on the try. Claims, budgets, back-offs, and nodes and room that are kept for others are not known here: what would
keep the group waiting is left out, so what is found false is false.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from kube.client.resources import BIND_REQUESTS, NODES, POD_GROUPS, PODS, QUEUES
from scheduler.core.cluster import Cluster
from scheduler.core.convert.queues import queue_record
from scheduler.core.decide.changes import UnknownObject, WithoutPods
from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.model.preemption import RoomFacts
from scheduler.core.model.records import SeenPod
from scheduler.core.model.settings import Settings
from scheduler.core.what_if import known_ends
from scheduler.core.what_if.edits import NotPossible, Subject, subject_of_group, subject_of_uid
from scheduler.core.what_if.explanation import with_residents
from scheduler.core.what_if.trials import Trying
from verification.hostile.suggested.history import Change, Key
from verification.hostile.suggested.sentences import Claim, Suggestible, WaitUntil
from wire.core import Pod
from wire.crds.bindrequest import BindRequest
from wire.crds.podgroup import PodGroup

_TYPES: Final = {each.plural: each.type for each in (NODES, POD_GROUPS, BIND_REQUESTS, QUEUES, PODS)}
#: Nothing that is read once has a past.
_NOW_NS: Final = 0


class Reference:
    """A cluster as it was stored, for the scheduler with these settings. It goes back in time by ``undo``."""

    def __init__(self, settings: Settings, objects: Mapping[Key, bytes]) -> None:
        self._settings = settings
        self._objects = dict(objects)
        #: By what is stored: what is read of it. An object is read once, however often a cluster is made of it.
        self._read: dict[bytes, Any] = {}
        self._reading = Cluster(settings)
        self._made: Cluster | None = None

    def undo(self, change: Change) -> bool:
        """Take a change back; return whether it may matter to a decision."""
        if change.before is None:
            self._objects.pop(change.key, None)
        else:
            self._objects[change.key] = change.before
        before, after = (
            None if raw is None else _without_version(self._as_read(change.key.plural, raw))
            for raw in (change.before, change.after)
        )
        if before == after:
            return False
        self._made = None
        return True

    @property
    def cluster(self) -> Cluster:
        """The cluster as it is now."""
        if self._made is None:
            self._made = self._making()
        return self._made

    def is_about(self, uid: str) -> bool:
        """Whether a pod waits for this scheduler."""
        pod = self.cluster.pod(uid)
        return pod is not None and not (pod.node or pod.is_elsewhere or pod.deleting)

    def helps(self, claim: Claim, wall_s: int) -> bool:
        """Whether a waiting pod's group starts after a change, or as it is. ``wall_s``: now."""
        snapshot = self.cluster.prepared(_NOW_NS)
        found = _group_of(snapshot, claim.uid)
        if found is None or not found.waiting:
            return False
        if any(map(snapshot.is_spoken_for, found.uids)):
            return True  # it is being started
        trying = Trying(with_residents(snapshot, now_ns=_NOW_NS, wall_s=wall_s), found, _NOW_NS, wall_s)
        return trying.outcome().starts or self._starts_after(trying, claim.change)

    def _starts_after(self, trying: Trying, change: Suggestible) -> bool:
        if isinstance(change, WaitUntil):
            is_ahead = change.until_s > trying.wall_s
            return is_ahead and trying.outcome(*self._ended(change.until_s), wall_s=change.until_s).starts
        try:
            return trying.outcome(*change.changes(trying.snapshot, trying.subject)).starts
        except (NotPossible, UnknownObject):
            return False

    def _ended(self, until_s: int) -> tuple[WithoutPods, ...]:
        ends = known_ends.all_ends(self.cluster.snapshot().pods.records.values())
        uids = tuple(uid for end, uid in ends if end.at_s <= until_s)
        return (WithoutPods(uids),) if uids else ()

    # --- objects -----------------------------------------------------------------------------------------------------
    def _making(self) -> Cluster:
        """Make a cluster of what is stored."""
        made = Cluster(self._settings)
        found: dict[str, list[Any]] = {plural: [] for plural in _TYPES}
        for key, raw in self._objects.items():
            found[key.plural].append(self._as_read(key.plural, raw))
        made.replace_nodes(found[NODES.plural])
        made.replace_pod_groups(found[POD_GROUPS.plural])
        made.replace_bind_requests(found[BIND_REQUESTS.plural])
        made.queues.records.replace(found[QUEUES.plural])
        for seen in found[PODS.plural]:
            made.take_pod(made.interned(seen))
        made.note_room_facts(RoomFacts(version=1))
        return made

    def _as_read(self, plural: str, raw: bytes) -> Any:
        if raw not in self._read:
            obj = msgspec.json.decode(raw, type=_TYPES[plural])
            read: dict[str, Callable[[Any], Any]] = {
                NODES.plural: self._reading.read_node,
                QUEUES.plural: queue_record,
                PODS.plural: self._seen,
            }
            self._read[raw] = read.get(plural, _as_it_is)(obj)
        return self._read[raw]

    def _seen(self, pod: Pod) -> SeenPod:
        """Read a pod without its claims and its Job."""
        seen = self._reading.read_pod(pod)
        if seen.record is None:
            return seen
        record = msgspec.structs.replace(seen.record, claims=(), resource_claims=(), job="", job_name="")
        return msgspec.structs.replace(seen, record=record)


def _group_of(snapshot: Snapshot, uid: str) -> Subject | None:
    """What a pod is part of: its PodGroup, or itself alone."""
    pod = snapshot.pod(uid)
    if pod is None:
        return None
    of_group = subject_of_group(snapshot, pod.namespace, pod.pod_group) if pod.pod_group else None
    return of_group or subject_of_uid(snapshot, uid)


def _as_it_is(obj: Any) -> Any:
    return obj


def _without_version(read: Any) -> Any:
    """What an object says, but for its version and its status: two that are equal in that make one decision."""
    if isinstance(read, SeenPod):
        record = None if read.record is None else msgspec.structs.replace(read.record, rv="", started_s=0)
        held = None if read.reservation is None else msgspec.structs.replace(read.reservation, rv="")
        return msgspec.structs.replace(read, rv="", record=record, reservation=held)
    if isinstance(read, PodGroup | BindRequest):
        return read.metadata.uid, read.metadata.labels, read.metadata.annotations, read.spec
    return read
