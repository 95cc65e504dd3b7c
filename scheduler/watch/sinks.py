"""What the cache is fed through: reflectors of pods, nodes, PodGroups and BindRequests, and lists.

Listed and not watched are labels of pods that a PodDisruptionBudget may select, and Kueue's Topology objects. Labels
are kept where there is a budget, and read once where the first appears: nobody else asks for labels of bound pods. Most
clusters don't have Kueue's kind, and where it is, nobody may change the levels of an object, so it is read at the start
and again every minute.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

import anyio
import anyio.lowlevel
from anyio.abc import TaskStatus

from kube.client.api import Api
from kube.client.errors import ApiError, Forbidden, NotFound
from kube.client.resources import KUEUE_TOPOLOGIES, PODS
from kube.client.retry import until_answered
from kube.watch.reflector import in_turns
from kube.watch.signal import Signal
from scheduler.core.convert.pod_groups import topology_record
from scheduler.core.model.records import NodeRecord, SeenPod, TopologyRecord
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
        self._traces = cache.traces
        #: Whether a list has been taken: nothing is decided before, so nobody reads the cache.
        self._is_read = False
        #: Reads the pods of the list that comes now; None between two lists.
        self._read: Callable[[Pod], SeenPod] | None = None

    def keep(self, obj: Pod) -> Seen | str:
        """What the cache keeps of a pod; of one that it knows in this very version no more than its UID."""
        meta = obj.metadata
        if self._traces is not None:
            self._traces.seen(obj)
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
            if self._traces is not None:
                self._traces.gone(uid)
        changed = (one for one in kept if not isinstance(one, str))
        if self._is_read:
            for one in changed:
                self._cache.take_pod(one)
        else:
            await in_turns(changed, self._cache.take_pod)
            while self._cache.cluster.refresh_some(_NODES_PER_TURN):
                await anyio.lowlevel.checkpoint()
            self._is_read = True
        self._cache.listeners.device_freed("")  # what ended in the gap was not seen to end

    def upsert(self, obj: Pod) -> None:
        """Take a pod."""
        if self._traces is not None:
            self._traces.seen(obj)
        self._cache.note_pod(obj)

    def delete(self, obj: Pod) -> None:
        """Take a pod's last state."""
        self._cache.forget_pod(obj.metadata.uid)
        if self._traces is not None:
            self._traces.gone(obj.metadata.uid)


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
        present = {request.metadata.uid for request in kept if request.metadata.deletion_timestamp is None}
        self._cache.cluster.replace_bind_requests(kept)
        for uid in sorted(self._present - present):
            self._cache.listeners.request_gone(uid)
        self._cache.listeners.requests_listed(present)
        self._present = present
        self._cache.wake.set()

    def upsert(self, obj: BindRequest) -> None:
        """Take a BindRequest; one that is being deleted counts as gone: a finalizer may keep it."""
        if obj.metadata.deletion_timestamp is not None:
            self.delete(obj)
            return
        self._present.add(obj.metadata.uid)
        self._cache.cluster.upsert_bind_request(obj)
        self._cache.wake.set()

    def delete(self, obj: BindRequest) -> None:
        """Take a BindRequest's last state."""
        self._present.discard(obj.metadata.uid)
        self._cache.cluster.remove_bind_request(obj.metadata.namespace, obj.metadata.name)
        self._cache.listeners.request_gone(obj.metadata.uid)
        self._cache.wake.set()


_BOUND: Final = "spec.nodeName!="


class BudgetLabels:
    """Reads pods of namespaces that have got a budget. What comes later the watch of pods shows."""

    def __init__(self, api: Api, cache: Cache) -> None:
        self._api = api
        self._cache = cache
        self._wanted: dict[str, None] = {}
        self._news = Signal()

    def want(self, namespace: str) -> None:
        """Have the pods of a namespace read, as it has got its first budget."""
        self._wanted[namespace] = None
        self._news.set()

    async def run(self) -> None:
        """Read until cancelled."""
        while True:
            while self._wanted:
                namespace = next(iter(self._wanted))
                del self._wanted[namespace]
                await until_answered(lambda: self._read(namespace))  # noqa: B023 - awaited right here
                self._cache.wake.set()
            await self._news.wait()

    async def _read(self, namespace: str) -> None:
        if not self._cache.preemption.has_budget(namespace):
            return
        listing = await self._api.digest(PODS, _seen, namespace=namespace, field_selector=_BOUND)
        for uid, rv, labels in listing.items:
            self._cache.note_labels(uid, namespace, rv, labels)


def _seen(pod: Pod) -> tuple[str, str, dict[str, str]]:
    return pod.metadata.uid, pod.metadata.resource_version, pod.metadata.labels or {}


_log: Final = logging.getLogger(__name__)

_AGAIN_S: Final = 60.0
#: Nobody waits longer for an answer: gangs that name such a Topology wait until it comes.
_ANSWER_S: Final = 2.0


class KueueTopologies:
    """Keeps Kueue's Topologies in the core, in the newest version that is served; none where none is.

    It is followed as reflectors are (kube/lead/replica.py).
    """

    def __init__(self, api: Api, cache: Cache) -> None:
        self._api = api
        self._cache = cache
        self._facts = cache.cluster.topologies.of_kueue
        self._facts.expect()
        self._told = ""

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Keep in step until cancelled. Started when they were read, or no answer came in time."""
        await self.catch_up()
        task_status.started()
        while True:
            await anyio.sleep(_AGAIN_S)
            await self._look()

    async def catch_up(self) -> None:
        """Read them again, but not for long."""
        with anyio.move_on_after(_ANSWER_S):
            await self._look()

    async def _look(self) -> None:
        """Read them. What is known stays known where that fails, and is out of step where it is not allowed."""
        try:
            listed = await self._listed()
        except Forbidden as error:
            self._tell(error)
            self._facts.note_in_step(False)
        except ApiError as error:
            _log.debug("topologies.kueue.x-k8s.io can't be listed: %s; they are listed again in a minute", error)
            return
        else:
            self._told = ""
            self._facts.replace(listed)
            self._facts.note_in_step(True)
        self._cache.wake.set()

    async def _listed(self) -> list[TopologyRecord]:
        """The objects of the first version that is served; none if none is. Raises ApiError.

        One that does not decode is left out: it does not hold up what the others are named for.
        """
        for resource in KUEUE_TOPOLOGIES:
            try:
                return (await self._api.digest(resource, topology_record)).items
            except NotFound:
                continue
        return []

    def _tell(self, error: ApiError) -> None:
        if self._told != str(error):
            self._told = str(error)
            _log.warning(
                "topologies.kueue.x-k8s.io can't be listed: %s; allow the verb list on them in the ClusterRole of this "
                "component. Until then gangs wait that name a Topology which KAI's objects don't have",
                error,
            )
