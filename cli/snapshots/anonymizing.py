"""A snapshot with other names: of nodes, namespaces, pods, queues, workloads, images and labels.

Each name becomes ``n`` and its number in the order of all names. A hash could be guessed by hashing likely names; a
number can't. The order of names stays, so decisions, which break ties by names, are the same. The same name has the
same number everywhere in a file, and another one in the next file.

What stays: UIDs, names that Kubernetes, NVIDIA, KAI or Moorage give (labels such as ``nvidia.com/gpu.product`` with
their values, resources, scheduler names), whole numbers, times and amounts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from cli.snapshots import anonymous_claims
from cli.snapshots.saved import Saved
from gpu.dialects import nvannotations
from scheduler.core.convert.in_tree_volumes import DRIVERS
from scheduler.core.queues.use_over_time import UseOverTime, counts_written, read_counts
from scheduler.core.room import written
from wire import gangs, gangwords, names
from wire.core import Container, Pod

Rename = Callable[[str], str]

#: Texts that are the same in every cluster.
_EVERYWHERE: Final = frozenset({
    "", "true", "false", "True", "False", "metadata.name", "default", "kube-system", "default-scheduler",
    *(value for value in vars(names).values() if isinstance(value, str)),
    *gangs.LABELS, *gangwords.ALL, *DRIVERS,
})  # fmt: skip
_NUMBER: Final = re.compile(r"-?[0-9]{1,15}", re.ASCII)
#: Domains of label keys, annotations and taints that say nothing of whose cluster it is.
_DOMAINS: Final = (
    *("kubernetes.io", "k8s.io", "nvidia.com", "moorage.dev", "kai.scheduler", "run.ai", "hami.io", "volcano.sh"),
    *("koordinator.sh", "karpenter.sh", "runai-gpu-group", "ray.io", "kubeflow.org", "sigs.k8s.io"),
)
#: Of these keys values are facts of machines, or ids.
_PLAIN_DOMAINS: Final = ("nvidia.com", "feature.node.kubernetes.io", "node-role.kubernetes.io", "runai-gpu-group")
_PLAIN_KEYS: Final = frozenset({
    "kubernetes.io/arch", "kubernetes.io/os", names.PREEMPTIBILITY_LABEL, names.GPU_GROUP_LABEL,
})  # fmt: skip
#: Fields of objects whose texts are no names: words of the API, ids, times and amounts.
_PLAIN_FIELDS: Final = frozenset({
    "apiVersion", "kind", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "startTime", "phase",
    "type", "status", "reason", "operator", "effect", "whenUnsatisfiable", "nodeAffinityPolicy", "nodeTaintsPolicy",
    "restartPolicy", "action", "protocol", "volumeBindingMode", "accessModes", "declaredFeatures", "preemptibility",
    "preemptionDelay", "stalenessGracePeriod", "preemptMinRuntime", "reclaimMinRuntime", "health", "resourceID",
    "receivedResourceType", "portion", "selectedGPUGroups", "schedulerName", "fieldPath",
    "finalizers", "hostIP", "capacity", "maximumVolumeSize", "volumeMode",
    "extendedResourceName", "resourceName", "bindingConditions", "bindingFailureConditions", "allocationMode",
    "allocationTimestamp", "shareID", "resource", "apiGroup",
})  # fmt: skip
#: Between the zones of a volume that is in several.
_ZONES_APART: Final = "__"
#: Fields that are labels.
_LABELS: Final = frozenset({"labels", "matchLabels", "nodeSelector"})
#: Fields that are keys of labels or taints, alone or in a list.
_KEYS: Final = frozenset({
    "key", "topologyKey", "nodeLabel", "alias", "matchLabelKeys", "requiredTopologyLevel", "preferredTopologyLevel",
})  # fmt: skip
#: Fields that are amounts by resource.
_AMOUNTS: Final = frozenset({"requests", "limits", "capacity", "allocatable", "overhead", "allocatedResources"})
#: Fields that name a request of a claim, and after a slash its alternative.
_REQUESTS: Final = frozenset({"request", "requests"})
#: Fields that name an attribute of devices.
_ATTRIBUTES: Final = frozenset({"matchAttribute", "distinctAttribute"})
#: Annotations of pods that are names; of those in JSON the fields that are.
_NAMES: Final = frozenset({
    names.POD_GROUP_NAME, names.GPU_FRACTION_CONTAINER_NAME, names.SHARED_GPU_CONFIGMAP, names.OLD_STORAGE_CLASS,
    names.SELECTED_NODE,
    *gangwords.ALL,
})  # fmt: skip
_IN_JSON: Final = frozenset({names.GPU_RECORD, names.TENANTS, names.PLAN})
_NAMES_IN_JSON: Final = frozenset({"name", "pod", "node"})
_LABELS_IN_JSON: Final = frozenset({"labels", "otherThan"})
#: What it says to people about a request.
_NOTES: Final = "notes"


def anonymized(saved: Saved) -> Saved:
    """Return the snapshot with other names."""
    found: set[str] = set()

    def collect(text: str) -> str:
        found.add(text)
        return text

    _renamed(saved, collect)
    digits = len(str(len(found)))
    by_name = {text: f"n{number:0{digits}d}" for number, text in enumerate(sorted(found), 1)}
    made = _joined(saved, lambda text: by_name.get(text, text))
    return _renamed(saved, lambda text: made.get(text) or by_name[text])


def _joined(saved: Saved, rename: Rename) -> dict[str, str]:
    """Names that are made of others: claims of pods for themselves, and the ConfigMaps of shares."""
    made: dict[str, str] = {}
    for pod in saved.pods:
        meta = pod.metadata
        for volume in pod.spec.volumes or ():
            if volume.ephemeral is not None:
                made[f"{meta.name}-{volume.name}"] = f"{_of(meta.name, rename)}-{_of(volume.name, rename)}"
        # Names of resources stay, and with them those of classes that they are made of.
        made |= {name: name for container in _containers(pod) for name in _classes(container)}
        prefix = (meta.annotations or {}).get(names.SHARED_GPU_CONFIGMAP)
        for container in _containers(pod) if prefix else ():
            for name in _config_maps(container):
                made[name] = f"{_of(prefix or '', rename)}{name[len(prefix or '') :]}"
    return made


def _containers(pod: Pod) -> Iterator[Container]:
    yield from pod.spec.containers
    yield from pod.spec.init_containers or ()


def _classes(container: Container) -> Iterator[str]:
    """DeviceClasses that a container names by an extended resource."""
    for resource in (*(container.resources.requests or ()), *(container.resources.limits or ())):
        if resource.startswith(names.DEVICE_CLASS_PREFIX):
            yield resource.removeprefix(names.DEVICE_CLASS_PREFIX)


def _config_maps(container: Container) -> Iterator[str]:
    for variable in container.env or ():
        if variable.value_from is not None and variable.value_from.config_map_key_ref is not None:
            yield variable.value_from.config_map_key_ref.name


def _renamed(saved: Saved, rename: Rename) -> Saved:
    tree = msgspec.to_builtins(saved)
    head = ("kind", "version", "takenAt", "moorage", "missing", "followsTaintRules")
    changed = {key: each if key in head else _tree(key, each, rename) for key, each in tree.items()}
    changed["unread"] = [f"{len(saved.unread)} messages, left out as they have names"] if saved.unread else []
    changed["isAnonymized"] = True
    changed["queueUse"] = _queue_use(saved.queue_use, rename)
    if saved.room is not None:
        changed["room"] = _room(saved.room, rename)
    return msgspec.convert(changed, Saved)


# --- objects ---------------------------------------------------------------------------------------------------------
def _tree(field: str, value: Any, rename: Rename) -> Any:
    """A value of this field with other names."""
    match value:
        case str():
            return _text(field, value, rename)
        case list():
            return [_tree(field, each, rename) for each in value]
        case dict():
            return _object(field, value, rename)
        case _:
            return value


def _object(field: str, value: dict[str, Any], rename: Rename) -> dict[str, Any]:
    is_flat = not any(isinstance(each, dict | list) for each in value.values())
    if field in _AMOUNTS and is_flat:
        return value
    if field in _LABELS and is_flat:
        return {_key(key, rename): _label(key, text, rename) for key, text in value.items()}
    if field == "annotations":
        return dict(_annotation(key, text, rename) for key, text in value.items())
    if {"key", "operator", "effect"} & value.keys():  # an expression, a toleration or a taint
        return {name: _of_expression(name, each, value.get("key", ""), rename) for name, each in value.items()}
    made = _of_devices(field, value, rename)
    return {name: _tree(name, each, rename) for name, each in value.items()} if made is None else made


def _of_devices(field: str, value: dict[str, Any], rename: Rename) -> dict[str, Any] | None:
    """What ResourceClaims and ResourceSlices have by names of attributes, capacities and counters; None for others."""
    if field == "counters":
        return value
    if field == "capacity" and isinstance(asked := value.get("requests"), dict) and "value" not in asked:
        return {"requests": _by_attribute(asked, rename)}
    if field in {"capacity", "consumedCapacity"}:
        return _by_attribute(value, rename)
    if "pool" in value and isinstance(devices := value.get("devices"), list):  # the spec of a ResourceSlice
        made = {name: _tree(name, each, rename) for name, each in value.items() if name != "devices"}
        return made | {"devices": [_device(each, value.get("driver", ""), rename) for each in devices]}
    return None


def _device(value: dict[str, Any], driver: str, rename: Rename) -> dict[str, Any]:
    listed = value.get("attributes")
    made: dict[str, Any] = _tree("", {name: each for name, each in value.items() if name != "attributes"}, rename)
    if listed is None:
        return made
    return made | {"attributes": anonymous_claims.attributes(listed, driver, lambda each: _of(each, rename), _is_plain)}


def _by_attribute(value: dict[str, Any], rename: Rename) -> dict[str, Any]:
    return {_attribute(name, rename): each for name, each in value.items()}


def _attribute(name: str, rename: Rename) -> str:
    return anonymous_claims.qualified(name, lambda each: _of(each, rename), _is_plain)


def _is_plain(domain: str) -> bool:
    return _is_of(f"{domain}/", _PLAIN_DOMAINS)


def _of_expression(name: str, value: Any, key: str, rename: Rename) -> Any:
    if name == "values":
        return [_label(key, each, rename) for each in value]
    return _label(key, value, rename) if name == "value" else _tree(name, value, rename)


def _text(field: str, text: str, rename: Rename) -> str:
    if field in _PLAIN_FIELDS:
        return text
    if field in _KEYS:
        return _key(text, rename)
    if field == "expression":
        return anonymous_claims.expression(text, lambda each: _of(each, rename), _is_plain)
    if field in _ATTRIBUTES:
        return _attribute(text, rename)
    if field in _REQUESTS:
        return "/".join(_of(part, rename) for part in text.split("/"))
    return text if field == "driver" and _is_plain(text) else _of(text, rename)


def _of(text: str, rename: Rename) -> str:
    """A name."""
    return text if text in _EVERYWHERE or _NUMBER.fullmatch(text) else rename(text)


def _key(key: str, rename: Rename) -> str:
    return key if _is_of(key, _DOMAINS) else _of(key, rename)


def _label(key: str, text: str, rename: Rename) -> str:
    """The value of a label, or of a taint."""
    if key in _PLAIN_KEYS or _is_of(key, _PLAIN_DOMAINS):
        return text
    return _ZONES_APART.join(_of(part, rename) for part in text.split(_ZONES_APART))


def _is_of(key: str, domains: Iterable[str]) -> bool:
    domain, slash, _ = key.partition("/")
    return bool(slash) and any(domain == each or domain.endswith(f".{each}") for each in domains)


# --- annotations -----------------------------------------------------------------------------------------------------
def _annotation(key: str, text: str, rename: Rename) -> tuple[str, str]:
    if key in _NAMES:
        return key, _of(text, rename)
    if key in _IN_JSON:
        return key, _json(text, rename)
    if key.startswith((names.NVFRACTIONS_PREFIX, names.PORTION_LIMIT_PREFIX)) and (
        nvannotations.is_asked(key) or nvannotations.is_written(key)
    ):
        return _of_container(key, rename), text
    if key in {names.SEGMENT_TOPOLOGY_REQUIRED, names.TOPOLOGY_REQUIRED}:
        return key, _key(text, rename)
    return key, text


def _of_container(key: str, rename: Rename) -> str:
    """An annotation whose key names a container."""
    prefix = names.NVFRACTIONS_PREFIX if key.startswith(names.NVFRACTIONS_PREFIX) else names.PORTION_LIMIT_PREFIX
    rest = key.removeprefix(prefix)
    suffixes = (
        *(names.NVFRACTIONS_REQUEST, names.NVFRACTIONS_LIMIT, names.NVFRACTIONS_MODE, names.NVFRACTIONS_DEVICES),
        *(names.NVFRACTIONS_COMPUTE_PORTION, names.PORTION_LIMIT),
    )
    suffix = next((each for each in suffixes if rest.endswith(each)), "")
    return f"{prefix}{_of(rest.removesuffix(suffix), rename)}{suffix}"


def _json(text: str, rename: Rename) -> str:
    """What we write as JSON. What can't be read, and so says nothing to anybody, becomes no JSON either."""
    try:
        return msgspec.json.encode(_in_json("", msgspec.json.decode(text), rename)).decode()
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return "-"


def _in_json(field: str, value: Any, rename: Rename) -> Any:
    if isinstance(value, str):
        return "/".join(_of(part, rename) for part in value.split("/")) if field in _NAMES_IN_JSON else value
    if isinstance(value, list):
        return [_in_json(field, each, rename) for each in value]
    if not isinstance(value, dict):
        return value
    if field in _LABELS_IN_JSON:
        return {_key(key, rename): _label(key, str(each), rename) for key, each in value.items()}
    return {name: [] if name == _NOTES else _in_json(name, each, rename) for name, each in value.items()}


# --- the scheduler's records -----------------------------------------------------------------------------------------
def _queue_use(text: str, rename: Rename) -> str:
    used = read_counts(text) if text else ""
    if not isinstance(used, UseOverTime):
        return ""
    return counts_written(msgspec.structs.replace(used, of=_by_queue(used.of, rename)))


def _by_queue(of: Mapping[str, Any], rename: Rename) -> dict[str, Any]:
    return {_of(queue, rename): use for queue, use in of.items()}


def _room(text: str, rename: Rename) -> str:
    record = written.read(text).record
    replace = msgspec.structs.replace

    def node(each: Any) -> Any:
        return replace(each, node=_of(each.node, rename))

    def placed(each: Any) -> Any:
        return replace(node(each), namespace=_of(each.namespace, rename))

    intents = tuple(
        replace(
            intent,
            namespace=_of(intent.namespace, rename),
            pod_group=_of(intent.pod_group, rename),
            places=tuple(map(node, intent.places)),
            victims=tuple(replace(placed(each), name=_of(each.name, rename)) for each in intent.victims),
            moved=tuple(map(placed, intent.moved)),
        )
        for intent in record.intents
    )
    waits = {_of(namespace, rename): until_s for namespace, until_s in record.waits.items()}
    return written.written(replace(record, intents=intents, waits=waits))
