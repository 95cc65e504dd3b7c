"""PodGroups of groups that a LeaderWorkerSet has no more are deleted: they belong to the whole set, and outlive these.

A PodGroup is deleted when the set, read again, has fewer groups, and no pod of the group is there, not even one that
ends: until then the PodGroup says whose queue it is charged to. A pod that comes meanwhile has it made again.

Each look reads a set once, and a bounded number of PodGroups of each namespace, those first that have waited longest:
no namespace has others wait for the reads of its own.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

import anyio
import msgspec

from kube.client import errors
from kube.client.api import Api
from kube.client.resources import POD_GROUPS, PODS
from kube.telemetry.logevents import LogEvent
from kube.telemetry.logevents import about as told
from podgrouper.core import fields
from podgrouper.core.answers import Refused
from podgrouper.core.patches import Live
from podgrouper.core.rules import lws
from podgrouper.read.owners import Owners
from podgrouper.telemetry.events import Emit, Wrote
from podgrouper.watch.view import View
from wire import gangs
from wire.core import OwnerReference

_log: Final = logging.getLogger(__name__)

#: How often PodGroups without pods are looked at.
EVERY_S: Final = 30.0
#: Of a namespace at a time.
MOST: Final = 32
_SET: Final = OwnerReference(api_version="leaderworkerset.x-k8s.io/v1", kind="LeaderWorkerSet")


class ScaledAway:
    """Looks at PodGroups that no pod names."""

    def __init__(self, api: Api, *, view: View, owners: Owners, emit: Emit) -> None:
        self._api = api
        self._view = view
        self._owners = owners
        self._emit = emit
        #: PodGroup (namespace and name) -> when it was looked at (event loop's time).
        self._looked_at: dict[tuple[str, str], float] = {}

    async def run(self) -> None:
        """Delete them regularly, until cancelled."""
        while True:
            await anyio.sleep(EVERY_S)
            began = anyio.current_time()
            for group in list(self._next(began)):
                try:
                    await self._look(group, began)
                except (errors.ApiError, Refused) as error:
                    _log.info("PodGroup %s/%s is not deleted yet: %s", group.namespace, group.name, error)
                except Exception:  # noqa: BLE001 - grouping goes on
                    _log.exception(
                        "PodGroup %s/%s can't be looked at, by a fault of Moorage's", group.namespace, group.name
                    )

    def _next(self, now: float) -> Iterator[Live]:
        """PodGroups to be looked at now."""
        there = {
            (group.namespace, group.name): group
            for group in self._view.without_pods()
            if group.written and lws.group_of(group.name, group.owners) is not None
        }
        self._looked_at = {key: self._looked_at.get(key, -math.inf) for key in there}
        taken = Counter[str]()
        for key in sorted(there, key=self._looked_at.__getitem__):
            if taken[key[0]] < MOST:
                taken[key[0]] += 1
                self._looked_at[key] = now
                yield there[key]

    async def _look(self, group: Live, since: float) -> None:
        """Delete a PodGroup if its group is no more. Raises ApiError; Refused for a set that no controller takes.

        The set is read after ``since``.
        """
        found = lws.group_of(group.name, group.owners)
        if found is None:
            return
        uid, name, index = found
        reference = msgspec.structs.replace(_SET, name=name, uid=uid)
        owner = await self._owners.read(reference, group.namespace, since=since)
        if not isinstance(owner, Mapping) or index < (fields.count(owner, "spec.replicas", 1) or 0):
            return
        selector = f"{gangs.LWS_NAME}={name},{gangs.LWS_GROUP_INDEX}={index}"
        if (await self._api.list(PODS, namespace=group.namespace, label_selector=selector)).items:
            return
        await self._api.delete(
            POD_GROUPS, group.name, namespace=group.namespace, uid=group.uid, resource_version=group.rv
        )
        self._emit(Wrote.DELETED)
        _log.info("PodGroup deleted", extra=told(LogEvent.GROUP_DELETED, group=f"{group.namespace}/{group.name}"))
