"""Random manifests: each number is always the same one. Rules of pods are those of the oracle's snapshots.

Two workloads of a manifest rarely compete, since nothing says which comes first; the pods of one often do.
Shares are drawn as KAI's, and written in any dialect that has words for them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from gpu.dialects.settings import DialectSettings
from gpu.translate import combine, say
from gpu.translation import Refusal
from simulator.nodes.containers import EXIT_CODE, RUN_S
from simulator.nodes.shape import NodeShape
from tools.kubeoracle.drawing import amounts, rules
from wire import gangs, names
from wire.core import Pod

Json = dict[str, Any]

_ALONE: Final = ("tolerations", "selector", "node affinity")
#: Beside other workloads who comes first decides these.
_ASKS: Final = (*_ALONE, "pod affinity", "pod anti-affinity", "spread", "host ports")
#: GPUs of its own, and annotations of KAI's.
_SHARES: Final[Sequence[tuple[int, Mapping[str, str]]]] = (
    (0, {}),
    *((count, {}) for count in (1, 1, 2, 4, 9)),
    *((0, {names.GPU_FRACTION: part}) for part in ("0.5", "0.25", "0.3", "0.75")),
    *((0, {names.GPU_MEMORY: mib}) for mib in ("2000", "20480", "40960", "90000")),
    *((0, {names.GPU_FRACTION: "0.5", names.GPU_FRACTION_NUM_DEVICES: count}) for count in "23"),
)
_SMALL: Final = [
    (count, words) for count, words in _SHARES if count < 2 and names.GPU_FRACTION_NUM_DEVICES not in words
]
_PREEMPTIBLE: Final = ("preemptible", "non-preemptible")
_OF_CLUSTER: Final = ("Queue", "PriorityClass", "StorageClass", "DeviceClass", "ResourceSlice", "Topology")
_PROVISIONER: Final = "disk.example.com"
_DEVICES: Final = "device.example.com"


def dress(shapes: Sequence[NodeShape]) -> Mapping[str, Json]:
    """Return a patch of each node: labels that the rules select by, and a taint on the last one."""
    r = random.Random(0)
    patches: dict[str, Json] = {}
    for shape in shapes:
        labels = rules.node_labels(r, shape.name)
        patches[shape.name] = {"metadata": {"labels": {"zone": "z0", "rack": "r0", **labels}}}
    patches[shapes[-1].name]["spec"] = {"taints": [{"key": "a", "value": "1", "effect": "NoSchedule"}]}
    return patches


def draw(number: int, nodes: int) -> list[Json]:
    """Return the objects of the manifest of this number."""
    r = random.Random(f"manifest {number}")
    made = _Drawing(r, nodes)
    for name in range(made.count):
        made.workload(f"w{name}")
    return made.objects if r.random() < 0.8 else _in_a_namespace(made.objects, adopts=r.random() < 0.5)


def _in_a_namespace(objects: Sequence[Json], *, adopts: bool) -> list[Json]:
    """Return objects in a namespace of their own; in one that adopts, pods need not name their scheduler."""
    labels = {names.ADOPT: "true"} if adopts else {}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team", "labels": labels}}
    moved = [
        each if each["kind"] in _OF_CLUSTER else {**each, "metadata": {**each["metadata"], "namespace": "team"}}
        for each in objects
    ]
    return [namespace, *(map(_unclaimed, moved) if adopts else moved)]


def _unclaimed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _unclaimed(each) for key, each in value.items() if each != names.SCHEDULER_NAME}
    return [*map(_unclaimed, value)] if isinstance(value, list) else value


class _Drawing:
    """The objects so far; those that others name come first."""

    def __init__(self, r: random.Random, nodes: int) -> None:
        self._r = r
        self._nodes = nodes
        self.objects: list[Json] = []
        self.count = r.choice((1, 1, 2, 3))
        self._has_queues = self._chance(0.4)
        if self._has_queues:
            self._add("scheduling.run.ai/v2", "Queue", "made", resources=_amounts(-1, -1))
        self._priorities = ["", "", "train", "inference"]
        if self._chance(0.4):
            value = r.choice((10, 90, 1000))
            self.objects.append(_object("scheduling.k8s.io/v1", "PriorityClass", "made", value=value))
            self._priorities.append("made")

    def workload(self, name: str) -> None:
        """Draw a workload, and what it names."""
        template = self._template(name)
        self._r.choice(_KINDS)(self, name, template)

    def _chance(self, part: float) -> bool:
        return self._r.random() < part

    def _add(self, version: str, kind: str, name: str, **spec: Any) -> None:
        self.objects.append({**_object(version, kind, name), "spec": spec})

    # --- pods --------------------------------------------------------------------------------------------------------

    def _template(self, name: str) -> Json:
        r = self._r
        spec: Json = {"containers": [{"name": "c0", "image": "app"}], "schedulerName": names.SCHEDULER_NAME}
        if self._chance(0.25):
            spec |= _amounts_only(amounts.containers(r))
        for kind in r.sample(_ASKS if self.count == 1 else _ALONE, r.choice((0, 0, 0, 1, 2))):
            rules.ASKS[kind](r, spec)
        _allowed(spec)
        labels, annotations = {"app": "c", **rules.of_pod(r), "workload": name}, self._share(spec)
        spec["terminationGracePeriodSeconds"] = 1
        if priority := r.choice(self._priorities):
            spec["priorityClassName"] = priority
        if self._chance(0.05):
            spec["schedulingGates"] = [{"name": "example.com/later"}]
        if self._chance(0.05):
            spec["schedulerName"] = "default-scheduler"
        if self._chance(0.05):
            spec.setdefault("volumes", []).append({"name": "settings", "configMap": {"name": "missing"}})
        if self._chance(0.2):
            self._volume(name, spec)
        if self._chance(0.15):
            self._claim(name, spec)
        if self._chance(0.1):
            spec["serviceAccountName"] = f"{name}-account"
        words = {"labels": {**labels, **annotations.labels}, "annotations": dict(annotations.annotations)}
        return {"metadata": words, "spec": spec}

    def _share(self, spec: Json) -> say.Words:
        """Draw what the first container asks of GPUs, and write it into the spec; return labels and annotations."""
        r, container = self._r, spec["containers"][0]
        if self._chance(0.03):
            return say.Words(annotations={names.GPU_FRACTION: r.choice(("1.5", "half", "0"))})
        gpus, annotations = r.choice(_SHARES if self.count == 1 else _SMALL)
        if gpus:
            _limit(container, {names.GPU_RESOURCE: gpus})
        pod = msgspec.convert({"metadata": {"annotations": annotations}, "spec": spec}, Pod)
        asked = combine.translate(pod, DialectSettings())
        if isinstance(asked, Refusal) or self._chance(0.4):
            return say.Words(annotations=annotations)
        said = say.say(asked, pod.spec, r.choice(say.TARGETS))
        if isinstance(said, say.Unsayable):
            return say.Words(annotations=annotations)
        container.get("resources", {}).get("limits", {}).pop(names.GPU_RESOURCE, None)
        for key, limits in said.words.limits.items():
            listed = spec["containers" if key[0] == "c" else "initContainers"]
            _limit(listed[int(key[1:])], limits)
        return said.words

    def _volume(self, name: str, spec: Json) -> None:
        """Give pods a claim that they share, or each one of its own."""
        r, claim = self._r, {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
        mode = r.choice(("Immediate", "WaitForFirstConsumer"))
        match r.choice(("default", "provisioned", "provisioned", "manual", "missing")):
            case "provisioned":
                claim["storageClassName"] = f"{name}-class"
                self.objects.append(_storage_class(f"{name}-class", _PROVISIONER, mode))
            case "manual":
                claim["storageClassName"] = f"{name}-class"
                self.objects.append(_storage_class(f"{name}-class", names.NO_PROVISIONER, "WaitForFirstConsumer"))
            case "missing":
                volume = {"name": "data", "persistentVolumeClaim": {"claimName": "missing"}}
                spec.setdefault("volumes", []).append(volume)
                return
            case _:
                pass
        if self._chance(0.4):
            source: Json = {"ephemeral": {"volumeClaimTemplate": {"spec": claim}}}
        else:
            self._add("v1", "PersistentVolumeClaim", f"{name}-data", **claim)
            source = {"persistentVolumeClaim": {"claimName": f"{name}-data"}}
        spec.setdefault("volumes", []).append({"name": "data", **source})

    def _claim(self, name: str, spec: Json) -> None:
        """Give each pod a device of a driver."""
        r, devices = self._r, f"{name}.{_DEVICES}"
        selector = {"cel": {"expression": f"device.driver == '{devices}'"}}
        self._add("resource.k8s.io/v1", "DeviceClass", devices, selectors=[selector])
        for node in range(r.randint(1, self._nodes)):
            pool = {"name": f"node-{node}", "generation": 1, "resourceSliceCount": 1}
            of = {"driver": devices, "nodeName": f"node-{node}", "pool": pool}
            self._add(
                "resource.k8s.io/v1",
                "ResourceSlice",
                f"{name}-{node}",
                **of,
                devices=[{"name": f"d{number}"} for number in range(r.randint(1, 4))],
            )
        exactly = {"deviceClassName": devices, "count": r.choice((1, 1, 2))}
        wanted = {"spec": {"devices": {"requests": [{"name": "one", "exactly": exactly}]}}}
        self._add("resource.k8s.io/v1", "ResourceClaimTemplate", f"{name}-device", **wanted)
        spec["resourceClaims"] = [{"name": "device", "resourceClaimTemplateName": f"{name}-device"}]
        spec["containers"][0].setdefault("resources", {})["claims"] = [{"name": "device"}]

    # --- their makers ------------------------------------------------------------------------------------------------

    def _meta(self, name: str, pods: int) -> Json:
        """Metadata of a workload: mostly a queue of its own where there are queues, now and then a minimum."""
        meta: Json = {"name": name, "labels": {}, "annotations": {}}
        if self._has_queues:
            queue = {
                "parentQueue": "made",
                "resources": _amounts(self._r.choice((0, 2, -1)), self._r.choice((-1, -1, 3))),
            }
            if self._chance(0.9):
                self.objects.append({**_object("scheduling.run.ai/v2", "Queue", f"{name}-queue"), "spec": queue})
            if self._chance(0.9):
                meta["labels"] = {names.QUEUE_LABEL: f"{name}-queue"}
        if pods > 1 and self._chance(0.3):
            meta["annotations"] = {names.BATCH_MIN_MEMBER: str(self._r.randint(1, pods))}
        if pods > 1 and self._chance(0.15):
            level = self._topology(name)
            meta["annotations"] |= {names.TOPOLOGY: f"{name}-hall", names.TOPOLOGY_REQUIRED: level}
        if self._chance(0.1):
            meta["labels"] = {**meta["labels"], names.PRIORITY_CLASS_LABEL: self._r.choice(("build", "inference"))}
        if self._chance(0.1):
            meta["labels"] = {**meta["labels"], names.PREEMPTIBILITY_LABEL: self._r.choice(_PREEMPTIBLE)}
        return meta

    def _topology(self, name: str) -> str:
        """Add a topology, and return a level of it."""
        levels = [{"nodeLabel": "zone"}, {"nodeLabel": names.HOSTNAME_LABEL}]
        topology = {**_object("kai.scheduler/v1alpha1", "Topology", f"{name}-hall"), "spec": {"levels": levels}}
        if topology not in self.objects:
            self.objects.append(topology)
        return str(self._r.choice(("zone", names.HOSTNAME_LABEL)))

    def _pods(self) -> int:
        return self._r.choice((1, 2, 2, 3, 4, 6, 12) if self.count == 1 else (1, 1, 2))

    def pod(self, name: str, template: Json) -> None:
        """Draw plain pods, now and then a gang in Koordinator's words, of which there may be too few."""
        meta, count = self._meta(name, 1), self._r.choice((1, 1, 2))
        minimum = str(self._r.randint(1, count + 1))
        words = {gangs.KOORDINATOR_NAME: f"{name}-gang", gangs.KOORDINATOR_LEAST: minimum}
        of = words if self._chance(0.3) else {}
        for number in range(count):
            self.objects.append(_of_template(template, f"{name}-{number}", labels=meta["labels"], of=of))

    def group(self, name: str, template: Json) -> None:
        """Draw a PodGroup and its members, of which there may be too few."""
        r, pods = self._r, self._pods()
        meta, minimum = self._meta(name, pods), max(1, pods - r.choice((-1, 0, 0, 0, 1)))
        spec: Json = {"minMember": minimum}
        if queue := meta["labels"].get(names.QUEUE_LABEL):
            spec["queue"] = queue
        if self._chance(0.3):
            spec["preemptibility"] = r.choice(_PREEMPTIBLE)
        parts = ["a", "b"] if pods > 1 and self._chance(0.3) else []
        if parts:
            first = pods // 2
            spec["subGroups"] = [{"name": "a", "minMember": first}, {"name": "b", "minMember": pods - first}]
            spec["minMember"] = pods
        if self._chance(0.2):
            level = self._topology(name)
            spec["topologyConstraint"] = {"topology": f"{name}-hall", "requiredTopologyLevel": level}
        self._add("scheduling.run.ai/v2alpha2", "PodGroup", name, **spec)
        for number in range(pods):
            part = {names.SUBGROUP_LABEL: parts[number >= pods // 2]} if parts else {}
            of = {names.POD_GROUP_NAME: name}
            self.objects.append(_of_template(template, f"{name}-{number}", labels={**meta["labels"], **part}, of=of))

    def job(self, name: str, template: Json) -> None:
        """Draw a Job, often one whose pods end."""
        spec = self._job_spec(template)
        self.objects.append({**self._made("batch/v1", "Job", name, spec.get("parallelism", 1)), "spec": spec})

    def cron_job(self, name: str, template: Json) -> None:
        """Draw a CronJob that makes nothing now."""
        spec = {"schedule": "0 0 1 1 *", "suspend": True, "jobTemplate": {"spec": self._job_spec(template)}}
        self.objects.append({**self._made("batch/v1", "CronJob", name, 1), "spec": spec})

    def _job_spec(self, template: Json) -> Json:
        r, parallel = self._r, self._pods()
        template["spec"]["restartPolicy"] = r.choice(("Never", "OnFailure"))
        spec: Json = {"parallelism": parallel, "template": template, "backoffLimit": 0}
        if self._chance(0.6):
            spec["completions"] = r.choice((parallel, parallel, 2 * parallel, max(1, parallel - 1)))
            if self._chance(0.5):
                spec["completionMode"] = "Indexed"
            if self._chance(0.3):
                template["metadata"]["annotations"] |= {RUN_S: "1", EXIT_CODE: "0"}
        if self._chance(0.1):
            spec["suspend"] = True
        return spec

    def replicas(self, name: str, template: Json) -> None:
        """Draw a Deployment, ReplicaSet, StatefulSet or DaemonSet."""
        r, count = self._r, self._pods()
        kind = r.choice(("Deployment", "Deployment", "ReplicaSet", "StatefulSet", "StatefulSet", "DaemonSet"))
        spec: Json = {"selector": {"matchLabels": {"workload": name}}, "template": template}
        if kind != "DaemonSet":
            spec["replicas"] = r.choice((count, count, count, 0))
        if kind == "StatefulSet":
            spec |= {"podManagementPolicy": "Parallel", "serviceName": name}
            if self._chance(0.3):
                wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
                spec["volumeClaimTemplates"] = [{"metadata": {"name": "own"}, "spec": wanted}]
        self.objects.append({**self._made("apps/v1", kind, name, spec.get("replicas", 1)), "spec": spec})

    def _made(self, version: str, kind: str, name: str, pods: int) -> Json:
        return {"apiVersion": version, "kind": kind, "metadata": self._meta(name, pods)}


_KINDS: Final[Sequence[Callable[[_Drawing, str, Json], None]]] = (
    _Drawing.pod,
    _Drawing.group,
    _Drawing.job,
    _Drawing.job,
    _Drawing.replicas,
    _Drawing.replicas,
    _Drawing.replicas,
    _Drawing.cron_job,
)


def _object(version: str, kind: str, name: str, **fields: Any) -> Json:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **fields}


def _storage_class(name: str, provisioner: str, mode: str) -> Json:
    return _object("storage.k8s.io/v1", "StorageClass", name, provisioner=provisioner, volumeBindingMode=mode)


def _amounts(quota: int, limit: int) -> Json:
    unlimited = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    return {"gpu": {"quota": quota, "limit": limit, "overQuotaWeight": 1}, "cpu": unlimited, "memory": unlimited}


def _of_template(template: Json, name: str, *, labels: Json, of: Mapping[str, str] | None = None) -> Json:
    meta = template["metadata"]
    words = {"labels": {**meta["labels"], **labels}, "annotations": {**meta["annotations"], **(of or {})}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **words}, "spec": template["spec"]}


def _limit(container: Json, limits: Mapping[str, Any]) -> None:
    resources = container.setdefault("resources", {})
    resources["limits"] = {**resources.get("limits", {}), **{name: str(count) for name, count in limits.items()}}


def _amounts_only(spec: Json) -> Json:
    """Containers without what the API server takes by further rules only."""
    for each in (*spec["containers"], *spec.get("initContainers", ())):
        for asked in each["resources"].values():
            asked.pop("hugepages-2Mi", None)
            asked.pop(names.GPU_RESOURCE, None)
    return {name: value for name, value in spec.items() if name in {"containers", "initContainers"}}


def _allowed(spec: Json) -> None:
    """Take out of rules what the API server refuses: signs in values, and what contradicts a spread's selector."""
    required = spec.get("affinity", {}).get("nodeAffinity", {}).get(rules.REQUIRED, {})
    for term in required.get("nodeSelectorTerms", ()):
        for expression in term.get("matchExpressions", ()):
            if "values" in expression:
                expression["values"] = [value.lstrip("+-") for value in expression["values"]]
    for each in spec.get("topologySpreadConstraints", ()):
        if each["whenUnsatisfiable"] != "DoNotSchedule":
            each.pop("minDomains", None)
        if not (each["labelSelector"] or {}).get("matchLabels"):
            each.pop("matchLabelKeys", None)
        elif "app" in each.get("matchLabelKeys", ()):
            each["matchLabelKeys"] = ["tier"]
