"""One pod's life on a simulated node, from admission to the last write about it, as kubelet's pod worker lives it."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import anyio

from kube.client.retry import Backoff
from simulator.nodes import containers
from simulator.nodes.containers import MissingSource, UnknownDevice
from simulator.nodes.device_manager import Device
from simulator.nodes.shape import KubeletSettings
from wire import names
from wire.core import Condition, Container, ContainerStatus, Pod

ALWAYS: Final = "Always"
ON_FAILURE: Final = "OnFailure"
NEVER: Final = "Never"
#: Exit code of a container that ended with its machine; nobody knows a truer one.
LOST: Final = 255
_WELL: Final = "Healthy"
#: Conditions that belong to kubelet; all others are kept as they are.
_OURS: Final = ("Initialized", "Ready", "ContainersReady", names.CONDITION_POD_SCHEDULED)


@dataclass(slots=True)
class Life:
    """One container's state. Exactly one of waiting (a reason), running and terminated (an exit code) is set."""

    name: str
    image: str
    is_init: bool
    #: An init container that goes on beside the others (KEP-753).
    is_sidecar: bool = False
    restarts: int = 0
    waiting: tuple[str, str] | None = ("ContainerCreating", "")
    running_since: str = ""
    exit_code: int | None = None
    #: Why it ended, if something else ended it.
    ended_by: str = ""
    #: When it ended; "" if nobody knows.
    ended_at: str = ""
    #: The devices that it was given, and whether they are well.
    devices: Mapping[Device, bool] = field(default_factory=dict)
    #: Whether a terminated container is final: its restart policy doesn't start it again.
    is_final: bool = False
    has_started: bool = False

    def wait(self, reason: str, message: str = "") -> None:
        """Not running for ``reason``."""
        self.waiting, self.running_since, self.exit_code = (reason, message), "", None

    def run(self, since: str) -> None:
        """Its process lives."""
        self.waiting, self.running_since, self.exit_code, self.has_started = None, since, None, True

    def end(self, exit_code: int, *, at: str, ended_by: str = "") -> None:
        """Its process is gone."""
        self.waiting, self.running_since, self.exit_code = None, "", exit_code
        self.ended_by, self.ended_at = ended_by, at

    def recall(self, old: ContainerStatus) -> bool:
        """Take up what was told of it before the machine was down. Whether it had begun by then."""
        self.restarts = old.restart_count
        state = old.state
        if state is None or state.waiting or not (state.running or state.terminated):
            return False
        self.has_started = True
        if state.terminated:
            ended = state.terminated
            self.end(ended.exit_code, at=ended.finished_at or "", ended_by=ended.reason)
        else:
            self.end(LOST, at="", ended_by="Unknown")
        return True


def restarts(policy: str, exit_code: int) -> bool:
    """Whether a container that ended is started again; "" is Always, the API server's default."""
    if policy in {"", ALWAYS}:
        return True
    return policy == ON_FAILURE and exit_code != 0


def phase(lives: Sequence[Life]) -> str:
    """Return the pod's phase as kubelet computes it (getPhase): sidecars don't keep a pod from ending."""
    inits = [life for life in lives if life.is_init and not life.is_sidecar]
    regular = [life for life in lives if not life.is_init]
    if any(life.is_final and life.exit_code for life in inits):
        return names.FAILED
    if all(life.is_final for life in regular):
        return names.FAILED if any(life.exit_code for life in regular) else names.SUCCEEDED
    return names.RUNNING if any(life.has_started for life in regular) else names.PENDING


def render(pod: Pod, lives: Sequence[Life], *, started_at: str, now: str) -> dict[str, Any]:
    """Make the status to be merged into the pod from the lives of its containers.

    Conditions that are not kubelet's are carried over.
    """
    reached = phase(lives)
    is_over = reached in {names.SUCCEEDED, names.FAILED}
    inits_done = all(_is_past(life) for life in lives if life.is_init)
    ready = not is_over and all(life.running_since for life in lives if not life.is_init)
    conditions = {"Initialized": inits_done, "Ready": ready, "ContainersReady": ready, "PodScheduled": True}
    return {
        "phase": reached,
        "startTime": started_at,
        "conditions": _conditions(pod.status.conditions or (), conditions, now),
        "initContainerStatuses": [_container(life) for life in lives if life.is_init],
        "containerStatuses": [_container(life) for life in lives if not life.is_init],
    }


def refused(pod: Pod, lives: Iterable[Life], reason: str, message: str, *, now: str) -> dict[str, Any]:
    """Make the status of a pod that kubelet didn't admit; some of its ``lives`` may have been before a reboot."""
    conditions = _conditions(pod.status.conditions or (), {names.CONDITION_POD_SCHEDULED: True}, now)
    told = {"phase": names.FAILED, "reason": reason, "message": message, "startTime": now, "conditions": conditions}
    before = [_container(life) for life in lives if not life.is_init and life.exit_code is not None]
    return {**told, "containerStatuses": before} if before else told


def _is_past(life: Life) -> bool:
    return bool(life.running_since) if life.is_sidecar else life.exit_code == 0


def _conditions(known: Iterable[Condition], wanted: dict[str, bool], now: str) -> list[dict[str, Any]]:
    before = {condition.type: condition for condition in known}
    foreign = [_plain(condition) for condition in before.values() if condition.type not in _OURS]
    ours = []
    for kind, holds in wanted.items():
        status = "True" if holds else "False"
        old = before.get(kind)
        since = old.last_transition_time if old and old.status == status and old.last_transition_time else now
        ours.append({"type": kind, "status": status, "lastTransitionTime": since})
    return foreign + ours


def _plain(condition: Condition) -> dict[str, Any]:
    named = {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "lastTransitionTime": condition.last_transition_time,
        "observedGeneration": condition.observed_generation,
    }
    return {key: value for key, value in named.items() if value}


def _container(life: Life) -> dict[str, Any]:
    return {
        "name": life.name,
        "image": life.image,
        "imageID": "",
        "ready": bool(life.running_since) or (life.is_init and life.exit_code == 0),
        "started": bool(life.running_since),
        "restartCount": life.restarts,
        "state": _state(life),
        "allocatedResourcesStatus": _allocated(life),
    }


def _allocated(life: Life) -> list[dict[str, Any]] | None:
    """Tell the devices of a container and their health, as kubelet does by KEP-4680."""
    told: dict[str, list[dict[str, str]]] = {}
    for device, well in life.devices.items():
        said = {"resourceID": device.uuid, "health": _WELL if well else names.UNHEALTHY}
        told.setdefault(device.resource, []).append(said)
    return [{"name": resource, "resources": devices} for resource, devices in sorted(told.items())] or None


def _state(life: Life) -> dict[str, Any]:
    if life.waiting is not None:
        reason, message = life.waiting
        return {"waiting": {"reason": reason, **({"message": message} if message else {})}}
    if life.running_since:
        return {"running": {"startedAt": life.running_since}}
    reason = life.ended_by or ("Error" if life.exit_code else "Completed")
    ended = {"exitCode": life.exit_code or 0, "reason": reason}
    return {"terminated": {**ended, "finishedAt": life.ended_at} if life.ended_at else ended}


#: Exit codes of a container that the runtime could not start, and of one that was told to stop.
_START_ERROR: Final = 128
_TERMINATED: Final = 143
_ENDED: Final = frozenset({names.SUCCEEDED, names.FAILED})
#: What kubelet grants at the least, to pods that are deleted by force, too.
_LEAST_GRACE_S: Final = 1


class Machine(Protocol):
    """What a pod worker needs of the node it lives on (simulator/nodes/kubelet.py)."""

    settings: KubeletSettings
    rng: random.Random
    devices: tuple[Device, ...]

    def assigned(self, pod_uid: str, container: str) -> tuple[Device, ...]:
        """Return the devices that the device manager gave to a container."""
        ...

    def has_devices(self, pod_uid: str) -> bool:
        """Whether a pod has the devices that it asks, also where kubelet has forgotten what it had."""
        ...

    def health(self, pod_uid: str, container: str) -> dict[Device, bool]:
        """Return those devices, and whether they are well."""
        ...

    def has_image(self, pod: Pod) -> bool:
        """Whether the image of a pod's containers is there, or can be pulled."""
        ...

    def image_env(self) -> dict[str, str]:
        """Return what images set."""
        ...

    async def sources(self, pod: Pod, container: Container) -> containers.Sources:
        """Read the ConfigMaps and Secrets that a container's environment is made from."""
        ...

    async def run_process(
        self,
        pod: Pod,
        life: Life,
        env: dict[str, str],
        devices: tuple[Device, ...],
        *,
        report: Callable[[], Awaitable[None]],
    ) -> int:
        """Run a container's process to its end. ``report``: tells that it runs."""
        ...

    def container_started(self, pod: Pod, life: Life, seen: tuple[Device, ...]) -> None:
        """Take down that a container's process began."""
        ...

    def container_stopped(self, pod: Pod, life: Life) -> None:
        """Take down that a container's process is gone."""
        ...

    def pod_ended(self, pod: Pod) -> None:
        """All containers have ended: the pod's devices and resources are free again."""
        ...

    async def write_status(self, pod: Pod, make: Callable[[Pod], dict[str, Any]]) -> Pod | None:
        """Write the pod's status; return the pod as stored, or None when it is gone."""
        ...

    async def remove(self, pod: Pod) -> None:
        """Delete a pod that has ended and is to go."""
        ...

    def now(self) -> str:
        """Return the wall time as metav1.Time."""
        ...


@dataclass(slots=True)
class PodWorker:
    """Runs one pod. ``update`` and ``vanish`` come from the pod stream, ``run`` is its task."""

    machine: Machine
    pod: Pod
    lives: dict[str, Life] = field(default_factory=dict)
    #: Containers that had begun before the machine was down.
    _recalled: set[str] = field(default_factory=set)
    #: Whether the API server was told to delete it.
    is_removed: bool = False
    #: Whether kubelet refused it: it has no containers to tell of.
    is_refused: bool = False
    #: Whether the pod is gone from the API server.
    is_vanished: bool = False
    _doomed: anyio.Event = field(default_factory=anyio.Event)
    #: Set when there is a newer version of the pod; the task that waited replaces it.
    _news: anyio.Event = field(default_factory=anyio.Event)
    #: Why the kubelet ends it unasked; "": it doesn't.
    _evicted: str = ""
    _started_at: str = ""
    _writing: anyio.Lock = field(default_factory=anyio.Lock)
    _written: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        status = self.pod.status
        before = {s.name: s for s in (*(status.init_container_statuses or ()), *(status.container_statuses or ()))}
        for kind, container in containers.containers_of(self.pod):
            is_init = kind == containers.INIT
            life = Life(container.name, container.image, is_init, is_init and container.restart_policy == "Always")
            if self.pod.spec.init_containers:
                life.wait("PodInitializing")
            if (old := before.get(container.name)) and life.recall(old):
                self._recalled.add(container.name)
            self.lives[container.name] = life
        self._started_at = self.machine.now()
        if self.pod.metadata.deletion_timestamp:
            self._doomed.set()

    def update(self, pod: Pod) -> None:
        """Take a newer version of the pod; one that is being deleted may have less time left than before."""
        self.pod = pod
        self._news.set()
        if pod.metadata.deletion_timestamp:
            self._doomed.set()

    def vanish(self) -> None:
        """The pod is gone from the API server (a forced deletion): its containers are stopped nevertheless."""
        self.is_vanished = True
        self._doomed.set()

    def forget_written(self) -> None:
        """Take the next status for a new one, even if it equals the last."""
        self._written = None

    def evict(self, message: str) -> None:
        """End the pod as the kubelet does for the machine's sake: it fails, and stays on the API server."""
        self._evicted = message
        self._doomed.set()

    @property
    def is_ending(self) -> bool:
        """Whether its containers are being ended, which nothing takes back."""
        return self._doomed.is_set()

    async def run(self) -> None:
        """Live the pod's life; returns when its containers have ended and, if it is to go, it was deleted."""
        if self._recalled:
            await self.report()
        if self._goes_on:
            await self._live()
        self._end_all()
        self.machine.pod_ended(self.pod)
        await self.report()
        if self.is_vanished or self.pod.metadata.deletion_timestamp:
            await self.remove()

    async def remove(self) -> None:
        """Delete the ended pod, unless it is gone already."""
        self.is_removed = True
        if not self.is_vanished:
            await self.machine.remove(self.pod)

    async def report(self) -> None:
        """Write the status if it changed. Callers of one moment are served by one write.

        Kubelet takes the devices of a pod for free before it tells that the pod has ended, however long that takes.
        """
        if all(life.is_final for life in self.lives.values()):
            self.machine.pod_ended(self.pod)
        async with self._writing:
            status = self._render(self.pod)
            if status["phase"] in _ENDED and not any(life.running_since for life in self.lives.values()):
                # What has ended for kubelet is free before the API server hears of it.
                self.machine.pod_ended(self.pod)
            if status == self._written or self.is_vanished:
                return
            stored = await self.machine.write_status(self.pod, self._render)
            self._written = status
            if stored is None:
                self.vanish()

    def _render(self, pod: Pod) -> dict[str, Any]:
        for life in self.lives.values():
            life.devices = self.machine.health(pod.metadata.uid, life.name)
        status = render(pod, list(self.lives.values()), started_at=self._started_at, now=self.machine.now())
        if self._evicted and all(life.is_final for life in self.lives.values()):
            # Told only when nothing runs any more, as kubelet does.
            return {**status, "phase": names.FAILED, "reason": "Evicted", "message": self._evicted}
        return status

    @property
    def _goes_on(self) -> bool:
        """Whether a container is to be started; after a reboot a pod that is never restarted has ended with it."""
        if not self._recalled:
            return True
        policy = self.pod.spec.restart_policy
        lives = [life for life in self.lives.values() if not life.is_init]
        return policy != NEVER and any(life.exit_code is None or restarts(policy, life.exit_code) for life in lives)

    async def _live(self) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(self._stop_when_doomed, group.cancel_scope)
            group.start_soon(self.report)
            await self._run_containers()
            group.cancel_scope.cancel()

    def _end_all(self) -> None:
        # The reservation process ends with 0 on SIGTERM.
        told_to = 0 if containers.is_reservation(self.pod) else _TERMINATED
        for life in self.lives.values():
            if not life.is_final:
                if life.name not in self._recalled or life.exit_code is None:
                    life.end(told_to, at=self.machine.now())
                life.is_final = True

    async def _stop_when_doomed(self, scope: anyio.CancelScope) -> None:
        await self._doomed.wait()
        if any(life.running_since for life in self.lives.values()):
            began_s = anyio.current_time()
            while (until_s := began_s + min(self.machine.settings.stop_s, self._grace_s)) > anyio.current_time():
                self._news = anyio.Event()
                with anyio.move_on_at(until_s):
                    await self._news.wait()
        scope.cancel()

    @property
    def _grace_s(self) -> int:
        """How long its containers may take to end, by its newest version."""
        grace_s = self.pod.metadata.deletion_grace_period_seconds
        if grace_s is None:
            grace_s = self.pod.spec.termination_grace_period_seconds
        return 30 if grace_s is None else max(grace_s, _LEAST_GRACE_S)

    async def _run_containers(self) -> None:
        await anyio.sleep(self.machine.settings.sandbox_s)
        async with anyio.create_task_group() as sidecars:
            for container in self.pod.spec.init_containers or ():
                if self.lives[container.name].is_sidecar:
                    sidecars.start_soon(self._keep, container, ALWAYS)
                elif await self._keep(container, self._init_policy()):
                    sidecars.cancel_scope.cancel()
                    return
            async with anyio.create_task_group() as group:
                for container in self.pod.spec.containers:
                    group.start_soon(self._keep, container, self.pod.spec.restart_policy)
            sidecars.cancel_scope.cancel()

    def _init_policy(self) -> str:
        """Init containers that succeeded are never started again; failed ones unless the pod's policy is Never."""
        return NEVER if self.pod.spec.restart_policy == NEVER else ON_FAILURE

    async def _keep(self, container: Container, policy: str) -> int:
        """Run a container, again and again as its policy has it; return its final exit code.

        As kubelet does, it is started again at once when it has ended for the first time, and after a back-off from
        then on. Its start after a reboot counts, and a new sandbox has its init containers run again.
        """
        life = self.lives[container.name]
        backoff = Backoff(self.machine.settings.crash_backoff, self.machine.rng)
        has_ended = life.exit_code is not None
        if has_ended:
            if not life.is_init and not restarts(policy, life.exit_code or 0):
                life.is_final = True
                return life.exit_code or 0
            life.restarts += 1
        while True:
            exit_code = await self._run_once(container, life)
            life.end(exit_code, at=self.machine.now())
            if not restarts(policy, exit_code):
                life.is_final = True
                await self.report()
                return exit_code
            await self.report()
            if has_ended:
                wait_s = backoff.fail()
                life.wait("CrashLoopBackOff", f"back-off {wait_s:.0f}s restarting failed container")
                await self.report()
                await anyio.sleep(wait_s)
            has_ended = True
            life.restarts += 1

    async def _pull(self, life: Life) -> None:
        """Have the image, trying again for as long as it can't be pulled."""
        while not self.machine.has_image(self.pod):
            life.wait("ImagePullBackOff", f'Back-off pulling image "{life.image}"')
            await self.report()
            await anyio.sleep(self.machine.settings.config_retry_s)

    async def _run_once(self, container: Container, life: Life) -> int:
        await self._pull(life)
        if not self.machine.has_devices(self.pod.metadata.uid):
            return _START_ERROR
        env = await self._environment(container, life)
        seen = containers.visible(env.get(names.ENV_VISIBLE_DEVICES), self.machine.devices)
        await anyio.sleep(self.machine.settings.start_s)
        if self._doomed.is_set():
            # Nothing is started any more in a pod that ends, and what it had may be another's by now.
            await anyio.sleep_forever()
        if isinstance(seen, UnknownDevice):
            return _START_ERROR
        life.run(self.machine.now())
        self.machine.container_started(self.pod, life, seen)
        try:
            return await self.machine.run_process(self.pod, life, env, seen, report=self.report)
        finally:
            self.machine.container_stopped(self.pod, life)

    async def _environment(self, container: Container, life: Life) -> dict[str, str]:
        """Make the environment, waiting until everything that it is made from is there."""
        assigned = self.machine.assigned(self.pod.metadata.uid, container.name)
        while True:
            sources = await self.machine.sources(self.pod, container)
            image = self.machine.image_env()
            env = containers.resolve(self.pod, container, sources=sources, assigned=assigned, image=image)
            if not isinstance(env, MissingSource):
                return env
            life.wait("CreateContainerConfigError", env.message)
            await self.report()
            await anyio.sleep(self.machine.settings.config_retry_s)
