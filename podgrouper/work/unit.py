"""The work on pods of one owner: read what rules need, write the PodGroup, then name it on the pods.

The PodGroup comes first: a pod without an owner that names one is left alone by KAI's pod-grouper for ever
(kai-contract, erratum 10), and a pod whose PodGroup is not there waits. Every step can be done again by the next
leader: a create meets what is there, a change names the version that it was decided on, and all who name a PodGroup on
a pod name the same one.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Final

import anyio
import anyio.lowlevel
import msgspec

from kube.client import errors
from kube.client.api import Api
from kube.client.resources import POD_GROUPS, PODS
from kube.events import EventRecorder, about
from kube.telemetry.logevents import LogEvent
from kube.telemetry.logevents import about as told
from podgrouper.core import answers, fields, grouping, patches, projection
from podgrouper.core.answers import Code, Group, Json, Nothing, Refusal
from podgrouper.core.foreign import gangs
from podgrouper.core.generic import Defaults
from podgrouper.core.owner_chain import Absent, Read
from podgrouper.core.patches import Change, Create, Keep
from podgrouper.core.projection import Key
from podgrouper.read.owners import Owners
from podgrouper.settings import WorkloadSettings
from podgrouper.telemetry.events import Emit, Outcome, Wrote
from podgrouper.watch.sinks import seen
from podgrouper.watch.view import SeenPod, View
from podgrouper.work.queue import SHARE
from wire import gangs as gangs_by_kind
from wire import names
from wire.api_groups import WARNING
from wire.core import ObjectMeta, OwnerReference
from wire.crds.podgroup import PodGroup

_log: Final = logging.getLogger(__name__)

#: Most objects that are read for one pod: its owners, and one that a rule asks for by name.
_MOST_READS: Final = 32
#: An object that is missing usually appears within moments: it is reported from this failure in a row on.
_TELL_ABSENT_FROM: Final = 4
#: What does not pass without a change that a person makes.
_LASTING: Final = (errors.Forbidden, errors.Invalid, errors.BadRequest, errors.BadName, errors.TooLarge)
#: How often a PodGroup that others change is decided on before its workload waits.
_TRIES: Final = 3


class Member(msgspec.Struct, frozen=True):
    """A pod that belongs to a PodGroup, and to which part of it."""

    pod: SeenPod
    part: str
    has_part: bool
    #: Since when its owners were read (event loop's time).
    since: float


class Wanted(msgspec.Struct, frozen=True):
    """A PodGroup that has to be there, and the pods that have to name it. ``owners``: those that it was made of."""

    answer: Group
    members: list[Member]
    owners: list[OwnerReference]


class Places:
    """Places in flight, of which one namespace has a quarter at most."""

    def __init__(self, most: int) -> None:
        self._all = anyio.CapacityLimiter(most)
        self._share = max(1, most // SHARE)
        #: Of namespaces that have places, or wait for some: the limit, and how many.
        self._of: dict[str, anyio.CapacityLimiter] = {}
        self._users: Counter[str] = Counter()

    def __len__(self) -> int:
        """How many namespaces have places, or wait for some."""
        return len(self._of)

    @asynccontextmanager
    async def of(self, namespace: str) -> AsyncIterator[None]:
        """Have a place. Those who wait beyond the share of their namespace are in nobody else's way."""
        own = self._of.setdefault(namespace, anyio.CapacityLimiter(self._share))
        self._users[namespace] += 1
        try:
            async with own, self._all:
                yield
        finally:
            self._users[namespace] -= 1
            if not self._users[namespace]:
                del self._users[namespace], self._of[namespace]


class Unit:
    """Does the work of one key at a time, for as many keys as ask."""

    def __init__(
        self,
        api: Api,
        *,
        view: View,
        owners: Owners,
        settings: WorkloadSettings,
        events: EventRecorder,
        emit: Emit,
        again: Callable[[Key], None],
    ) -> None:
        """Take what the work needs; ``again`` has a key worked on later, though its work is done."""
        self._api = api
        self._view = view
        self._owners = owners
        self._settings = settings
        self._events = events
        self._emit = emit
        self._again = again
        self._marks = Places(settings.marks_at_once)

    async def work(self, key: Key, *, failures: int) -> bool:
        """Look at all pods of a key that have to be looked at; return whether all of them are settled.

        ``failures``: how often in a row that has failed. Raises nothing for what the API server answers.
        """
        wanted: dict[str, Wanted] = {}
        refused: dict[str, OwnerReference] = {}
        is_done = True
        for pod in sorted(self._view.unsettled(key), key=lambda pod: pod.name):
            try:
                is_done = await self._look(pod, wanted, refused, failures) and is_done
            except errors.ApiError as error:
                self._failed(pod, error)
                is_done = False
            # A rule takes as long as its workload has parts.
            await anyio.lowlevel.checkpoint()
        # Not before: they would be read again for each of their pods.
        self._owners.renew(refused.values(), key[0])
        for each in wanted.values():
            is_done = await self._carry_out(each) and is_done
        return is_done

    async def _look(
        self, pod: SeenPod, wanted: dict[str, Wanted], refused: dict[str, OwnerReference], failures: int
    ) -> bool:
        """Find the group of a pod, and note what is wanted; return False if it has to be tried again.

        ``refused``: owners, by UID, of which something can't be carried out.
        """
        read = await self._read(pod)
        if read is None:
            return True
        since = self._view.since(pod.uid)
        answer, owners = await self._answer(read, pod.namespace, since=since)
        match answer:
            case Nothing():
                self._emit(answer.why)
                is_named = self._is_named_in_vain(pod, read)
                if _waits_for_word(pod, read, owners, is_named=is_named):
                    return await self._release(pod, since, is_named=is_named)
                if not pod.is_bound:
                    self._view.note_alone(pod, owners)
                self._view.settle(pod.uid, pod.fingerprint, since)
                return True
            case Refusal():
                refused |= {owner.uid: owner for owner in owners}
                if answer.code is not Code.NOT_FOUND:
                    self._view.note_refused(pod, owners)
                self._refuse(pod, answer, failures)
                return False
            case Group():
                if (refusal := self._disagreement(pod, read, answer, wanted)) is not None:
                    # It is not of this gang, and holds nobody up who is.
                    self._refuse(pod, refusal, failures)
                    self._again(pod.key)
                    return True
                self._want(pod, read, Wanted(answer, [], owners), wanted, since=since)
                return True

    def _is_named_in_vain(self, pod: SeenPod, read: Json) -> bool:
        """Whether admission has named a PodGroup that nobody makes: it knows nothing of what a pod's owner says."""
        is_there = (pod.namespace, pod.group) in self._view.groups
        return bool(pod.group) and not is_there and pod.group == projection.told_group(read)

    async def _release(self, pod: SeenPod, since: float, *, is_named: bool) -> bool:
        """Say that a pod belongs to no PodGroup, where the scheduler can't know that; return whether it was written."""
        none: dict[str, str | None] = {names.POD_GROUP_NAME: None} if is_named else {}
        return await self._write(pod, {"annotations": {**none, names.ALONE: "true"}}, since)

    def _refuse(self, pod: SeenPod, refusal: Refusal, failures: int) -> None:
        self._emit(refusal.code)
        if refusal.code is not Code.NOT_FOUND or failures + 1 >= _TELL_ABSENT_FROM:
            self._tell(pod, answers.told(refusal))

    def _disagreement(self, pod: SeenPod, read: Json, answer: Group, wanted: dict[str, Wanted]) -> Refusal | None:
        """Return why a pod is not of the foreign gang that it names: pods that came before it say something else."""
        said, name = patches.gang_of(answer.pod_group), answer.pod_group.metadata.name
        if not said or pod.group == name:
            return None
        if name in wanted:
            return gangs.difference(read, said, patches.gang_of(wanted[name].answer.pod_group))
        there = self._view.groups.get((pod.namespace, name))
        return gangs.difference(read, said, there.gang) if there is not None and there.gang else None

    async def _read(self, pod: SeenPod) -> Json | None:
        """Return what rules read of a pod, None if it is gone."""
        if pod.body:
            read: Json = msgspec.json.decode(pod.body)
            return read
        try:
            found = seen(await self._api.get(PODS, pod.name, namespace=pod.namespace))
        except errors.NotFound:
            found = pod.uid
        if isinstance(found, str) or found.uid != pod.uid:
            self._view.pod_gone(pod.uid)
            return None
        whole: Json = msgspec.json.decode(found.body)
        return whole

    async def _answer(
        self, pod: Json, namespace: str, *, since: float
    ) -> tuple[Group | Nothing | Refusal, list[OwnerReference]]:
        """Ask the rules, and read what they need; return their answer, and the owners that were read."""
        defaults = Defaults(queue=self._settings.queue, priority_classes=self._view.priority_classes)
        read: list[OwnerReference] = []
        owners: dict[str, Json | Absent] = {}
        named: dict[tuple[str, str, str], Json | Absent] = {}
        answer = grouping.group(pod, Read(owners, named), defaults)
        for _ in range(_MOST_READS):
            if not isinstance(answer, Refusal) or answer.code is not Code.NOT_READ or answer.needed is None:
                break
            needed = answer.needed
            found = await self._owners.read(needed, namespace, since=since)
            if needed.uid:
                read.append(needed)
                owners[needed.uid] = found
            else:
                named[needed.api_version.rpartition("/")[0], needed.kind, needed.name] = found
            answer = grouping.group(pod, Read(owners, named), defaults)
        return answer, read

    def _want(self, pod: SeenPod, read: Json, made: Wanted, wanted: dict[str, Wanted], *, since: float) -> None:
        answer = made.answer
        name = answer.pod_group.metadata.name
        if pod.group not in {"", name, projection.told_group(read)}:
            # Somebody has put it into another group.
            self._view.settle(pod.uid, pod.fingerprint, since)
            return
        is_bound = self._view.pods.get(pod.uid, pod).is_bound
        if is_bound and not pod.group and _is_gang(answer.pod_group):
            # It was started without the others.
            self._view.settle(pod.uid, pod.fingerprint, since)
            return
        if name not in wanted:
            wanted[name] = made
        has_part = bool(fields.labels_of(read).get(names.SUBGROUP_LABEL))
        wanted[name].members.append(Member(pod, answer.part, has_part, since))

    async def _carry_out(self, wanted: Wanted) -> bool:
        """Write a PodGroup and name it on its pods; return whether all of that is done."""
        pod_group = wanted.answer.pod_group
        try:
            await self._ensure(wanted.answer)
        except errors.ApiError as error:
            for member in wanted.members[:1]:
                self._view.note_refused(member.pod, wanted.owners)
                self._failed(member.pod, error)
            return False
        if not self._is_agreed(pod_group):
            return False
        undone: list[Member] = []
        name = pod_group.metadata.name
        async with anyio.create_task_group() as tasks:
            for member in wanted.members:
                tasks.start_soon(self._mark, member, name, undone)
        return not undone

    def _is_agreed(self, group: PodGroup) -> bool:
        """Whether a foreign gang's PodGroup says what was wanted: another replica may have made it of another pod."""
        there = self._view.groups.get((group.metadata.namespace, group.metadata.name))
        return there is None or not there.gang or there.gang == patches.gang_of(group)

    async def _ensure(self, answer: Group) -> None:
        """Write a PodGroup if that has to be. Raises ApiError."""
        wanted = answer.pod_group
        key = wanted.metadata.namespace, wanted.metadata.name
        for _ in range(_TRIES):
            running = self._view.running(key)
            match patches.decide(wanted, self._view.groups.get(key)):
                case Keep():
                    return
                case Create() as create:
                    create = patches.made_again(create, running=running) if running else create
                    if await self._create(wanted.metadata, create.body):
                        return
                case Change():
                    if await self._change(answer, running):
                        return
        raise errors.Unreachable(f"PodGroup {wanted.metadata.name} changes while it is written")

    async def _create(self, meta: ObjectMeta, body: Json) -> bool:
        """Create a PodGroup; return False if there is one by now. Raises ApiError."""
        try:
            made = await self._api.create(POD_GROUPS, body, namespace=meta.namespace)
        except errors.AlreadyExists:
            await self._refresh(meta.namespace, meta.name)
            return False
        self._view.group_seen(patches.live(made))
        self._emit(Wrote.CREATED)
        _log.info(
            "PodGroup made",
            extra=told(LogEvent.GROUP_MADE, group=f"{meta.namespace}/{meta.name}", queue=made.spec.queue),
        )
        return True

    async def _change(self, answer: Group, running: int) -> bool:
        """Change a PodGroup, by all that it says; return False if it changes meanwhile, or is gone. Raises ApiError.

        ``running``: how many members are bound.
        """
        wanted = answer.pod_group.metadata
        there = await self._refresh(wanted.namespace, wanted.name)
        if there is None:
            return False
        write = patches.change(
            answer.pod_group, there, own=answer.part if answer.knows_own_only else None, running=running
        )
        if isinstance(write, Keep):
            return True
        try:
            changed = await self._api.patch(
                POD_GROUPS,
                wanted.name,
                write.patch,
                namespace=wanted.namespace,
                uid=there.metadata.uid,
                resource_version=there.metadata.resource_version,
            )
        except (errors.Conflict, errors.NotFound):
            return False
        self._view.group_seen(patches.live(changed))
        if changed.spec.sub_groups:
            self._view.parts_changed((wanted.namespace, wanted.name))
        self._emit(Wrote.CHANGED)
        _log.info("PodGroup changed", extra=told(LogEvent.GROUP_CHANGED, group=f"{wanted.namespace}/{wanted.name}"))
        return True

    async def _refresh(self, namespace: str, name: str) -> PodGroup | None:
        """Read a PodGroup, which may not be as the watch has shown it; None if it is gone. Raises ApiError."""
        try:
            found = await self._api.get(POD_GROUPS, name, namespace=namespace)
        except errors.NotFound:
            self._view.group_gone(namespace, name)
            return None
        self._view.group_seen(patches.live(found))
        return found

    async def _mark(self, member: Member, group: str, undone: list[Member]) -> None:
        """Name the PodGroup, and the part, on a pod that does not name them."""
        pod = member.pod
        meta: dict[str, dict[str, str]] = {}
        if pod.group != group:
            meta["annotations"] = {names.POD_GROUP_NAME: group}
        if member.part and not member.has_part:
            meta["labels"] = {names.SUBGROUP_LABEL: member.part}
        if not meta:
            self._view.settle(pod.uid, pod.fingerprint, member.since)
            self._emit(Outcome.GROUPED)
            return
        if not await self._write(pod, meta, member.since, outcome=Outcome.GROUPED):
            undone.append(member)

    async def _write(
        self,
        pod: SeenPod,
        meta: Mapping[str, Mapping[str, str | None]],
        since: float,
        *,
        outcome: Outcome | None = None,
    ) -> bool:
        """Write labels and annotations on a pod; return whether nothing is left to do. ``outcome``: told once done.

        ``since``: since when its owners were read.
        """
        try:
            # Other writes on the pod in between do not matter here, so its version is not named.
            async with self._marks.of(pod.namespace):
                stored = await self._api.patch(PODS, pod.name, {"metadata": meta}, namespace=pod.namespace, uid=pod.uid)
        except errors.NotFound:
            self._view.pod_gone(pod.uid)
        except errors.ApiError as error:
            # A conflict is another pod of this name, or a write that came between.
            if not isinstance(error, errors.Conflict) or not await self._is_gone(pod):
                self._failed(pod, error)
                return False
        else:
            self._view.marked(seen(stored), pod.uid, since)
            if outcome is not None:
                self._emit(outcome)
        return True

    async def _is_gone(self, pod: SeenPod) -> bool:
        try:
            there = (await self._api.get(PODS, pod.name, namespace=pod.namespace)).metadata.uid == pod.uid
        except errors.NotFound:
            there = False
        except errors.ApiError:
            there = True
        if not there:
            self._view.pod_gone(pod.uid)
        return not there

    def _failed(self, pod: SeenPod, error: errors.ApiError) -> None:
        """Something could not be read or written. What will not pass without a change is reported to people as well."""
        self._emit(Outcome.FAILED)
        if isinstance(error, _LASTING):
            self._tell(pod, str(error))
            return
        _log.warning(
            "pod is not grouped yet: %s", error, extra=told(LogEvent.GROUPING_FAILED, pod=f"{pod.namespace}/{pod.name}")
        )

    def _tell(self, pod: SeenPod, note: str) -> None:
        meta = ObjectMeta(name=pod.name, namespace=pod.namespace, uid=pod.uid)
        self._events.record(
            about(PODS, meta), reason=names.REASON_NOT_GROUPED, action="Grouping", note=note, type=WARNING
        )
        _log.warning(
            "pod can't be grouped: %s", note, extra=told(LogEvent.GROUPING_FAILED, pod=f"{pod.namespace}/{pod.name}")
        )


def _waits_for_word(pod: SeenPod, read: Json, owners: Iterable[OwnerReference], *, is_named: bool) -> bool:
    """Whether the scheduler can't know that a pod belongs to no PodGroup: by one of these owners, which were read.

    ``is_named``: it names one that nobody makes.
    """
    written = fields.annotations_of(read)
    if (
        pod.is_bound
        or (pod.group and not is_named)
        or names.ALONE in written
        or written.get(names.SKIP_POD_GROUPER) == "true"
    ):
        return False
    return not gangs_by_kind.is_plain_chain([(owner.api_version, owner.kind) for owner in owners])


def _is_gang(group: PodGroup) -> bool:
    """Whether several pods of a group start together."""
    spec = group.spec
    return bool(spec.sub_groups) or spec.min_sub_group is not None or (spec.min_member or 0) > 1
