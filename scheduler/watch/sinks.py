"""What reflectors feed the cache through: pods, nodes, PodGroups and BindRequests, as lists and one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import anyio.lowlevel

from kube.watch.reflector import in_turns
from scheduler.core.model.records import NodeRecord, SeenPod
from scheduler.watch.cache import Cache, Seen, SeenGroup
from wire.core import Node, Pod
from wire.crds.bindrequest import BindRequest
from wire.crds.podgroup import PodGroup

#: As many nodes are counted before other tasks get a turn (some ms), when the first list has marked them all.
_NODES_PER_TURN: Final = 128


class PodSink:
    """Feeds pods."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        #: Whether a list has been taken: nothing is decided before, so nobody reads the cache.
        self._is_read = False
        #: Reads the pods of the list that comes now; None between two lists.
        self._read: Callable[[Pod], SeenPod] | None = None

    def keep(self, obj: Pod) -> Seen | str:
        """What the cache keeps of a pod; of one that it knows in this very version no more than its UID."""
        meta = obj.metadata
        self._cache.traces.seen(obj)
        is_known = self._cache.cluster.has_seen(meta.uid, meta.resource_version)
        if is_known:
            return meta.uid
        if self._read is None:
            self._read = self._cache.cluster.list_reader()
        return self._cache.read_pod(obj, self._read)

    async def replace(self, kept: Sequence[Seen | str]) -> None:
        """Take a list: what is not in it is gone."""
        self._read = None
        present = {one if isinstance(one, str) else one.pod.uid for one in kept}
        for uid in self._cache.cluster.pods_beside(present):
            self._cache.forget_pod(uid)
            self._cache.traces.gone(uid)
        changed = (one for one in kept if not isinstance(one, str))
        if self._is_read:
            for one in changed:
                self._cache.take_pod(one)
        else:
            await in_turns(changed, self._cache.take_pod)
            while self._cache.cluster.refresh_some(_NODES_PER_TURN):
                await anyio.lowlevel.checkpoint()
            self._is_read = True
        self._cache.on_device_freed("")  # what ended in the gap was not seen to end

    def upsert(self, obj: Pod) -> None:
        """Take a pod."""
        self._cache.traces.seen(obj)
        self._cache.note_pod(obj)

    def delete(self, obj: Pod) -> None:
        """Take a pod's last state."""
        self._cache.forget_pod(obj.metadata.uid)
        self._cache.traces.gone(obj.metadata.uid)


class NodeSink:
    """Feeds nodes."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def keep(self, obj: Node) -> NodeRecord:
        """What the cache keeps of a node."""
        return self._cache.cluster.read_node(obj)

    async def replace(self, kept: Sequence[NodeRecord]) -> None:
        """Take a list: what is not in it is gone."""
        for name in self._cache.cluster.replace_nodes(kept):
            self._cache.ask_again(name)
        self._note()

    def upsert(self, obj: Node) -> None:
        """Take a node."""
        if self._cache.cluster.upsert_node(obj):
            self._cache.ask_again(obj.metadata.name)
        self._note()

    def _note(self) -> None:
        if self._cache.cluster.joining:
            self._cache.on_joining.set()
        self._cache.wake.set()

    def delete(self, obj: Node) -> None:
        """Take a node's last state."""
        self._cache.cluster.remove_node(obj.metadata.name)
        self._cache.wake.set()


class PodGroupSink:
    """Feeds PodGroups."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def keep(self, obj: PodGroup) -> SeenGroup:
        """What the cache keeps of a PodGroup."""
        return self._cache.read_pod_group(obj)

    async def replace(self, kept: Sequence[SeenGroup]) -> None:
        """Take a list: what is not in it is gone."""
        present = {group.key for group in kept}
        self._cache.cluster.remove_pod_groups_but(present)
        for key in [key for key in self._cache.plans if key not in present]:
            del self._cache.plans[key]
        for key in self._cache.groups.known():
            if key not in present:
                self._cache.groups.drop(key)
        self._cache.finished &= present
        for group in kept:
            self._cache.take_pod_group(group)

    def upsert(self, obj: PodGroup) -> None:
        """Take a PodGroup."""
        self._cache.note_pod_group(obj)

    def delete(self, obj: PodGroup) -> None:
        """Take a PodGroup's last state."""
        self._cache.forget_pod_group(obj.metadata.namespace, obj.metadata.name)


class RequestSink:
    """Feeds BindRequests, ours and those of an earlier leader."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._present: set[str] = set()

    def keep(self, obj: BindRequest) -> BindRequest:
        """All of it: there are few, and not for long."""
        return obj

    async def replace(self, kept: Sequence[BindRequest]) -> None:
        """Take a list: what is not in it is gone."""
        present = {request.metadata.uid for request in kept}
        self._cache.cluster.replace_bind_requests(kept)
        for uid in sorted(self._present - present):
            self._cache.on_request_gone(uid)
        self._cache.on_requests_listed(present)
        self._present = present
        self._cache.wake.set()

    def upsert(self, obj: BindRequest) -> None:
        """Take a BindRequest."""
        self._present.add(obj.metadata.uid)
        self._cache.cluster.upsert_bind_request(obj)
        self._cache.wake.set()

    def delete(self, obj: BindRequest) -> None:
        """Take a BindRequest's last state."""
        self._present.discard(obj.metadata.uid)
        self._cache.cluster.remove_bind_request(obj.metadata.namespace, obj.metadata.name)
        self._cache.on_request_gone(obj.metadata.uid)
        self._cache.wake.set()
