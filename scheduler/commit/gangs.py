"""Commits of gangs: the plan first, then all books, then all bindings (docs/design/protocol.md, Gangs)."""

from __future__ import annotations

import logging
import random
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import anyio
import msgspec

from kube import binding
from kube.binding import FenceText, Identity
from kube.client.api import Api
from kube.client.clock import Clock, monotonic_ns
from kube.client.errors import ApiError, Conflict, NotFound, Refused
from kube.client.resources import BIND_REQUESTS, POD_GROUPS
from kube.client.retry import until_answered
from kube.telemetry.logevents import LogEvent, about
from scheduler.commit.bind_requests import HandedOver, NotHanded, create_request, request_manifest, take_back_request
from scheduler.commit.direct import Direct, Sharer
from scheduler.core.convert import pod_groups
from scheduler.core.model.plan import Gang, Placement
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
    """Takes back plans that nobody carries out any more, since their scheduler died.

    Such a plan keeps its room from everybody, and its pods from being decided on again. A *stale* one has unbound
    members that are not on their way: they are fenced, then the plan is removed. A *stuck* one has members that are,
    and for too long. ``is_starting``: whether the gang of a PodGroup is being committed here. ``is_own``: whether this
    process wrote this plan of a PodGroup.
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
                await take_back_request(self._api, pod.namespace, pod.name, part.handed[pod.uid])

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


#: The most pods of a gang that are named in a line.
_NAMED: Final = 3

#: From this number on, plans of PodGroups that are gone are forgotten.
_FORGET_ABOVE: Final = 1000
#: How long a watch may take to show a Binding before its pod is read.
_TOLD_WITHIN_S: Final = 1.0


class _NotPlanned(Exception):
    """Raised when the API server refuses a plan for good."""


class Gangs:
    """Starts gangs whole."""

    def __init__(
        self, api: Api, cache: Cache, *, direct: Direct, handed: HandedOver, clock: Clock, rng: random.Random
    ) -> None:
        self._api = api
        self._cache = cache
        self._direct = direct
        self._handed = handed
        self._rng = rng
        #: PodGroups that are being worked on here.
        self._busy: set[Key] = set()
        #: Plans that this process wrote: their members' attempts are known, nobody else's are.
        self._own: dict[Key, str] = {}
        self.abandoned = AbandonedPlans(api, cache, is_starting=self._is_starting, is_own=self._is_own, clock=clock)

    def _is_starting(self, key: Key) -> bool:
        return key in self._busy

    def _is_own(self, key: Key, text: str) -> bool:
        return key in self._own and self._own[key] in text

    async def start(self, gang: Gang) -> None:
        """Commit a gang whose placements are charged already."""
        self._busy.add(gang.pod_group)
        try:
            plan_id = str(uuid.UUID(int=self._rng.getrandbits(128), version=4))
            try:
                is_written = await self._write_plan(gang, plan_id)
            except _NotPlanned as error:
                self._fail(gang.placements, f"Refused: {error}")
                return
            if not is_written:
                self._overtaken(gang)
                return
            self._remember(gang.pod_group, plan_id)
            extra = about(LogEvent.GANG_STARTED, gang="/".join(gang.pod_group), pods=len(gang.placements))
            _log.info("started, by %s", "the binder" if gang.by_binder else "the scheduler", extra=extra)
            if gang.by_binder:
                await self._hand_over(gang, plan_id)
            else:
                await self._start_direct(gang, plan_id)
        except Exception:
            self._own.pop(gang.pod_group, None)  # what became of the members' attempts is not known here any more
            raise
        finally:
            self._busy.discard(gang.pod_group)
            self._cache.wake.set()

    def _remember(self, key: Key, plan_id: str) -> None:
        """Note a plan as ours; of PodGroups that are gone they are forgotten in bulk."""
        self._own[key] = plan_id
        if len(self._own) > 2 * len(self._cache.plans) + _FORGET_ABOVE:
            self._own = {known: own for known, own in self._own.items() if known in self._cache.plans}

    async def _write_plan(self, gang: Gang, plan_id: str) -> bool:
        """Write the plan at exactly the PodGroup's version that was decided on; an unknown outcome is read.

        False: somebody else has changed the PodGroup, so it is decided on again. Raises _NotPlanned.
        """
        namespace, name = gang.pod_group
        text = pod_groups.render(pod_groups.make(plan_id, gang.placements))
        try:
            group = await self._api.patch(
                POD_GROUPS,
                name,
                {"metadata": {"annotations": {names.PLAN: text}}},
                namespace=namespace,
                resource_version=gang.rv,
            )
        except (Conflict, NotFound):
            return False
        except ApiError as error:
            if isinstance(error, Refused) and not error.outcome_unknown:
                raise _NotPlanned(f"the plan can't be written on PodGroup {name}: {error}") from error
            _log.warning("the plan of gang %s/%s was not answered: %s", namespace, name, error)
            try:
                group = await until_answered(lambda: self._api.get(POD_GROUPS, name, namespace=namespace))
            except NotFound:
                return False
        self._cache.note_pod_group(group)
        return (group.metadata.annotations or {}).get(names.PLAN) == text

    async def _hand_over(self, gang: Gang, plan_id: str) -> None:
        """One BindRequest per member; the binder binds none before it has them all."""
        made: list[tuple[Placement, str]] = []
        refusals: list[str] = []

        async def hand(placement: Placement) -> None:
            pod = self._cache.cluster.pod(placement.pod_uid)
            if pod is None:
                return
            pool, members = self._cache.cluster.settings.pool, len(gang.placements)
            wanted = request_manifest(placement, pod.cls.request, pool=pool, plan=plan_id, members=members)
            try:
                request = await create_request(self._api, wanted)
            except NotHanded as error:
                refusals.append(f"Refused: {placement.name} can't be handed over: {error}")
                return
            made.append((placement, request.metadata.uid))
            self._handed.add(placement, request.metadata.uid)

        async with anyio.create_task_group() as tasks:
            for placement in gang.placements:
                tasks.start_soon(hand, placement)
        if len(made) == len(gang.placements):
            return
        handed = {placement.pod_uid for placement, _ in made}
        for placement, request_uid in made:
            await until_answered(
                partial(take_back_request, self._api, placement.namespace, placement.name, request_uid)
            )
        rest = [placement for placement in gang.placements if placement.pod_uid not in handed]
        if refusals:
            self._fail(rest, refusals[0])
        else:
            self._give_back(rest)

    async def _start_direct(self, gang: Gang, plan_id: str) -> None:
        members = len(gang.placements)
        sharers = [self._direct.sharer(placement, plan=plan_id, members=members) for placement in gang.placements]
        await self._direct.prepare(sharers)
        bound: list[Sharer] = []
        async with anyio.create_task_group() as tasks:
            for sharer in sharers:
                tasks.start_soon(self._finish, sharer, bound)
        if len(bound) < len(sharers):
            await self._look_at(bound)

    async def _finish(self, sharer: Sharer, bound: list[Sharer]) -> None:
        if await self._direct.finish(sharer):
            bound.append(sharer)

    async def _look_at(self, bound: Sequence[Sharer]) -> None:
        """Read those that are bound where others of their gang are not: a watch may tell it minutes late.

        Until then they would count as on their way, and the time in which the gang has to be whole would not begin.
        """
        await anyio.sleep(_TOLD_WITHIN_S)
        for sharer in bound:
            if not self._cache.cluster.is_in_flight(sharer.placement.pod_uid):
                continue
            pod = await until_answered(partial(binding.read, self._api, sharer.identity))
            if pod is None:
                self._cache.forget_pod(sharer.placement.pod_uid)
            else:
                self._cache.note_pod(pod)

    def _fail(self, placements: Sequence[Placement], because: str) -> None:
        """Give placements back that the server refused for a reason that stays: their pods back off and say why."""
        named = [f"{placement.namespace}/{placement.name}" for placement in placements[:_NAMED]]
        extra = about(LogEvent.GANG_FAILED, pods=len(placements), first_pods=named)
        _log.warning("a gang can't be started: %s", because, extra=extra)
        now_ns = monotonic_ns()
        for placement in placements:
            self._cache.cluster.commits.failed(placement.pod_uid, "", because, now_ns=now_ns)
        self._give_back(placements)

    def _overtaken(self, gang: Gang) -> None:
        """Give placements back whose PodGroup was not at the version that was decided on.

        Until a watch tells, the same would be decided again: so its pods are tried at once a few times only.
        """
        because = f"PodGroupChanged: PodGroup {gang.pod_group[1]} is changed faster than the gang's plan can be written"
        now_ns = monotonic_ns()
        for placement in gang.placements:
            self._cache.cluster.commits.overtaken(placement.pod_uid, because, now_ns=now_ns)
        self._give_back(gang.placements)

    def _give_back(self, placements: Sequence[Placement]) -> None:
        for placement in placements:
            self._cache.cluster.commits.release(placement.pod_uid, attempt=placement.number)
