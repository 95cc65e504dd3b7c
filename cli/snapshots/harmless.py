"""Texts that say nothing of whose cluster it is: what an anonymised snapshot keeps. All else is replaced.

Words of the API, of Kubernetes, NVIDIA, KAI and Moorage, and of the dialects that are read; numbers, amounts, times,
UIDs, versions; profiles of MIG slices; and known models of GPUs where a text says which GPUs. A text is looked at part
by part, so a key in a known domain keeps the domain, and JSON its form. The same part has the same name everywhere.
"""

from __future__ import annotations

import enum
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
from scheduler.core.convert import pod_groups, volumes
from wire import gangs, gangwords, names

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
    "job-name", "jobs.batch", "label", "limit", "minor", "misspelt", "ms", "nan", "node-pool",
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


def text(written: str, rename: Rename, *, of_gpus: bool = False) -> str:
    """Replace all names in a text that are not harmless. ``of_gpus``: it says which GPUs, so their models stay."""
    if is_harmless(written) or (of_gpus and _is_model(written)):
        return written
    return _TOKEN.sub(
        lambda found: found[0] if of_gpus and _is_model(found[0]) else key(found[0], rename),
        written,
    )


def key(written: str, rename: Rename) -> str:
    """The same of a name, or of a key with a domain."""
    if is_harmless(written):
        return written
    for prefix in _prefixes():
        if written.startswith(prefix) and written != prefix:
            return prefix + key(written.removeprefix(prefix), rename)
    parts = _APART.split(written)
    if len(parts) == 1:
        return rename(written) if _TOKEN.fullmatch(written) else _TOKEN.sub(lambda found: rename(found[0]), written)
    last = len(parts) - 1
    return "".join(
        part if at % 2 or not part or (at < last and is_known_domain(part)) else key(part, rename)
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
    modules = [names, gangs, gangwords, volumes, pod_groups, *_modules_of(gpu), *_modules_of(gpu.dialects)]
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
