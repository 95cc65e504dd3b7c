"""A whole cluster in one process: API server in memory, admission, simulated nodes, scheduler, binder and the checker.

The code of Moorage's components is the real one; only the network, the machines and (in virtual time) the clock are
not. From one seed everything follows, so a run that broke an invariant can be run again::

    async with World(shape.parse(["4x8x80GiB"]), clock=VirtualClock(asyncio.get_running_loop())) as world:
        await world.apply(manifests.load(text))
        await world.until_idle()
        print(world.checker.report)
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Final, Self

import anyio
import msgspec
from anyio.abc import TaskGroup

from admission.settings import Settings as AdmissionSettings
from binder.settings import BinderSettings
from kube.client import errors
from kube.client.api import Api
from kube.client.clock import Clock
from kube.client.resources import LEASES, POD_GROUPS, PODS
from kube.client.retry import Retry
from kube.lead.lease import LeaseSettings
from scheduler.core.model.settings import NodePool
from scheduler.settings import SchedulerSettings
from simulator import installation, policies
from simulator.apiserver.calls import Call
from simulator.apiserver.server import MemoryApiServer
from simulator.apiserver.types import EVENTS, MOORAGE, ResourceType
from simulator.apply import Applying, Successors, is_evicted
from simulator.audit import Auditor
from simulator.checks import observer
from simulator.checks.checker import CONFIG_MAPS, DELETED, WATCHED, Checker
from simulator.checks.limits import Lateness
from simulator.checks.observer import Observer, Overhearing
from simulator.components import PRODUCT, Parts, start_admission
from simulator.controllers.kube_controllers import KubeControllers
from simulator.manifests import Manifest
from simulator.nodes.api_access import always
from simulator.nodes.node_set import NodeAgents, NodeSet
from simulator.nodes.shape import KubeletSettings, NodeShape
from simulator.replicas import BINDER, SCHEDULER, Component, Replicas, Role, is_ours
from wire import names


def waits(pod: Mapping[str, Any]) -> bool:
    """Whether the scheduler may still try to place a pod."""
    return not pod["spec"].get("nodeName") and pod["spec"].get("schedulerName") == names.SCHEDULER_NAME


def is_settled(pod: Mapping[str, Any]) -> bool:
    """Whether a pod runs, has ended, says why it waits, or is not ours to place."""
    spec, status = pod["spec"], pod.get("status") or {}
    if not spec.get("nodeName") and spec.get("schedulerName") != names.SCHEDULER_NAME:
        return True
    if status.get("phase") in {names.RUNNING, names.SUCCEEDED, names.FAILED}:
        return True
    containers = (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
    if any(map(_cannot_start, containers)):
        return True
    conditions = status.get("conditions") or ()
    return any(c["type"] == names.CONDITION_POD_SCHEDULED and c["status"] == "False" for c in conditions)


def _cannot_start(status: Mapping[str, Any]) -> bool:
    """Whether a container waits for a ConfigMap, for its image, or for its next try as its runtime refuses to start it.

    The first for ever, where somebody went past us with an ask for a share; the last while its device is not there.
    """
    waiting = (status.get("state") or {}).get("waiting") or {}
    return waiting.get("reason") in {"CreateContainerConfigError", "CrashLoopBackOff", "ImagePullBackOff"}


@dataclass(slots=True)
class Times:
    """When a pod was made, bound and running, as the API server showed it: event loop's seconds; None: not yet."""

    created_s: float
    bound_s: float | None = None
    running_s: float | None = None

    @property
    def to_bind_s(self) -> float | None:
        """Time from creation to binding."""
        return None if self.bound_s is None else self.bound_s - self.created_s


@dataclass(slots=True)
class Timeline:
    """The times of all pods by UID."""

    of: dict[str, Times] = field(default_factory=dict)

    def note(self, pod: Mapping[str, Any], now_s: float) -> None:
        """Take a version of a pod."""
        times = self.of.setdefault(pod["metadata"]["uid"], Times(now_s))
        if times.bound_s is None and (pod.get("spec") or {}).get("nodeName"):
            times.bound_s = now_s
        if times.running_s is None and (pod.get("status") or {}).get("phase") == "Running":
            times.running_s = now_s


class Evicted:
    """Pods that were evicted and are gone, by UID, and the Events that say for whom."""

    def __init__(self) -> None:
        self.pods: dict[str, dict[str, Any]] = {}
        #: By the UID of a pod, and by the namespace and name of a PodGroup, which has the Events of its pods.
        self._texts: dict[str, str] = {}
        self._of_groups: dict[tuple[str, str], list[str]] = {}

    def text(self, pod: Mapping[str, Any]) -> str:
        """Why a pod was evicted, "" without an Event: of a PodGroup the one that names it, else the last one."""
        meta = pod["metadata"]
        group = (meta.get("annotations") or {}).get(names.POD_GROUP_NAME, "")
        of_group = self._of_groups.get((meta["namespace"], group), [])
        place = f"{meta['namespace']}/{meta['name']}"
        own = (text for text in reversed(of_group) if place in text.split())
        return self._texts.get(meta["uid"]) or next(own, "") or (of_group[-1] if of_group else "")

    def take(self, kind: ResourceType, raw: bytes, is_gone: bool) -> None:
        """Take an object as the API server stores it."""
        if kind is not EVENTS or is_gone or _EVICT not in raw:
            return
        said = msgspec.json.decode(raw)
        if said.get("reason") != names.REASON_EVICT:
            return
        regarding, text = said["regarding"], said.get("note", "")
        if regarding.get("kind") == POD_GROUPS.kind:
            self._of_groups.setdefault((regarding["namespace"], regarding["name"]), []).append(text)
        else:
            self._texts[regarding.get("uid", "")] = text

    def gone(self, pod: dict[str, Any]) -> None:
        """Take a pod that is gone."""
        if is_evicted(pod):
            self.pods[pod["metadata"]["uid"]] = pod


_EVICT: Final = f'"{names.REASON_EVICT}"'.encode()
_OBSERVER: Final = "observer"
_READS: Final = frozenset({"get", "list", "watch"})
#: A broken gang's grace time, the time in which waiting members may complete it, an attempt to do so that began just
#: before (its time-out), a tenth of the grace time until somebody looks, and the time in which containers end.
GANG_GRACE_S: Final = 170.0
#: Where events are late, a pod may be bound for so long by what was known of queues before.
_QUEUE_LAG_S: Final = 300.0


class WorldSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a simulated cluster is like. ``event_delay_s``: watch events are late by up to so much.

    ``lateness``: how late who decides may hear of queues; None: by up to 300 s where events are late, else at once.
    ``pools``: node pools that have a scheduler of their own (``scheduler-<value>``); then the other one is for objects
    without the label. ``schedulers`` and ``binders``: how many of each run, schedulers of each pool. With ``election``
    they elect a leader each, on Leases; without it all of them work at once, as after a mistake in their manifests.
    """

    seed: int = 0
    pools: tuple[str, ...] = ()
    schedulers: int = 1
    binders: int = 1
    election: LeaseSettings | None = None
    event_delay_s: float = 0.0
    gang_grace_s: float = GANG_GRACE_S
    loss_window_s: float = 0.0
    lateness: Lateness | None = None
    kubelet: KubeletSettings = KubeletSettings()
    #: Whether admission is asked about Queues and PodGroups: what it refuses is not stored then.
    checks_queues: bool = False
    #: Whether controllers make a pod in place of one that is evicted.
    replaces_evicted: bool = False
    #: Nodes that have an agent, which tells the devices of reservations before their processes run.
    agents: frozenset[str] = frozenset()
    admission: AdmissionSettings = AdmissionSettings()
    scheduler: SchedulerSettings = SchedulerSettings()
    binder: BinderSettings = BinderSettings()


def _checker(nodes: NodeSet, settings: WorldSettings) -> Checker:
    return Checker(
        nodes.devices,
        gang_grace_s=settings.gang_grace_s,
        release_s=settings.scheduler.staleness_grace_s,
        loss_window_s=settings.loss_window_s,
        is_divided=bool(settings.pools),
        lateness=settings.lateness or Lateness(usual_s=_QUEUE_LAG_S if settings.event_delay_s else 0.0),
        several_decide=settings.schedulers > 1 and settings.election is None,
    )


class World:
    """A running cluster; use it as an async context manager."""

    def __init__(
        self,
        shapes: Sequence[NodeShape],
        *,
        clock: Clock,
        settings: WorldSettings = WorldSettings(),  # noqa: B008 - frozen
        parts: Parts = PRODUCT,
    ) -> None:
        seed = settings.seed
        self.settings = settings
        self._parts = parts
        self.timeline = Timeline()
        self.evicted = Evicted()
        also = MOORAGE if settings.scheduler.partitioning is not None else ()
        rng = random.Random(f"{seed}/server")
        self.server = MemoryApiServer(clock=clock, rng=rng, auto_namespaces=True, extra_types=also)
        #: The calls of the cluster's users.
        self.api = Api(self.server.transport("user"), retry=Retry(random.Random(f"{seed}/user")))
        self.nodes = NodeSet(
            self.server.transport("system:nodes"),
            shapes,
            clock=clock,
            seed=seed,
            settings=settings.kubelet,
            reservation_identity=always(self.server.transport(policies.RESERVATION)),
        )
        machines = {name: self.nodes[name] for name in settings.agents}
        self.agents = NodeAgents(self.server.transport(policies.AGENT), machines, parts.agent, seed=seed)
        self.checker = _checker(self.nodes, settings)
        self.auditor = Auditor(self, _OBSERVER, is_ours)
        self._listen()
        self._watching = self.server.transport(_OBSERVER)
        self.observers = {plural: Observer(self._watching, plural, self._observe) for plural in WATCHED}
        kubernetes = KubeControllers(
            self.server,
            clock=clock,
            pods=self.observers[PODS.plural].latest.values,
            rng=self._rng,
            begin=self.start_soon,
        )
        self.claims, self.resource_claims = kubernetes.claims, kubernetes.resource_claims
        self._disruptions = kubernetes.disruptions
        replicas = self._replicas(clock)
        #: All replicas by their names.
        self.components = replicas.components
        #: The wall clock of each, by its name; setting one ahead or back is a jump.
        self.clocks = replicas.clocks
        #: Schedulers that run now, by the names of their components.
        self.running = replicas.running
        self._leases = replicas.leases
        self.scheduler = self.components[SCHEDULER]
        self.binder = self.components[BINDER]
        self.successors = Successors(self.api, replaces_evicted=settings.replaces_evicted, makes_in_order=True)
        self._renewals = 0
        self.server.faults.on_answer.append(self._note_renewal)
        self._stack = AsyncExitStack()
        self._group: TaskGroup | None = None

    def _listen(self) -> None:
        """Report all that happens to the checker and the auditor."""
        self.nodes.ground_truth.listeners.append(self.checker.recorded)
        self.server.faults.on_answer.append(self.auditor.answered)
        self.server.faults.on_strike.append(self.auditor.struck)
        self.server.listen(Overhearing(self.checker).take)
        self.server.listen(self.evicted.take)

    async def __aenter__(self) -> Self:
        """Start the cluster; everything is ready when this returns."""
        self.checker.findings.start_s = anyio.current_time()
        if self.settings.event_delay_s:
            self.server.faults.on_watch_line.append(self._event_delay())
        self._group = await self._stack.enter_async_context(anyio.create_task_group())
        await self._group.start(self.server.run)
        await installation.seed(self.api, leases=self._leases)
        for each in self.observers.values():
            await self._group.start(each.run)
        await start_admission(
            self.server,
            self._group,
            settings=self.settings.admission,
            checks_queues=self.settings.checks_queues,
            rng=self._rng,
            is_ours=is_ours,
            parts=self._parts,
        )
        await self._group.start(self.nodes.run)
        await self._group.start(self.agents.run)
        for component in self.components.values():
            await component.start(self._group)
        self._group.start_soon(self.auditor.watch_ledgers)
        self._group.start_soon(self.successors.run)
        self._group.start_soon(self._disruptions.run)
        if max(self.settings.schedulers, self.settings.binders) > 1:
            self.checker.disturbed("several replicas ran at once")
        return self

    async def __aexit__(self, *error: Any) -> bool | None:
        """Stop everything; errors of components come out here."""
        for component in self.components.values():
            component.crash()  # one that is paused would not hear that it is cancelled
        if self._group is not None:
            self._group.cancel_scope.cancel()
        return await self._stack.__aexit__(*error)

    # --- what is done to it ------------------------------------------------------------------------------------------

    async def apply(self, manifests: Iterable[Manifest]) -> None:
        """Create objects in the order given. Raises kube.client.errors.ApiError, with the object named in a note.

        A namespace that is there already gets the labels and annotations of its manifest, as with ``kubectl apply``.
        """
        await Applying(self.api, self.successors).apply(manifests)

    async def restart(self, component: Component, *, pause_s: float = 0.0) -> None:
        """Crash a component and start it again after a pause."""
        if self._group is None:
            raise RuntimeError("the cluster is not running")
        component.crash()
        await anyio.sleep(pause_s)
        await component.start(self._group)

    async def until_idle(
        self, *, quiet_s: float = 20.0, waiting_quiet_s: float = 400.0, limit_s: float = 3600.0
    ) -> bool:
        """Wait until nothing has changed for ``quiet_s`` and every pod runs, has ended or says why it waits.

        While pods wait, for ``waiting_quiet_s``: one whose attempts failed is tried again after a back-off, during
        which nothing changes either. False when that was not reached within ``limit_s``.
        """
        deadline = anyio.current_time() + limit_s
        seen, since = self.changes, anyio.current_time()
        while anyio.current_time() < deadline:
            await anyio.sleep(quiet_s / 20)
            if self.changes != seen:
                seen, since = self.changes, anyio.current_time()
                continue
            enough_s = waiting_quiet_s if self.has_waiting_pods else quiet_s
            if anyio.current_time() - since >= enough_s and self.is_settled:
                return True
        return False

    async def clear(self, *, quiet_s: float = 20.0, limit_s: float = 600.0) -> None:
        """Delete all pods of users, wait until everything of ours is gone too, and have the checker look (S9).

        ``limit_s`` bounds the wait for pods, and again that for the rest: the share of a pod that vanished by a forced
        deletion is kept for its grace period and longer.
        """
        self.successors.stop()
        for pod in self.pods:
            meta = pod["metadata"]
            if meta["namespace"] not in {names.RESERVATION_NAMESPACE, names.SCALE_ADJUST_NAMESPACE}:
                with contextlib.suppress(errors.NotFound):
                    await self.api.delete(PODS, meta["name"], namespace=meta["namespace"], uid=meta["uid"])
        await self.until_idle(quiet_s=quiet_s, limit_s=limit_s)
        with anyio.move_on_after(limit_s):
            while self.pods:  # noqa: ASYNC110 - the observer's view is plain data, without a signal of changes
                await anyio.sleep(quiet_s / 20)
        left = {plural: await observer.objects(self._watching, plural) for plural in (*WATCHED, CONFIG_MAPS)}
        objects = {plural: listing["items"] for plural, listing in left.items()}
        self.checker.leftovers(objects, anyio.current_time())

    async def judge_rest(self) -> None:
        """Have the checker judge what has to hold when nothing happens any more (L1-L7); it may delete a pod."""
        self.successors.stop()
        await self.auditor.judge_rest()

    def finish(self) -> Mapping[str, str]:
        """Let the checker judge what is open; return its report."""
        self.checker.finish(anyio.current_time())
        return self.checker.report

    @property
    def changes(self) -> int:
        """How much has changed on the API server so far, but for Leases, which are renewed for ever."""
        return self.server.resource_version - self._renewals

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return anyio.current_time() - self.checker.findings.start_s

    @property
    def is_settled(self) -> bool:
        """Whether every pod runs, has ended, or says why it waits."""
        return all(map(is_settled, self.pods))

    @property
    def has_waiting_pods(self) -> bool:
        """Whether there is a pod that the scheduler may still try to place."""
        return any(map(waits, self.pods))

    @property
    def pods(self) -> list[dict[str, Any]]:
        """All pods as the API server has them, in the order of their making."""
        return list(self.observers[PODS.plural].latest.values())

    # --- its parts ---------------------------------------------------------------------------------------------------

    def _replicas(self, clock: Clock) -> Replicas:
        settings, parts = self.settings, self._parts
        return Replicas(
            server=self.server,
            roles=(
                Role(BINDER, "moorage-binder", parts.binder, settings.binder, settings.binders),
                *map(self._scheduler_of, ("", *settings.pools)),
            ),
            clock=clock,
            seed=settings.seed,
            election=settings.election,
            wire=parts.wire,
            started_again=lambda incarnation: self.checker.disturbed(f"{incarnation} was started"),
        )

    def _scheduler_of(self, pool: str) -> Role:
        settings, name = self.settings.scheduler, f"{SCHEDULER}-{pool}" if pool else SCHEDULER
        if self.settings.pools:
            decisions = msgspec.structs.replace(settings.decisions, pool=NodePool(value=pool))
            settings = msgspec.structs.replace(settings, decisions=decisions)
        return Role(name, names.SCHEDULER_NAME, self._parts.scheduler, settings, self.settings.schedulers)

    def start_soon(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run something beside all else until the cluster ends."""
        if self._group is None:
            raise RuntimeError("the world has not begun")
        self._group.start_soon(run)

    def _rng(self, purpose: str) -> random.Random:
        return random.Random(f"{self.settings.seed}/{purpose}")

    def _observe(self, plural: str, event: str, raw: dict[str, Any]) -> None:
        now_s = anyio.current_time()
        if plural == PODS.plural and event != DELETED:
            self.timeline.note(raw, now_s)
            self.successors.seen(raw)
        elif plural == PODS.plural:
            self.evicted.gone(raw)
            self.successors.gone(raw)
        self.checker.observed(plural, event, raw, now_s)
        self.auditor.changed()

    def _note_renewal(self, call: Call, code: int) -> None:
        if call.kind.plural == LEASES.plural and call.verb not in _READS and code < 300:
            self._renewals += 1

    def _event_delay(self) -> Any:
        rng, most_s = self._rng("delays"), self.settings.event_delay_s

        def delay_s(call: Call, _: bytes) -> float:
            # The observer sees the truth at once: it is no part of the cluster.
            return 0.0 if call.user == _OBSERVER else rng.uniform(0.0, most_s)

        return delay_s
