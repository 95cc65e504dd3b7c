"""Asks autoscalers for nodes: makes, tells and deletes scaling pods (docs/design/autoscaling.md, kai-contract 1.13).

Decisions never wait for this, and it never waits for them: now and then it looks at who was last said to wait for want
of nodes, and mends the difference to the scaling pods that are there. What fails is done again at the next look. A
scaling pod mounts no volumes: where those of its pod let it be is a required node affinity.
"""

from __future__ import annotations

import hashlib
import logging
import random
from collections.abc import Iterator, Sequence
from typing import Any, Final

import anyio
import msgspec

from kube.client.api import Api, remove
from kube.client.clock import Clock, monotonic_ns
from kube.client.errors import AlreadyExists, ApiError, BadRequest, Conflict, Forbidden, Invalid, NotFound
from kube.client.resources import PODS
from kube.telemetry.logevents import LogEvent, about
from kube.watch.reflector import Reflector
from kube.watch.signal import Signal
from scheduler.core.autoscale.scaling_pods import Create, Remove, Scaler, ScalingPod, Step, Tell, Want, wants
from scheduler.core.filters.volume_places import NEW_LABELS
from scheduler.core.model.plan import Explain
from scheduler.core.model.pod_class import Demand, Requirement, Term, VolumeRule
from scheduler.core.model.settings import NodePool
from scheduler.settings import ScalingSettings
from scheduler.watch.cache import Cache
from wire import names
from wire.core import NodeSelector, Pod
from wire.quantity import NANO, MalformedQuantity, parse_nano
from wire.rfc3339 import rfc3339
from wire.tombstones import Recent, is_older

#: Alternatives that volumes leave, multiplied, beyond which nobody reads them.
_MOST_TERMS: Final = 64

_Term = dict[str, Any]


def volume_selector(written: NodeSelector | None, rules: Sequence[VolumeRule]) -> dict[str, Any] | None:
    """What nodes a pod takes by its own words and by its volumes; None if that can't be said, or is nowhere."""
    terms = [{}] if written is None else [msgspec.to_builtins(term) for term in written.node_selector_terms or ()]
    for rule in rules:
        if rule.terms is not None:
            alternatives = [_term(term) for term in rule.terms if term.labels or term.fields]
            terms = [_both(own, other) for own in terms for other in alternatives]
        zones = [_in(NEW_LABELS.get(key, key), values) for key, values in rule.zones]
        terms = [_both(own, {"matchExpressions": zones}) for own in terms] if zones else terms
        if len(terms) > _MOST_TERMS:
            return None
    return {"nodeSelectorTerms": terms} if terms else None


def _term(term: Term) -> _Term:
    return {"matchExpressions": list(map(_expression, term.labels)), "matchFields": list(map(_expression, term.fields))}


def _expression(requirement: Requirement) -> _Term:
    values = {"values": list(requirement.values)} if requirement.values else {}
    return {"key": requirement.key, "operator": requirement.operator, **values}


def _in(key: str, values: Sequence[str]) -> _Term:
    return {"key": key, "operator": "In", "values": list(values)}


def _both(one: _Term, other: _Term) -> _Term:
    fields = ("matchExpressions", "matchFields")
    joined = {field: [*(one.get(field) or ()), *(other.get(field) or ())] for field in fields}
    return {field: found for field, found in joined.items() if found}


#: The selector of the watch.
SELECTOR: Final = f"{names.APP_LABEL}={names.SCALING_APP}"
_LONGEST_NAME: Final = 253
_LONGEST_LABEL: Final = 63
_DIGEST: Final = 16
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def scaling_pod_manifest(
    source: Pod,
    demand: Demand,
    settings: ScalingSettings,
    volumes: Sequence[VolumeRule] = (),
    *,
    pool: NodePool | None = None,
) -> dict[str, Any] | None:
    """Return the scaling pod of a waiting pod: what it takes in whole devices, where it and its volumes may be.

    ``pool``: of which the node has to be. None if it can't be said where its volumes are. No scheduler has its name, so
    it is never bound; should somebody bind it, its image exits at once.
    """
    meta, spec = source.metadata, source.spec
    amounts = _amounts(demand)
    container = {
        "name": names.SCALING_APP,
        "image": settings.image,
        "imagePullPolicy": "IfNotPresent",
        "resources": {"requests": amounts, "limits": amounts},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "runAsNonRoot": True,
            "runAsUser": 10000,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    affinity = _in_namespace(msgspec.to_builtins(spec.affinity) or {}, meta.namespace)
    rules = (*volumes, *_of_pool(pool))
    if rules:
        own = spec.affinity.node_affinity if spec.affinity is not None else None
        required = volume_selector(own.required_during_scheduling_ignored_during_execution if own else None, rules)
        if required is None:
            return None
        affinity["nodeAffinity"] = {**affinity.get("nodeAffinity", {}), _REQUIRED: required}
    copied = {
        "affinity": affinity,
        "nodeSelector": spec.node_selector,
        "tolerations": msgspec.to_builtins(spec.tolerations),
    }
    return {
        "metadata": {
            "name": name_for(meta.namespace, meta.name),
            "namespace": settings.namespace,
            "labels": {
                names.APP_LABEL: names.SCALING_APP,
                names.SCALING_SOURCE_NAME_LABEL: _label(meta.name),
                names.SCALING_SOURCE_NAMESPACE_LABEL: meta.namespace,
                **({} if pool is None else pool.labels),
            },
            "annotations": {names.SCALES_FOR: meta.uid},
        },
        "spec": {
            "schedulerName": names.SCALING_SCHEDULER_NAME,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "containers": [container],
            **{field: value for field, value in copied.items() if value},
        },
    }


def _of_pool(pool: NodePool | None) -> Iterator[VolumeRule]:
    """What the pool asks of a node, in the form in which volumes ask."""
    if pool is not None:
        wanted = Requirement(pool.key, "In", (pool.value,)) if pool.value else Requirement(pool.key, "DoesNotExist", ())
        yield VolumeRule(terms=(Term((wanted,), ()),))


def _in_namespace(affinity: dict[str, Any], namespace: str) -> dict[str, Any]:
    """The same, with the namespace of the source in terms that mean their pod's own: the scaling pod has another."""
    for kind in ("podAffinity", "podAntiAffinity"):
        rules = affinity.get(kind) or {}
        preferred = (each.get("podAffinityTerm") or {} for each in rules.get(_PREFERRED) or ())
        for term in (*(rules.get(_REQUIRED) or ()), *preferred):
            if not term.get("namespaces") and term.get("namespaceSelector") is None:
                term["namespaces"] = [namespace]
    return affinity


def name_for(namespace: str, name: str) -> str:
    """``<namespace>-<pod>``; what is longer than a name may be is cut, and told apart by a hash."""
    whole = f"{namespace}-{name}"
    if len(whole) <= _LONGEST_NAME:
        return whole
    digest = hashlib.sha256(f"{namespace}/{name}".encode()).hexdigest()[:_DIGEST]
    return f"{whole[: _LONGEST_NAME - _DIGEST - 1].rstrip('.-')}-{digest}"


def read_scaling_pod(pod: Pod, namespace: str, pool: NodePool | None = None) -> ScalingPod | None:
    """Read a scaling pod of this pool; None if it is not one.

    The label alone, or in another namespace, means nothing (kai-contract 9.2.4).
    """
    meta = pod.metadata
    labels = meta.labels or {}
    source = labels.get(names.SCALING_SOURCE_NAMESPACE_LABEL, ""), labels.get(names.SCALING_SOURCE_NAME_LABEL, "")
    if meta.namespace != namespace or labels.get(names.APP_LABEL) != names.SCALING_APP or not all(source):
        return None
    if pool is not None and not pool.takes(labels):
        return None  # the scheduler of that pool has made it
    return ScalingPod(
        uid=meta.uid,
        name=meta.name,
        rv=meta.resource_version,
        source=source,
        source_uid=(meta.annotations or {}).get(names.SCALES_FOR, ""),
        gpus=sum(_gpus(container.resources.requests or {}) for container in pod.spec.containers),
        is_spent=bool(pod.spec.node_name) or pod.status.phase in names.ENDED_PHASES,
        is_told=any(c.type == names.CONDITION_POD_SCHEDULED for c in pod.status.conditions or ()),
        deleting=meta.deletion_timestamp is not None,
    )


def unschedulable_status(pod: Pod, *, now: str) -> dict[str, Any]:
    """Return the status that makes autoscalers look at a scaling pod; ``now`` as metav1.Time."""
    others = [c for c in pod.status.conditions or () if c.type != names.CONDITION_POD_SCHEDULED]
    labels = pod.metadata.labels or {}
    source = "/".join(
        labels.get(key, "") for key in (names.SCALING_SOURCE_NAMESPACE_LABEL, names.SCALING_SOURCE_NAME_LABEL)
    )
    condition = {
        "type": names.CONDITION_POD_SCHEDULED,
        "status": "False",
        "reason": names.REASON_UNSCHEDULABLE,
        "message": f"no node has a GPU with room for pod {source}",
        "lastTransitionTime": now,
    }
    return {"status": {"conditions": [*msgspec.to_builtins(others), condition]}}


def _amounts(demand: Demand) -> dict[str, str]:
    amounts = {
        names.CPU_RESOURCE: (demand.cpu_milli, "m"),
        names.MEMORY_RESOURCE: (demand.mem_mib, "Mi"),
        names.EPHEMERAL_STORAGE_RESOURCE: (demand.ephemeral_mib, "Mi"),
        names.GPU_RESOURCE: (demand.gpus, ""),
        **{name: (amount, "") for name, amount in demand.extended},
    }
    return {name: f"{amount}{unit}" for name, (amount, unit) in amounts.items() if amount}


def _label(name: str) -> str:
    """A pod's name as a label's value, which is shorter, and ends in a letter or a digit."""
    return name[:_LONGEST_LABEL].rstrip(".-")


def _gpus(requests: dict[str, str | int | float]) -> int:
    try:
        return parse_nano(requests.get(names.GPU_RESOURCE, 0)) // NANO
    except MalformedQuantity:
        return 0


_log: Final = logging.getLogger(__name__)
#: A look in which something was not answered is followed by a pause, doubled up to this.
_LONGEST_PAUSE_S: Final = 60.0
#: So much longer than its thinking, at least, is the pause after a look: 10,000 waiting shares take half a second.
_PAUSE_PER_LOOK: Final = 10
#: What the server will refuse again until somebody does something about it.
_LASTING: Final = (AlreadyExists, BadRequest, Forbidden, Invalid)


class Scaling:
    """Keeps as many scaling pods as there are devices that shares wait for."""

    def __init__(self, api: Api, cache: Cache, *, clock: Clock, settings: ScalingSettings) -> None:
        self._api = api
        self._cache = cache
        self._clock = clock
        self._settings = settings
        self._scaler = Scaler(patience_s=settings.patience_s, cool_down_s=settings.cool_down_s)
        self._has_decided = False
        #: How long the last look has kept everything else from running.
        self._thought_s = 0.0
        self._wake = Signal()
        self._decided = Signal()
        self._pool = cache.cluster.settings.pool
        self._sink = ScalingPodSink(settings.namespace, self._wake, self._pool)

    def reflector(self, rng: random.Random) -> Reflector[Pod]:
        """What keeps us in step with the scaling pods."""
        namespace, selector = self._settings.namespace, SELECTOR
        return Reflector(self._api, PODS, self._sink, namespace=namespace, label_selector=selector, rng=rng)

    def decided(self) -> None:
        """A decision was made: other pods may wait now, or for other reasons."""
        self._has_decided = True
        self._wake.set()
        self._decided.set()

    def forget_gone(self) -> None:
        """A period is over (wire/tombstones.py)."""
        self._sink.forget_gone()

    async def run(self) -> None:
        """Look whenever something has changed, until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._remove_whenever_served)
            tasks.start_soon(self._look_whenever_changed)

    async def _remove_whenever_served(self) -> None:
        """Delete at once what is there for pods that a decision has just given a place.

        An autoscaler that looked in between would see the place taken and the scaling pod waiting, and add a node. What
        is not answered is left to the next look.
        """
        while True:
            await self._decided.wait()
            for pod in self._sink.seen():
                if not pod.deleting and self._is_served(pod.source_uid):
                    await self._take(Remove(pod))

    def _is_served(self, uid: str) -> bool:
        cluster = self._cache.cluster
        record = cluster.pod(uid)
        return record is not None and (bool(record.node) or cluster.commits.is_spoken_for(uid))

    async def _look_whenever_changed(self) -> None:
        pause_s = self._settings.look_s
        while True:
            await self._wait()
            await anyio.sleep(pause_s)
            is_done = await self.look()
            least_s = max(self._settings.look_s, _PAUSE_PER_LOOK * self._thought_s)
            pause_s = least_s if is_done else max(least_s, min(pause_s * 2, _LONGEST_PAUSE_S))
            if not is_done:
                self._wake.set()

    async def _wait(self) -> None:
        at_s = self._scaler.wake_at_s
        with anyio.move_on_after(None if at_s is None else max(0.0, at_s - anyio.current_time())):
            await self._wake.wait()

    async def look(self) -> bool:
        """Mend what differs from what should be there; False if not all of it was answered."""
        if not self._has_decided:
            return True
        steps = self._think(self._cache.cluster.scheduling_queue.said.all())
        outcomes = [await self._take(step) for step in steps]
        return all(outcomes)

    def _think(self, explained: Sequence[Explain]) -> list[Step]:
        now_s = anyio.current_time()
        wanted = wants(
            self._cache.cluster,
            explained,
            now_ns=monotonic_ns(),
            memory_to_fraction_ratio_nano=self._settings.memory_to_fraction_ratio_nano,
        )
        steps = self._scaler.steps(wanted, self._sink.seen(), now_s=now_s)
        self._thought_s = anyio.current_time() - now_s
        return steps

    async def _take(self, step: Step) -> bool:
        """Take one step; False if it is to be taken again soon."""
        try:
            match step:
                case Create(source=source):
                    await self._create(source)
                case Tell(pod=pod):
                    await self._tell(await self._api.get(PODS, pod.name, namespace=self._settings.namespace))
                case Remove(pod=pod):
                    await self._remove(pod)
        except (Conflict, NotFound):
            return True  # it changed meanwhile, and the watch will say how
        except ApiError as error:
            _log.warning("scaling pods: %s", error)
            return False
        return True

    async def _create(self, source: Want) -> None:
        """Make a scaling pod, if its source still waits, and the API server agrees. Raises ApiError."""
        if self._is_served(source.uid):
            return
        pod = await self._api.get(PODS, source.name, namespace=source.namespace)
        if pod.metadata.uid != source.uid or pod.spec.node_name or pod.metadata.deletion_timestamp is not None:
            return
        body = scaling_pod_manifest(pod, source.demand, self._settings, source.constraints.volumes, pool=self._pool)
        if body is None:
            self._scaler.cool(source.uid, now_s=anyio.current_time())
            return
        try:
            made = await self._api.create(PODS, body, namespace=self._settings.namespace)
        except _LASTING as error:
            self._scaler.cool(source.uid, now_s=anyio.current_time())
            _log.warning("no scaling pod for %s/%s: %s", source.namespace, source.name, error)
            return
        self._sink.upsert(made)
        place = f"{source.namespace}/{source.name}"
        extra = about(LogEvent.SCALING_MADE, pod=place, scaling_pod=made.metadata.name)
        _log.info("a scaling pod asks for a node", extra=extra)
        await self._tell(made)

    async def _tell(self, pod: Pod) -> None:
        """Say that it is unschedulable, at exactly the version that was looked at. Raises ApiError."""
        read = read_scaling_pod(pod, self._settings.namespace, self._pool)
        if read is None or read.is_told or read.is_spent:
            return
        told: dict[str, Any] = unschedulable_status(pod, now=rfc3339(self._clock.now_ns()))
        answer = await self._api.patch(
            PODS,
            pod.metadata.name,
            told,
            namespace=pod.metadata.namespace,
            subresource="status",
            uid=read.uid,
            resource_version=read.rv,
        )
        self._sink.upsert(answer)

    async def _remove(self, pod: ScalingPod) -> None:
        """Delete a scaling pod, known by its UID. Raises ApiError."""
        await remove(self._api, PODS, pod.name, namespace=self._settings.namespace, uid=pod.uid)
        _log.info("a scaling pod is not needed any more", extra=about(LogEvent.SCALING_REMOVED, scaling_pod=pod.name))


class ScalingPodSink:
    """Follows scaling pods; what only looks like one is not kept."""

    def __init__(self, namespace: str, wake: Signal, pool: NodePool | None = None) -> None:
        self._namespace = namespace
        self._pool = pool
        self._wake = wake
        self._pods: dict[str, ScalingPod] = {}
        #: UIDs of those that are gone, against answers that come after the deletion was seen.
        self._gone: Recent[None] = Recent()

    def seen(self) -> list[ScalingPod]:
        """All scaling pods, as they were last seen."""
        return list(self._pods.values())

    def keep(self, obj: Pod) -> ScalingPod | None:
        """What is kept of a pod."""
        return read_scaling_pod(obj, self._namespace, self._pool)

    async def replace(self, kept: Sequence[ScalingPod | None]) -> None:
        """Take a list: what is not in it is gone."""
        before, self._pods = self._pods, {pod.uid: pod for pod in kept if pod is not None}
        for uid in before.keys() - self._pods.keys():
            self._gone.put(uid, None)
        self._wake.set()

    def upsert(self, obj: Pod) -> None:
        """Take a scaling pod, from the watch or as the answer to a write."""
        pod = self.keep(obj)
        known = self._pods.get(obj.metadata.uid)
        if pod is None or pod.uid in self._gone or (known is not None and is_older(pod.rv, known.rv)):
            return
        self._pods[pod.uid] = pod
        self._wake.set()

    def delete(self, obj: Pod) -> None:
        """Take a scaling pod's last state."""
        self._gone.put(obj.metadata.uid, None)
        if self._pods.pop(obj.metadata.uid, None) is not None:
            self._wake.set()

    def forget_gone(self) -> None:
        """A period is over (wire/tombstones.py)."""
        self._gone.age(lambda _, __: False)
