"""The ConfigMap that keeps the use of queues over time: of a leader for the next one, and for programs that show it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from kube.client.api import Api
from kube.client.errors import ApiError, Forbidden, NotFound
from kube.client.patience import until_answered
from kube.client.resources import CONFIG_MAPS
from scheduler.core.model.settings import NodePool, own_name
from wire import names

_log: Final = logging.getLogger(__name__)


class QueueUseMap:
    """Reads and writes it, in the scheduler's namespace."""

    def __init__(self, api: Api, pool: NodePool | None) -> None:
        self._api = api
        self.name = own_name(names.QUEUE_USE, pool)

    async def read(self) -> Mapping[str, str]:
        """What is kept; nothing if there is none, or it may not be read."""
        return await until_answered(self._read)

    async def _read(self) -> Mapping[str, str]:
        try:
            found = await self._api.get(CONFIG_MAPS, self.name, namespace=names.SYSTEM_NAMESPACE)
        except NotFound:
            return {}
        except Forbidden as error:
            _log.error("use of queues over time is counted from now on, as the record may not be read: %s", error)
            return {}
        return found.data or {}

    async def write(self, data: Mapping[str, str]) -> bool:
        """Write these keys; return whether they are written. If not, the caller tries again later."""
        try:
            try:
                await self._api.patch(CONFIG_MAPS, self.name, {"data": data}, namespace=names.SYSTEM_NAMESPACE)
            except NotFound:
                new = {"metadata": {"name": self.name}, "data": data}
                await self._api.create(CONFIG_MAPS, new, namespace=names.SYSTEM_NAMESPACE)
        except ApiError as error:
            _log.warning("use of queues was not written to ConfigMap %s, again later: %s", self.name, error)
            return False
        return True
