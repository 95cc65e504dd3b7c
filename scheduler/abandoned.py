"""Plans of gangs that nobody carries out any more: of a scheduler that died, or whose BindRequests somebody deleted.

Such a plan keeps its room from everybody, and its pods from being decided on anew. It is taken back (docs/design/
protocol.md, Gangs):

- *Stale* is one whose unbound members are not on their way: they are fenced, then the plan is removed.
- *Stuck* is one that was handed to the binder in part: it waits for the rest as long as for a device to tell its name
  (binder/settings.py). What was handed over is taken back; the binder withdraws it, and then the plan is stale.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

import anyio

from kube import binding
from kube.api import Api
from kube.binding import FenceText, Identity
from kube.clock import Clock
from kube.errors import ApiError, Conflict, NotFound
from kube.patience import until_answered
from kube.resources import BIND_REQUESTS, POD_GROUPS
from scheduler import handing
from scheduler.cache import Cache
from scheduler.core.records import BindRequestRecord, PodGroupRecord, PodRecord
from wire import names

_log: Final = logging.getLogger(__name__)
#: Before what could not be taken back is tried again.
_AGAIN_S: Final = 1.0
#: So long a plan must be there in part before it counts as stuck: another scheduler may be handing it over.
_STUCK_AFTER_S: Final = 5.0

_TAKEN_BACK = FenceText("Withdrawn: the gang's plan was taken back", "Failed to bind pod: its gang is decided on anew")

#: Namespace and name of a PodGroup.
Key = tuple[str, str]


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
        #: PodGroups whose plan is being taken back, wholly or what was handed over of it.
        self._busy: set[Key] = set()
        #: PodGroups whose plan was handed over in part: watched for whether it goes on, and those that did not.
        self._watched: set[Key] = set()
        self._stuck: set[Key] = set()

    # --- stale plans ---------------------------------------------------------------------------------------------
    def stale(self) -> list[Key]:
        """PodGroups whose plan has members that are unbound and not on their way."""
        return [key for key in sorted(self._cache.plans) if self._is_left(key) and self._is_stale(key)]

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
        """PodGroups whose plan has begun to look so, each once. Whoever asks has to ``watch`` them."""
        known = self._watched | self._stuck
        found = [key for key in sorted(self._cache.plans) if key not in known and self._is_in_part(key)]
        self._watched.update(found)
        return found

    async def watch(self, key: Key) -> None:
        """Give who may be at work on a plan some time; if it is as it was then, it is stuck."""
        text = self._cache.plans.get(key)
        await anyio.sleep(_STUCK_AFTER_S)
        self._watched.discard(key)
        if self._cache.plans.get(key) == text and self._is_in_part(key):
            self._stuck.add(key)
        self._cache.wake.set()

    def stuck(self) -> list[Key]:
        """PodGroups whose plan is stuck, each once."""
        found = sorted(self._stuck)
        self._stuck.clear()
        return found

    async def free(self, key: Key) -> None:
        """Take back what was handed over of a plan that is stuck."""
        self._busy.add(key)
        try:
            await self._free(key)
        finally:
            self._busy.discard(key)
            self._cache.wake.set()

    async def _free(self, key: Key) -> None:
        group = self._cache.cluster.pod_group(*key)
        if group is None or not await self._is_incomplete(group):
            return
        _log.warning("gang %s/%s was handed to the binder in part, and nobody goes on: it is taken back", *key)
        async with anyio.create_task_group() as tasks:
            for record in self._handed(self._members(group)):
                taking = partial(handing.take_back, self._api, record.namespace, record.name, record.uid)
                tasks.start_soon(until_answered, taking)

    def _is_in_part(self, key: Key) -> bool:
        group = self._cache.cluster.pod_group(*key)
        if group is None or not self._is_left(key):
            return False
        members = self._members(group)
        if any(pod.node for pod in members):
            return False
        return 0 < len(self._handed(members)) < len(group.planned)

    def _handed(self, members: list[PodRecord]) -> list[BindRequestRecord]:
        """BindRequests of these pods."""
        found = ((pod, self._cache.cluster.hand_over(pod.namespace, pod.name)) for pod in members)
        return [record for pod, record in found if record is not None and record.pod_uid == pod.uid]

    async def _is_incomplete(self, group: PodGroupRecord) -> bool:
        """Read whether one that is not known to be handed over really is not. The binder has bound nobody then.

        For BindRequests of a gang that it has seen whole stay until all of its pods are bound. That one which is gone
        was bound before can't be read any more; then, too, nothing is lost but a little work.
        """
        members = self._members(group)
        handed = {record.pod_uid for record in self._handed(members)}
        for pod in members:
            if pod.uid not in handed:
                return await until_answered(partial(self._is_unrequested, pod))
        return len(members) < len(group.planned)

    async def _is_unrequested(self, pod: PodRecord) -> bool:
        try:
            await self._api.get(BIND_REQUESTS, pod.name, namespace=pod.namespace)
        except NotFound:
            found = await binding.read(self._api, Identity(pod.namespace, pod.name, pod.uid))
            return found is None or not found.spec.node_name
        return False
