"""A KAI Scheduler at work in the same cluster: Moorage does not start beside it, and makes way for one that starts.

Two of them undo each other's work, and KAI deletes pods that run on our reservations: its binder would carry out our
BindRequests, and its start-up sync deletes running pods whose reservation it can't see; its operator creates both again
(kai-contract, erratum 12). Its leader election is off by default, so its pods are looked for (labels of contract 6.1),
and its leases (6.4) for a KAI that runs outside of pods.

It is looked for again and again while a replica runs. A replica that finds one stops: it finishes its writes, gives its
lease back, and is there without doing anything until KAI has gone. Then it ends and is started again: KAI has changed
the cluster since this process read it.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Mapping, Sequence
from typing import Final

import anyio
import msgspec

from kube.client.api import Api
from kube.client.errors import ApiError
from kube.client.resources import LEASES, PODS
from kube.events import EventRecorder, about
from kube.telemetry.logevents import LogEvent
from kube.telemetry.logevents import about as told
from wire import names
from wire.api_groups import WARNING, Lease
from wire.core import Container, ObjectMeta, Pod

#: Label ``app`` of a component's pods -> what its image is called. A shard's scheduler has the shard's name behind it.
_COMPONENTS: Final[Mapping[str, str]] = {"kai-operator": "operator", "binder": "binder"}
_SCHEDULER_APP: Final = "kai-scheduler-"
_SCHEDULER_IMAGE: Final = "scheduler"
#: Held in the namespace of the release, of the operator, the binder, and the scheduler of the default shard. Those of
#: other shards have the shard's name behind it.
_LEASES: Final = frozenset({"41fce092.run.ai", "2ad35f9c.kai.scheduler", names.SCHEDULER_NAME})
_SHARD_LEASE: Final = f"{names.SCHEDULER_NAME}-"
_POLL_S: Final = 1.0
#: Pods of all namespaces are listed at the first look and at each 60th: users may label as many as they like.
ELSEWHERE_EVERY: Final = 60


class Found(msgspec.Struct, frozen=True):
    """What was found, in words."""

    #: Surely at work: it stands where only administrators make things.
    at_work: tuple[str, ...] = ()
    #: Seems to be a KAI in another namespace. Each user who may create pods can make such pods.
    elsewhere: tuple[str, ...] = ()


class Also(msgspec.Struct, frozen=True):
    """Further programs of KAI's that do the work of one component of ours: label ``app`` -> image, and leases."""

    apps: Mapping[str, str] = {}
    leases: frozenset[str] = frozenset()


#: Both would write the PodGroups of workloads.
POD_GROUPER: Final = Also({"pod-grouper": "podgrouper"}, frozenset({"54dff599.kai.scheduler"}))
NOTHING_ELSE: Final = Also()


class Lookout:
    """Looks for a KAI, as often as it is asked to. A lease is a sign of life if it was renewed since the last look.

    Renewed: its holder or its time of renewal changed. A label on a lease that KAI left changes the object, too.
    """

    def __init__(self, api: Api, also: Also = NOTHING_ELSE) -> None:
        self._api = api
        self._apps = {**_COMPONENTS, **also.apps}
        self._lease_names = _LEASES | also.leases
        #: The leases that somebody holds, by name, as they were read last.
        self._held: dict[str, Lease] = {}
        self._looks = 0
        self._elsewhere: tuple[str, ...] = ()

    async def look(self) -> Found:
        """Look once, at pods and leases. Raises ApiError."""
        found = await self._look_at_pods()
        renewed = await self.look_at_leases()
        return found if found.at_work else Found(renewed, found.elsewhere)

    async def look_at_leases(self) -> tuple[str, ...]:
        """Return what was renewed since the last look. Raises ApiError."""
        held = {lease.metadata.name: lease for lease in await self._leases() if lease.spec.holder_identity}
        before, self._held = self._held, held
        return tuple(
            f"lease {names.SYSTEM_NAMESPACE}/{name}"
            for name, lease in sorted(held.items())
            if name in before and _renewal(before[name]) != _renewal(lease)
        )

    @property
    def unsure_s(self) -> int:
        """For how long the leases have to be watched until it is known that nobody renews them, 0 without any."""
        return max((lease.spec.lease_duration_seconds or 0 for lease in self._held.values()), default=0)

    async def _look_at_pods(self) -> Found:
        if self._looks % ELSEWHERE_EVERY == 0:
            selector = f"app in ({', '.join(self._apps)})"
            pods = await _pods(self._api, selector, namespace="")
            self._elsewhere = tuple(
                self._components([p for p in pods if p.metadata.namespace != names.SYSTEM_NAMESPACE])
            )
        self._looks += 1
        at_work = self._components(await _pods(self._api, "app", namespace=names.SYSTEM_NAMESPACE))
        return Found(tuple(at_work), self._elsewhere)

    async def _leases(self) -> list[Lease]:
        listed = (await self._api.list(LEASES, namespace=names.SYSTEM_NAMESPACE, skip_undecodable=True)).items
        known = self._lease_names
        return [each for each in listed if each.metadata.name in known or each.metadata.name.startswith(_SHARD_LEASE)]

    def _components(self, pods: Sequence[Pod]) -> list[str]:
        return [f"pod {pod.metadata.namespace}/{pod.metadata.name}" for pod in pods if self._is_component(pod)]

    def _is_component(self, pod: Pod) -> bool:
        """Whether a pod that may still run, or has not started yet, is one that acts on pods and GPUs."""
        app = (pod.metadata.labels or {}).get("app", "")
        image = _SCHEDULER_IMAGE if app.startswith(_SCHEDULER_APP) else self._apps.get(app)
        return pod.status.phase not in names.ENDED_PHASES and any(
            _image_name(one) == image for one in pod.spec.containers or ()
        )


async def look_for_kai(api: Api, also: Also = NOTHING_ELSE) -> Found:
    """Look what of KAI is at work. Raises ApiError.

    Takes no time where KAI never was; where it left a lease with a holder, as long as that lease lasts.
    """
    lookout = Lookout(api, also)
    # Pods say it at once; leases have to be watched for a while.
    found = await lookout.look()
    renewed = found.at_work
    for _ in range(round(lookout.unsure_s / _POLL_S)):
        if renewed:
            break
        await anyio.sleep(_POLL_S)
        renewed = await lookout.look_at_leases()
    return Found(renewed, found.elsewhere)


def sentence(found: Sequence[str]) -> str:
    """Say why Moorage does not start."""
    return (
        f"KAI Scheduler is at work in this cluster ({', '.join(found)}), and two can't share pods and GPUs: "
        "stop it first (docs/migrating/kai.md)"
    )


async def _pods(api: Api, selector: str, *, namespace: str) -> list[Pod]:
    return (await api.list(PODS, namespace=namespace, label_selector=selector, skip_undecodable=True)).items


def _renewal(lease: Lease) -> tuple[str | None, str | None]:
    return lease.spec.holder_identity, lease.spec.renew_time


def _image_name(container: Container) -> str:
    """Return ``binder`` of ``registry:5000/kai-scheduler/binder:v0.14@sha256:...``."""
    return container.image.partition("@")[0].rpartition("/")[2].partition(":")[0]


_log: Final = logging.getLogger(__name__)

#: A lease of KAI's is renewed at least twice in this time.
EVERY_S: Final = 10.0
#: The most pods that are named in a log line.
_MOST_NAMED: Final = 5
#: A KAI that is updated has no pods for moments.
_CLEAR_LOOKS: Final = 2


class IfKaiStarts(enum.Enum):
    """What a replica does about it."""

    STOP = "stop"
    GO_ON = "go-on"


class BesideKai:
    """Looks for a KAI, and what of it is ``also`` in its way, while a replica runs that takes part in ``lease``.

    ``noticed`` is set once the replica has to stop. ``is_there`` is what the metric says: 1 while KAI is at work.
    ``every_s``: between two looks.
    """

    def __init__(
        self,
        api: Api,
        events: EventRecorder,
        *,
        lease: str,
        choice: IfKaiStarts,
        also: Also = NOTHING_ELSE,
        every_s: float = EVERY_S,
    ) -> None:
        self._lookout = Lookout(api, also)
        self._events = events
        self._lease = ObjectMeta(name=lease, namespace=names.SYSTEM_NAMESPACE)
        self._choice = choice
        self._every_s = every_s
        self._elsewhere: tuple[str, ...] = ()
        self.noticed: Final = anyio.Event()
        self.is_there = False
        #: Answered looks in a row that saw none. One without an answer says nothing.
        self._clear_looks = 0

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            found = await self._look()
            if found is not None:
                self._note(found)
            await anyio.sleep(self._every_s)

    async def until_gone(self) -> None:
        """Return when KAI was seen no more for a while; ``run`` goes on beside it."""
        while self._clear_looks < _CLEAR_LOOKS:  # noqa: ASYNC110 - what is waited for is looked at as often
            await anyio.sleep(self._every_s)
        _log.warning("KAI Scheduler is at work no longer: this process ends and is started again")

    async def _look(self) -> Found | None:
        """Look once; None where there is no answer: that says nothing about a KAI."""
        try:
            return await self._lookout.look()
        except ApiError as error:
            _log.warning("not known whether a KAI Scheduler is at work: %s", error)
            return None

    def _note(self, found: Found) -> None:
        if found.at_work and not self.is_there:
            self._tell(found.at_work)
        self.is_there = bool(found.at_work)
        self._clear_looks = 0 if self.is_there else self._clear_looks + 1
        if self.is_there and self._choice is IfKaiStarts.STOP:
            self.noticed.set()
        if set(found.elsewhere) - set(self._elsewhere):
            _log.warning(
                "%d pods look like a KAI Scheduler, such as %s; if they are, stop it: two can't share pods",
                len(found.elsewhere),
                ", ".join(found.elsewhere[:_MOST_NAMED]),
            )
        self._elsewhere = found.elsewhere

    def _tell(self, found: Sequence[str]) -> None:
        stops = self._choice is IfKaiStarts.STOP
        does = "this replica stops until it has gone" if stops else "this replica goes on (--if-kai-starts=go-on)"
        note = f"{sentence(found)}; {does}"
        _log.error(note, extra=told(LogEvent.KAI_NOTICED, lease=f"{self._lease.namespace}/{self._lease.name}"))
        self._events.record(
            about(LEASES, self._lease),
            reason=names.REASON_KAI_AT_WORK,
            action="Stopping" if stops else "Working",
            note=note,
            type=WARNING,
        )
