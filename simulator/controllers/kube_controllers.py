"""Controllers that act in a running cluster, as Kubernetes and drivers have them: claims, volumes, devices, budgets.

Volumes are bound, ResourceClaims made, devices made ready, and what a PodDisruptionBudget allows is kept. Claims of
manifests are bound as they are created (``Storage``), with a volume that can be used on any node, unless they name a
volume or a class that waits for a pod (Kubernetes: Dynamic Volume Provisioning, Ephemeral Volumes).
"""

from __future__ import annotations

import contextlib
import logging
import random
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
import msgspec

from admission.policies import Identities
from kube.client import errors
from kube.client.api import Api
from kube.client.clock import Clock
from kube.client.resources import (
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
)
from kube.client.retry import Retry
from simulator.apiserver.server import MemoryApiServer
from simulator.apiserver.types import ResourceType
from simulator.checks.checker import BUDGETS
from simulator.checks.evictions import is_healthy, selects
from simulator.controllers.pods import child
from wire import names, rfc3339
from wire.core import Pod
from wire.resource import DeviceRequestAllocationResult, ResourceClaim
from wire.storage import PersistentVolume, PersistentVolumeClaim
from wire.units import SECOND_NS

Json = Mapping[str, Any]

_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"


class Storage(msgspec.Struct, frozen=True):
    """``classes``: StorageClasses by name; ``volumes``: names of PersistentVolumes.

    ``kept``: claims (namespace, name) that volumes are kept for; ``of_free``: classes of the other volumes.
    """

    classes: Mapping[str, Json] = {}
    volumes: Collection[str] = frozenset()
    kept: Collection[tuple[str, str]] = frozenset()
    of_free: Collection[str] = frozenset()

    @classmethod
    def of(cls, classes: Iterable[Json], volumes: Iterable[Json]) -> Storage:
        """Read the objects that are there."""
        specs = {str(each["metadata"].get("name")): child(each, "spec") for each in volumes}
        refs = [child(each, "claimRef") for each in specs.values()]
        return cls(
            {str(each["metadata"].get("name")): each for each in classes},
            specs.keys(),
            {(str(child(ref, "namespace")), str(child(ref, "name"))) for ref in refs if ref},
            {str(child(each, "storageClassName") or "") for each in specs.values() if not child(each, "claimRef")},
        )

    def bound(self, claim: Json, namespace: str) -> tuple[Json, Json] | None:
        """Return the volume that a provisioner makes for a claim before there is a pod, and the claim bound to it.

        None where none is made. A claim of ``kubectl get`` that is bound has its volume again.
        """
        spec, meta = child(claim, "spec"), child(claim, "metadata")
        volume, is_bound = child(spec, "volumeName"), child(child(meta, "annotations"), names.BIND_COMPLETED)
        if volume and is_bound and volume not in self.volumes:
            return _bound(claim, namespace, str(volume))
        is_kept = (namespace, child(meta, "name")) in self.kept
        is_left = volume or is_bound or is_kept or not self._is_provisioned(claim)
        return None if is_left else _bound(claim, namespace, f"pvc-{namespace}-{claim['metadata']['name']}")

    def _is_provisioned(self, claim: Json) -> bool:
        """Whether its class makes a volume at once. ``storageClassName: ""`` asks for one that somebody has made."""
        annotations = child(child(claim, "metadata"), "annotations")
        written = child(annotations, names.OLD_STORAGE_CLASS) or child(child(claim, "spec"), "storageClassName")
        if written == "":
            return False
        if written not in self.classes:
            return not self.of_free
        provisioner, mode = (self.classes[written].get(field) for field in ("provisioner", "volumeBindingMode"))
        is_immediate = (mode or "Immediate") == "Immediate"
        return is_immediate and provisioner not in {None, _NO_PROVISIONER} and written not in self.of_free


def _bound(claim: Json, namespace: str, volume: str) -> tuple[Json, Json]:
    meta, spec = claim["metadata"], child(claim, "spec") or {}
    annotations = {**(meta.get("annotations") or {}), names.BIND_COMPLETED: "yes"}
    bound = {**claim, "metadata": {**meta, "annotations": annotations}, "spec": {**spec, "volumeName": volume}}
    made = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": volume},
        "spec": {
            "accessModes": spec.get("accessModes"),
            "capacity": child(spec.get("resources"), "requests"),
            "claimRef": {"namespace": namespace, "name": meta["name"]},
        },
    }
    return made, bound


def of_pod(pod: Mapping[str, Any], name: str, uid: str) -> Iterator[Json]:
    """Yield the claims of a pod's generic ephemeral volumes, which go with it."""
    for volume in child(pod.get("spec"), "volumes") or ():
        template = child(child(volume, "ephemeral"), "volumeClaimTemplate")
        if not isinstance(template, Mapping):
            continue
        written = child(template, "metadata") or {}
        meta = {field: written[field] for field in ("labels", "annotations") if written.get(field)}
        owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid, "controller": True}
        yield {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {**meta, "name": f"{name}-{volume.get('name')}", "ownerReferences": [owner]},
            "spec": template.get("spec") or {},
        }


_log: Final = logging.getLogger(__name__)

#: As whom the API server knows it.
VOLUME_CONTROLLER: Final = "system:serviceaccount:kube-system:persistent-volume-binder"
_KINDS: Final = frozenset({PERSISTENT_VOLUME_CLAIMS.plural, PERSISTENT_VOLUMES.plural})
_LATE_S: Final = 0.5


class ClaimBinding:
    """Binds claims that wait for their first consumer, as Kubernetes' PV controller and a provisioner do.

    A claim is bound to the volume that names it. Where a scheduler has selected a node, a volume is made that this node
    can use: in its zone if it has one, else on all nodes. Claims of other classes are left alone.

    ``fails``: whether no volume can be made for a claim (name) on a node; ``takes_s``: to make one. ``begin`` runs what
    it is given, with the first claim or volume: a world without them has no task for them.
    """

    usual_s: Final = 1.0

    def __init__(self, api: Api, begin: Callable[[Callable[[], Coroutine[Any, Any, None]]], None]) -> None:
        self.api = api
        self._begin = begin
        self._is_begun = False
        self.fails: Callable[[str, str], bool] = lambda _, __: False
        self.takes_s = self.usual_s
        self.is_off = False
        #: Since when a volume is being made, by the claim's UID and the node.
        self._since: dict[tuple[str, str], float] = {}
        self._news = anyio.Event()

    def take(self, kind: ResourceType, _raw: bytes, _is_gone: bool) -> None:
        """Take an object as the API server stores it."""
        if kind.plural not in _KINDS:
            return
        self._news.set()
        if not self._is_begun:
            self._is_begun = True
            self._begin(self.run)

    async def run(self) -> None:
        """Bind what can be bound after each change, until cancelled."""
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            await anyio.sleep(_LATE_S)
            try:
                is_done = not self.is_off and not await self._look()
            except errors.ApiError as error:
                _log.warning("claims are not bound: %s", error)
                is_done = False
            if not is_done:
                self._news.set()

    async def _look(self) -> bool:
        """Bind what can be bound now; return whether a volume is being made."""
        volumes = (await self.api.list(PERSISTENT_VOLUMES)).items
        named = {ref.uid: each for each in volumes if (ref := each.spec.claim_ref) is not None and ref.uid}
        is_making = False
        for claim in (await self.api.list(PERSISTENT_VOLUME_CLAIMS)).items:
            if claim.spec.volume_name:
                continue
            own, node = named.get(claim.metadata.uid), (claim.metadata.annotations or {}).get(names.SELECTED_NODE)
            if own is not None:
                await self._bind(claim, own)
            elif node:
                is_making |= await self._is_making(claim, node)
        return is_making

    async def _bind(self, claim: PersistentVolumeClaim, volume: PersistentVolume) -> None:
        name = volume.metadata.name
        await self.api.patch(PERSISTENT_VOLUMES, name, {"status": {"phase": "Bound"}}, subresource="status")
        body = {"spec": {"volumeName": name}, "metadata": {"annotations": {names.BIND_COMPLETED: "yes"}}}
        await self._patch(claim, body)

    async def _is_making(self, claim: PersistentVolumeClaim, node: str) -> bool:
        since = self._since.setdefault((claim.metadata.uid, node), anyio.current_time())
        if anyio.current_time() < since + self.takes_s:
            return True
        terms = None if self.fails(claim.metadata.name, node) else await self._reach(node)
        if terms is None:
            taken_back = {"metadata": {"annotations": {names.SELECTED_NODE: None}}}
            await self._patch(claim, taken_back, resource_version=claim.metadata.resource_version)
        else:
            await self.api.create(PERSISTENT_VOLUMES, _volume(claim, terms))
        return False

    async def _reach(self, node: str) -> list[dict[str, Any]] | None:
        """Terms of the nodes that can use a volume that is made for a node, none: all; None: the node is gone."""
        try:
            labels = (await self.api.get(NODES, node)).metadata.labels or {}
        except errors.NotFound:
            return None
        zone = labels.get(names.ZONE_LABEL)
        match = [{"key": names.ZONE_LABEL, "operator": "In", "values": [zone]}]
        return [{"matchExpressions": match}] if zone else []

    async def _patch(self, claim: PersistentVolumeClaim, body: dict[str, Any], resource_version: str = "") -> None:
        meta = claim.metadata
        at = {"namespace": meta.namespace, "resource_version": resource_version}
        await self.api.patch(PERSISTENT_VOLUME_CLAIMS, meta.name, body, uid=meta.uid, **at)


def _volume(claim: PersistentVolumeClaim, terms: list[dict[str, Any]]) -> dict[str, Any]:
    meta, spec = claim.metadata, claim.spec
    return {
        "metadata": {"name": f"pvc-{meta.uid}"},
        "spec": {
            "capacity": {"storage": (spec.resources.requests or {}).get("storage", "0")},
            "accessModes": spec.access_modes or [],
            "storageClassName": spec.storage_class_name or "",
            "volumeMode": spec.volume_mode or "Filesystem",
            "claimRef": {"namespace": meta.namespace, "name": meta.name, "uid": meta.uid},
            **({"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}} if terms else {}),
        },
    }


#: As whom the API server knows it.
CLAIM_CONTROLLER: Final = "system:serviceaccount:kube-system:resource-claim-controller"
#: Annotation of a claim from a template: what its pods call it.
POD_CLAIM_NAME: Final = "resource.kubernetes.io/pod-claim-name"
_CLAIM_KINDS: Final = frozenset({RESOURCE_CLAIMS.plural, RESOURCE_CLAIM_TEMPLATES.plural})
_CLAIMS_LATE_S: Final = 0.2


class ClaimController:
    """Makes ResourceClaims from templates, and takes pods that are gone out of them, as kube-controller-manager does.

    A claim that is made for a pod goes with it. When the last pod leaves ``reservedFor`` the allocation is cleared. For
    a PodGroup of Kubernetes' Workload API none is made: claims that exist for one are its pods'.

    ``begin`` runs what it is given, with the first claim or template.
    """

    def __init__(self, api: Api, begin: Callable[[Callable[[], Coroutine[Any, Any, None]]], None]) -> None:
        self.api = api
        self._begin = begin
        self._is_begun = False
        self.is_off = False
        self._news = anyio.Event()

    def take(self, kind: ResourceType, _raw: bytes, _is_gone: bool) -> None:
        """Take an object as the API server stores it."""
        if kind.plural in _CLAIM_KINDS and not self._is_begun:
            self._is_begun = True
            self._begin(self.run)
        if kind.plural in _CLAIM_KINDS or kind.plural == PODS.plural:
            self._news.set()

    def resume(self) -> None:
        """Work again, and do what was not done meanwhile."""
        self.is_off = False
        self._news.set()

    async def run(self) -> None:
        """Do what is to be done after each change, until cancelled."""
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            await anyio.sleep(_CLAIMS_LATE_S)
            if self.is_off:
                continue
            async with self._trying():
                await self._look()

    async def _look(self) -> None:
        pods = {pod.metadata.uid: pod for pod in (await self.api.list(PODS)).items}
        claiming = [pod for pod in pods.values() if pod.spec.resource_claims and not _is_done(pod)]
        of_groups = await self._of_groups() if any(pod.spec.scheduling_group for pod in claiming) else {}
        for pod in claiming:
            async with self._trying():
                await self._make(pod, of_groups)
        for claim in (await self.api.list(RESOURCE_CLAIMS)).items:
            async with self._trying():
                await self._clean(claim, pods)

    @asynccontextmanager
    async def _trying(self) -> AsyncIterator[None]:
        """One object that fails does not delay the others. What is not there is looked for again when it comes."""
        try:
            yield
        except errors.NotFound as error:
            _log.warning("a ResourceClaim is not looked after: %s", error)
        except errors.ApiError as error:
            _log.warning("ResourceClaims are looked after again: %s", error)
            self._news.set()

    async def _of_groups(self) -> dict[tuple[str, str, str], str]:
        """Names of claims that were made for PodGroups: by namespace, PodGroup, and what pods call them."""
        return {
            (meta.namespace, owner.name, (meta.annotations or {}).get(POD_CLAIM_NAME, "")): meta.name
            for meta in (claim.metadata for claim in (await self.api.list(RESOURCE_CLAIMS)).items)
            for owner in meta.owner_references or ()
            if owner.controller and owner.kind == "PodGroup"
        }

    async def _make(self, pod: Pod, of_groups: Mapping[tuple[str, str, str], str]) -> None:
        """Make the claims of a pod that come from templates, and write their names into its status.

        ``of_groups``: claims that were made for PodGroups.
        """
        made = {each.name: each for each in pod.status.resource_claim_statuses or ()}
        missing = [
            each
            for each in pod.spec.resource_claims or ()
            if each.resource_claim_template_name and each.name not in made
        ]
        statuses: list[Any] = [*made.values()]
        group = (pod.spec.scheduling_group or {}).get("podGroupName", "")
        for entry in missing:
            if of_group := of_groups.get((pod.metadata.namespace, group, entry.name)):
                statuses.append({"name": entry.name, "resourceClaimName": of_group})
                continue
            namespace, name = pod.metadata.namespace, f"{pod.metadata.name}-{entry.name}-{pod.metadata.uid[-5:]}"
            template = await self.api.get(
                RESOURCE_CLAIM_TEMPLATES, str(entry.resource_claim_template_name), namespace=namespace
            )
            owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name, "uid": pod.metadata.uid}
            body = {
                "metadata": {"name": name, "ownerReferences": [{**owner, "controller": True}]},
                "spec": msgspec.to_builtins(template.spec.spec),
            }
            with contextlib.suppress(errors.AlreadyExists):
                await self.api.create(RESOURCE_CLAIMS, body, namespace=namespace)
            statuses.append({"name": entry.name, "resourceClaimName": name})
        if missing:
            status = {"status": {"resourceClaimStatuses": msgspec.to_builtins(statuses)}}
            await self.api.patch(
                PODS,
                pod.metadata.name,
                status,
                namespace=pod.metadata.namespace,
                subresource="status",
                uid=pod.metadata.uid,
            )

    async def _clean(self, claim: ResourceClaim, pods: Mapping[str, Pod]) -> None:
        users = claim.status.reserved_for or []
        left = [each for each in users if each.uid in pods and not _is_done(pods[each.uid])]
        if len(left) < len(users):
            status: dict[str, Any] = {"reservedFor": msgspec.to_builtins(left) or None}
            if not left:
                status["allocation"] = None
            claim = await self._patch(claim, {"status": status}, subresource="status")
        finalizers, is_leaving = claim.metadata.finalizers or [], claim.metadata.deletion_timestamp is not None
        if is_leaving and not left and claim.status.allocation is not None:
            claim = await self._patch(claim, {"status": {"allocation": None}}, subresource="status")
        if not left and names.CLAIM_FINALIZER in finalizers and (is_leaving or users):
            kept = [each for each in finalizers if each != names.CLAIM_FINALIZER]
            claim = await self._patch(claim, {"metadata": {"finalizers": kept or None}})
        owner = next((each.uid for each in claim.metadata.owner_references or () if each.kind == "Pod"), "")
        if owner and not left and (owner not in pods or _is_done(pods[owner])):
            await self._delete(claim)

    async def _delete(self, claim: ResourceClaim) -> None:
        if claim.metadata.deletion_timestamp is None:
            await self.api.delete(
                RESOURCE_CLAIMS, claim.metadata.name, namespace=claim.metadata.namespace, uid=claim.metadata.uid
            )
        elif claim.metadata.finalizers:
            await self._patch(claim, {"metadata": {"finalizers": None}})

    async def _patch(self, claim: ResourceClaim, body: dict[str, Any], *, subresource: str = "") -> ResourceClaim:
        meta = claim.metadata
        at = {"uid": meta.uid, "resource_version": meta.resource_version}
        return await self.api.patch(
            RESOURCE_CLAIMS, meta.name, body, namespace=meta.namespace, subresource=subresource, **at
        )


def _is_done(pod: Pod) -> bool:
    """Whether no container of a pod runs, or ever will."""
    is_unbound = pod.metadata.deletion_timestamp is not None and not pod.spec.node_name
    return is_unbound or pod.status.phase in {names.SUCCEEDED, names.FAILED}


#: As whom the API server knows it.
DRIVER_USER: Final = "dra-driver"
_LOOK_S: Final = 1.0


@dataclass(slots=True)
class DeviceReadiness:
    """A DRA driver that gets devices ready after they were allocated, and reports that by conditions (KEP-5007).

    ``takes_s``: until a device is ready, at most. ``until_s`` (event loop's time): afterwards all get ready; before it
    ``fails_per_mille`` of allocations fail, and of ``silent_per_mille`` nothing is ever reported.
    """

    api: Api
    rng: random.Random
    takes_s: float
    fails_per_mille: int = 0
    silent_per_mille: int = 0
    until_s: float = 0.0
    #: Claim (UID) and device -> when it reports, and whether the device has failed then.
    _due: dict[tuple[str, ...], tuple[float, bool]] = field(default_factory=dict)

    async def run(self) -> None:
        """Report until cancelled. A write that fails is made again."""
        while True:
            await anyio.sleep(_LOOK_S)
            try:
                for claim in (await self.api.list(RESOURCE_CLAIMS)).items:
                    await self._look_at(claim)
            except errors.ApiError:
                continue

    async def _look_at(self, claim: ResourceClaim) -> None:
        waiting = list(_waiting(claim))
        known = {key for key in self._due if key[0] == claim.metadata.uid}
        for key in known - {_key(claim, each) for each in waiting}:
            del self._due[key]
        now_s = anyio.current_time()
        told = [each for each in waiting if self._report(_key(claim, each))[0] <= now_s]
        said = {(each.driver, each.pool, each.device): msgspec.to_builtins(each) for each in claim.status.devices or ()}
        before = dict(said)
        for each in told:
            has_failed = self._due[_key(claim, each)][1]
            types = each.binding_failure_conditions if has_failed else each.binding_conditions
            said[each.driver, each.pool, each.device] = _status(each, types or [])
        if said != before:
            meta = claim.metadata
            at: dict[str, Any] = {"uid": meta.uid, "resource_version": meta.resource_version}
            status = {"status": {"devices": list(said.values())}}
            await self.api.patch(
                RESOURCE_CLAIMS, meta.name, status, namespace=meta.namespace, subresource="status", **at
            )

    def _report(self, key: tuple[str, ...]) -> tuple[float, bool]:
        """When a device is reported, and whether it has failed."""
        if key not in self._due:
            now_s, lot = anyio.current_time(), self.rng.randrange(1000)
            is_late = now_s < self.until_s
            is_silent = is_late and lot < self.silent_per_mille
            has_failed = is_late and not is_silent and lot < self.silent_per_mille + self.fails_per_mille
            at_s = self.until_s if is_silent else now_s + self.rng.uniform(0.0, self.takes_s)
            self._due[key] = at_s, has_failed
        return self._due[key]


def _waiting(claim: ResourceClaim) -> Iterator[DeviceRequestAllocationResult]:
    """Devices of a claim that have to get ready and were not reported yet."""
    allocation = claim.status.allocation
    said = {(each.driver, each.pool, each.device) for each in claim.status.devices or ()}
    for each in (allocation.devices.results if allocation is not None else None) or ():
        if each.binding_conditions and (each.driver, each.pool, each.device) not in said:
            yield each


def _key(claim: ResourceClaim, device: DeviceRequestAllocationResult) -> tuple[str, ...]:
    return claim.metadata.uid, device.driver, device.pool, device.device


def _status(device: DeviceRequestAllocationResult, types: list[str]) -> dict[str, Any]:
    at = {"reason": "Reported", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    conditions = [{"type": each, "status": "True", **at} for each in types]
    share = {"shareID": device.share_id} if device.share_id else {}
    return {"driver": device.driver, "pool": device.pool, "device": device.device, **share, "conditions": conditions}


#: As which controllers of Kubernetes are known to the API server.
USER: Final = Identities().life_cycle_users[0]
#: So long after a change it counts again; an eviction is answered by what it wrote last.
LATE_S: Final = 0.1
_AGAIN_S: Final = 1.0
#: An eviction that was allowed counts for so long, if its pod does not go.
_NOTED_S: Final = 120


class Disruptions:
    """The disruption controller, as far as evictions ask: writes how many pods of each budget may go now.

    Pods here have no controller that it knows, so budgets say ``minAvailable`` as a number: of other budgets the real
    one writes that it can't count their pods, and allows none. Without a budget it asks the API server for nothing.
    ``pods``: all that exist; ``now_s``: seconds since the epoch.
    """

    def __init__(self, api: Api, *, pods: Callable[[], Iterable[Json]], now_s: Callable[[], int]) -> None:
        self._api = api
        self._pods = pods
        self._now_s = now_s
        #: Namespace and name -> the budget as it is stored.
        self._budgets: dict[tuple[str, str], Json] = {}
        self._news = anyio.Event()

    def take(self, kind: ResourceType, raw: bytes, is_gone: bool) -> None:
        """Take an object as the API server stores it."""
        if kind.plural == BUDGETS:
            said: dict[str, Any] = msgspec.json.decode(raw)
            key = said["metadata"]["namespace"], said["metadata"]["name"]
            self._budgets.pop(key, None)
            if not is_gone:
                self._budgets[key] = said
            self._news.set()
        elif kind.plural == PODS.plural and self._budgets:
            self._news.set()

    async def run(self) -> None:
        """Count after each change, until cancelled."""
        while True:
            await self._news.wait()
            await anyio.sleep(LATE_S)
            self._news = anyio.Event()
            for budget in list(self._budgets.values()):
                await self._count(budget)

    async def _count(self, budget: Json) -> None:
        status = self._status(budget)
        if status == {key: (budget.get("status") or {}).get(key) for key in status}:
            return
        meta = budget["metadata"]
        # Null takes away the pods that were noted and are noted no more.
        before = (budget.get("status") or {}).get("disruptedPods") or {}
        noted = {**dict.fromkeys(before), **status["disruptedPods"]}
        body = {"status": {**status, "disruptedPods": noted}}
        at = {"namespace": meta["namespace"], "resource_version": meta["resourceVersion"]}
        try:
            await self._api.patch(POD_DISRUPTION_BUDGETS, meta["name"], body, subresource="status", **at)
        except (errors.Conflict, errors.NotFound):
            self._news.set()
        except errors.ApiError as error:
            _log.warning("PodDisruptionBudget %s is not counted: %s", meta["name"], error)
            await anyio.sleep(_AGAIN_S)
            self._news.set()

    def _status(self, budget: Json) -> dict[str, Any]:
        meta, spec = budget["metadata"], budget.get("spec") or {}
        pods = [
            pod
            for pod in self._pods()
            if pod["metadata"].get("namespace") == meta["namespace"]
            and selects(spec.get("selector"), pod["metadata"].get("labels") or {})
        ]
        going = {pod["metadata"]["name"] for pod in pods if not pod["metadata"].get("deletionTimestamp")}
        noted = {
            name: at
            for name, at in ((budget.get("status") or {}).get("disruptedPods") or {}).items()
            if name in going and (rfc3339.parse_ns(at) or 0) // SECOND_NS + _NOTED_S > self._now_s()
        }
        healthy = sum(is_healthy(pod) and pod["metadata"]["name"] not in noted for pod in pods)
        said = spec.get("minAvailable")
        desired = said if isinstance(said, int) else len(pods)
        return {
            "observedGeneration": meta.get("generation", 0),
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": len(pods),
            "disruptionsAllowed": max(0, healthy - desired),
            "disruptedPods": noted,
        }


class KubeControllers:
    """``pods``: all that are there. ``rng``: for a purpose. ``begin`` runs what it is given until the cluster ends."""

    def __init__(
        self,
        server: MemoryApiServer,
        *,
        clock: Clock,
        pods: Callable[[], Iterable[Json]],
        rng: Callable[[str], random.Random],
        begin: Callable[[Callable[[], Coroutine[Any, Any, None]]], None],
    ) -> None:
        def api(user: str, purpose: str) -> Api:
            return Api(server.transport(user), retry=Retry(rng(purpose)))

        self.disruptions = Disruptions(api(USER, "disruptions"), pods=pods, now_s=lambda: clock.now_ns() // SECOND_NS)
        self.claims = ClaimBinding(api(VOLUME_CONTROLLER, "claims"), begin=begin)
        self.resource_claims = ClaimController(api(CLAIM_CONTROLLER, "resource-claims"), begin=begin)
        for one in (self.disruptions, self.claims, self.resource_claims):
            server.listen(one.take)
