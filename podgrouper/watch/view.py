"""What is known of pods and PodGroups, and which workloads have pods that have to be looked at."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any, Final

import msgspec

from kube.watch.signal import Signal
from podgrouper.core import projection
from podgrouper.core.patches import Live
from podgrouper.core.projection import FollowedKind, Key
from wire.core import OwnerReference

#: What is kept of the bodies of pods, in all and of one namespace. A pod that is over is read again when it is looked
#: at: it costs a request, and nothing of another namespace.
BODIES_BYTES: Final = 64 << 20
NAMESPACE_BYTES: Final = BODIES_BYTES // 8
#: More versions than one kind is served in. References may name any number of a kind that the table has in all.
MOST_VERSIONS: Final = 8
#: Pods of a PodGroup with this many keys are looked at again when it may have to change, beside keys that changed: a
#: pod says nothing of a PodGroup that is not its owner's, and the Job of a JobSet nothing of other Jobs.
MOST_KEYS: Final = 8


class SeenPod(msgspec.Struct, frozen=True, gc=False):
    """A pod of ours that has not ended. ``body``: what grouping reads of it, as JSON; b"": not kept, read it again.

    ``key``: what it has in common with the pods that are grouped with it. ``group``: the PodGroup that it names.
    """

    uid: str
    namespace: str
    name: str
    key: Key
    group: str
    is_bound: bool
    has_part: bool
    #: apiVersion and kind of its owner, if changes of such owners are followed.
    owner_kind: FollowedKind | None
    fingerprint: int
    body: bytes


class Changed(msgspec.Struct, gc=False):
    """What has changed of a PodGroup. ``keys``: those of pods that went, or whose owner was edited."""

    keys: dict[Key, None] = {}
    was_edited: bool = False


class View:
    """Pods by UID and PodGroups by namespace and name. ``due`` is called with the key of pods to look at.

    A pod is settled when it was looked at and nothing that decides on its group has changed since. One that is bound
    when it is seen first, and names no PodGroup, was started alone, and stays so.

    ``changed``: PodGroups whose owner has changed, or that have lost a pod: some of their pods are looked at again.
    ``below``: keys of which an owner has changed: their pods that wait and name no PodGroup are to be looked at again.
    ``kinds``: those of owners to follow.
    """

    def __init__(self) -> None:
        self.due: Callable[[Key], None] = lambda _: None
        self.pods: dict[str, SeenPod] = {}
        self.groups: dict[tuple[str, str], Live] = {}
        #: Names of PriorityClasses; None: not known.
        self.priority_classes: frozenset[str] | None = None
        self.changed: dict[tuple[str, str], Changed] = {}
        self.below: dict[Key, None] = {}
        self.on_changed: Final = Signal()
        self.kinds: dict[FollowedKind, None] = {}
        self.on_kind: Final = Signal()
        self._of_key: dict[Key, dict[str, None]] = {}
        #: UID of an owner -> PodGroups.
        self._of_owner: dict[str, dict[tuple[str, str], None]] = {}
        #: Keys whose pods start alone or are refused, as these owners (UIDs) say; and the other way round.
        self._owners_of: dict[Key, tuple[str, ...]] = {}
        #: Those of them whose pods start alone.
        self._alone: set[Key] = set()
        self._keys_of: dict[str, dict[Key, None]] = {}
        #: Pod UID -> its owners have to be read since then (event loop's time).
        self._since: dict[str, float] = {}
        self._of_group: dict[tuple[str, str], dict[str, None]] = {}
        #: Pod UID -> its fingerprint when it was settled.
        self._settled: dict[str, int] = {}
        #: Bytes of bodies by namespace.
        self._bodies: dict[str, int] = {}
        self._total = 0

    # --- what is asked
    def keys(self) -> Iterator[Key]:
        """Yield all keys with pods that have to be looked at."""
        yield from [key for key in self._of_key if any(True for _ in self.unsettled(key))]

    def unsettled(self, key: Key) -> Iterator[SeenPod]:
        """Yield the pods of a key that have to be looked at."""
        for uid in list(self._of_key.get(key, ())):
            pod = self.pods.get(uid)
            if pod is not None and not self._is_settled(pod):
                yield pod

    def since(self, uid: str) -> float:
        """Since when the owners of a pod have to be read (event loop's time)."""
        return self._since.get(uid, -math.inf)

    def without_pods(self) -> list[Live]:
        """Return the PodGroups that no pod names, but for pods that have ended or are being deleted."""
        return [group for key, group in self.groups.items() if key not in self._of_group]

    @property
    def waiting(self) -> int:
        """How many keys have pods that have to be looked at."""
        return sum(1 for _ in self.keys())

    # --- what is observed
    def pod_seen(self, pod: SeenPod) -> None:
        """Take a pod as it is now."""
        old = self.pods.get(pod.uid)
        if old is None and pod.is_bound and not pod.group:
            self._settled.setdefault(pod.uid, pod.fingerprint)
        if old is not None and (old.key, old.group) != (pod.key, pod.group):
            self._unlink(old)
        self._put(pod)
        self._of_key.setdefault(pod.key, {})[pod.uid] = None
        if pod.group:
            self._of_group.setdefault((pod.namespace, pod.group), {})[pod.uid] = None
            if pod.owner_kind is not None:
                self._follow(pod.owner_kind)
        if not self._is_settled(pod):
            self.due(pod.key)

    def pod_listed(self, pod: SeenPod) -> None:
        """Take a pod of a list: one whose PodGroup is there, or that runs without one, has nothing to be done."""
        if (pod.namespace, pod.group) in self.groups or (pod.is_bound and not pod.group):
            self._settled.setdefault(pod.uid, pod.fingerprint)
        self.pod_seen(pod)

    def pod_gone(self, uid: str) -> None:
        """A pod is gone, is being deleted, or has ended."""
        self._settled.pop(uid, None)
        self._since.pop(uid, None)
        if (pod := self.pods.pop(uid, None)) is not None:
            self._count(pod.namespace, -len(pod.body))
            self._unlink(pod)
            self._note_changed([(pod.namespace, pod.group)], pod.key)

    def keep_pods(self, present: Iterable[str]) -> None:
        """Forget all other pods."""
        for uid in self.pods.keys() - set(present):
            self.pod_gone(uid)

    def settle(self, uid: str, fingerprint: int, since: float = -math.inf) -> None:
        """A pod was looked at: there is nothing more to do until it changes.

        Its owners were read since then. If they have to be read since later, it has to be looked at again.
        """
        if self.since(uid) > since:
            return
        self._settled[uid] = fingerprint
        self._since.pop(uid, None)
        pod = self.pods.get(uid)
        if pod is None:
            del self._settled[uid]
        elif pod.fingerprint == fingerprint:
            self._put(pod)

    def marked(self, pod: SeenPod | str, uid: str, since: float = -math.inf) -> None:
        """A pod was written by us, and is so now; only its UID: it has ended meanwhile.

        ``since``: as in ``settle``. One whose PodGroup is gone meanwhile has to be looked at again, too.
        """
        if isinstance(pod, str):
            self.pod_gone(uid)
            return
        self.pod_seen(pod)
        if not pod.group or (pod.namespace, pod.group) in self.groups:
            self.settle(pod.uid, pod.fingerprint, since)

    def note_alone(self, pod: SeenPod, owners: Iterable[OwnerReference]) -> None:
        """A pod that waits belongs to no PodGroup, as these owners say: what they say next of groups matters."""
        if self._follow_owners(pod, owners):
            self._alone.add(pod.key)

    def note_refused(self, pod: SeenPod, owners: Iterable[OwnerReference]) -> None:
        """A pod can't be grouped, as these owners say: each edit of them may mend that."""
        self._follow_owners(pod, owners)

    def _follow_owners(self, pod: SeenPod, owners: Iterable[OwnerReference]) -> bool:
        """Have a key looked at again when one of these owners is edited; return whether any of them is followed."""
        followed = {owner.uid: kind for owner in owners if (kind := _followed(owner)) is not None}
        self._forget_owners(pod.key)
        if pod.uid not in self.pods or not followed:
            return False
        self._owners_of[pod.key] = tuple(followed)
        for uid, kind in followed.items():
            self._keys_of.setdefault(uid, {})[pod.key] = None
            self._follow(kind)
        return True

    def has_ungrouped(self, owner_uid: str) -> bool:
        """Whether pods start alone or are refused as this owner says."""
        return owner_uid in self._keys_of

    def is_followed(self, owner_uid: str, said: int) -> bool:
        """Whether the PodGroups of an owner were made of what its annotations say (``patches.said_of``)."""
        groups = [self.groups[key] for key in self._of_owner.get(owner_uid, ())]
        return all(group.said == said for group in groups if group.written)

    def owner_changed(self, owner: OwnerReference, namespace: str, *, states_else: bool) -> None:
        """An owner says something else now. ``states_else``: also that by which its pods start alone or not."""
        key = projection.key_below(owner, namespace)
        below = [pod for uid in self._of_key.get(key, ()) if (pod := self.pods.get(uid)) is not None]
        of_owner = [*self._of_owner.get(owner.uid, ()), *((pod.namespace, pod.group) for pod in below)]
        self._note_changed(of_owner, key, was_edited=True)
        for each in (key, *self._keys_of.get(owner.uid, ())):
            if each in self._of_key and (states_else or each not in self._alone):
                self.below[each] = None
                self.on_changed.set()

    def look_below(self, key: Key, now: float) -> None:
        """Have the pods of a key looked at that wait and name no PodGroup, with their owners as from ``now`` on."""
        for uid in [*self._of_key.get(key, ())]:
            pod = self.pods[uid]
            if not (pod.group or pod.is_bound):
                self._since[uid] = now
                self._look_at(pod)

    def look_again(self, group: tuple[str, str], first: Iterable[Key], now: float) -> list[Key]:
        """Have a pod of each of these keys of a PodGroup looked at, and of some others; return the keys.

        Their owners are read as they are from ``now`` on.
        """
        newest: dict[Key, str] = {}
        for uid in reversed(self._of_group.get(group, {})):
            newest.setdefault(self.pods[uid].key, uid)
        keys = [key for key in first if key in newest]
        keys = [*dict.fromkeys([*keys, *islice(newest, MOST_KEYS)])]
        for key in keys:
            self._since[newest[key]] = now
            self._look_at(self.pods[newest[key]])
        return keys

    def running(self, group: tuple[str, str]) -> int:
        """How many pods of a PodGroup are bound."""
        return sum(self.pods[uid].is_bound for uid in self._of_group.get(group, ()))

    def parts_changed(self, group: tuple[str, str]) -> None:
        """A PodGroup has other parts now: its pods that name none may belong to one."""
        for uid in [*self._of_group.get(group, ())]:
            if not self.pods[uid].has_part:
                self._look_at(self.pods[uid])

    def group_seen(self, group: Live) -> None:
        """Take a PodGroup as it is now."""
        key = (group.namespace, group.name)
        before = self.groups.get(key)
        self.groups[key] = group
        if before is None or before.owners != group.owners:
            self._unlink_owners(before)
            for uid in group.owners:
                self._of_owner.setdefault(uid, {})[key] = None
        if (kind := projection.followed_kind(*group.owner_kind)) is not None:
            self._follow(kind)

    def group_gone(self, namespace: str, name: str) -> None:
        """A PodGroup is gone: pods that name it have to be looked at again."""
        self._unlink_owners(self.groups.pop((namespace, name), None))
        self.changed.pop((namespace, name), None)
        keys: dict[Key, None] = {}
        for uid in self._of_group.get((namespace, name), ()):
            self._settled.pop(uid, None)
            keys[self.pods[uid].key] = None
        for key in keys:
            self.due(key)

    def keep_groups(self, present: Iterable[tuple[str, str]]) -> None:
        """Forget all other PodGroups."""
        for namespace, name in self.groups.keys() - set(present):
            self.group_gone(namespace, name)

    def _note_changed(self, groups: Iterable[tuple[str, str]], key: Key, *, was_edited: bool = False) -> None:
        for group in groups:
            if group in self.groups and group in self._of_group:
                changed = self.changed.setdefault(group, Changed())
                changed.keys[key] = None
                changed.was_edited = changed.was_edited or was_edited
                self.on_changed.set()

    def _look_at(self, pod: SeenPod) -> None:
        self._settled.pop(pod.uid, None)
        self.due(pod.key)

    def _follow(self, kind: FollowedKind) -> None:
        if kind not in self.kinds and sum(map(partial(_is_one_kind, kind), self.kinds)) < MOST_VERSIONS:
            self.kinds[kind] = None
            self.on_kind.set()

    def kind_is_not_served(self, kind: FollowedKind) -> None:
        """Nothing can be followed of it, until a pod or a PodGroup names it again."""
        self.kinds.pop(kind, None)

    def _unlink_owners(self, group: Live | None) -> None:
        if group is None:
            return
        for uid in group.owners:
            of_owner = self._of_owner.get(uid, {})
            of_owner.pop((group.namespace, group.name), None)
            if not of_owner:
                self._of_owner.pop(uid, None)

    def _put(self, pod: SeenPod) -> None:
        """Keep a pod, with its body if it has to be looked at and there is room for it."""
        if (old := self.pods.get(pod.uid)) is not None:
            self._count(old.namespace, -len(old.body))
        size = len(pod.body)
        is_over = self._bodies.get(pod.namespace, 0) + size > NAMESPACE_BYTES or self._total + size > BODIES_BYTES
        if size and (is_over or self._is_settled(pod)):
            pod = msgspec.structs.replace(pod, body=b"")
        self._count(pod.namespace, len(pod.body))
        self.pods[pod.uid] = pod

    def _count(self, namespace: str, size: int) -> None:
        if not size:
            return
        self._total += size
        self._bodies[namespace] = self._bodies.get(namespace, 0) + size
        if not self._bodies[namespace]:
            del self._bodies[namespace]

    def _is_settled(self, pod: SeenPod) -> bool:
        return self._settled.get(pod.uid) == pod.fingerprint

    def _unlink(self, pod: SeenPod) -> None:
        tables: tuple[tuple[dict[Any, dict[str, None]], Any], ...] = (
            (self._of_key, pod.key),
            (self._of_group, (pod.namespace, pod.group)),
        )
        for table, key in tables:
            uids = table.get(key, {})
            uids.pop(pod.uid, None)
            if not uids:
                table.pop(key, None)
        if pod.key not in self._of_key:
            self._forget_owners(pod.key)

    def _forget_owners(self, key: Key) -> None:
        self._alone.discard(key)
        for uid in self._owners_of.pop(key, ()):
            keys = self._keys_of[uid]
            del keys[key]
            if not keys:
                del self._keys_of[uid]


def _is_one_kind(one: FollowedKind, other: FollowedKind) -> bool:
    """Whether two are the same kind, of the same or of different versions."""
    return one[1] == other[1] and one[0].rpartition("/")[0] == other[0].rpartition("/")[0]


def _followed(owner: OwnerReference) -> FollowedKind | None:
    return projection.followed_kind(owner.api_version, owner.kind)
