"""What is listed and not watched: labels of pods that a PodDisruptionBudget may select, and Kueue's Topology objects.

Labels are kept where there is a budget, and read once where the first appears: nobody else asks for labels of bound
pods. Most clusters don't have Kueue's kind, and where it is, nobody may change the levels of an object, so it is read
at the start and again every minute.
"""

from __future__ import annotations

import logging
from typing import Final

import anyio
from anyio.abc import TaskStatus

from kube.client.api import Api
from kube.client.backoff import until_answered
from kube.client.errors import ApiError, Forbidden, NotFound
from kube.client.resources import KUEUE_TOPOLOGIES, PODS
from kube.watch.signal import Signal
from scheduler.core.convert.pod_groups import topology_record
from scheduler.core.model.records import TopologyRecord
from scheduler.watch.cache import Cache
from wire.core import Pod

_BOUND: Final = "spec.nodeName!="


class BudgetLabels:
    """Reads pods of namespaces that have got a budget. What comes later the watch of pods shows."""

    def __init__(self, api: Api, cache: Cache) -> None:
        self._api = api
        self._cache = cache
        self._wanted: dict[str, None] = {}
        self._news = Signal()
        cache.room.on_namespace = self._note

    def _note(self, namespace: str) -> None:
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
        if not self._cache.room.has_budget(namespace):
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
