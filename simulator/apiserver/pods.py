"""What the API server does with pods: defaults, checks, permitted changes, admission plugins, and pods/NAME/binding.

Plugins are Priority, ServiceAccount, RuntimeClass, DefaultTolerationSeconds and PodTopologyLabelsAdmission. Left out of
the real defaults: the service account's token volume; left out of the checks: what no part of Moorage reads or writes
(probes, sources of volumes, security contexts).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from simulator.apiserver.calls import Refusal, bad_request, conflict, forbidden, internal, invalid
from simulator.apiserver.pod_spec import problems
from simulator.apiserver.types import PODS, PRIORITY_CLASSES, RUNTIME_CLASSES, SERVICE_ACCOUNTS
from simulator.apiserver.validation import check_maps, name_problem
from wire import quantity

if TYPE_CHECKING:
    from simulator.apiserver.store import Store

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
#: Resources of pods as a whole, and the units (in nano) in which sums of them are written.
_OF_WHOLE_PODS: dict[str, tuple[tuple[int, str], ...]] = {
    "cpu": ((quantity.NANO, ""), (quantity.NANO_PER_MILLI, "m"), (1, "n")),
    "memory": (
        *((quantity.NANO * 2**power, suffix) for power, suffix in ((40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki"))),
        (quantity.NANO, ""),
        (1, "n"),
    ),
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
    if spec.get("resources"):
        spec["resources"] = _of_whole_pod(spec)
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


def _resources(resources: Object, *, are_requested: bool = True) -> Object:
    """Quantities are strings, and a limit is also a request where none is given, if ``are_requested``."""
    limits = {key: _amount(key, value) for key, value in (resources.get("limits") or {}).items()}
    requests = {key: _amount(key, value) for key, value in (resources.get("requests") or {}).items()}
    requests = {**(limits if are_requested else {}), **requests}
    result = {key: value for key, value in resources.items() if key not in ("limits", "requests")}
    return {**result, **({"limits": limits} if limits else {}), **({"requests": requests} if requests else {})}


def _of_whole_pod(spec: Object) -> Object:
    """Resources of a pod as a whole. With limits, a request that is missing is the containers' sum, else the limit.

    Sums are stored in the usual units of a resource. Left out: hugepages of containers as limits of the pod.
    """
    resources = _resources(spec["resources"], are_requested=False)
    limits = resources.get("limits")
    if not limits:
        return resources
    summed = {key: text for key in _OF_WHOLE_PODS if (text := _summed(spec, key))}
    whole = {key: value for key, value in limits.items() if key in _OF_WHOLE_PODS or key.startswith("hugepages-")}
    return {**resources, "requests": {**whole, **summed, **(resources.get("requests") or {})}}


def _summed(spec: Object, resource: str) -> str:
    """What containers request together, "" for nothing: sidecars run beside the others, init containers before."""
    running = peak = 0
    for container in spec.get("initContainers") or ():
        nano = _requested(container, resource)
        peak = max(peak, running + nano)
        running += nano if container.get("restartPolicy") == "Always" else 0
    total = max(peak, running + sum(_requested(each, resource) for each in spec.get("containers") or ()))
    unit, suffix = next((one, name) for one, name in _OF_WHOLE_PODS[resource] if total % one == 0)
    return f"{total // unit}{suffix}" if total else ""


def _requested(container: Object, resource: str) -> int:
    try:
        return quantity.parse_nano(container["resources"].get("requests", {}).get(resource, 0))
    except quantity.MalformedQuantity:
        return 0


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
    """Of a pod with resources as a whole, these alone count."""
    whole_pod = [spec] if spec.get("resources") else ()
    containers = whole_pod or [*spec.get("containers", ()), *spec.get("initContainers", ())]
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


def refusal_of_template(template: Object) -> tuple[str, str] | None:
    """Return the field of a pod template for which its pods are refused, and why; None if they are not.

    ``template`` is known to decode as wire.core.Pod.
    """
    meta = {**(template.get("metadata") or {}), "name": "pod", "ownerReferences": None}
    try:
        check_maps(PODS, meta)
        check_new(with_defaults({**template, "metadata": meta}))
    except Refusal as refusal:
        cause = (refusal.details or {}).get("causes", [{"field": "", "message": refusal.message}])[0]
        return cause["field"], cause["message"]
    return None


def check_new(pod: Object) -> None:
    """Refuse (422) a new pod that can't be."""
    name, spec = pod["metadata"]["name"], pod["spec"]
    if not spec.get("containers"):
        raise invalid(PODS, name, "spec.containers", "Required value")
    seen: set[str] = set()
    for field in ("initContainers", "containers"):
        for at, container in enumerate(spec.get(field) or ()):
            _check_container(name, f"spec.{field}[{at}]", container, seen)
    for field, why in problems(spec):
        raise invalid(PODS, name, f"spec.{field}", why)
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


def admitted(pod: Object, store: Store, namespace: str) -> Object:
    """Return the pod with what the plugins add before the webhooks see it. Raises Refusal (403)."""
    _check_service_account(pod, store, namespace)
    return with_default_tolerations(_with_priority(pod, store))


_OVERHEAD_ALONE: Final = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"


def with_runtime_class(pod: Object, store: Store) -> Object:
    """Return the pod with what its RuntimeClass says; asked after the webhooks, which may have set it.

    Raises Refusal (403) if the class is absent, or says something else than the pod.
    """
    spec = pod["spec"]
    wanted = spec.get("runtimeClassName")
    if not wanted:
        if spec.get("overhead"):
            raise forbidden(PODS, _name(pod), _OVERHEAD_ALONE)
        return pod
    found = store.get(RUNTIME_CLASSES, wanted)
    if found is None:
        raise forbidden(PODS, _name(pod), f'pod rejected: RuntimeClass "{wanted}" not found')
    overhead = (found.obj.get("overhead") or {}).get("podFixed")
    if overhead and spec.get("overhead") not in (None, overhead):
        raise forbidden(PODS, _name(pod), "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
    if spec.get("overhead") and not overhead:
        raise forbidden(PODS, _name(pod), _OVERHEAD_ALONE)
    scheduling = found.obj.get("scheduling") or {}
    selector = {**(scheduling.get("nodeSelector") or {}), **(spec.get("nodeSelector") or {})}
    if any(selector[key] != value for key, value in (scheduling.get("nodeSelector") or {}).items()):
        raise forbidden(PODS, _name(pod), "conflict: runtimeClass.scheduling.nodeSelector conflicts with the pod's")
    tolerations = [*(spec.get("tolerations") or ()), *(scheduling.get("tolerations") or ())]
    added = {"overhead": overhead, "nodeSelector": selector, "tolerations": tolerations}
    return {**pod, "spec": {**spec, **{field: value for field, value in added.items() if value}}}


def _name(pod: Object) -> str:
    """The name as a refusal has it: of one that is generated later, its beginning."""
    return str(pod["metadata"].get("name") or pod["metadata"].get("generateName") or "")


def _check_service_account(pod: Object, store: Store, namespace: str) -> None:
    # Every namespace has "default" sooner or later; here it needs no object.
    wanted = pod["spec"]["serviceAccountName"]
    if wanted != "default" and store.get(SERVICE_ACCOUNTS, f"{namespace}/{wanted}") is None:
        why = f'error looking up service account {namespace}/{wanted}: serviceaccount "{wanted}" not found'
        raise forbidden(PODS, _name(pod), why)


def _with_priority(pod: Object, store: Store) -> Object:
    spec = pod["spec"]
    name = spec.get("priorityClassName") or _default_class(store)
    value, policy = 0, "PreemptLowerPriority"
    if name:
        found = store.get(PRIORITY_CLASSES, name)
        if found is None:
            raise forbidden(PODS, _name(pod), f"no PriorityClass with name {name} was found")
        value, policy = found.obj.get("value", 0), found.obj.get("preemptionPolicy", policy)
    said = spec.get("priority")
    if said is not None and said != value:
        why = (
            f"the integer value of priority ({said}) must not be provided in pod spec; priority admission controller "
            f"computed {value} from the given PriorityClass name"
        )
        raise forbidden(PODS, _name(pod), why)
    named = {"priorityClassName": name} if name else {}
    return {**pod, "spec": {**spec, **named, "priority": value, "preemptionPolicy": policy}}


def _default_class(store: Store) -> str:
    defaults = [each for each in store.objects(PRIORITY_CLASSES) if each.get("globalDefault")]
    return str(min(defaults, key=lambda each: each["value"])["metadata"]["name"]) if defaults else ""


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
    """Return the pod as the Binding leaves it. Raises Refusal (409) if it may not be bound, or not by this Binding.

    As BindingREST of pkg/registry/core/pod/storage/storage.go: one write sets the node and merges the Binding's
    annotations and its labels (on by default since 1.35). That metadata is not validated, as on the real server.
    """
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
