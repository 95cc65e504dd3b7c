"""A small cluster on which room is made: a server, and processes that follow it, write nominations and evict."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec
from anyio.abc import TaskGroup

from kube.client.api import Api
from kube.client.resources import CONFIG_MAPS, EVENTS, NODES, POD_GROUPS, PODS, QUEUES
from kube.client.retry import Retry
from kube.events import EventRecorder
from kube.lead.secondary import Secondary
from kube.watch.reflector import Reflector
from scheduler.core.cluster import Cluster
from scheduler.core.model.plan import GiveUp, Nominate
from scheduler.core.model.preemption import Action, Ended, Nomination, Place, Victim
from scheduler.core.model.settings import Settings
from scheduler.core.preemption.eviction_history import piece_names
from scheduler.core.preemption.nomination_record import Record, read
from scheduler.preemption.evictor import Evictor
from scheduler.preemption.preemption import Preemption
from scheduler.telemetry.events import Answer, EvictedInVain, EvictionAnswered, Evicts, SchedulerEvent
from scheduler.watch.cache import Cache, CacheListeners
from scheduler.watch.secondary import budgets, secondary
from scheduler.watch.sinks import BudgetLabels, NodeSink, PodGroupSink, PodSink
from simulator.apiserver.calls import Call
from simulator.apiserver.server import MemoryApiServer
from simulator.clock import VirtualClock
from wire import names

NS = "team"
NODE = "n1"
GPUS = 8
BUDGETS = f"/apis/policy/v1/namespaces/{NS}/poddisruptionbudgets"


class Counted:
    """Keeps what became of evictions."""

    def __init__(self) -> None:
        self.answers: list[tuple[Evicts, Answer]] = []
        self.in_vain = 0

    def take(self, event: SchedulerEvent) -> None:
        match event:
            case EvictionAnswered(why=why, answer=answer):
                self.answers.append((why, answer))
            case EvictedInVain(pods=pods):
                self.in_vain += pods
            case _:
                pass


class Process:
    """One scheduler, without decisions. ``kill`` it, and nothing that it does is heard any more."""

    def __init__(self, stage: Stage, name: str) -> None:
        self.transport = stage.server.transport(name)
        self.api = Api(self.transport, retry=Retry(random.Random(1)))
        listeners = CacheListeners(pod_gone=self._pod_gone, budgeted=self._budgeted)
        self.cache = Cache(Cluster(Settings()), listeners=listeners)
        self.counted = Counted()
        self.events = EventRecorder(self.api, clock=stage.clock, controller=names.SCHEDULER_NAME, instance=name)
        self.evictor = Evictor(self.api, per_s=300, on_refused=self.cache.note_refused)
        self.making = Preemption(
            self.api,
            self.cache,
            evictor=self.evictor,
            clock=stage.clock,
            events=self.events,
            emit=self.counted.take,
        )
        self._labels = BudgetLabels(self.api, self.cache)
        self._scope = anyio.CancelScope()

    def _pod_gone(self, uid: str) -> None:
        self.making.pod_gone(uid)

    def _budgeted(self, namespace: str) -> None:
        self._labels.want(namespace)

    @property
    def nominations(self) -> list[Nomination]:
        """What stands, the oldest first."""
        return list(self.cache.cluster.commits.nominations.all())

    def decide(self, *nominations: Nomination) -> None:
        """Take what a decision would have made."""
        self.cache.cluster.snapshot()
        for nomination in nominations:
            self.making.take(Nominate(nomination))

    def give_up(self, nomination: Nomination, because: Ended = Ended.BETTER_PLACE) -> None:
        self.making.take(GiveUp(nomination.id, because))

    async def start(self, tasks: TaskGroup) -> None:
        """Follow, and lead."""
        rng = random.Random(1)
        followed = (
            Reflector(self.api, NODES, NodeSink(self.cache), rng=rng),
            Reflector(self.api, POD_GROUPS, PodGroupSink(self.cache), rng=rng),
            Secondary(self.api, (*secondary(self.cache), budgets(self.cache)), rng=rng),
            Reflector(self.api, PODS, PodSink(self.cache), rng=rng),
        )
        await tasks.start(self._run, followed)

    async def _run(self, followed: Any, *, task_status: Any) -> None:
        with self._scope:
            async with anyio.create_task_group() as tasks:
                for part in followed:
                    await tasks.start(part.run)
                tasks.start_soon(self._labels.run)
                tasks.start_soon(self.events.run)
                tasks.start_soon(self.evictor.run)
                await self.making.begin()
                tasks.start_soon(self.making.run)
                task_status.started()

    def kill(self) -> None:
        self.transport.kill()
        self._scope.cancel()

    def free_gpus(self) -> int:
        """GPUs that somebody else could have, by this process."""
        self.cache.cluster.refresh()
        view = self.cache.cluster.view(NODE)
        assert view is not None
        return view.free_gpus


class Stage:
    """A node whose GPUs are all taken."""

    def __init__(self, tasks: TaskGroup) -> None:
        self.tasks = tasks
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.server = MemoryApiServer(clock=self.clock, rng=random.Random(1), auto_namespaces=True)
        self.api = Api(self.server.transport("user"), retry=Retry(random.Random(1)))
        self.uids: dict[str, str] = {}
        #: Evictions of pods that were not on the record.
        self.unwritten: list[str] = []
        #: Users that wrote ConfigMaps of the record, and which.
        self.room_writes: list[tuple[str, str]] = []
        self.server.faults.on_answer.append(self._answered)

    def _answered(self, call: Call, code: int) -> None:
        if is_write_of_room(call) and code < 300:
            self.room_writes.append((call.user, name_of(call)))
        if call.subresource == "eviction" and code < 300 and call.name not in self._written_victims():
            self.unwritten.append(call.name)

    def _written_victims(self) -> set[str]:
        text = self.text()
        return {victim.name for nomination in read(text).record.nominations for victim in nomination.victims}

    def text(self) -> str:
        """The record as the server has it."""
        store = self.server._store
        found = store.get(_kind(self.server, "configmaps"), f"{names.SYSTEM_NAMESPACE}/{names.NOMINATIONS}")
        return "" if found is None else str(found.obj["data"].get("nominations", ""))

    @property
    def record(self) -> Record:
        return read(self.text()).record

    async def fill(self) -> None:
        for name, quota in (("a", 2), ("b", -1)):
            await self.api.create(
                QUEUES, {"metadata": {"name": name}, "spec": {"resources": {"gpu": {"quota": quota, "limit": -1}}}}
            )
        status = {
            "allocatable": {"cpu": "64", "memory": "512Gi", "pods": "110", names.GPU_RESOURCE: str(GPUS)},
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        await self.api.create(NODES, {"metadata": {"name": NODE}, "status": status})

    async def pod(
        self,
        name: str,
        *,
        gpus: int = 1,
        is_bound: bool = True,
        group: str = "",
        grace_s: int = 0,
        namespace: str = NS,
        **spec: Any,
    ) -> str:
        """Make a pod; its UID."""
        container = {"name": "main", "image": "i", "resources": {"limits": {names.GPU_RESOURCE: str(gpus)}}}
        annotations = {names.POD_GROUP_NAME: group} if group else {}
        made = await self.api.create(
            PODS,
            {
                "metadata": {
                    "name": name,
                    "annotations": annotations,
                    "labels": {"app": "a", names.QUEUE_LABEL: "a" if is_bound else "b"},
                },
                "spec": {
                    "schedulerName": names.SCHEDULER_NAME,
                    "containers": [container],
                    "terminationGracePeriodSeconds": grace_s,
                    **({"nodeName": NODE} if is_bound else {}),
                    **spec,
                },
            },
            namespace=namespace,
        )
        self.uids[name] = made.metadata.uid
        if is_bound:
            running = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
            await self.api.patch(PODS, name, {"status": running}, namespace=NS, subresource="status")
        return made.metadata.uid

    def nomination(
        self,
        name: str,
        nominee: str,
        *victims: str,
        action: Action = Action.RECLAIM,
        group: str = "",
        namespace: str = NS,
    ) -> Nomination:
        return Nomination(
            id=name,
            action=action,
            namespace=namespace,
            pod_group=group,
            places=(Place(self.uids[nominee], NODE),),
            victims=tuple(
                Victim(pod_uid=self.uids[each], namespace=NS, name=each, node=NODE, owner=f"owner-{each}")
                for each in victims
            ),
        )

    async def there(self) -> set[str]:
        """Names of pods that are not on their way out."""
        listed = await self.api.list(PODS, namespace=NS)
        return {pod.metadata.name for pod in listed.items if pod.metadata.deletion_timestamp is None}

    async def notes(self) -> list[tuple[str, str, str]]:
        """Events ``Evict``: kind and name that each is about, and what it says."""
        listed = await self.api.list(EVENTS, namespace=NS)
        return [
            (event.regarding.kind, event.regarding.name, event.note)
            for event in listed.items
            if event.reason == names.REASON_EVICT and event.regarding is not None
        ]

    def evictions(self) -> list[str]:
        """Names of pods that were evicted, in order."""
        return [e.name for e in self.server.audit if e.subresource == "eviction" and e.code < 300]

    def writes(self, user: str, name: str = names.NOMINATIONS) -> int:
        """How many writes of a user to a ConfigMap were carried out."""
        return self.room_writes.count((user, name))

    def piece_writes(self, user: str) -> int:
        """How many writes of evictions of the last hour."""
        return sum(self.writes(user, name) for name in piece_names(None))

    async def drop_record(self) -> None:
        await self.api.delete(CONFIG_MAPS, names.NOMINATIONS, namespace=names.SYSTEM_NAMESPACE)


def name_of(call: Call) -> str:
    """The name of the object that a call is about."""
    return call.name or str(msgspec.json.decode(call.body or b"{}")["metadata"]["name"])


def is_write_of_room(call: Call) -> bool:
    """Whether a call writes a ConfigMap of the record."""
    return call.kind.plural == "configmaps" and call.verb in {"create", "patch"}


def _kind(server: MemoryApiServer, plural: str) -> Any:
    return next(kind for kind in server.types if kind.plural == plural)


@asynccontextmanager
async def stage(*taken: str) -> AsyncIterator[tuple[Stage, TaskGroup]]:
    """A node of which these pods have a GPU each."""
    async with anyio.create_task_group() as tasks:
        made = Stage(tasks)
        tasks.start_soon(made.server.run)
        await made.fill()
        for name in taken:
            await made.pod(name)
        yield made, tasks
        assert made.unwritten == []
        tasks.cancel_scope.cancel()
