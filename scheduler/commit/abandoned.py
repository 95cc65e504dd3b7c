"""Plans of gangs that nobody carries out any more, since their scheduler died.

Such a plan keeps its room from everybody, and its pods from being decided on again. It is taken back (docs/design/
protocol.md, Gangs):

- *Stale* is one whose unbound members are not on their way: they are fenced, then the plan is removed.
- *Stuck* is one that was handed to the binder in part: it waits for the rest as long as for a device to tell its name
  (binder/settings.py). What was handed over is taken back; the binder withdraws it, and then the plan is stale.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import anyio
import msgspec

from kube import binding
from kube.binding import FenceText, Identity
from kube.client.api import Api
from kube.client.clock import Clock
from kube.client.errors import ApiError, Conflict, NotFound
from kube.client.resources import BIND_REQUESTS, POD_GROUPS
from scheduler.commit import handing
from scheduler.core.model.records import PodGroupRecord, PodRecord
from scheduler.watch.cache import Cache
from wire import names

_log: Final = logging.getLogger(__name__)
#: Before what could not be taken back is tried again.
_AGAIN_S: Final = 1.0
#: So long a plan must stay handed over in the same part to count as stuck: another scheduler may be handing it over.
#: Longer than a lost write is waited for, and shorter than the binder's patience.
_STUCK_AFTER_S: Final = 10.0

_TAKEN_BACK = FenceText("Withdrawn: the gang's plan was taken back", "Failed to bind pod: its gang is decided on again")

#: Namespace and name of a PodGroup.
Key = tuple[str, str]


class _Part(msgspec.Struct, frozen=True):
    """What was handed over of a plan (its text): UID of the BindRequest by UID of the pod."""

    plan: str
    handed: dict[str, str]


class AbandonedPlans:
    """Looks for plans that nobody carries out, and takes them back.

    ``is_starting``: whether the gang of a PodGroup is being committed here. ``is_own``: whether this process wrote this
    plan of a PodGroup.
    """

    def __init__(
        self,
        api: Api,
        cache: Cache,
        *,
        is_starting: Callable[[Key], bool],
        is_own: Callable[[Key, str], bool],
        clock: Clock,
    ) -> None:
        self._api = api
        self._cache = cache
        self._is_starting = is_starting
        self._is_own = is_own
        self._clock = clock
        #: PodGroups whose plan is being taken back.
        self._busy: set[Key] = set()
        #: PodGroups whose plan was handed over in part, and is watched for whether it goes on.
        self._watched: set[Key] = set()

    # --- stale plans ---------------------------------------------------------------------------------------------
    def stale(self) -> list[Key]:
        """PodGroups whose plan has members that are unbound and not on their way."""
        return [key for key in self._cache.cluster.open_plans() if self._is_left(key) and self._is_stale(key)]

    def _is_left(self, key: Key) -> bool:
        """Whether nobody here is at work on this plan."""
        return key not in self._busy and not self._is_starting(key)

    def _is_stale(self, key: Key) -> bool:
        group = self._cache.cluster.pod_group(*key)
        if group is None:
            return False
        unbound = [pod.uid for pod in self._members(group) if not pod.node]
        return bool(unbound) and not any(self._cache.cluster.is_in_flight(uid) for uid in unbound)

    def _members(self, group: PodGroupRecord) -> list[PodRecord]:
        """Pods of a plan that are there."""
        found = (self._cache.cluster.pod(uid) for uid in group.planned)
        return [pod for pod in found if pod is not None]

    async def take_back(self, key: Key) -> None:
        """Fence the unbound members of another incarnation's plan, then remove the plan."""
        self._busy.add(key)
        try:
            await self._take_back(key)
        except ApiError as error:
            _log.warning("the plan of gang %s/%s can't be taken back now: %s", *key, error)
            await anyio.sleep(_AGAIN_S)
        finally:
            self._busy.discard(key)
            self._cache.wake.set()

    async def _take_back(self, key: Key) -> None:
        group = self._cache.cluster.pod_group(*key)
        text = self._cache.plans.get(key, "")
        if group is None:
            return
        if not self._is_own(key, text):
            for uid in group.planned:
                await self._fence(uid)
        namespace, name = key
        try:
            taken = await self._api.patch(
                POD_GROUPS,
                name,
                {"metadata": {"annotations": {names.PLAN: None}}},
                namespace=namespace,
                uid=group.uid,
                resource_version=group.rv,
            )
        except (Conflict, NotFound):
            # What is known of the PodGroup is old, and all would be done again at once until a watch tells.
            await anyio.sleep(_AGAIN_S)
            taken = await self._api.get(POD_GROUPS, name, namespace=namespace)
        self._cache.note_pod_group(taken)

    async def _fence(self, uid: str) -> None:
        """Make sure that no Binding of the earlier incarnation can land on this member any more."""
        record = self._cache.cluster.pod(uid)
        if record is None or record.node:
            return
        identity = Identity(record.namespace, record.name, uid)
        pod = await binding.read(self._api, identity)
        if pod is None:
            return
        if not pod.spec.node_name:
            rv = pod.metadata.resource_version
            attempt = binding.named_at("plan", rv)
            pod = await binding.fence(self._api, identity, rv=rv, attempt=attempt, text=_TAKEN_BACK, clock=self._clock)
        if pod is not None:
            self._cache.note_pod(pod)

    # --- stuck plans ---------------------------------------------------------------------------------------------
    def handed_over_in_part(self) -> list[Key]:
        """PodGroups whose plan looks so, and is not watched yet."""
        open_plans = self._cache.cluster.open_plans()
        return [key for key in open_plans if key not in self._watched and self._part(key) is not None]

    async def free_if_stuck(self, key: Key) -> None:
        """Take back what was handed over of a plan, unless it goes on: then it is waited for."""
        self._watched.add(key)
        try:
            before, part = None, self._part(key)
            while part is not None and part != before:
                await anyio.sleep(_STUCK_AFTER_S)
                before, part = part, self._part(key)
            if part is not None:
                await self._free(key, part)
        except ApiError as error:
            _log.warning("the plan of gang %s/%s can't be freed now: %s", *key, error)
        finally:
            self._watched.discard(key)
            self._cache.wake.set()

    def _part(self, key: Key) -> _Part | None:
        """What was handed over of another scheduler's plan whose pods are all there, unbound, and need the others."""
        group = self._cache.cluster.pod_group(*key)
        text = self._cache.plans.get(key, "")
        if group is None or not self._is_left(key) or self._is_own(key, text) or key in self._cache.finished:
            return None
        members = self._members(group)
        if len(members) < len(group.planned) or any(pod.node for pod in members):
            return None
        handed = self._handed(members)
        return _Part(text, handed) if 0 < len(handed) < len(members) else None

    def _handed(self, members: list[PodRecord]) -> dict[str, str]:
        found = ((pod, self._cache.cluster.hand_over(pod.namespace, pod.name)) for pod in members)
        return {pod.uid: record.uid for pod, record in found if record is not None and record.pod_uid == pod.uid}

    async def _free(self, key: Key, part: _Part) -> None:
        group = self._cache.cluster.pod_group(*key)
        members = self._members(group) if group is not None else []
        if not await self._is_stuck(members, part):
            return
        _log.warning("gang %s/%s was handed to the binder in part, and nobody goes on: it is taken back", *key)
        for pod in members:
            if pod.uid in part.handed:
                await handing.take_back(self._api, pod.namespace, pod.name, part.handed[pod.uid])

    async def _is_stuck(self, members: list[PodRecord], part: _Part) -> bool:
        """Read whether the others are really not handed over, and nobody is bound.

        Then the binder never had the whole gang: BindRequests of one that it has stay until all are bound, or fail.
        """
        for pod in members:
            if pod.uid not in part.handed and await self._is_requested(pod):
                return False
        for pod in members:
            found = await binding.read(self._api, Identity(pod.namespace, pod.name, pod.uid))
            if found is None or found.spec.node_name:
                return False
        return True

    async def _is_requested(self, pod: PodRecord) -> bool:
        try:
            await self._api.get(BIND_REQUESTS, pod.name, namespace=pod.namespace)
        except NotFound:
            return False
        return True
