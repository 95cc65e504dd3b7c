"""All Queues, read from the API server when a Queue is reviewed.

They are read and not watched: a queue is often created right after its parent, and a watch that lags would warn of a
parent that exists. Queues are written by administrators, so reviews are rare; status is written beside the webhook.
"""

from __future__ import annotations

import logging
from typing import Final

import anyio

from admission.objects.others import Others
from kube.client.api import Api
from kube.client.errors import ApiError
from kube.client.resources import QUEUES

_log: Final = logging.getLogger(__name__)

#: Of the 5 s that the API server waits for a review.
READ_WITHIN_S: Final = 2.0


class KnownQueues:
    """Reads all queues; one list at a time, which serves all reviews that came before it began."""

    def __init__(self, api: Api, *, within_s: float = READ_WITHIN_S) -> None:
        self._api = api
        self._within_s = within_s
        self._reading = anyio.Lock()
        #: Numbers of the last list that was started, and of the last that ended.
        self._started = self._ended = 0
        self._last: Others | None = None

    async def __call__(self) -> Others | None:
        """Return all queues; None if they can't be read completely within the time."""
        seen = self._started
        async with self._reading:
            if self._ended <= seen:
                self._started = number = self._started + 1
                self._last = await self._read()
                self._ended = number
            return self._last

    async def _read(self) -> Others | None:
        try:
            with anyio.fail_after(self._within_s):
                listing = await self._api.list(QUEUES)
        except (ApiError, TimeoutError) as error:
            _log.warning("the Queues can't be read, so a Queue is reviewed without the others: %s", error)
            return None
        return Others(listing.items)
