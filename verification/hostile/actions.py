"""What users do to a cluster, as data: each action has its time, and what it does is ``perform``.

Users do whatever their rights allow, at whatever moment. What the API server answers them is their own affair: a
refusal, a time-out, an object that is gone by now are expected outcomes of a hostile run, and no action raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import anyio
import msgspec
from typing_extensions import override

from kube.client import errors
from kube.client.resources import BIND_REQUESTS, POD_GROUPS, PODS
from simulator.process import RUN_S
from wire import names

if TYPE_CHECKING:
    from simulator.world import World

NAMESPACE: Final = "team"
MAIN: Final = "main"
#: Our webhooks, as the API server names them to whom they refuse (simulator/hooks.py).
_WEBHOOKS: Final = ("mutate.moorage.dev", "validate.moorage.dev")
#: How often somebody looks who waits for something.
_LOOK_S: Final = 0.05

Json = dict[str, Any]


class _Act(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """``at_s``: virtual seconds after the cluster was ready."""

    at_s: float

    async def perform(self, world: World) -> None:
        """Do it. What the API server refuses is an expected outcome."""
        try:
            await self._do(world)
        except errors.ApiError:
            return

    async def _do(self, world: World) -> None:
        """Do it. Raises kube.client.errors.ApiError."""
        raise NotImplementedError


class CreatePod(_Act, frozen=True, kw_only=True, tag="create-pod"):
    """Create a pod.

    ``annotations`` hold what it asks of shared devices, right or wrong, and whatever else a user writes there;
    ``gpus`` are whole ones of its first container. ``limits``: other resources, by container. ``run_s``: its
    containers end after so many seconds, and are not started again (None: they never end). ``node``: its maker
    names the node himself, past every scheduler. ``insist_s``: while the name is taken it is tried again for so
    long, as a controller does that replaces its pod.
    """

    name: str
    namespace: str = NAMESPACE
    annotations: dict[str, str] = {}
    labels: dict[str, str] = {}
    containers: tuple[str, ...] = (MAIN,)
    init_containers: tuple[str, ...] = ()
    gpus: int = 0
    limits: dict[str, dict[str, str]] = {}
    cpu_milli: int = 0
    group: str = ""
    run_s: float | None = None
    grace_s: int | None = None
    node: str = ""
    scheduler: str = names.SCHEDULER_NAME
    gated: bool = False
    insist_s: float = 0.0

    @property
    def manifest(self) -> Json:
        """The pod as its user writes it."""
        spec: Json = {
            "schedulerName": self.scheduler,
            "containers": [self._container(name, is_first=i == 0) for i, name in enumerate(self.containers)],
        }
        if self.run_s is not None:
            spec["restartPolicy"] = "Never"
        if self.init_containers:
            spec["initContainers"] = [self._container(name, is_first=False) for name in self.init_containers]
        if self.grace_s is not None:
            spec["terminationGracePeriodSeconds"] = self.grace_s
        if self.node:
            spec["nodeName"] = self.node
        if self.gated:
            spec["schedulingGates"] = [{"name": "example.com/wait"}]
        metadata = {"name": self.name, "labels": dict(self.labels), "annotations": self._annotations()}
        return {"metadata": metadata, "spec": spec}

    def _annotations(self) -> dict[str, str]:
        ours = {} if not self.group else {names.POD_GROUP_NAME: self.group}
        if self.run_s is not None:
            ours[RUN_S] = f"{self.run_s:g}"
        return {**ours, **self.annotations}

    def _container(self, name: str, *, is_first: bool) -> Json:
        limits = dict(self.limits.get(name, {}))
        if is_first and self.gpus:
            limits[names.GPU_RESOURCE] = str(self.gpus)
        if is_first and self.cpu_milli:
            limits[names.CPU_RESOURCE] = f"{self.cpu_milli}m"
        return {"name": name, "image": "work", **({"resources": {"limits": limits}} if limits else {})}

    @override
    async def _do(self, world: World) -> None:
        until = anyio.current_time() + self.insist_s
        while True:
            try:
                await world.api.create(PODS, self.manifest, namespace=self.namespace)
            except errors.AlreadyExists:
                if anyio.current_time() >= until:
                    raise
                await anyio.sleep(_LOOK_S)
            except errors.Forbidden as error:
                if any(webhook in str(error) for webhook in _WEBHOOKS):
                    world.checker.refused(self.manifest, str(error), anyio.current_time())
                raise
            else:
                return


class DeletePod(_Act, frozen=True, kw_only=True, tag="delete-pod"):
    """Delete a pod. ``grace_s`` None: its own grace period; 0: by force, without a word from its kubelet."""

    name: str
    namespace: str = NAMESPACE
    grace_s: int | None = None

    @override
    async def _do(self, world: World) -> None:
        await world.api.delete(PODS, self.name, namespace=self.namespace, grace_s=self.grace_s)


class EvictPod(_Act, frozen=True, kw_only=True, tag="evict-pod"):
    """Evict a pod, as a drain does."""

    name: str
    namespace: str = NAMESPACE

    @override
    async def _do(self, world: World) -> None:
        await world.api.evict(self.namespace, self.name)


class EditPod(_Act, frozen=True, kw_only=True, tag="edit-pod"):
    """Change keys of a pod's metadata; None takes one away. ``when_bound_s``: wait for its binding for so long."""

    name: str
    namespace: str = NAMESPACE
    annotations: dict[str, str | None] = {}
    labels: dict[str, str | None] = {}
    when_bound_s: float = 0.0

    @override
    async def _do(self, world: World) -> None:
        await _seen(lambda: _is_bound(world, self.namespace, self.name), self.when_bound_s)
        metadata = {"annotations": self.annotations, "labels": self.labels}
        patch = {"metadata": {field: keys for field, keys in metadata.items() if keys}}
        await world.api.patch(PODS, self.name, patch, namespace=self.namespace)


class UngatePod(_Act, frozen=True, kw_only=True, tag="ungate-pod"):
    """Let a gated pod go."""

    name: str
    namespace: str = NAMESPACE

    @override
    async def _do(self, world: World) -> None:
        patch = [{"op": "remove", "path": "/spec/schedulingGates"}]
        await world.api.patch(PODS, self.name, patch, namespace=self.namespace)


class CreatePodGroup(_Act, frozen=True, kw_only=True, tag="create-pod-group"):
    """Create a gang that starts with ``minimum`` members; ``annotations``: also what is not a user's to write."""

    name: str
    minimum: int
    namespace: str = NAMESPACE
    annotations: dict[str, str] = {}

    @override
    async def _do(self, world: World) -> None:
        body = {
            "metadata": {"name": self.name, "annotations": dict(self.annotations)},
            "spec": {"minMember": self.minimum, "queue": "default"},
        }
        await world.api.create(POD_GROUPS, body, namespace=self.namespace)


class ChangePodGroup(_Act, frozen=True, kw_only=True, tag="change-pod-group"):
    """Change a gang's minimum, or an annotation of it (None takes one away)."""

    name: str
    namespace: str = NAMESPACE
    minimum: int | None = None
    annotations: dict[str, str | None] = {}

    @override
    async def _do(self, world: World) -> None:
        patch: Json = {"metadata": {"annotations": self.annotations}} if self.annotations else {}
        if self.minimum is not None:
            patch["spec"] = {"minMember": self.minimum}
        await world.api.patch(POD_GROUPS, self.name, patch, namespace=self.namespace)


class DeletePodGroup(_Act, frozen=True, kw_only=True, tag="delete-pod-group"):
    """Delete a PodGroup under its pods."""

    name: str
    namespace: str = NAMESPACE

    @override
    async def _do(self, world: World) -> None:
        await world.api.delete(POD_GROUPS, self.name, namespace=self.namespace)


class DeleteBindRequest(_Act, frozen=True, kw_only=True, tag="delete-bind-request"):
    """Delete the hand-over of a pod by hand, as soon as there is one within ``wait_s``."""

    pod: str
    namespace: str = NAMESPACE
    wait_s: float = 5.0

    @override
    async def _do(self, world: World) -> None:
        if await _seen(lambda: self._is_there(world), self.wait_s):
            await world.api.delete(BIND_REQUESTS, self.pod, namespace=self.namespace)

    def _is_there(self, world: World) -> bool:
        latest = world.observers[BIND_REQUESTS.plural].latest.values()
        return _named(latest, self.namespace, self.pod) is not None


class DeleteReservation(_Act, frozen=True, kw_only=True, tag="delete-reservation"):
    """Delete a reservation pod by hand: the ``number``-th of those that are there, counted round by name."""

    number: int
    grace_s: int | None = None
    wait_s: float = 5.0

    @override
    async def _do(self, world: World) -> None:
        if await _seen(lambda: bool(_reservations(world)), self.wait_s):
            there = _reservations(world)
            name = there[self.number % len(there)]
            await world.api.delete(PODS, name, namespace=names.RESERVATION_NAMESPACE, grace_s=self.grace_s)


#: Everything that users do.
Action = (
    CreatePod
    | DeletePod
    | EvictPod
    | EditPod
    | UngatePod
    | CreatePodGroup
    | ChangePodGroup
    | DeletePodGroup
    | DeleteBindRequest
    | DeleteReservation
)


async def _seen(condition: Callable[[], bool], limit_s: float) -> bool:
    """Wait until a condition holds, for at most so long; say whether it does."""
    until = anyio.current_time() + limit_s
    while not condition():
        if anyio.current_time() >= until:
            return False
        await anyio.sleep(_LOOK_S)
    return True


def _is_bound(world: World, namespace: str, name: str) -> bool:
    pod = _named(world.pods, namespace, name)
    return pod is not None and bool(pod["spec"].get("nodeName"))


def _named(objects: Iterable[Mapping[str, Any]], namespace: str, name: str) -> Mapping[str, Any] | None:
    for raw in objects:
        if raw["metadata"]["name"] == name and raw["metadata"].get("namespace") == namespace:
            return raw
    return None


def _reservations(world: World) -> list[str]:
    """Names of the reservation pods that are there, sorted."""
    metadata = (raw["metadata"] for raw in world.pods)
    return sorted(meta["name"] for meta in metadata if meta.get("namespace") == names.RESERVATION_NAMESPACE)
