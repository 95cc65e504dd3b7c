"""What NVIDIA's ClusterPolicy says about CDI, read at the start and again every few minutes.

It changes when an administrator reconfigures all nodes, which alone takes minutes: a watch would be one more
connection for an object that most clusters never change, and many don't have. Nothing of it can stop a component: no
such kind, no right, an object that does not decode, or a server that does not answer leave CDI off at first, and later
what was last known.

Scheduler and binder, and the replicas of each, may see a change minutes apart. Each container's devices are written
once, whole, by one of them, and never read back (the grant has the UUIDs), so no two have to agree: a pod that got
its devices in the form of a moment ago does not start, sees nothing, and is created again, as any pod that met
nodes in the middle of their reconfiguration.
"""

from __future__ import annotations

import logging
from typing import Final

import anyio
from anyio.abc import TaskStatus

from gpu import container_devices
from gpu.container_devices import Cdi
from kube.client.api import Api
from kube.client.errors import ApiError, Forbidden, NotFound, Undecodable
from kube.client.resources import CLUSTER_POLICIES
from wire.api_groups import ClusterPolicy

_log: Final = logging.getLogger(__name__)

_AGAIN_S: Final = 180.0
#: A first answer is waited for so long, with these pauses: what is bound without it may be named in the wrong form.
_FIRST_ANSWER_S: Final = 30.0
_PAUSE_S: Final = 1.0
#: A leader waits no longer for a further look: it knows what was seen some minutes ago.
_CATCH_UP_S: Final = 2.0


class CdiNames:
    """``is_on``: whether devices are named as CDI does, now.

    It is followed as reflectors are (kube/lead/replica.py).
    """

    def __init__(self, api: Api, chosen: Cdi) -> None:
        self._api = api
        self._chosen = chosen
        self._told = ""
        self.is_on = chosen is Cdi.ON

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Follow the ClusterPolicy until cancelled, if it decides. Started when it was looked at."""
        if self._chosen is Cdi.AUTO:
            await self._first()
        task_status.started()
        while self._chosen is Cdi.AUTO:
            await anyio.sleep(_AGAIN_S)
            await self._look()

    async def catch_up(self) -> None:
        """Look again, once, but not for long."""
        if self._chosen is Cdi.AUTO:
            with anyio.move_on_after(_CATCH_UP_S):
                await self._look()

    async def _first(self) -> None:
        with anyio.move_on_after(_FIRST_ANSWER_S):
            while True:
                if await self._look():
                    return
                await anyio.sleep(_PAUSE_S)

    async def _look(self) -> bool:
        """Read the first ClusterPolicy; return whether it is known what that says."""
        try:
            listing = await self._api.list(CLUSTER_POLICIES)
        except NotFound:
            self._take(None, "there is no ClusterPolicy")
            return True
        except ApiError as error:
            self._tell(f"the ClusterPolicy can't be read, so {_form(self.is_on)} stays: {error}", logging.WARNING)
            return isinstance(error, (Forbidden, Undecodable))
        first = listing.items[0] if listing.items else None
        more = f", the first of {len(listing.items)}" if len(listing.items) > 1 else ""
        self._take(first, f"the ClusterPolicy {first.metadata.name}{more}" if first else "there is no ClusterPolicy")
        return True

    def _take(self, policy: ClusterPolicy | None, why: str) -> None:
        self.is_on = container_devices.is_on(policy)
        self._tell(f"containers are told devices by {_form(self.is_on)}: {why}", logging.INFO)

    def _tell(self, text: str, level: int) -> None:
        if text != self._told:
            self._told = text
            _log.log(level, "%s", text)


def _form(is_on: bool) -> str:
    return "CDI names" if is_on else "UUIDs"
