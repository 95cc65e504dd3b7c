"""The scaling pod on the wire (kai-contract 1.13): how it is made for a pod that waits, and read back."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from scheduler.autoscale import volume_places
from scheduler.core.autoscale.scaling_pods import ScalingPod
from scheduler.core.model.pod_class import Demand, Requirement, Term, VolumeRule
from scheduler.core.model.settings import NodePool
from scheduler.settings import ScalingSettings
from wire import names
from wire.core import Pod
from wire.quantity import NANO, MalformedQuantity, parse_nano

#: The selector of the watch.
SELECTOR: Final = f"{names.APP_LABEL}={names.SCALING_APP}"
_LONGEST_NAME: Final = 253
_LONGEST_LABEL: Final = 63
_DIGEST: Final = 16
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def manifest(
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
        required = volume_places.selector(
            own.required_during_scheduling_ignored_during_execution if own else None, rules
        )
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


def read(pod: Pod, namespace: str, pool: NodePool | None = None) -> ScalingPod | None:
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
        is_spent=bool(pod.spec.node_name) or pod.status.phase in {names.SUCCEEDED, names.FAILED},
        is_told=any(c.type == names.CONDITION_POD_SCHEDULED for c in pod.status.conditions or ()),
        deleting=meta.deletion_timestamp is not None,
    )


def unschedulable(pod: Pod, *, now: str) -> dict[str, Any]:
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
