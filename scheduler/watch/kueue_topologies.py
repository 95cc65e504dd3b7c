"""Kueue's Topology objects, read at the start and again every minute.

Most clusters don't have the kind, and where it is, Kueue lets nobody change the levels of an object. A watch would be
one more connection for that, and one that warns and tries again where there is nothing to read.
"""

from __future__ import annotations

import logging
from typing import Final

import anyio
from anyio.abc import TaskStatus

from kube.client.api import Api
from kube.client.errors import ApiError, Forbidden, NotFound
from kube.client.resources import KUEUE_TOPOLOGIES
from scheduler.core.convert.pod_groups import topology_record
from scheduler.core.model.records import TopologyRecord
from scheduler.watch.cache import Cache

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
