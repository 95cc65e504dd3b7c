"""What users do to a cluster, as data: each action has its time, and what it does is ``perform``.

Users do all that their rights allow, at any moment. What the API server answers them is their own affair: a
refusal, a time-out, an object that is gone by now are expected outcomes of a hostile run, and no action raises.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import anyio
import msgspec
from typing_extensions import override

from kube.client import errors
from kube.client.resources import BIND_REQUESTS, CONFIG_MAPS, POD_GROUPS, PODS
from simulator.nodes.containers import RUN_S
from verification.hostile.acting import LOOK_S, Act, seen
from verification.hostile.device_actions import ClaimAction, ExtendedAction, MigAction
from verification.hostile.queue_actions import (
    CreateBudget,
    CreateOwner,
    CreatePriorityClass,
    CreateQueue,
    DeleteBudget,
    DeleteOwner,
    DeleteQueue,
    EditBudget,
    EditQueue,
    MoveGroup,
    MoveNode,
    MovePod,
    MoveQueue,
)
from verification.hostile.tenant_actions import TenantAction
from wire import names

if TYPE_CHECKING:
    from simulator.world import World

NAMESPACE: Final = "team"
MAIN: Final = "main"
#: The label by whose value pods keep apart.
APART: Final = "apart"
#: Our webhooks, as the API server names them to whom they refuse (simulator/components.py).
_WEBHOOKS: Final = ("mutate.moorage.dev", "validate.moorage.dev")

Json = dict[str, Any]


class CreatePod(Act, frozen=True, kw_only=True, tag="create-pod"):
    """Create a pod.

    ``annotations`` hold what it asks of shared devices, right or wrong, and anything else that a user writes there;
    ``gpus`` are whole ones of its first container. ``limits``: other resources, by container. ``run_s``: its
    containers end after this many seconds, and are not started again (None: they never end); ``deadline_s``: its
    activeDeadlineSeconds, by which schedulers know its end (0: it has none). ``node``: its maker
    names the node himself, past every scheduler. ``insist_s``: while the name is taken it is tried again for so
    long, as a controller does that replaces its pod. ``owner``: a ConfigMap that owns it, if it is there by then.
    ``claims``: ResourceClaims by name, ``templates``: templates of them; ``volumes``: claims of volumes. ``apart``: the
    value of the label APART of pods with which it never shares a node. ``workload_group``: PodGroup of Kubernetes'
    Workload API that it is in.
    """

    name: str
    namespace: str = NAMESPACE
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    containers: tuple[str, ...] = (MAIN,)
    init_containers: tuple[str, ...] = ()
    gpus: int = 0
    limits: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)
    cpu_milli: int = 0
    group: str = ""
    priority_class: str = ""
    owner: str = ""
    run_s: float | None = None
    deadline_s: int = 0
    grace_s: int | None = None
    node: str = ""
    scheduler: str = names.SCHEDULER_NAME
    gated: bool = False
    insist_s: float = 0.0
    claims: tuple[str, ...] = ()
    templates: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    apart: str = ""
    workload_group: str = ""

    @property
    def manifest(self) -> Json:
        """The pod as its user writes it."""
        spec: Json = {
            "schedulerName": self.scheduler,
            "containers": [self._container(name, is_first=i == 0) for i, name in enumerate(self.containers)],
        }
        if self.deadline_s:
            spec["activeDeadlineSeconds"] = self.deadline_s
        if self.run_s is not None:
            spec["restartPolicy"] = "Never"
        if self.init_containers:
            spec["initContainers"] = [self._container(name, is_first=False) for name in self.init_containers]
        if self.grace_s is not None:
            spec["terminationGracePeriodSeconds"] = self.grace_s
        if self.node:
            spec["nodeName"] = self.node
        if self.priority_class:
            spec["priorityClassName"] = self.priority_class
        if self.gated:
            spec["schedulingGates"] = [{"name": "example.com/wait"}]
        if self.apart:
            term = {"labelSelector": {"matchLabels": {APART: self.apart}}, "topologyKey": names.HOSTNAME_LABEL}
            spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        spec |= self._claimed()
        if self.workload_group:
            spec["schedulingGroup"] = {"podGroupName": self.workload_group}
        metadata = {"name": self.name, "labels": dict(self.labels), "annotations": self._annotations()}
        return {"metadata": metadata, "spec": spec}

    def _claimed(self) -> Json:
        named = [{"resourceClaimName": claim} for claim in self.claims]
        named += [{"resourceClaimTemplateName": template} for template in self.templates]
        entries = [{"name": f"c{number}", **entry} for number, entry in enumerate(named)]
        volumes = [
            {"name": f"v{number}", "persistentVolumeClaim": {"claimName": claim}}
            for number, claim in enumerate(self.volumes)
        ]
        return {**({"resourceClaims": entries} if entries else {}), **({"volumes": volumes} if volumes else {})}

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
        manifest = await self._owned(world)
        while True:
            try:
                await world.api.create(PODS, manifest, namespace=self.namespace)
            except errors.AlreadyExists:
                if anyio.current_time() >= until:
                    raise
                await anyio.sleep(LOOK_S)
                await seen(lambda: _named(world.pods, self.namespace, self.name) is None, self._left_s(until))
            except errors.Forbidden as error:
                if any(webhook in str(error) for webhook in _WEBHOOKS):
                    world.checker.refused(manifest, str(error), anyio.current_time())
                raise
            else:
                return

    @staticmethod
    def _left_s(until: float) -> float:
        return max(0.0, until - anyio.current_time() - LOOK_S)

    async def _owned(self, world: World) -> Json:
        if not self.owner:
            return self.manifest
        meta = (await world.api.get(CONFIG_MAPS, self.owner, namespace=self.namespace)).metadata
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": meta.name, "uid": meta.uid}
        return {**self.manifest, "metadata": {**self.manifest["metadata"], "ownerReferences": [owner]}}


class DeletePod(Act, frozen=True, kw_only=True, tag="delete-pod"):
    """Delete a pod. ``grace_s`` None: its own grace period; 0: by force, without a word from its kubelet."""

    name: str
    namespace: str = NAMESPACE
    grace_s: int | None = None

    @override
    async def _do(self, world: World) -> None:
        await world.api.delete(PODS, self.name, namespace=self.namespace, grace_s=self.grace_s)


class EvictPod(Act, frozen=True, kw_only=True, tag="evict-pod"):
    """Evict a pod, as a drain does."""

    name: str
    namespace: str = NAMESPACE

    @override
    async def _do(self, world: World) -> None:
        await world.api.evict(self.namespace, self.name)


class EditPod(Act, frozen=True, kw_only=True, tag="edit-pod"):
    """Change keys of a pod's metadata; None takes one away. ``when_bound_s``: wait for its binding for so long."""

    name: str
    namespace: str = NAMESPACE
    annotations: dict[str, str | None] = msgspec.field(default_factory=dict)
    labels: dict[str, str | None] = msgspec.field(default_factory=dict)
    when_bound_s: float = 0.0

    @override
    async def _do(self, world: World) -> None:
        await seen(lambda: _is_bound(world, self.namespace, self.name), self.when_bound_s)
        metadata = {"annotations": self.annotations, "labels": self.labels}
        patch = {"metadata": {field: keys for field, keys in metadata.items() if keys}}
        await world.api.patch(PODS, self.name, patch, namespace=self.namespace)


class UngatePod(Act, frozen=True, kw_only=True, tag="ungate-pod"):
    """Let a gated pod go."""

    name: str
    namespace: str = NAMESPACE

    @override
    async def _do(self, world: World) -> None:
        patch = [{"op": "remove", "path": "/spec/schedulingGates"}]
        await world.api.patch(PODS, self.name, patch, namespace=self.namespace)


class Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A sub-group as its maker writes it: ``parent`` "" is the top; with a minimum of pods or of sub-groups."""

    name: str
    parent: str = ""
    pods: int | None = None
    parts: int | None = None

    @property
    def manifest(self) -> Json:
        """As a PodGroup has it."""
        said = {"parent": self.parent or None, "minMember": self.pods, "minSubGroup": self.parts}
        return {"name": self.name, **{field: value for field, value in said.items() if value is not None}}


class CreatePodGroup(Act, frozen=True, kw_only=True, tag="create-pod-group"):
    """Create a gang that starts with ``minimum`` members; ``annotations``: also what is not a user's to write.

    ``delay``: so long it waits before others are evicted for it.
    With ``parts`` it is these that say so, ``least`` of those at the top, or all.
    """

    name: str
    minimum: int
    parts: tuple[Part, ...] = ()
    least: int | None = None
    namespace: str = NAMESPACE
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    queue: str = "default"
    preemptibility: str = ""
    priority_class: str = ""
    delay: str = ""

    @override
    async def _do(self, world: World) -> None:
        spec: Json = {**self._minimums(), "queue": self.queue}
        said = {
            "preemptibility": self.preemptibility,
            "priorityClassName": self.priority_class,
            "preemptionDelay": self.delay,
        }
        spec.update({field: value for field, value in said.items() if value})
        meta = {"name": self.name, "annotations": dict(self.annotations), "labels": dict(self.labels)}
        body = {"metadata": meta, "spec": spec}
        await world.api.create(POD_GROUPS, body, namespace=self.namespace)

    def _minimums(self) -> Json:
        if not self.parts:
            return {"minMember": self.minimum}
        least = {} if self.least is None else {"minSubGroup": self.least}
        return {**least, "subGroups": [part.manifest for part in self.parts]}


class ChangePodGroup(Act, frozen=True, kw_only=True, tag="change-pod-group"):
    """Change a gang's minimum, its queue, whether it can be preempted, or an annotation (None takes one away)."""

    name: str
    namespace: str = NAMESPACE
    minimum: int | None = None
    annotations: dict[str, str | None] = msgspec.field(default_factory=dict)
    queue: str | None = None
    preemptibility: str | None = None

    @override
    async def _do(self, world: World) -> None:
        patch: Json = {"metadata": {"annotations": self.annotations}} if self.annotations else {}
        fields = {"minMember": self.minimum, "queue": self.queue, "preemptibility": self.preemptibility}
        if spec := {field: value for field, value in fields.items() if value is not None}:
            patch["spec"] = spec
        await world.api.patch(POD_GROUPS, self.name, patch, namespace=self.namespace)


class DeletePodGroup(Act, frozen=True, kw_only=True, tag="delete-pod-group"):
    """Delete a PodGroup under its pods."""

    name: str
    namespace: str = NAMESPACE

    @override
    async def _do(self, world: World) -> None:
        await world.api.delete(POD_GROUPS, self.name, namespace=self.namespace)


class DeleteBindRequest(Act, frozen=True, kw_only=True, tag="delete-bind-request"):
    """Delete the hand-over of a pod by hand, as soon as there is one within ``wait_s``."""

    pod: str
    namespace: str = NAMESPACE
    wait_s: float = 5.0

    @override
    async def _do(self, world: World) -> None:
        if await seen(lambda: self._is_there(world), self.wait_s):
            await world.api.delete(BIND_REQUESTS, self.pod, namespace=self.namespace)

    def _is_there(self, world: World) -> bool:
        latest = world.observers[BIND_REQUESTS.plural].latest.values()
        return _named(latest, self.namespace, self.pod) is not None


class DeleteReservation(Act, frozen=True, kw_only=True, tag="delete-reservation"):
    """Delete a reservation pod by hand: the ``number``-th of those that are there, counted round by name."""

    number: int
    grace_s: int | None = None
    wait_s: float = 5.0

    @override
    async def _do(self, world: World) -> None:
        if await seen(lambda: bool(_reservations(world)), self.wait_s):
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
    | CreateQueue
    | EditQueue
    | DeleteQueue
    | CreatePriorityClass
    | CreateOwner
    | DeleteOwner
    | CreateBudget
    | EditBudget
    | DeleteBudget
    | MoveNode
    | MovePod
    | MoveGroup
    | MoveQueue
    | ClaimAction
    | MigAction
    | ExtendedAction
    | TenantAction
)


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
