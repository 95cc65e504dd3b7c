"""Asks autoscalers for nodes: makes, tells and deletes scaling pods (docs/design/autoscaling.md).

Decisions never wait for this, and it never waits for them: now and then it looks at who was last said to wait for want
of nodes, and mends the difference to the scaling pods that are there. What fails is done again at the next look.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from typing import Any, Final

import anyio

from kube.client.api import Api
from kube.client.clock import Clock, monotonic_ns
from kube.client.errors import AlreadyExists, ApiError, BadRequest, Conflict, Forbidden, Invalid, NotFound
from kube.client.removal import remove
from kube.client.resources import PODS
from kube.telemetry.logevents import LogEvent, about
from kube.watch.reflector import Reflector
from kube.watch.signal import Signal
from scheduler.autoscale import scaling_pod
from scheduler.core.autoscale.scaling_pods import Create, Remove, Scaler, ScalingPod, Step, Tell
from scheduler.core.autoscale.unmet_demand import Want, wants
from scheduler.core.model.plan import Explain
from scheduler.core.model.settings import NodePool
from scheduler.settings import ScalingSettings
from scheduler.watch.cache import Cache
from wire.core import Pod
from wire.recent import Recent
from wire.rfc3339 import rfc3339
from wire.versions import is_older

_log: Final = logging.getLogger(__name__)
#: A look in which something was not answered is followed by a pause, doubled up to this.
_LONGEST_PAUSE_S: Final = 60.0
#: So much longer than its thinking, at least, is the pause after a look: 10,000 waiting shares take half a second.
_PAUSE_PER_LOOK: Final = 10
#: What the server will refuse again until somebody does something about it.
_LASTING: Final = (AlreadyExists, BadRequest, Forbidden, Invalid)


class Scaling:
    """Keeps as many scaling pods as there are devices that shares wait for."""

    def __init__(self, api: Api, cache: Cache, *, clock: Clock, settings: ScalingSettings) -> None:
        self._api = api
        self._cache = cache
        self._clock = clock
        self._settings = settings
        self._scaler = Scaler(patience_s=settings.patience_s, cool_down_s=settings.cool_down_s)
        self._has_decided = False
        #: How long the last look has kept everything else from running.
        self._thought_s = 0.0
        self._wake = Signal()
        self._decided = Signal()
        self._pool = cache.cluster.settings.pool
        self._sink = ScalingPodSink(settings.namespace, self._wake, self._pool)

    def reflector(self, rng: random.Random) -> Reflector[Pod]:
        """What keeps us in step with the scaling pods."""
        namespace, selector = self._settings.namespace, scaling_pod.SELECTOR
        return Reflector(self._api, PODS, self._sink, namespace=namespace, label_selector=selector, rng=rng)

    def decided(self) -> None:
        """A decision was made: other pods may wait now, or for other reasons."""
        self._has_decided = True
        self._wake.set()
        self._decided.set()

    def forget_gone(self) -> None:
        """A period is over (wire/recent.py)."""
        self._sink.forget_gone()

    async def run(self) -> None:
        """Look whenever something has changed, until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._remove_whenever_served)
            tasks.start_soon(self._look_whenever_changed)

    async def _remove_whenever_served(self) -> None:
        """Delete at once what is there for pods that a decision has just given a place.

        An autoscaler that looked in between would see the place taken and the scaling pod waiting, and add a node. What
        is not answered is left to the next look.
        """
        while True:
            await self._decided.wait()
            for pod in self._sink.seen():
                if not pod.deleting and self._is_served(pod.source_uid):
                    await self._take(Remove(pod))

    def _is_served(self, uid: str) -> bool:
        cluster = self._cache.cluster
        record = cluster.pod(uid)
        return record is not None and (bool(record.node) or cluster.commits.is_spoken_for(uid))

    async def _look_whenever_changed(self) -> None:
        pause_s = self._settings.look_s
        while True:
            await self._wait()
            await anyio.sleep(pause_s)
            is_done = await self.look()
            least_s = max(self._settings.look_s, _PAUSE_PER_LOOK * self._thought_s)
            pause_s = least_s if is_done else max(least_s, min(pause_s * 2, _LONGEST_PAUSE_S))
            if not is_done:
                self._wake.set()

    async def _wait(self) -> None:
        at_s = self._scaler.wake_at_s
        with anyio.move_on_after(None if at_s is None else max(0.0, at_s - anyio.current_time())):
            await self._wake.wait()

    async def look(self) -> bool:
        """Mend what differs from what should be there; False if not all of it was answered."""
        if not self._has_decided:
            return True
        steps = self._think(self._cache.cluster.backlog.said.all())
        outcomes = [await self._take(step) for step in steps]
        return all(outcomes)

    def _think(self, explained: Sequence[Explain]) -> list[Step]:
        now_s = anyio.current_time()
        wanted = wants(self._cache.cluster, explained, now_ns=monotonic_ns(), memory_nano=self._settings.memory_nano)
        steps = self._scaler.steps(wanted, self._sink.seen(), now_s=now_s)
        self._thought_s = anyio.current_time() - now_s
        return steps

    async def _take(self, step: Step) -> bool:
        """Take one step; False if it is to be taken again soon."""
        try:
            match step:
                case Create(source=source):
                    await self._create(source)
                case Tell(pod=pod):
                    await self._tell(await self._api.get(PODS, pod.name, namespace=self._settings.namespace))
                case Remove(pod=pod):
                    await self._remove(pod)
        except (Conflict, NotFound):
            return True  # it changed meanwhile, and the watch will say how
        except ApiError as error:
            _log.warning("scaling pods: %s", error)
            return False
        return True

    async def _create(self, source: Want) -> None:
        """Make a scaling pod, if its source still waits, and the API server agrees. Raises ApiError."""
        if self._is_served(source.uid):
            return
        pod = await self._api.get(PODS, source.name, namespace=source.namespace)
        if pod.metadata.uid != source.uid or pod.spec.node_name or pod.metadata.deletion_timestamp is not None:
            return
        body = scaling_pod.manifest(pod, source.demand, self._settings, source.constraints.volumes, pool=self._pool)
        if body is None:
            self._scaler.cool(source.uid, now_s=anyio.current_time())
            return
        try:
            made = await self._api.create(PODS, body, namespace=self._settings.namespace)
        except _LASTING as error:
            self._scaler.cool(source.uid, now_s=anyio.current_time())
            _log.warning("no scaling pod for %s/%s: %s", source.namespace, source.name, error)
            return
        self._sink.upsert(made)
        place = f"{source.namespace}/{source.name}"
        extra = about(LogEvent.SCALING_MADE, pod=place, scaling_pod=made.metadata.name)
        _log.info("a scaling pod asks for a node", extra=extra)
        await self._tell(made)

    async def _tell(self, pod: Pod) -> None:
        """Say that it is unschedulable, at exactly the version that was looked at. Raises ApiError."""
        read = scaling_pod.read(pod, self._settings.namespace, self._pool)
        if read is None or read.is_told or read.is_spent:
            return
        told: dict[str, Any] = scaling_pod.unschedulable(pod, now=rfc3339(self._clock.now_ns()))
        answer = await self._api.patch(
            PODS,
            pod.metadata.name,
            told,
            namespace=pod.metadata.namespace,
            subresource="status",
            uid=read.uid,
            resource_version=read.rv,
        )
        self._sink.upsert(answer)

    async def _remove(self, pod: ScalingPod) -> None:
        """Delete a scaling pod, known by its UID. Raises ApiError."""
        await remove(self._api, PODS, pod.name, namespace=self._settings.namespace, uid=pod.uid)
        _log.info("a scaling pod is not needed any more", extra=about(LogEvent.SCALING_REMOVED, scaling_pod=pod.name))


class ScalingPodSink:
    """Follows scaling pods; what only looks like one is not kept."""

    def __init__(self, namespace: str, wake: Signal, pool: NodePool | None = None) -> None:
        self._namespace = namespace
        self._pool = pool
        self._wake = wake
        self._pods: dict[str, ScalingPod] = {}
        #: UIDs of those that are gone, against answers that come after the deletion was seen.
        self._gone: Recent[None] = Recent()

    def seen(self) -> list[ScalingPod]:
        """All scaling pods, as they were last seen."""
        return list(self._pods.values())

    def keep(self, obj: Pod) -> ScalingPod | None:
        """What is kept of a pod."""
        return scaling_pod.read(obj, self._namespace, self._pool)

    async def replace(self, kept: Sequence[ScalingPod | None]) -> None:
        """Take a list: what is not in it is gone."""
        before, self._pods = self._pods, {pod.uid: pod for pod in kept if pod is not None}
        for uid in before.keys() - self._pods.keys():
            self._gone.put(uid, None)
        self._wake.set()

    def upsert(self, obj: Pod) -> None:
        """Take a scaling pod, from the watch or as the answer to a write."""
        pod = self.keep(obj)
        known = self._pods.get(obj.metadata.uid)
        if pod is None or pod.uid in self._gone or (known is not None and is_older(pod.rv, known.rv)):
            return
        self._pods[pod.uid] = pod
        self._wake.set()

    def delete(self, obj: Pod) -> None:
        """Take a scaling pod's last state."""
        self._gone.put(obj.metadata.uid, None)
        if self._pods.pop(obj.metadata.uid, None) is not None:
            self._wake.set()

    def forget_gone(self) -> None:
        """A period is over (wire/recent.py)."""
        self._gone.age(lambda _, __: False)
