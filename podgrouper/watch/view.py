"""What is known of pods and PodGroups, and which workloads have pods that have to be looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec

from podgrouper.core.patches import Live
from podgrouper.core.projection import Key

#: What is kept of the bodies of pods, in all and of one namespace. A pod that is over is read again when it is looked
#: at: it costs a request, and nothing of another namespace.
BODIES_BYTES: Final = 64 << 20
NAMESPACE_BYTES: Final = BODIES_BYTES // 8


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
    fingerprint: int
    body: bytes


class View:
    """Pods by UID and PodGroups by namespace and name. ``due`` is called with the key of pods to look at.

    A pod is settled when it was looked at and nothing that decides on its group has changed since. One that is bound
    when it is seen first, and names no PodGroup, was started alone, and stays so.
    """

    def __init__(self) -> None:
        self.due: Callable[[Key], None] = lambda _: None
        self.pods: dict[str, SeenPod] = {}
        self.groups: dict[tuple[str, str], Live] = {}
        #: Names of PriorityClasses; None: not known.
        self.priority_classes: frozenset[str] | None = None
        self._of_key: dict[Key, dict[str, None]] = {}
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
        if not self._is_settled(pod):
            self.due(pod.key)

    def pod_listed(self, pod: SeenPod) -> None:
        """Take a pod of a list: one whose PodGroup is there, or that runs without one, has nothing to be done."""
        if (pod.namespace, pod.group) in self.groups or (pod.is_bound and not pod.group):
            self._settled.setdefault(pod.uid, pod.fingerprint)
        self.pod_seen(pod)

    def pod_gone(self, uid: str) -> None:
        """A pod is gone, or has ended."""
        self._settled.pop(uid, None)
        if (pod := self.pods.pop(uid, None)) is not None:
            self._count(pod.namespace, -len(pod.body))
            self._unlink(pod)

    def keep_pods(self, present: Iterable[str]) -> None:
        """Forget all other pods."""
        for uid in self.pods.keys() - set(present):
            self.pod_gone(uid)

    def settle(self, uid: str, fingerprint: int) -> None:
        """A pod was looked at: there is nothing more to do until it changes."""
        self._settled[uid] = fingerprint
        pod = self.pods.get(uid)
        if pod is None:
            del self._settled[uid]
        elif pod.fingerprint == fingerprint:
            self._put(pod)

    def marked(self, pod: SeenPod | str, uid: str) -> None:
        """A pod was written by us, and is so now; only its UID: it has ended meanwhile."""
        if isinstance(pod, str):
            self.pod_gone(uid)
            return
        self._settled[pod.uid] = pod.fingerprint
        self.pod_seen(pod)

    def group_seen(self, group: Live) -> None:
        """Take a PodGroup as it is now."""
        self.groups[group.namespace, group.name] = group

    def group_gone(self, namespace: str, name: str) -> None:
        """A PodGroup is gone: pods that name it have to be looked at again."""
        self.groups.pop((namespace, name), None)
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
