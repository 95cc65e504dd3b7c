"""Objects as a KAI that was stopped leaves them (kai-contract 1.16, 1.17, 2), as plain data."""

from __future__ import annotations

import hashlib
from typing import Any

Object = dict[str, Any]

GROUP = "3f0c1d52-0000-4000-8000-000000000001"
OTHER = "3f0c1d52-0000-4000-8000-000000000002"
UUID = "GPU-5e2b0000-0000-4000-8000-000000000001"
RESERVATIONS = "kai-resource-reservation"


def share(name: str, *groups: str, node: str = "", **asked: str) -> Object:
    """A pod as KAI's admission and binder leave it; ``asked``: its annotations, with ``_`` for ``-``.

    Without a node it still waits.
    """
    prefix = f"{name}-x7k2p9q-shared-gpu"
    annotations = {key.replace("_", "-"): value for key, value in asked.items()}
    annotations |= {"runai/shared-gpu-configmap": prefix, "pod-group-name": f"pg-{name}"}
    if node:
        annotations["received-resource-type"] = "Fraction"
    env = [
        {"name": variable, "valueFrom": {"configMapKeyRef": {"name": f"{prefix}-0", "key": variable}}}
        for variable in ("NVIDIA_VISIBLE_DEVICES", "RUNAI_NUM_OF_GPUS", "GPU_PORTION")
    ]
    container = {
        "name": "main",
        "image": "cuda-app",
        "env": env,
        "envFrom": [{"configMapRef": {"name": f"{prefix}-0-evar", "optional": False}}],
    }
    spec: Object = {
        "schedulerName": "kai-scheduler",
        "runtimeClassName": "nvidia",
        "containers": [container],
        "volumes": [{"name": f"{prefix}-0-vol", "configMap": {"name": f"{prefix}-0"}}],
        "terminationGracePeriodSeconds": 1,
    }
    if node:
        spec["nodeName"] = node
    labels = {"kai.scheduler/queue": "team-a"}
    labels |= (
        {"runai-gpu-group": groups[0]} if len(groups) == 1 else {f"runai-gpu-group/{each}": each for each in groups}
    )
    metadata = {"name": name, "labels": labels, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def config_maps(name: str, uid: str, *, devices: str = UUID, portion: str = "0.50") -> list[Object]:
    """Both ConfigMaps of a pod."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}
    prefix = f"{name}-x7k2p9q-shared-gpu-0"
    data = {"NVIDIA_VISIBLE_DEVICES": devices, "RUNAI_NUM_OF_GPUS": portion, "GPU_PORTION": portion}
    return [
        {"metadata": {"name": prefix, "ownerReferences": [owner]}, "data": data},
        {"metadata": {"name": f"{prefix}-evar", "ownerReferences": [owner]}, "data": {}},
    ]


def reservation(node: str, group: str, *, uuid: str = UUID, name: str = "") -> Object:
    """A reservation pod; ``name`` of an older version, which had random ones."""
    digest = hashlib.sha256(f"{node}/{group}".encode()).hexdigest()[:16]
    labels = {"app": RESERVATIONS} | ({"runai-gpu-group": group} if group else {})
    annotations = {"karpenter.sh/do-not-disrupt": "true"} | ({"run.ai/reserve_for_gpu_index": uuid} if uuid else {})
    amounts = {"nvidia.com/gpu": "1"}
    container = {
        "name": "resource-reservation",
        "image": "registry/kai-scheduler/resource-reservation:v0.16.0",
        "imagePullPolicy": "IfNotPresent",
        "resources": {"requests": amounts, "limits": amounts},
        "env": [
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
        ],
    }
    spec = {"nodeName": node, "serviceAccountName": RESERVATIONS, "containers": [container]}
    metadata = {"name": name or f"gpu-reservation-{digest}", "labels": labels, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def pod_group(name: str, kind: str = "Pod", group: str = "", **spec: Any) -> Object:
    """A PodGroup as the pod-grouper makes it."""
    owner = f"name: {name}\nuid: 11\ngroup: {group}\nversion: v1\nkind: {kind}\n"
    metadata = {"name": f"pg-{name}", "annotations": {"kai.scheduler/top-owner-metadata": owner}}
    said = {"minMember": 1, "queue": "team-a", "priorityClassName": "train", **spec}
    return {"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": metadata, "spec": said}


def bind_request(name: str, uid: str, *, node: str, groups: list[str], phase: str = "") -> Object:
    """A BindRequest, which stays while its pod is there."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}
    spec = {
        "podName": name,
        "selectedNode": node,
        "receivedResourceType": "Fraction",
        "receivedGPU": {"count": len(groups), "portion": "0.50"},
        "selectedGPUGroups": groups,
    }
    metadata = {"name": name, "labels": {"selected-node": node}, "ownerReferences": [owner]}
    return {
        "apiVersion": "scheduling.run.ai/v1alpha2",
        "kind": "BindRequest",
        "metadata": metadata,
        "spec": spec,
        "status": {"phase": phase},
    }


#: Deployment -> its image, where that has another name.
_IMAGES = {"kai-operator": "operator", "kai-scheduler-default": "scheduler", "pod-grouper": "podgrouper"}


def deployment(name: str, replicas: int = 1) -> Object:
    """One of KAI's Deployments."""
    labels = {"app": name}
    container = {"name": name, "image": f"registry/kai-scheduler/{_IMAGES.get(name, name)}:v0.16.0"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


#: What each of KAI's webhooks is asked about.
_RULES = {
    "admission": {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]},
    "queue-controller": {"apiGroups": ["scheduling.run.ai"], "apiVersions": ["v2"], "resources": ["queues"]},
    "podgroup-controller": {
        "apiGroups": ["scheduling.run.ai"],
        "apiVersions": ["v2alpha2"],
        "resources": ["podgroups"],
    },
}


def webhook(kind: str, name: str, service: str = "admission", namespace: str = "kai-scheduler") -> Object:
    """A registration of KAI's operator."""
    rule = {"operations": ["CREATE"], **_RULES[service]}
    hook: Object = {
        "name": f"{service}.kai-scheduler.svc",
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "rules": [rule],
        "clientConfig": {"service": {"name": service, "namespace": namespace, "path": "/mutate--v1-pod"}},
    }
    if service == "admission":
        condition = "object.spec.schedulerName == 'kai-scheduler'"
        hook["matchConditions"] = [{"name": "scheduler", "expression": condition}]
    api_version = "admissionregistration.k8s.io/v1"
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "webhooks": [hook]}


def custom(kind: str, name: str, spec: Object) -> Object:
    """A Config, SchedulingShard, Queue or Topology."""
    versions = {"Queue": "scheduling.run.ai/v2", "Topology": "kai.scheduler/v1alpha1"}
    api_version = versions.get(kind, "kai.scheduler/v1")
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def definition(kind: str, plural: str) -> Object:
    """A CRD of KAI's that Moorage has nothing for, with anything in it."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    named = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
    spec = {"group": "kai.scheduler", "scope": "Cluster", "names": named, "versions": [version]}
    metadata = {"name": f"{plural}.kai.scheduler"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": spec,
    }


#: What KAI's release makes of the namespace of reservations.
RESERVATION_NAMESPACE = """
apiVersion: v1
kind: Namespace
metadata:
  name: kai-resource-reservation
  annotations: {meta.helm.sh/release-name: kai-scheduler, meta.helm.sh/release-namespace: kai-scheduler}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: kai-resource-reservation, namespace: kai-resource-reservation}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: kai-resource-reservation, namespace: kai-resource-reservation}
rules: [{apiGroups: [""], resources: [pods], verbs: [get, list, patch, update, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: kai-resource-reservation, namespace: kai-resource-reservation}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: kai-resource-reservation}
subjects: [{kind: ServiceAccount, name: kai-resource-reservation, namespace: kai-resource-reservation}]
"""
