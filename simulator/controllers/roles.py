"""Kinds whose pods have roles, each with a template of its own: heads, workers, leaders, drivers, virtual machines.

Ray, Spark, LeaderWorkerSet, vLLM's production stack, Grove and KubeVirt, by their API references and the code of their
operators. All pods come at once, owned by the object, also where a running pod would make others. Left out: topologies
and shared claims of Grove; the memory that KubeVirt adds for itself, CPUs of dedicated threads, and devices such as
KVM.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from gpu.translation import shown
from simulator.controllers.pods import (
    Charge,
    Json,
    Malformed,
    Placed,
    Template,
    child,
    identity,
    mapping,
    marks,
    named,
    number,
    objects,
    placed,
    read_template,
    stored,
)
from wire import gangs, names

#: Where a kind has the spec of its cluster.
_SPECS: Final = {"RayJob": "rayClusterSpec", "RayService": "rayClusterConfig"}
_MOST: Final = 2**31 - 1


def expand_ray(ray: Json, charge: Charge) -> Iterator[Placed]:
    """Yield the head and the workers. The submitter of a RayJob comes once its cluster runs: it is not made."""
    spec = child(ray, "spec")
    if child(spec, "suspend") is True:
        return
    if ray["kind"] == "RayCluster":
        yield from _ray_cluster(ray, [ray], "spec", charge)
        return
    field = _SPECS[ray["kind"]]
    if child(spec, field) is None:
        return
    name = f"{ray['metadata']['name']}-{identity(ray['metadata']['name'])[-5:]}"
    cluster = stored(ray["apiVersion"], "RayCluster", name, above=ray, like={"spec": child(spec, field)})
    yield from _ray_cluster(cluster, [cluster, ray], f"spec.{field}", charge)


def _ray_cluster(cluster: Json, owners: list[Json], path: str, charge: Charge) -> Iterator[Placed]:
    name, spec = cluster["metadata"]["name"], cluster["spec"]
    head = read_template(child(child(spec, "headGroupSpec"), "template"), f"{path}.headGroupSpec.template")
    charge(1, f"{path}.headGroupSpec", head)
    yield placed(owners, head, name=f"{name}-head", labels=_ray_labels(name, "headgroup", "head"))
    for at, group in enumerate(objects(child(spec, "workerGroupSpecs"), f"{path}.workerGroupSpecs")):
        place = f"{path}.workerGroupSpecs[{at}]"
        called = named(group, place, field="groupName", default=f"worker-group-{at}")
        template = read_template(group.get("template"), f"{place}.template")
        count = _ray_count(group, place)
        charge(count, f"{place}.replicas", template)
        for _ in range(count):
            labels = _ray_labels(name, called, "worker")
            yield placed(owners, template, generate_name=f"{name}-{called.lower()}-worker-", labels=labels)


def _ray_count(group: Json, place: str) -> int:
    """Return how many pods a worker group has: replicas within their limits, each of some hosts."""
    if group.get("suspend") is True:
        return 0
    least, most = number(group, "minReplicas", place, 0), number(group, "maxReplicas", place, _MOST)
    replicas = max(least, min(number(group, "replicas", place, 0), most))
    return replicas * number(group, "numOfHosts", place, 1)


def _ray_labels(cluster: str, group: str, node: str) -> dict[str, str]:
    return {
        gangs.RAY_CLUSTER: cluster,
        gangs.RAY_GROUP: group,
        gangs.RAY_NODE_TYPE: node,
        "ray.io/is-ray-node": "yes",
        "ray.io/identifier": f"{cluster}-{node}",
    }


#: Fields of driver and executor that go into the spec of their pods as they are.
_SPEC: Final = ("schedulerName", "nodeSelector", "tolerations", "affinity", "priorityClassName", "hostNetwork")
_MEMORY: Final = re.compile(r"([1-9][0-9]{0,9})([kmgt]?)b?", re.ASCII | re.IGNORECASE)
_MIB: Final = 1024**2
_UNITS: Final = {"": 1, "k": 1024, "m": _MIB, "g": 1024**3, "t": 1024**4}
_LEAST_OVERHEAD: Final = 384 * _MIB
#: Percent of a pod's memory for what is not Java's heap: as Spark adds it, by the type of the application.
_OVERHEAD: Final = {"Python": 40, "R": 40}
_USUAL_OVERHEAD: Final = 10


def expand_spark(app: Json, charge: Charge) -> Iterator[Placed]:
    """Yield the driver and the executors. Raises Malformed."""
    spec, name = child(app, "spec"), app["metadata"]["name"]
    if child(spec, "suspend") is True:
        return
    for role, count in (("driver", 1), ("executor", number(child(spec, "executor"), "instances", "spec.executor", 1))):
        path = f"spec.{role}"
        template = read_template(_spark_pod(spec, role, path), path)
        charge(count, f"{path}.instances", template)
        for index in range(count):
            pod = f"{name}-driver" if role == "driver" else f"{name}-exec-{index + 1}"
            labels = {"sparkoperator.k8s.io/app-name": name, "spark-role": role}
            yield placed([app], template, name=pod, labels=labels)


def spark_templates(spec: Json, path: str) -> Iterator[tuple[str, Json]]:
    """Yield the pods of driver and executor, with their paths. Raises Malformed."""
    for role in ("driver", "executor"):
        yield f"{path}.{role}", _spark_pod(spec, role, f"{path}.{role}")


def _spark_pod(spec: Json, role: str, path: str) -> dict[str, Any]:
    written = child(spec, role) or {}
    if not isinstance(written, Mapping):
        raise Malformed(f"{path} is {shown(repr(written))}; an object is allowed")
    requests: dict[str, Any] = {
        "cpu": str(written.get("coreRequest") or written.get("cores") or 1),
        "memory": str(_spark_memory(spec, written, path)),
    }
    limits: dict[str, Any] = {"memory": requests["memory"]}
    if written.get("coreLimit"):
        limits["cpu"] = str(written["coreLimit"])
    gpu = written.get("gpu")
    if gpu is not None:
        limits[str(child(gpu, "name"))] = number(gpu, "quantity", f"{path}.gpu", 0)
    main = {"name": f"spark-kubernetes-{role}", "image": written.get("image") or spec.get("image") or "spark"}
    containers = [{**main, "resources": {"requests": requests, "limits": limits}}]
    meta = {field: written[field] for field in ("labels", "annotations") if written.get(field)}
    own = {field: written[field] for field in _SPEC if written.get(field) is not None}
    return {"metadata": meta, "spec": {**own, "restartPolicy": "Never", "containers": containers}}


def _spark_memory(spec: Json, written: Json, path: str) -> int:
    """Return the bytes that a pod asks for: those written, and what Spark adds to them."""
    heap = _spark_bytes(written.get("memory") or "1g", f"{path}.memory")
    if written.get("memoryOverhead"):
        return heap + _spark_bytes(written["memoryOverhead"], f"{path}.memoryOverhead")
    percent = _OVERHEAD.get(str(spec.get("type")), _USUAL_OVERHEAD)
    return heap + max(heap * percent // 100, _LEAST_OVERHEAD)


def _spark_bytes(text: object, path: str) -> int:
    """Return bytes in Java's notation, in which 512m are 512 MiB. Raises Malformed."""
    found = _MEMORY.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise Malformed(f"{path} is {shown(repr(text))}; a whole number with k, m, g or t is allowed, as in '512m'")
    return int(found[1]) * _UNITS[found[2].lower()]


_LWS_PATH: Final = "spec.leaderWorkerTemplate"


def expand_lws(lws: Json, charge: Charge) -> Iterator[Placed]:
    """Yield the pods of all groups, a leader before its workers, which come at once. Raises Malformed."""
    spec = child(lws, "spec")
    written = child(spec, "leaderWorkerTemplate")
    replicas, size = number(spec, "replicas", "spec", 1), number(written, "size", _LWS_PATH, 1)
    worker = read_template(child(written, "workerTemplate"), f"{_LWS_PATH}.workerTemplate")
    own = child(written, "leaderTemplate")
    leader = worker if own is None else read_template(own, f"{_LWS_PATH}.leaderTemplate")
    charge(replicas, "spec.replicas", leader)
    charge(replicas * max(0, size - 1), f"{_LWS_PATH}.size", worker)
    name = lws["metadata"]["name"]
    leaders = stored("apps/v1", "StatefulSet", name, above=lws)
    for index in range(replicas if size else 0):
        called = f"{name}-{index}"
        labels, annotations = _lws_labels(name, index, 0), {gangs.LWS_SIZE: str(size)}
        extra = {"hostname": called, "subdomain": name}
        yield placed([leaders, lws], leader, name=called, labels=labels, annotations=annotations, extra=extra)
        pod = stored("v1", "Pod", called, above=leaders)
        workers = [stored("apps/v1", "StatefulSet", called, above=pod), pod, leaders, lws]
        for at in range(1, size):
            how: dict[str, Any] = {"labels": _lws_labels(name, index, at), "annotations": annotations}
            extra = {"hostname": f"{called}-{at}", "subdomain": name}
            yield placed(workers, worker, name=f"{called}-{at}", extra=extra, **how)


def _lws_labels(name: str, group: int, worker: int) -> dict[str, str]:
    return {gangs.LWS_NAME: name, gangs.LWS_GROUP_INDEX: str(group), gangs.LWS_WORKER_INDEX: str(worker)}


_CONFIG: Final = "spec.deploymentConfig"
_PLAIN: Final = ("cpu", "memory")
#: What a sidecar requests that says nothing.
_SIDECAR: Final = {"cpu": "0.5", "memory": "128Mi"}


def expand_vllm(runtime: Json, charge: Charge) -> Iterator[Placed]:
    """Yield the pods of all replicas. Raises Malformed."""
    name, config = runtime["metadata"]["name"], child(child(runtime, "spec"), "deploymentConfig")
    containers = [{"name": "vllm", "image": "vllm", "resources": _vllm_resources(child(config, "resources"))}]
    sidecar = child(config, "sidecarConfig")
    if child(sidecar, "enabled") is True:
        called = child(sidecar, "name") or "sidecar"
        asked = _vllm_resources({**_SIDECAR, **mapping(sidecar, "resources", f"{_CONFIG}.sidecarConfig")})
        containers.append({"name": called, "image": "sidecar", "resources": asked})
    spec: dict[str, Any] = {"containers": containers}
    if tolerations := child(config, "toleration"):
        spec["tolerations"] = tolerations
    if terms := child(config, "nodeSelectorTerms"):
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        spec["affinity"] = {"nodeAffinity": required}
    labels = {"app": name, **mapping(runtime["metadata"], "labels", "metadata")}
    template = read_template({"metadata": {"labels": labels}, "spec": spec}, _CONFIG)
    replicas = number(config, "replicas", _CONFIG, 1)
    charge(replicas, f"{_CONFIG}.replicas", template)
    deployment = stored("apps/v1", "Deployment", name, above=runtime, like={"metadata": {}})
    made_hash = identity(template.raw)
    owners = [stored("apps/v1", "ReplicaSet", f"{name}-{made_hash}", above=deployment), deployment, runtime]
    for _ in range(replicas):
        yield placed(owners, template, generate_name=f"{name}-{made_hash}-", labels={"pod-template-hash": made_hash})


def _vllm_resources(written: object) -> dict[str, Any]:
    """Return requests and limits, which are the same; GPUs are of NVIDIA where no type is named."""
    found = {name: value for name in _PLAIN if (value := child(written, name))}
    if gpus := child(written, "gpu"):
        found[str(child(written, "gpuType") or names.GPU_RESOURCE)] = gpus
    return {"limits": found, "requests": found}


_TEMPLATE: Final = "spec.template"
_GROVE_VERSION: Final = "grove.io/v1alpha1"


class _Clique(msgspec.Struct, frozen=True):
    """A clique: the template and the number of its pods, and how many start together."""

    name: str
    template: Template
    replicas: int
    minimum: int


class _Group(msgspec.Struct, frozen=True):
    """Cliques that are scaled together. ``guaranteed``: replicas that start with the whole."""

    name: str
    cliques: tuple[str, ...]
    replicas: int
    guaranteed: int


class _Member(msgspec.Struct, frozen=True):
    """A PodClique as it is stored, without and with a scaling group above it."""

    name: str
    clique: _Clique
    owners: tuple[Json, ...]


def expand_grove(pod_clique_set: Json, charge: Charge) -> Iterator[Placed]:
    """Yield the pods of all replicas. Raises Malformed."""
    spec, name = child(pod_clique_set, "spec"), pod_clique_set["metadata"]["name"]
    replicas = number(spec, "replicas", "spec", 0)
    written = child(spec, "template")
    listed = objects(child(written, "cliques"), f"{_TEMPLATE}.cliques")
    cliques = {each.name: each for each in (_clique(at, one) for at, one in enumerate(listed))}
    path = f"{_TEMPLATE}.podCliqueScalingGroups"
    groups = [
        _group(f"{path}[{at}]", one, cliques)
        for at, one in enumerate(objects(child(written, "podCliqueScalingGroups"), path))
    ]
    for clique in cliques.values():
        copies = sum(group.replicas for group in groups if clique.name in group.cliques)
        is_alone = not any(clique.name in group.cliques for group in groups)
        charge(replicas * clique.replicas * (copies + is_alone), f"{clique.template.path}.replicas", clique.template)
    for index in range(replicas):
        for gang, members in _gangs(pod_clique_set, f"{name}-{index}", cliques, groups).items():
            yield from _pods(pod_clique_set, gang, members, child(written, "priorityClassName"))


def _clique(at: int, written: Json) -> _Clique:
    path = f"{_TEMPLATE}.cliques[{at}]"
    spec = child(written, "spec")
    template = read_template(
        {"metadata": marks((written, path)), "spec": child(spec, "podSpec")}, f"{path}.spec.podSpec"
    )
    replicas = number(spec, "replicas", f"{path}.spec", 1)
    minimum = number(spec, "minAvailable", f"{path}.spec", replicas)
    return _Clique(named(written, path), template, replicas, minimum)


def _group(path: str, written: Json, cliques: Mapping[str, _Clique]) -> _Group:
    listed = child(written, "cliqueNames")
    if not isinstance(listed, list) or not all(each in cliques for each in map(str, listed)):
        raise Malformed(f"{path}.cliqueNames is {shown(repr(listed))}; a list of names of cliques is allowed")
    replicas = number(written, "replicas", path, 1)
    return _Group(named(written, path), tuple(listed), replicas, number(written, "minAvailable", path, 1))


def _gangs(
    pod_clique_set: Json, base: str, cliques: Mapping[str, _Clique], groups: Sequence[_Group]
) -> dict[str, list[_Member]]:
    """Return the PodCliques of a replica by the names of their PodGangs."""
    grouped = {name for group in groups for name in group.cliques}
    alone = [clique for clique in cliques.values() if clique.name not in grouped]
    found = {base: [_Member(f"{base}-{clique.name}", clique, (pod_clique_set,)) for clique in alone]}
    for group in groups:
        called = f"{base}-{group.name}"
        owners = (stored(_GROVE_VERSION, "PodCliqueScalingGroup", called, above=pod_clique_set), pod_clique_set)
        for index in range(group.replicas):
            gang = base if index < group.guaranteed else f"{called}-{index - group.guaranteed}"
            members = [_Member(f"{called}-{index}-{name}", cliques[name], owners) for name in group.cliques]
            found.setdefault(gang, []).extend(members)
    return found


def _pods(pod_clique_set: Json, gang: str, members: Sequence[_Member], priority: object) -> Iterator[Placed]:
    members = [member for member in members if member.clique.replicas]
    groups = [{"name": member.name, "minReplicas": member.clique.minimum} for member in members]
    spec: dict[str, Any] = {"podgroups": groups, "priorityClassName": priority}
    meta = pod_clique_set["metadata"]
    like = {"metadata": {"namespace": meta.get("namespace"), **marks((meta, "metadata"))}, "spec": spec}
    pod_gang = stored("scheduler.grove.io/v1alpha1", "PodGang", gang, above=pod_clique_set, like=like)
    for member in members:
        owners = [stored(_GROVE_VERSION, "PodClique", member.name, above=member.owners[0]), *member.owners]
        labels = {gangs.GROVE_POD_GANG: gang, gangs.GROVE_POD_CLIQUE: member.name}
        for _ in range(member.clique.replicas):
            made = placed(owners, member.clique.template, generate_name=f"{member.name}-", labels=labels)
            yield msgspec.structs.replace(made, beside=(pod_gang,))


_KUBEVIRT_VERSION: Final = "kubevirt.io/v1"
_INSTANCE: Final = "VirtualMachineInstance"
#: Strategies with which a virtual machine runs once it is created.
_RUNS: Final = frozenset({"Always", "RerunOnFailure", "Once"})
#: What pods have of the spec of a virtual machine.
_COPIED: Final = (
    *("schedulerName", "priorityClassName", "nodeSelector", "affinity", "tolerations", "topologySpreadConstraints"),
    *("terminationGracePeriodSeconds", "resourceClaims"),
)
#: KubeVirt's default: virtual CPUs for one that is requested.
_CPU_RATIO: Final = 10


def expand_kubevirt(machine: Json, charge: Charge) -> Iterator[Placed]:
    """Yield the pod of a VirtualMachine that runs, or of a VirtualMachineInstance. Raises Malformed."""
    name, spec, owners, path = machine["metadata"]["name"], child(machine, "spec"), [machine], "spec"
    meta = machine["metadata"]
    if machine["kind"] != _INSTANCE:
        if child(spec, "running") is not True and str(child(spec, "runStrategy")) not in _RUNS:
            return
        template, path = child(spec, "template"), "spec.template.spec"
        owners = [stored(_KUBEVIRT_VERSION, _INSTANCE, name, above=machine, like={"metadata": {}}), machine]
        meta, spec = child(template, "metadata"), child(template, "spec")
    pod_spec = {field: value for field in _COPIED if (value := child(spec, field)) is not None}
    resources = _kubevirt_resources(child(spec, "domain"), f"{path}.domain")
    pod_spec["containers"] = [{"name": "compute", "image": "virt-launcher", "resources": resources}]
    made = read_template({"metadata": marks((meta, "metadata")), "spec": pod_spec}, path)
    charge(1, path, made)
    yield placed(owners, made, generate_name=f"virt-launcher-{name}-")


def _kubevirt_resources(domain: object, path: str) -> dict[str, Any]:
    """Return the resources of the container that runs the virtual machine; each device that is named counts one."""
    written, devices = child(domain, "resources"), child(domain, "devices")
    found = {kind: objects(child(devices, kind), f"{path}.devices.{kind}") for kind in ("gpus", "hostDevices")}
    counts = Counter(
        named(each, f"{path}.devices.{kind}[{at}]", field="deviceName")
        for kind, listed in found.items()
        for at, each in enumerate(listed)
        if child(each, "claimName") is None
    )
    limits, requests = ({**mapping(written, of, f"{path}.resources")} for of in ("limits", "requests"))
    cpu = child(domain, "cpu")
    virtual = 1
    for field in ("cores", "sockets", "threads"):
        virtual *= max(1, number(cpu, field, f"{path}.cpu", 1))
    if "cpu" not in limits:
        requests.setdefault("cpu", f"{virtual * 1000 // _CPU_RATIO}m")
    guest = child(child(domain, "memory"), "guest")
    if guest is not None and "memory" not in limits:
        requests.setdefault("memory", guest)
    claims = [
        {"name": each["claimName"], **({"request": each["requestName"]} if each.get("requestName") else {})}
        for listed in found.values()
        for each in listed
        if child(each, "claimName") is not None
    ]
    named_devices = {name: str(count) for name, count in counts.items()}
    return {"limits": {**limits, **named_devices}, "requests": requests, **({"claims": claims} if claims else {})}
