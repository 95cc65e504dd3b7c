"""POST pods/NAME/binding: BindingREST of pkg/registry/core/pod/storage/storage.go, as protocol.md relies on it.

Preconditions first, then the state of the pod, then one write that sets the node, merges the Binding's annotations and
(PodTopologyLabelsAdmission, on by default since 1.35) its labels. That metadata is not validated: so on the real
server, and what a bad label does later is part of what can be tested here.
"""

from __future__ import annotations

from typing import Any

from kube.memory.pods import with_condition
from kube.memory.refusals import Refusal, bad_request, conflict, internal
from kube.memory.types import PODS

Object = dict[str, Any]


def check_binding(binding: Any, name: str) -> None:
    """Refuse a Binding that is none, or for another pod."""
    if not isinstance(binding, dict) or binding.get("kind") not in (None, "", "Binding"):
        raise bad_request("the object provided cannot be handled as a Binding")
    if (binding.get("metadata") or {}).get("name") != name:
        raise bad_request("name in URL does not match name in Binding object")
    target = binding.get("target") or {}
    if target.get("kind") not in (None, "", "Node"):
        raise internal(f'target.kind: Unsupported value: "{target["kind"]}": supported values: "Node", "<empty>"')
    if not target.get("name"):
        raise internal("target.name: Required value")


def bound(pod: Object, binding: Object, *, with_labels: bool, now: str) -> Object:
    """Return the pod as the Binding leaves it. Raises Refusal (409) if it may not be bound, or not by this Binding."""
    refusal = _precondition_failed(pod, binding.get("metadata") or {}) or _not_bindable(pod)
    if refusal is not None:
        raise refusal
    meta = dict(pod["metadata"])
    said = binding["metadata"]
    _merge_map(meta, "annotations", said)
    if with_labels:
        _merge_map(meta, "labels", said)
    spec = {**pod["spec"], "nodeName": binding["target"]["name"]}
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
    status = {key: value for key, value in (pod.get("status") or {}).items() if key != "nominatedNodeName"}
    return with_condition({**pod, "metadata": meta, "spec": spec, "status": status}, scheduled)


def _merge_map(meta: Object, field: str, said: Object) -> None:
    if said.get(field):
        meta[field] = {**(meta.get(field) or {}), **said[field]}


def _precondition_failed(pod: Object, said: Object) -> Refusal | None:
    meta = pod["metadata"]
    for field, label in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        wanted = said.get(field)
        if wanted and wanted != meta[field]:
            key = f"/registry/pods/{meta['namespace']}/{meta['name']}"
            why = f"Precondition failed: {label} in precondition: {wanted}, {label} in object meta: {meta[field]}"
            return conflict(
                PODS,
                meta["name"],
                f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: {why}",
            )
    return None


def _not_bindable(pod: Object) -> Refusal | None:
    name, spec = pod["metadata"]["name"], pod["spec"]
    why = ""
    if "deletionTimestamp" in pod["metadata"]:
        why = f"pod {name} is being deleted, cannot be assigned to a host"
    elif spec.get("nodeName"):
        why = f'pod {name} is already assigned to node "{spec["nodeName"]}"'
    elif spec.get("schedulingGates"):
        why = f"pod {name} has non-empty .spec.schedulingGates"
    return conflict(PODS, name, why, subresource="binding") if why else None
