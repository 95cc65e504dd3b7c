"""A snapshot with other names: of nodes, namespaces, pods, queues, workloads, images and labels.

Each name becomes ``n`` and its number in the order of all names. A hash could be guessed by hashing likely names; a
number can't. The order of names stays, so decisions, which break ties by names, are the same. The same name has the
same number everywhere in a file, and another one in the next file.

Every text of every field is replaced, but for what is known to say nothing of whose cluster it is: words of the API, of
Kubernetes, NVIDIA, KAI and Moorage, and of the dialects that are read; numbers, amounts, times, UIDs, versions;
profiles of MIG slices; and known models of GPUs where a text says which GPUs.
"""

from __future__ import annotations

import enum
import itertools
import pkgutil
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, Final

import msgspec

import gpu
import gpu.dialects
import gpu.translate
from cli.snapshots.file import PLURALS, Saved
from gpu.dialects import nvfractions
from scheduler.core.convert import pod_groups, volumes
from scheduler.core.preemption import nomination_record
from scheduler.core.queues.use_over_time import UseOverTime, counts_written, read_counts
from wire import gangs, names
from wire.core import Container, NodeSelectorRequirement, Pod
from wire.resource import DeviceAttribute

#: Gives a name another one.
Rename = Callable[[str], str]

#: Domains of keys, drivers and API groups, beside those of the words that are read.
_OF_KUBERNETES: Final = frozenset({
    "kubernetes.io", "k8s.io", "node.kubernetes.io", "beta.kubernetes.io", "topology.kubernetes.io",
    "app.kubernetes.io", "apps.kubernetes.io", "batch.kubernetes.io", "statefulset.kubernetes.io",
    "node-role.kubernetes.io", "feature.node.kubernetes.io", "failure-domain.beta.kubernetes.io",
    "storage.k8s.io", "resource.k8s.io", "scheduling.k8s.io", "policy", "apps", "batch", "nvidia.com",
    "gpu.nvidia.com", "mig.nvidia.com", "compute-domain.nvidia.com", "resource.nvidia.com", "moorage.dev",
    "kai.scheduler", "run.ai", "runai", "karpenter.sh", "kubeflow.org", "ray.io",
    "deviceclass.resource.kubernetes.io", "volume.kubernetes.io",
})  # fmt: skip
#: Words of the API and of nodes, and those that the reading of objects looks for in the middle of its code.
_OF_THE_API: Final = frozenset({
    "true", "false", "True", "False", "TRUE", "FALSE", "void", "all", "none", "any", "null", "metadata.name",
    "metadata.annotations", "metadata.labels", "spec", "status", "v1", "v1alpha1", "v1alpha2", "v1beta1",
    "v1beta2", "v1beta3", "v2", "v2alpha2", "default", "kube-system", "kube-public", "default-scheduler",
    "amd64", "arm64", "batch/v1", "linux", "windows", "control-plane", "master", "gpu", "cpu", "memory", "pods", "node",
    "nodes", "nodeName", "Pending", "Running", "Succeeded", "Failed", "Unknown", "Active", "Terminating",
    "Bound", "Available", "Released", "Lost", "Ready", "Retain", "Delete", "In", "NotIn", "Exists",
    "DoesNotExist", "Gt", "Lt", "Equal", "NoSchedule", "PreferNoSchedule", "NoExecute", "None", "DoNotSchedule",
    "ScheduleAnyway", "Honor", "Ignore", "Always", "Never", "OnFailure", "Restart", "RestartAllContainers",
    "TCP", "UDP", "SCTP", "Immediate", "WaitForFirstConsumer", "ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany",
    "ReadWriteOncePod", "Filesystem", "Block", "Managed", "Dedicated", "Shared", "managed", "dedicated",
    "shared", "Linux", "Windows", "ExactCount", "All", "Healthy", "Unhealthy", "FromClass", "FromClaim",
    "Regular", "Fraction", "preemptible", "non-preemptible", "PodResizePending", "DisruptionTarget",
    "Infeasible", "Deferred", "MissingTopologyKey", "string", "int", "bool", "version", "value", "values",
    "strings", "ints", "bools", "versions", "requestPolicy", "validValues", "validRange", "min", "max", "step",
    "left", "out", "claimName", "podGroupName", "readOnly", "counters", "name", "driver", "binpack", "spread",
    "share", "exclusive", "mixed", "single", "Pod", "Job", "CronJob", "Deployment", "ReplicaSet", "StatefulSet",
    "DaemonSet", "Node", "PodGroup", "Workload", "Queue", "ReplicationController", "single-numa-node",
    "restricted", "best-effort", "pod", "container", "topologyManagerPolicy", "topologyManagerScope",
    "gpu.present", "gpu.count", "gpu.replicas", "gpu.shared", "gpu.product", "gpu.memory", "gpu.machine",
    "gpu.sharing-strategy", "mig.capable", "mig.strategy", "mig.config", "mig.config.state", "time-slicing",
    "mps", "shared-gpu", "productName", "architecture", "brand", "uuid", "index", "type", "profile",
    "parentUUID", "driverVersion", "cudaDriverVersion", "cudaComputeCapability", "pcieBusID", "pciBusID",
    "pcieRoot", "numaNode", "numa", "multiprocessors", "copyEngines", "decoders", "encoders", "jpegEngines",
    "ofaEngines", "imexChannelID", "cliqueId", "hostname", "resource", "parentIndex", "parentMinor", "gpuIndex",
    "Binding", "GPUs", "Ki", "MiB", "Normal", "RestartAllContainersOnContainerExits", "Restricted",
    "RestrictedContainerLevel", "RestrictedPodLevel", "SingleNUMANodeContainerLevel", "SingleNUMANodePodLevel",
    "UserNamespacesHostNetworkSupport", "Warning", "affinity.podAffinity", "affinity.podAntiAffinity",
    "aliyun.unit_mib", "annotation", "apps.kubernetes.io/pod-index", "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-name", "c0", "camel", "claim-place", "clearml.legacy_replicas", "cnvrg.io/metagpu",
    "config-map", "consumedCapacity", "controller-uid", "cordoned", "diskURI", "disks", "driver-caps", "empty",
    "enforced-affinity", "enforcement", "features", "ff", "fraction", "hami.default_cores_percent",
    "hami.default_gpus", "hami.default_mem_mib", "hami.memory_factor", "host-ports", "hostIP", "inf",
    "job-name", "jobs.batch", "kube-root-ca.crt", "label", "limit", "minor", "misspelt", "ms", "nan", "node-pool",
    "node-role.kubernetes.io/mig-enabled", "nodeAllocatableResourceMappings", "not-ready", "ns",
    "others-anti-affinity", "overQuotaWeight", "pod-affinity", "pod-anti-affinity", "preemptMinRuntime",
    "quota", "reclaimMinRuntime", "resource-source", "rest", "selector", "set", "shareID", "sorted",
    "spec.containers", "spec.devices.constraints", "spec.devices.requests", "spec.schedulingGroup",
    "spec.workloadRef", "spread-label", "statefulset.kubernetes.io/pod-name", "storage", "taint", "unreadable",
    "us", "volcano.memory_factor", "volume-affinity", "volume-zone", "volumeID", "well", "whole", "wrong-place",
    "zone",
})  # fmt: skip
_NUMBER: Final = r"[-+]?[0-9]{1,19}(\.[0-9]{1,19})?([eE][-+]?[0-9]{1,3}|[numkKMGTPE]i?)?%?"
_UUID: Final = r"[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}"
_SHAPES: Final = re.compile(
    "|".join(
        (
            _NUMBER,
            r"-?([0-9]{1,19}(\.[0-9]{1,19})?(ns|us|ms|s|m|h)){1,6}",
            r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?([Zz]|[-+][0-9]{2}:[0-9]{2})",
            rf"((GPU|MIG)-)?{_UUID}(-[0-9]{{1,9}})?",
            r"(GPU|MIG)-[0-9a-f]{1,8}",
            r"(v?[0-9]{1,9}(\.[0-9]{1,9}){0,2}|0\.0\.0\.0)",
            r"(mig-)?([0-9]c\.)?[0-9]g\.[0-9]{1,3}gb([.+](me|all|gfx)){0,2}(\.(shared|count|product|replicas|memory))?",
            r"[ci][0-9]{1,3}",  # a container by its place, as our annotations name it
            r"hugepages-[0-9]{1,9}[KMGT]i",
        )
    ),
    re.ASCII,
)
#: Parts of names of GPUs, in small letters: words, models, and numbers of models.
_OF_MODELS: Final = frozenset({
    "nvidia", "tesla", "quadro", "geforce", "grid", "titan", "nvs", "gtx", "rtx", "pro", "ti", "super", "ada",
    "generation", "blackwell", "hopper", "ampere", "volta", "turing", "pascal", "sxm", "pcie", "nvl", "hbm",
    "hbm2", "hbm2e", "hbm3", "hbm3e", "mig", "shared", "dgx", "hgx", "server", "edition", "workstation", "max",
    "q", "laptop", "d", "orin", "xavier", "thor", "jetson", "agx", "nx", "nano", "gpu", "a2", "a10", "a10g",
    "a10m", "a16", "a30", "a30x", "a40", "a100", "a100x", "a800", "b40", "b100", "b200", "b300", "gb10",
    "gb200", "gb300", "gh200", "h20", "h100", "h200", "h800", "k20", "k40", "k80", "l2", "l4", "l20", "l40",
    "l40g", "l40s", "m4", "m6", "m10", "m40", "m60", "p4", "p6", "p40", "p100", "t4", "t4g", "v100", "v100s",
    "a400", "a500", "a1000", "a2000", "a3000", "a4000", "a4500", "a5000", "a5500", "a6000", "gv100", "m4000",
    "m5000", "m6000", "p400", "p600", "p620", "p1000", "p2000", "p2200", "p4000", "p5000", "p6000", "t400",
    "t500", "t600", "t1000", "t1200", "500", "1000", "2000", "3000", "3500", "4000", "4500", "5000", "5500",
    "5880", "6000", "8000", "1030", "1050", "1060", "1070", "1080", "1650", "1660", "2050", "2060", "2070",
    "2080", "3050", "3060", "3070", "3080", "3090", "4050", "4060", "4070", "4080", "4090", "5050", "5060",
    "5070", "5080", "5090", "sxm2", "sxm3", "sxm4", "sxm5", "sxm6", "nvl4", "nvl72",
})  # fmt: skip
#: The memory of a GPU, and a profile of MIG slices.
_OF_MEMORY: Final = re.compile(r"[0-9]{1,3}GB|([0-9]c\.)?[0-9]g\.[0-9]{1,3}gb([.+](me|all|gfx)){0,2}", re.ASCII)
_LONGEST_MODEL: Final = 100
_BETWEEN_PARTS: Final = re.compile(r"[-_ ]")
#: What may be a name or a key, within a text.
_TOKEN: Final = re.compile(r"[^\W](?:[\w./+-]*\w)?")
#: Between the domain of a key and its name; and between the zones of a volume that is in several.
_APART: Final = re.compile(r"(/|__)")


def renamed_text(written: str, rename: Rename, *, of_gpus: bool = False) -> str:
    """Replace all names in a text that are not harmless. ``of_gpus``: it says which GPUs, so their models stay.

    It is looked at part by part, so a key in a known domain keeps the domain, and JSON its form. The same part has the
    same name everywhere.
    """
    if is_harmless(written) or (of_gpus and _is_model(written)):
        return written
    return _TOKEN.sub(
        lambda found: found[0] if of_gpus and _is_model(found[0]) else renamed_key(found[0], rename),
        written,
    )


def renamed_key(written: str, rename: Rename) -> str:
    """The same of a name, or of a key with a domain."""
    if is_harmless(written):
        return written
    for prefix in _prefixes():
        if written.startswith(prefix) and written != prefix:
            return prefix + renamed_key(written.removeprefix(prefix), rename)
    parts = _APART.split(written)
    if len(parts) == 1:
        return rename(written) if _TOKEN.fullmatch(written) else _TOKEN.sub(lambda found: rename(found[0]), written)
    last = len(parts) - 1
    return "".join(
        part if at % 2 or not part or (at < last and is_known_domain(part)) else renamed_key(part, rename)
        for at, part in enumerate(parts)
    )


def is_known_domain(domain: str) -> bool:
    """Whether a domain says nothing of whose cluster it is."""
    return domain in _domains()


def is_harmless(written: str) -> bool:
    """Whether a text as a whole says nothing of whose cluster it is."""
    is_word = written in _words() or written in _domains()
    return not written or is_word or _SHAPES.fullmatch(written) is not None


def _is_model(written: str) -> bool:
    parts = _BETWEEN_PARTS.split(written) if len(written) <= _LONGEST_MODEL else [""]
    return all(each.lower() in _OF_MODELS or _OF_MEMORY.fullmatch(each) for each in parts)


@cache
def _constants() -> frozenset[str]:
    """Texts of the modules that say what is read, with fields of what is JSON there."""
    packages = (gpu, gpu.dialects, gpu.translate)
    modules = [names, gangs, volumes, pod_groups, *itertools.chain.from_iterable(map(_modules_of, packages))]
    return frozenset(each for module in modules for each in _texts(_own(module)))


@cache
def _words() -> frozenset[str]:
    return _OF_THE_API | {each for each in _constants() if _TOKEN.fullmatch(each)}


@cache
def _domains() -> frozenset[str]:
    return _OF_KUBERNETES | {
        each.partition("/")[0] for each in _constants() if "/" in each and _TOKEN.fullmatch(each.partition("/")[0])
    }


@cache
def _prefixes() -> tuple[str, ...]:
    """Beginnings of keys that end with a name, the longest first."""
    found = {each for each in _constants() if "/" in each and each.endswith(("-", "."))}
    return tuple(sorted((each for each in found if _TOKEN.fullmatch(each[:-1])), key=len, reverse=True))


def _own(module: ModuleType) -> list[Any]:
    """Values of a module's own names, not of those that each module has."""
    return [value for name, value in vars(module).items() if not name.startswith("__")]


def _modules_of(package: ModuleType) -> Iterator[ModuleType]:
    for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        yield import_module(found.name)


def _texts(value: Any) -> Iterator[str]:
    """Texts in a constant of a module; of a type the names of its fields, and its words."""
    match value:
        case str():
            yield value
        case type() if issubclass(value, enum.Enum):
            yield from (each.value for each in value if isinstance(each.value, str))
        case type() if issubclass(value, msgspec.Struct):
            yield from (field.encode_name for field in msgspec.structs.fields(value))
        case Mapping():
            for name, each in value.items():
                yield from _texts(name)
                yield from _texts(each)
        case tuple() | list() | set() | frozenset():
            for each in value:
                yield from _texts(each)
        case _:
            return


_CEL_TOKEN: Final = re.compile(
    r"""//[^\n]*
    |(?P<kind>[bBrR]{0,2})(?P<quote>\"{3}|'{3}|"|')(?P<text>(?:\\.|(?!(?P=quote)).)*)(?P=quote)
    |(?P<name>[^\W\d]\w*)""",
    re.DOTALL | re.VERBOSE,
)
#: Words of CEL, of Kubernetes' libraries for it, and of what a selector is given.
_OF_CEL: Final = frozenset({
    "device", "driver", "attributes", "capacity", "allowMultipleAllocations", "true", "false", "null", "in",
    "has", "all", "exists", "exists_one", "map", "filter", "cel", "bind", "optional", "of", "none",
    "ofNonZeroValue", "hasValue", "orValue", "value", "size", "contains", "startsWith", "endsWith", "matches",
    "lowerAscii", "upperAscii", "replace", "split", "join", "substring", "trim", "charAt", "indexOf",
    "lastIndexOf", "find", "findAll", "format", "reverse", "int", "uint", "double", "bool", "string", "bytes",
    "type", "list", "duration", "timestamp", "dyn", "quantity", "isQuantity", "isInteger", "asInteger",
    "asApproximateFloat", "sign", "add", "sub", "compareTo", "isGreaterThan", "isLessThan", "semver",
    "isSemver", "major", "minor", "patch", "sum", "max", "min", "isSorted", "sets", "equivalent", "intersects",
    "includes", "transformList", "domain", "ip", "cidr", "url",
})  # fmt: skip


def expression(text: str, rename: Rename) -> str:
    """A selector (CEL) with other names in its texts, and in names of attributes and variables.

    Words of the language and names of attributes that drivers share stay (``driverVersion``). A selector that looks for
    a part of a name does not find it any more. Comments are left out.
    """

    def token(found: re.Match[str]) -> str:
        if (name := found["name"]) is not None:
            return name if name in _OF_CEL else renamed_key(name, rename)
        if found["quote"] is None:
            return ""
        return f"{found['kind']}{found['quote']}{renamed_text(found['text'], rename, of_gpus=True)}{found['quote']}"

    return _CEL_TOKEN.sub(token, text)


#: Stands for the fields of a device's attribute. No field and no label has this name.
_ATTRIBUTE: Final = "attribute of a device"
#: What says which GPUs: the label of a node's product, annotations that name products, and attributes of devices.
_OF_GPUS: Final = frozenset(
    {names.NODE_GPU_PRODUCT, names.HAMI_USE_TYPE, names.HAMI_NO_USE_TYPE, names.GPU_RECORD, _ATTRIBUTE}
)
_ADDRESS: Final = "hostIP"
_ANY_ADDRESS: Final = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - how Kubernetes writes it


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
        prefix = (meta.annotations or {}).get(names.SHARED_GPU_CONFIGMAP)
        for container in _containers(pod) if prefix else ():
            for name in _config_maps(container):
                made[name] = f"{_of(prefix or '', rename)}{name[len(prefix or '') :]}"
    return made


def _containers(pod: Pod) -> Iterator[Container]:
    yield from pod.spec.containers
    yield from pod.spec.init_containers or ()


def _config_maps(container: Container) -> Iterator[str]:
    for variable in container.env or ():
        if variable.value_from is not None and variable.value_from.config_map_key_ref is not None:
            yield variable.value_from.config_map_key_ref.name


def _renamed(saved: Saved, rename: Rename) -> Saved:
    changed = {name: _tree(name, getattr(saved, name), rename) for name in PLURALS}
    return msgspec.structs.replace(
        saved,
        **changed,
        unread=[f"{len(saved.unread)} messages, left out as they have names"] if saved.unread else [],
        is_anonymized=True,
        queue_use=_queue_use(saved.queue_use, rename),
        nominations=None if saved.nominations is None else _preemption(saved.nominations, rename),
    )


# --- objects ---------------------------------------------------------------------------------------------------------
def _tree(field: str, value: Any, rename: Rename) -> Any:
    """A value of this field with other names, in its keys as well where they are no fields of a type."""
    match value:
        case msgspec.Struct():
            fields = ((each.name, _field(value, each.encode_name)) for each in msgspec.structs.fields(value))
            changed = {name: _tree(named, getattr(value, name), rename) for name, named in fields}
            return msgspec.structs.replace(value, **changed)
        case str() if not isinstance(value, enum.Enum):
            return _text(field, value, rename)
        case list() | tuple() | frozenset():
            return type(value)(_tree(field, each, rename) for each in value)
        case dict() if field == "annotations":
            return dict(_annotation(key, text, rename) for key, text in value.items())
        case dict():
            return {renamed_key(key, rename): _tree(key, each, rename) for key, each in value.items()}
        case _:
            return value


def _field(of: msgspec.Struct, name: str) -> str:
    """What says what the texts of a field are: of values of a node's label, the label."""
    if isinstance(of, DeviceAttribute):
        return _ATTRIBUTE
    return of.key if isinstance(of, NodeSelectorRequirement) and name == "values" else name


def _text(field: str, text: str, rename: Rename) -> str:
    if field == "expression":
        return expression(text, rename)
    if field == _ADDRESS:  # of an IPv6 address parts are numbers
        return text if text in _ANY_ADDRESS else rename(text)
    return renamed_text(text, rename, of_gpus=field in _OF_GPUS)


def _of(text: str, rename: Rename) -> str:
    """A text with other names."""
    return renamed_text(text, rename)


def _annotation(key: str, text: str, rename: Rename) -> tuple[str, str]:
    if key.startswith((names.NVFRACTIONS_PREFIX, names.PORTION_LIMIT_PREFIX)) and (
        nvfractions.is_asked(key) or nvfractions.is_written(key)
    ):
        return _of_container(key, rename), _of(text, rename)
    return renamed_key(key, rename), _text(key, text, rename)


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


# --- the scheduler's records -----------------------------------------------------------------------------------------
def _queue_use(text: str, rename: Rename) -> str:
    used = read_counts(text) if text else ""
    if not isinstance(used, UseOverTime):
        return ""
    return counts_written(msgspec.structs.replace(used, of=_by_queue(used.of, rename)))


def _by_queue(of: Mapping[str, Any], rename: Rename) -> dict[str, Any]:
    return {_of(queue, rename): use for queue, use in of.items()}


def _preemption(text: str, rename: Rename) -> str:
    record: nomination_record.Record = _tree("", nomination_record.read(text).record, rename)
    return nomination_record.written(record)
