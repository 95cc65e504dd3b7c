"""What the API server adds to a pod, checks about it, and lets change later.

Left out of the real defaults: the service account's token volume; left out of the checks: everything that no part of
Moorage writes (probes, volumes, security contexts).
"""

from __future__ import annotations

from typing import Any

from kube.memory.refusals import invalid
from kube.memory.types import PODS
from kube.memory.validation import name_problem
from wire import quantity

Object = dict[str, Any]

_SPEC_DEFAULTS: Object = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "serviceAccountName": "default",
    "securityContext": {},
    "schedulerName": "default-scheduler",
    "enableServiceLinks": True,
}
_CONTAINER_DEFAULTS: Object = {
    "resources": {},
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
#: Admission plugin DefaultTolerationSeconds.
_DEFAULT_TOLERATIONS = tuple(
    {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
)
_EMPTY_IS_ABSENT = ("schedulingGates", "tolerations", "nodeSelector", "initContainers", "volumes", "nodeName")
_UPDATE_RULE = (
    "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing "
    "tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_GATED = {
    "type": "PodScheduled",
    "status": "False",
    "lastProbeTime": None,
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
}


# --- create


def with_defaults(pod: Object) -> Object:
    """Return a new pod with the API's defaults; what it said about its status is dropped."""
    spec = tidy_spec({**_SPEC_DEFAULTS, **(pod.get("spec") or {})})
    spec["serviceAccount"] = spec["serviceAccountName"]
    for field in ("containers", "initContainers"):
        if isinstance(spec.get(field), list):
            spec[field] = [_container(each) for each in spec[field]]
    return {**pod, "spec": spec, "status": {"phase": "Pending"}}


def tidy_spec(spec: Object) -> Object:
    """Return a pod spec without nulls, and without the lists whose emptiness the real server does not keep."""
    return {
        key: value for key, value in spec.items() if value is not None and not (key in _EMPTY_IS_ABSENT and not value)
    }


def _container(container: Object) -> Object:
    image = container.get("image") or ""
    tag = image.rpartition("/")[2].partition("@")[0].partition(":")[2]
    pinned = "@" in image or tag not in ("", "latest")
    result = {**_CONTAINER_DEFAULTS, "imagePullPolicy": "IfNotPresent" if pinned else "Always", **container}
    result["resources"] = _resources(result["resources"] or {})
    return result


def _resources(resources: Object) -> Object:
    """Quantities are strings, and a limit is also a request where none is given."""
    limits = {key: _amount(key, value) for key, value in (resources.get("limits") or {}).items()}
    requests = {key: _amount(key, value) for key, value in (resources.get("requests") or {}).items()}
    requests = {**{key: value for key, value in limits.items() if key not in requests}, **requests}
    result = {key: value for key, value in resources.items() if key not in ("limits", "requests")}
    return {**result, **({"limits": limits} if limits else {}), **({"requests": requests} if requests else {})}


def _amount(resource: str, value: str | float) -> str:
    """A quantity as text; of devices plain digits where it is a whole number however written (``2000m``).

    The real server stores the canonical form, which is the same but for counts that divide by a thousand (``2k``).
    """
    if not _is_extended(resource):
        return str(value)
    try:
        return str(quantity.whole(value))
    except quantity.MalformedQuantity:
        return str(value)


def with_default_tolerations(pod: Object) -> Object:
    """Return the pod with the two tolerations that every pod gets unless it has some for that taint."""
    tolerations = pod["spec"].get("tolerations") or []
    have = {each.get("key") for each in tolerations if each.get("effect") in (None, "", "NoExecute")}
    missing = [each for each in _DEFAULT_TOLERATIONS if each["key"] not in have and None not in have]
    return {**pod, "spec": {**pod["spec"], "tolerations": [*tolerations, *missing]}} if missing else pod


def with_first_status(pod: Object, *, now: str) -> Object:
    """Return the pod with the status that it is stored with."""
    status: Object = {"phase": "Pending"}
    if pod["spec"].get("schedulingGates"):
        status["conditions"] = [{**_GATED, "lastTransitionTime": now}]
    status["qosClass"] = _qos_class(pod["spec"])
    return {**pod, "status": status}


def _qos_class(spec: Object) -> str:
    containers = [*spec.get("containers", ()), *spec.get("initContainers", ())]
    named = [
        {key for key in ("cpu", "memory") if key in container["resources"].get(side, {})}
        for container in containers
        for side in ("requests", "limits")
    ]
    if not any(named):
        return "BestEffort"
    whole = all(len(each) == 2 for each in named)
    equal = all(
        container["resources"]["requests"][key] == container["resources"]["limits"][key]
        for container in containers
        for key in ("cpu", "memory")
        if whole
    )
    return "Guaranteed" if whole and equal else "Burstable"


def check_new(pod: Object) -> None:
    """Refuse (422) a new pod that can't be."""
    name, spec = pod["metadata"]["name"], pod["spec"]
    if not spec.get("containers"):
        raise invalid(PODS, name, "spec.containers", "Required value")
    seen: set[str] = set()
    for field in ("initContainers", "containers"):
        for at, container in enumerate(spec.get(field) or ()):
            _check_container(name, f"spec.{field}[{at}]", container, seen)
    if spec.get("schedulingGates") and spec.get("nodeName"):
        raise invalid(
            PODS, name, "spec.nodeName", "Forbidden: cannot be set until all schedulingGates have been cleared"
        )


def _check_container(pod_name: str, field: str, container: Object, seen: set[str]) -> None:
    name = container.get("name")
    if not name:
        raise invalid(PODS, pod_name, f"{field}.name", "Required value")
    problem = name_problem(name, label=True)
    if problem:
        raise invalid(PODS, pod_name, f"{field}.name", f'Invalid value: "{name}": {problem}')
    if name in seen:
        raise invalid(PODS, pod_name, f"{field}.name", f'Duplicate value: "{name}"')
    seen.add(name)
    if not container.get("image"):
        raise invalid(PODS, pod_name, f"{field}.image", "Required value")
    _check_extended_resources(pod_name, field, container["resources"])


def _check_extended_resources(pod_name: str, field: str, resources: Object) -> None:
    """Devices are counted whole, and what is requested is what is limited."""
    limits, requests = resources.get("limits", {}), resources.get("requests", {})
    for side, values in (("limits", limits), ("requests", requests)):
        for key, value in values.items():
            if _is_extended(key) and not value.isdecimal():
                where = f"{field}.resources.{side}[{key}]"
                raise invalid(PODS, pod_name, where, f'Invalid value: "{value}": must be an integer')
    for key, value in requests.items():
        if not _is_extended(key):
            continue
        if key not in limits:
            raise invalid(
                PODS,
                pod_name,
                f"{field}.resources.limits",
                "Required value: Limit must be set for non overcommitable resources",
            )
        if value != limits[key]:
            why = f'Invalid value: "{value}": must be equal to {key} limit of {limits[key]}'
            raise invalid(PODS, pod_name, f"{field}.resources.requests", why)


def _is_extended(resource: str) -> bool:
    domain, slash, _ = resource.partition("/")
    return bool(slash) and domain != "kubernetes.io" and not domain.endswith(".kubernetes.io")


# --- update


def tidy_status(status: Object) -> Object:
    """Return a pod status whose conditions carry both times, null where there is none: as Go writes them."""
    conditions = status.get("conditions")
    if not conditions:
        return status
    blank: Object = {"lastProbeTime": None, "lastTransitionTime": None}
    head = ("type", "status")
    whole = [{**{key: each[key] for key in head if key in each}, **blank, **each} for each in conditions]
    return {**status, "conditions": whole}


def check_update(pod: Object, old: Object) -> None:
    """Refuse (422) changes of a pod's spec other than the few that are allowed."""
    new_spec, old_spec = pod["spec"], old["spec"]
    if new_spec == old_spec:
        return
    name = old["metadata"]["name"]
    _check_gates(name, new_spec, old_spec)
    _check_tolerations(name, new_spec, old_spec)
    _check_deadline(name, new_spec, old_spec)
    if old_spec.get("schedulingGates"):
        _check_gated_selector(name, new_spec, old_spec)
    if _fixed_part(new_spec, old_spec) != _fixed_part(old_spec, old_spec):
        raise invalid(PODS, name, "spec", _UPDATE_RULE)


def _fixed_part(spec: Object, old_spec: Object) -> Object:
    free = {"schedulingGates", "tolerations", "activeDeadlineSeconds"}
    if old_spec.get("schedulingGates"):
        free.add("nodeSelector")
    fixed = {key: value for key, value in spec.items() if key not in free}
    for field in ("containers", "initContainers"):
        if field in fixed:
            fixed[field] = [{**each, "image": ""} for each in fixed[field]]
    return fixed


def _check_gates(name: str, new: Object, old: Object) -> None:
    had = [each.get("name") for each in old.get("schedulingGates") or ()]
    for at, gate in enumerate(new.get("schedulingGates") or ()):
        if gate.get("name") not in had:
            why = f"Forbidden: only deletion is allowed, but found new scheduling gate '{gate.get('name')}'"
            raise invalid(PODS, name, f"spec.schedulingGates[{at}].name", why)


def _check_tolerations(name: str, new: Object, old: Object) -> None:
    def essence(toleration: Object) -> Object:
        return {key: value for key, value in toleration.items() if key != "tolerationSeconds" and value}

    now = [essence(each) for each in new.get("tolerations") or ()]
    if any(essence(each) not in now for each in old.get("tolerations") or ()):
        why = "Forbidden: existing toleration can not be modified except its tolerationSeconds"
        raise invalid(PODS, name, "spec.tolerations", why)


def _check_deadline(name: str, new: Object, old: Object) -> None:
    now, was = new.get("activeDeadlineSeconds"), old.get("activeDeadlineSeconds")
    if now == was or was is None:
        return
    field = "spec.activeDeadlineSeconds"
    if now is None:
        raise invalid(PODS, name, field, "Invalid value: null: must not update from a positive integer to nil value")
    if now > was:
        raise invalid(PODS, name, field, f"Invalid value: {now}: must be less than or equal to previous value")


def _check_gated_selector(name: str, new: Object, old: Object) -> None:
    now, was = new.get("nodeSelector") or {}, old.get("nodeSelector") or {}
    if any(now.get(key) != value for key, value in was.items()):
        why = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        raise invalid(PODS, name, "spec.nodeSelector", f"Invalid value: {now}: {why}")


# --- conditions


def with_condition(pod: Object, condition: Object) -> Object:
    """Return the pod with one condition set, in its place if there is one of that type.

    The time of transition stays if the condition's status was the same.
    """
    status = pod.get("status") or {}
    conditions = list(status.get("conditions") or ())
    for at, each in enumerate(conditions):
        if each.get("type") == condition["type"]:
            kept = each.get("lastTransitionTime") if each.get("status") == condition["status"] else None
            conditions[at] = {**condition, "lastTransitionTime": kept} if kept else condition
            break
    else:
        conditions.append(condition)
    return {**pod, "status": {**status, "conditions": conditions}}
