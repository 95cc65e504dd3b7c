"""Random snapshots: few nodes, few values of labels, so that ties and edges are common.

Each part of a pod is drawn by a function that says by name what it asks (``features``): the comparison then knows
which rules were asked, and holds that each of them let nodes in and kept nodes out. What pods prefer is drawn onto a
snapshot that has everything else, so nodes and reasons are compared as without. Memory is in whole MiB
(docs/design/rules.md); features that nodes declare are those of KEP-5328.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from wire import names

_CPU: Final = ("100m", "500m", "0.5", "1", "1500m", "2")
_MEMORY: Final = ("256Mi", "1Gi", "1073741824", "2Gi")
_EXTENDED: Final = "example.com/fpga"
_AMOUNTS_ALWAYS: Final = {"restartPolicy": "Always"}

Spec = dict[str, Any]


def allocatable(r: random.Random) -> dict[str, str]:
    """What a node has; not every node has every resource."""
    has = {
        "cpu": r.choice(("2", "3500m", "4", "8")),
        "memory": r.choice(("3Gi", "8Gi", "16Gi")),
        "pods": r.choice(("2", "5", "10", "10")),
        "ephemeral-storage": r.choice(("1Gi", "10Gi")),
    }
    if r.random() < 0.8:
        has[_EXTENDED] = r.choice(("0", "1", "3", "4"))
    if r.random() < 0.8:
        has[names.GPU_RESOURCE] = r.choice(("1", "4", "8"))
    if r.random() < 0.5:
        has["hugepages-2Mi"] = r.choice(("4Mi", "64Mi"))
    return has


def nothing() -> Spec:
    """A container that asks nothing."""
    return {"containers": [{"name": "c0", "image": "i", "resources": {"requests": {}, "limits": {}}}]}


def containers(r: random.Random) -> Spec:
    """Containers, init containers, sidecars, overhead and what a pod asks as a whole."""
    spec: Spec = {"containers": [_container(r, f"c{i}") for i in range(r.choice((1, 1, 1, 2)))]}
    if r.random() < 0.25:
        spec["initContainers"] = [
            {**_container(r, f"i{i}"), **(_AMOUNTS_ALWAYS if r.random() < 0.5 else {})} for i in range(r.randint(1, 2))
        ]
    if r.random() < 0.1:
        spec["overhead"] = {"cpu": "250m", **({"memory": "128Mi"} if r.random() < 0.5 else {})}
    if r.random() < 0.1:
        spec["resources"] = {"requests": {"cpu": r.choice(("2", "3")), "memory": r.choice(("2Gi", "4Gi"))}}
    return spec


def _container(r: random.Random, name: str) -> Spec:
    asked: dict[str, str] = {}
    if r.random() < 0.6:
        asked["cpu"] = r.choice(_CPU)
    if r.random() < 0.5:
        asked["memory"] = r.choice(_MEMORY)
    if r.random() < 0.15:
        asked["ephemeral-storage"] = r.choice(("512Mi", "512Mi", "2Gi"))
    whole = {}
    if r.random() < 0.07:
        whole[_EXTENDED] = r.choice(("1", "2"))
    if r.random() < 0.1:
        whole[names.GPU_RESOURCE] = r.choice(("1", "2"))
    if r.random() < 0.05:
        whole["hugepages-2Mi"] = r.choice(("2Mi", "16Mi"))
    return {"name": name, "image": "i", "resources": {"requests": {**asked, **whole}, "limits": whole}}


def asked(spec: Spec) -> set[str]:
    """Names of what a pod asks."""
    every = [*spec["containers"], *spec.get("initContainers", ())]
    found = {f"amount {name}" for each in every for name in each["resources"]["requests"]}
    found.add("amount pods")
    found |= {"sidecar" for each in spec.get("initContainers", ()) if "restartPolicy" in each}
    found |= {"init container" for each in spec.get("initContainers", ()) if "restartPolicy" not in each}
    return found | ({"overhead"} & {*spec}) | ({"pod-level resources"} if "resources" in spec else set())


def running_status(r: random.Random, spec: Spec) -> Spec:
    """The status of a pod that runs; now and then it is being resized, or its resize is infeasible."""
    status: Spec = {"phase": r.choice(("Running", "Pending"))}
    if r.random() < 0.15:
        status["containerStatuses"] = [_resized(r, each) for each in spec["containers"]]
        status["initContainerStatuses"] = [_resized(r, each) for each in spec.get("initContainers", ())]
    if "resources" in spec and r.random() < 0.3:
        in_force, allocated = (
            {"cpu": r.choice(("1", "2", "3", "4")), "memory": r.choice(("1Gi", "2Gi", "4Gi", "6Gi"))} for _ in range(2)
        )
        status["resources"], status["allocatedResources"] = {"requests": in_force}, allocated
    if r.random() < 0.05:
        status["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]
    return status


def resizes(pod: Spec) -> set[str]:
    """Names of the resizes of a pod that runs."""
    status = pod["status"]
    is_infeasible = "conditions" in status and "containerStatuses" in status
    found = {"resize": "containerStatuses" in status, "resize of pod": "resources" in status}
    found |= {"resize, infeasible": is_infeasible, "resize of sidecar": bool(status.get("initContainerStatuses"))}
    return {name for name, is_there in found.items() if is_there}


def _resized(r: random.Random, container: Spec) -> Spec:
    """A status; kubelet names all that the container asks in it, of which CPU and memory may be others."""
    asked = container["resources"]["requests"]
    allocated, actual = ({**asked, "cpu": r.choice(_CPU), "memory": r.choice(_MEMORY)} for _ in range(2))
    return {
        "name": container["name"],
        "image": "i",
        "imageID": "",
        "ready": True,
        "restartCount": 0,
        "allocatedResources": allocated,
        "resources": {"requests": actual},
    }


def disks(r: random.Random, spec: Spec) -> set[str]:
    """One or two disks of each kind that two pods on a node may not share, to be read or written."""
    drawn = [_disk(r) for _ in range(r.choice((1, 1, 2)))]
    listed = spec.setdefault("volumes", [])
    listed += [{"name": f"d{number}", **source} for number, source in enumerate(drawn)]
    return {f"disks {kind}" for source in drawn for kind in source}


def _disk(r: random.Random) -> Spec:
    read_only = r.random() < 0.3
    match r.randint(0, 3):
        case 0:
            return {"gcePersistentDisk": {"pdName": r.choice("ab"), "readOnly": read_only}}
        case 1:
            return {"awsElasticBlockStore": {"volumeID": r.choice("ab"), "readOnly": read_only}}
        case 2:
            return {
                "iscsi": {"targetPortal": "t", "iqn": r.choice("ab"), "lun": r.randint(0, 1), "readOnly": read_only}
            }
        case _:
            image = {"pool": r.choice("rrrrp"), "image": r.choice("iiiij"), "readOnly": read_only}
            return {"rbd": {"monitors": r.sample("mno", 2 if r.random() < 0.8 else 1), **image}}


_RESTART_ALL: Final = "RestartAllContainersOnContainerExits"
_FEATURES: Final = (_RESTART_ALL, "UserNamespacesHostNetworkSupport", "ExtendWebSocketsToKubelet", "Unheard")


def node_features(r: random.Random) -> list[str]:
    """What a node declares, features that no pod needs among them; in order, else the API server refuses the node."""
    return sorted(feature for feature in _FEATURES if r.random() < 0.6)


def features(r: random.Random, spec: Spec) -> set[str]:
    """Restart rules, and users of its own in the network of the host; now and then what looks like them."""
    drawn: set[str] = set()
    if r.random() < 0.6:
        action = r.choice(("RestartAllContainers", "RestartAllContainers", "Restart"))
        container = r.choice([*spec["containers"], *spec.get("initContainers", ())])
        container["restartPolicyRules"] = [
            {"action": action, "exitCodes": {"operator": "In", "values": [1]}},
        ]
        drawn |= {"features, restart rules"} if action != "Restart" else set()
    if r.random() < 0.6:
        spec["hostNetwork"], spec["hostUsers"] = r.random() < 0.8, r.random() < 0.2
        is_needed = spec["hostNetwork"] and not spec["hostUsers"]
        drawn |= {"features, users of its own"} if is_needed else set()
    return drawn


#: Node labels that are domains.
KEYS: Final = ("zone", "rack", names.HOSTNAME_LABEL)
#: Field of what has to hold.
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")
_TOLERATIONS: Final = (
    {"operator": "Exists"},
    {"key": "a", "operator": "Equal", "value": "1"},
    {"key": "a", "value": "1", "effect": "NoSchedule"},
    {"key": "a", "operator": "Equal", "value": "2"},
    {"key": "a", "operator": "Exists", "effect": "NoExecute"},
    {"operator": "Exists", "effect": "NoExecute"},
    {"key": names.UNSCHEDULABLE_TAINT, "operator": "Exists"},
    {"key": "b", "operator": "Exists"},
)
_TAINTS: Final = (
    {"key": "a", "value": "1", "effect": "NoSchedule"},
    {"key": "b", "value": "", "effect": "NoExecute"},
    {"key": "p", "value": "", "effect": "PreferNoSchedule"},
)


def node_labels(r: random.Random, name: str) -> dict[str, str]:
    """Labels of a node: numbers as Go reads them and as it does not are among them."""
    labels = {names.HOSTNAME_LABEL: name}
    if r.random() < 0.9:
        labels["zone"] = f"z{r.randint(0, 1)}"
    if r.random() < 0.9:
        labels["rack"] = f"r{r.randint(0, 2)}"
    if r.random() < 0.7:
        labels["num"] = r.choice(("0", "2", "5", "7", "x", "1_0", "007", "9223372036854775808"))
    return labels


def taints(r: random.Random) -> list[dict[str, str]]:
    """Taints of a node."""
    return [dict(taint) for taint in _TAINTS if r.random() < 0.12]


def of_pod(r: random.Random) -> dict[str, str]:
    """Labels of a pod."""
    drawn = (("app", r.choice("abc")), ("tier", r.choice("xy")))
    return {key: value for key, value in drawn if r.random() < 0.85}


def tolerations(r: random.Random, spec: Spec) -> set[str]:
    """Tolerations, of all kinds that a key, an operator and an effect make."""
    spec["tolerations"] = [dict(each) for each in r.sample(_TOLERATIONS, r.randint(1, 2))]
    return {"tolerations"}


def selector(r: random.Random, spec: Spec) -> set[str]:
    """A node selector."""
    spec["nodeSelector"] = {"zone": r.choice(("z0", "z1"))}
    return {"node selector"}


def node_affinity(r: random.Random, spec: Spec) -> set[str]:
    """Required node affinity: terms with expressions, with fields, with both, with neither."""
    drawn = [_node_term(r) for _ in range(r.randint(1, 3))]
    required = {"nodeSelectorTerms": drawn}
    spec.setdefault("affinity", {})["nodeAffinity"] = {REQUIRED: required}
    expressions = [each for term in drawn for each in term.get("matchExpressions", ())]
    fields = {"matchFields" for term in drawn if "matchFields" in term}
    return {"node affinity", *(f"node affinity {each['operator']}" for each in expressions), *fields}


def added_affinity(r: random.Random) -> Spec:
    """Node affinity that an administrator adds to all pods: by one expression, so that some nodes are left."""
    operator = r.choice(("In", "In", "NotIn"))
    expression = {"key": r.choice(("zone", "rack")), "operator": operator, "values": ["z0", "r0", "r1"]}
    return {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}


def _node_term(r: random.Random) -> Spec:
    term: Spec = {}
    if r.random() < 0.9:
        term["matchExpressions"] = [_node_expression(r) for _ in range(r.choice((1, 1, 2)))]
    if r.random() < 0.15:
        values = [f"node-{r.randint(0, 3)}"]
        term["matchFields"] = [{"key": "metadata.name", "operator": r.choice(("In", "NotIn")), "values": values}]
    return term


def preferred_node_term(r: random.Random) -> Spec:
    """A term that nobody has to meet: without values that kube-scheduler refuses there."""
    term = _node_term(r)
    for each in term.get("matchExpressions", ()):
        if each["operator"] in {"Gt", "Lt"}:
            each["values"] = [r.choice(("0", "1", "3", "6"))]
    return term


def _node_expression(r: random.Random) -> Spec:
    operator = r.choice((*_OPERATORS, "Gt", "Lt"))
    if operator in {"Gt", "Lt"}:
        return {"key": "num", "operator": operator, "values": [r.choice(("0", "1", "3", "6", "-2", "1_0", "+4"))]}
    expression: Spec = {"key": r.choice(("zone", "rack", "num")), "operator": operator}
    if operator in {"In", "NotIn"}:
        expression["values"] = r.sample(("z0", "z1", "r0", "r1", "r2", "5", "1_0"), r.randint(1, 3))
    return expression


def anti_affinity(r: random.Random, spec: Spec) -> set[str]:
    """Required anti-affinity between pods."""
    terms = [pod_term(r) for _ in range(r.randint(1, 2))]
    spec.setdefault("affinity", {})["podAntiAffinity"] = {REQUIRED: terms}
    return {"pod anti-affinity", *_named("pod anti-affinity", terms)}


def pod_affinity(r: random.Random, spec: Spec) -> set[str]:
    """Required affinity between pods."""
    terms = [pod_term(r) for _ in range(r.choice((1, 1, 2)))]
    spec.setdefault("affinity", {})["podAffinity"] = {REQUIRED: terms}
    return {"pod affinity", *_named("pod affinity", terms)}


def spread(r: random.Random, spec: Spec) -> set[str]:
    """Spread constraints that have to hold, of each policy, and now and then one that does not have to."""
    drawn = [spread_constraint(r, key) for key in r.sample(KEYS, r.randint(1, 2))]
    spec["topologySpreadConstraints"] = drawn
    fields = ("minDomains", "nodeAffinityPolicy", "nodeTaintsPolicy", "matchLabelKeys")
    must = [each for each in drawn if each["whenUnsatisfiable"] == "DoNotSchedule"]
    return ({"spread"} if must else set()) | {f"spread {name}" for each in must for name in fields if name in each}


def spread_constraint(r: random.Random, key: str) -> Spec:
    """A constraint on this label, mostly one that has to hold."""
    drawn: Spec = {"maxSkew": r.randint(1, 2), "topologyKey": key, "labelSelector": pod_selector(r)}
    drawn["whenUnsatisfiable"] = "DoNotSchedule" if r.random() < 0.9 else "ScheduleAnyway"
    if r.random() < 0.3:
        drawn["minDomains"] = r.randint(1, 3)
    for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        if r.random() < 0.4:
            drawn[policy] = r.choice(("Honor", "Ignore"))
    if r.random() < 0.2:
        drawn["matchLabelKeys"] = r.choice((["tier"], ["tier", "app"], ["none"]))
    return drawn


def host_ports(r: random.Random, spec: Spec) -> set[str]:
    """Ports of the host, with and without address and protocol, of containers of all kinds."""
    every = [*spec["containers"], *spec.get("initContainers", ())]
    for container in r.sample(every, r.randint(1, len(every))):
        port: Spec = {"containerPort": 80, "hostPort": r.choice((80, 80, 443))}
        if r.random() < 0.4:
            port["hostIP"] = r.choice(("127.0.0.1", "0.0.0.0", "10.0.0.1"))  # noqa: S104 - an address among others
        port["protocol"] = r.choice(("TCP", "TCP", "UDP"))
        container["ports"] = [port]
    return {"host ports"}


def pod_term(r: random.Random) -> Spec:
    """A term on pods: by a selector, in namespaces that are named, selected, or the pod's own."""
    term: Spec = {"labelSelector": pod_selector(r), "topologyKey": r.choice(KEYS)}
    kind = r.random()
    if kind < 0.2:
        term["namespaces"] = r.sample(("n1", "n2"), r.randint(1, 2))
    elif kind < 0.4:
        term["namespaceSelector"] = r.choice(({}, {"matchLabels": {"team": "x"}}))
    return term


def _named(kind: str, terms: list[Spec]) -> set[str]:
    found = {f"{kind}, namespaces" for term in terms if "namespaces" in term}
    return found | {f"{kind}, namespace selector" for term in terms if "namespaceSelector" in term}


def pod_selector(r: random.Random) -> Spec | None:
    """A label selector: of one value mostly, an empty one, none, one by expressions."""
    kind = r.random()
    if kind < 0.06:
        return {}
    if kind < 0.1:
        return None
    if kind < 0.7:
        return {"matchLabels": {"app": r.choice("ab")}}
    operator = r.choice(_OPERATORS)
    expression: Spec = {"key": r.choice(("app", "tier")), "operator": operator}
    if operator in {"In", "NotIn"}:
        expression["values"] = r.sample(("a", "b", "x"), r.randint(1, 2))
    return {"matchExpressions": [expression]}


Question = dict[str, Any]

_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_SOFT_TAINTS: Final = (
    {"key": "p", "value": "", "effect": "PreferNoSchedule"},
    {"key": "q", "value": "1", "effect": "PreferNoSchedule"},
    {"key": "q", "value": "2", "effect": "PreferNoSchedule"},
)
_PREFER_TOLERATIONS: Final = (
    {"key": "p", "operator": "Exists", "effect": "PreferNoSchedule"},
    {"key": "q", "operator": "Equal", "value": "1", "effect": "PreferNoSchedule"},
    {"key": "q", "value": "2", "effect": "PreferNoSchedule"},
    {"operator": "Exists", "effect": "PreferNoSchedule"},
    {"key": "q", "operator": "Exists", "effect": "NoExecute"},
)
_IMAGES: Final = ("i", "registry:5000/a", "docker.io/b:1", "c@sha256:aa")
_MIB: Final = 1024 * 1024
#: Weights that are alike, and far apart.
_WEIGHTS: Final = (1, 2, 10, 50, 100)


def add_preferences(r: random.Random, question: Question) -> set[str]:
    """Give nodes, running pods and the waiting pod what preferences read."""
    for node in question["nodes"]:
        _prefer_not(r, node)
        node["status"]["images"] = _there(r)
    for pod in question["pods"]:
        if r.random() < 0.4:
            _running_preferring(r, pod["spec"])
    return waiting(r, question["pod"])


def waiting(r: random.Random, pod: Spec) -> set[str]:
    """Give a pod that waits some preferences."""
    features: set[str] = set()
    for kind in r.sample(sorted(KINDS), r.choice((0, 1, 1, 2, 3))):
        KINDS[kind](r, pod["spec"])
        features.add(kind)
    return features


def _prefer_not(r: random.Random, node: Spec) -> None:
    hard = [each for each in node["spec"]["taints"] if each["effect"] != "PreferNoSchedule"]
    soft = {taint["key"]: dict(taint) for taint in _SOFT_TAINTS if r.random() < 0.2}  # a node has one of a key
    node["spec"]["taints"] = [*hard, *soft.values()]


def _there(r: random.Random) -> list[Spec]:
    found = [image for image in _IMAGES if r.random() < 0.4]
    listed = (image if "@" in image or image.rfind(":") > image.rfind("/") else f"{image}:latest" for image in found)
    return [{"names": [name, f"{name}-too"], "sizeBytes": r.randint(1, 3000) * _MIB // 2} for name in listed]


def _running_preferring(r: random.Random, spec: Spec) -> None:
    kinds = r.sample((_prefer_pods, _prefer_no_pods, _require_pods), r.randint(1, 2))
    for kind in kinds:
        kind(r, spec)


def _terms(r: random.Random) -> list[Spec]:
    terms = [{"weight": r.choice(_WEIGHTS), "podAffinityTerm": pod_term(r)} for _ in range(r.randint(1, 2))]
    return [*terms, dict(terms[0])] if r.random() < 0.1 else terms


def _prefer_pods(r: random.Random, spec: Spec) -> None:
    spec.setdefault("affinity", {}).setdefault("podAffinity", {})[_PREFERRED] = _terms(r)


def _prefer_no_pods(r: random.Random, spec: Spec) -> None:
    spec.setdefault("affinity", {}).setdefault("podAntiAffinity", {})[_PREFERRED] = _terms(r)


def _require_pods(r: random.Random, spec: Spec) -> None:
    spec.setdefault("affinity", {}).setdefault("podAffinity", {})[REQUIRED] = [pod_term(r)]


def _prefer_nodes(r: random.Random, spec: Spec) -> None:
    drawn = [{"weight": r.choice(_WEIGHTS), "preference": preferred_node_term(r)} for _ in range(r.randint(1, 3))]
    spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})[_PREFERRED] = drawn


def _tolerate(r: random.Random, spec: Spec) -> None:
    spec["tolerations"] = [*spec.get("tolerations", ()), *(dict(each) for each in r.sample(_PREFER_TOLERATIONS, 2))]


def _spread(r: random.Random, spec: Spec) -> None:
    keys = r.sample(KEYS, r.randint(1, 3))
    soft = [{**spread_constraint(r, key), "whenUnsatisfiable": "ScheduleAnyway"} for key in keys]
    for each in soft:
        each.pop("minDomains", None)
    hard = [each for each in spec.get("topologySpreadConstraints", ()) if each["whenUnsatisfiable"] == "DoNotSchedule"]
    spec["topologySpreadConstraints"] = [*hard, *soft]


def _name_images(r: random.Random, spec: Spec) -> None:
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        container["image"] = r.choice(_IMAGES)
    if r.random() < 0.3:
        volume = {"name": "image", "image": {"reference": r.choice(_IMAGES), "pullPolicy": "IfNotPresent"}}
        spec["volumes"] = [*spec.get("volumes", ()), volume]


#: Kinds of preferences of a waiting pod, each by its own function: it writes into the spec.
KINDS: Final[Mapping[str, Callable[[random.Random, Spec], None]]] = {
    "preferred node affinity": _prefer_nodes,
    "preferred pod affinity": _prefer_pods,
    "preferred pod anti-affinity": _prefer_no_pods,
    "soft spread": _spread,
    "tolerated PreferNoSchedule": _tolerate,
    "images": _name_images,
}


#: The part of snapshots with volumes: each takes the oracle caches of its own, which cost ten times as much as the
#: rest.
SHARE: Final = 0.08
_DRIVER: Final = "disk.example.com"
#: Kinds of volumes that drivers inside Kubernetes served -> the CSI driver that does now, and the field with the name.
_IN_TREE: Final = {
    "gcePersistentDisk": ("pd.csi.storage.gke.io", "pdName"),
    "awsElasticBlockStore": ("ebs.csi.aws.com", "volumeID"),
    "azureDisk": ("disk.csi.azure.com", "diskURI"),
    "cinder": ("cinder.csi.openstack.org", "volumeID"),
    "portworxVolume": ("pxd.portworx.com", "volumeID"),
}


def add_volumes(r: random.Random, question: Question) -> set[str]:
    """Give the waiting pod and some running ones claims that are bound."""
    question.update(claims=[], volumes=[], classes=[], csiNodes=[], attachments=[])
    features: set[str] = set()
    for pod in question["pods"]:
        if r.random() < 0.5:
            _mount(r, question, pod, set())
    for _ in range(r.randint(1, 2)):
        _mount(r, question, question["pod"], features)
    features |= _mount_inline(r, question)
    for node in question["nodes"]:
        if r.random() < 0.6:
            node["metadata"]["labels"][names.ZONE_LABEL] = r.choice(("z0", "z1"))
        if r.random() < 0.7:
            names_of_drivers = (_DRIVER, *(driver for driver, _ in _IN_TREE.values()))
            drivers = [_limited(r, driver, node["metadata"]["name"]) for driver in names_of_drivers]
            question["csiNodes"].append({"metadata": {"name": node["metadata"]["name"]}, "spec": {"drivers": drivers}})
    if _attach(r, question) and "volume limits" in features:
        features.add("volume limits, attachments")
    if r.random() < 0.4:
        features |= _share(r, question)
    return features


def _mount_inline(r: random.Random, question: Question) -> set[str]:
    """Some pods name a volume without a claim."""
    found: set[str] = set()
    for pod in (question["pod"], *question["pods"]):
        if r.random() < 0.3:
            pod["spec"].setdefault("volumes", []).append({"name": "inline", **_in_tree(r)})
            found |= {"volume limits, inline"} if pod is question["pod"] else set()
    return found


def _attach(r: random.Random, question: Question) -> bool:
    """The driver has volumes on nodes, or still has them, though no pod there uses them; those of the waiting pod not.

    A node that has one of these already is full by it at kube-scheduler, and here it is not
    (docs/reference/differences.md).
    """
    mounted = {
        each["persistentVolumeClaim"]["claimName"] for each in question["pod"]["spec"]["volumes"] if _is_claim(each)
    }
    attached = [each for each in question["volumes"] if _driver(each)]
    own = {_handle(each) for each in attached if each["spec"]["claimRef"]["name"] in mounted}
    for node in question["nodes"]:
        for volume in attached:
            if _handle(volume) not in own and r.random() < 0.3:
                source = {"persistentVolumeName": volume["metadata"]["name"]}
                spec = {"attacher": _driver(volume), "nodeName": node["metadata"]["name"], "source": source}
                name = f"attachment-{len(question['attachments'])}"
                question["attachments"].append({"metadata": {"name": name}, "spec": spec})
    return bool(question["attachments"])


def _is_claim(volume: Question) -> bool:
    return "persistentVolumeClaim" in volume


def _driver(volume: Question) -> str:
    """The CSI driver of a PersistentVolume; "" if it has none."""
    in_tree = (driver for kind, (driver, _) in _IN_TREE.items() if kind in volume["spec"])
    return _DRIVER if "csi" in volume["spec"] else next(in_tree, "")


def _handle(volume: Question) -> str:
    """What its driver knows it by, if it is not one of a driver that was inside Kubernetes."""
    return str(volume["spec"].get("csi", {}).get("volumeHandle", ""))


def _limited(r: random.Random, driver: str, node: str) -> Question:
    return {"name": driver, "nodeID": node, "allocatable": {"count": r.randint(1, 2)}}


def _in_tree(r: random.Random) -> Question:
    """A source of a volume, of few names."""
    kind = r.choice([*_IN_TREE])
    name = r.choice(("vol-1", "vol-2", "vol-3"))
    source = {_IN_TREE[kind][1]: name}
    if kind == "awsElasticBlockStore" and r.random() < 0.5:
        source["volumeID"] = f"aws://z0/{name}"
    if kind == "azureDisk":
        source["diskName"] = name
    return {kind: source}


def _share(r: random.Random, question: Question) -> set[str]:
    """The waiting pod mounts a claim that one pod at a time may use; now and then one that runs does so already."""
    claim = question["claims"][-1]
    claim["spec"]["accessModes"] = ["ReadWriteOncePod"]
    namespace = claim["metadata"]["namespace"]
    mounted = {"name": "alone", "persistentVolumeClaim": {"claimName": claim["metadata"]["name"]}}
    beside = [pod for pod in question["pods"] if pod["metadata"]["namespace"] == namespace]
    if beside and r.random() < 0.6:
        r.choice(beside)["spec"].setdefault("volumes", []).append(mounted)
    return {"volume for one pod"}


def _mount(r: random.Random, question: Question, pod: Question, features: set[str]) -> None:
    number = len(question["claims"])
    name, namespace = f"claim-{number}", pod["metadata"]["namespace"]
    labels: dict[str, str] = {}
    spec: Question = {
        "claimRef": {"namespace": namespace, "name": name, "uid": name},
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "persistentVolumeReclaimPolicy": "Retain",
    }
    if r.random() < 0.5:
        labels[r.choice((names.ZONE_LABEL, names.OLD_ZONE_LABEL))] = r.choice(("z0", "z1", "z0__z1"))
        features.add("volume zone")
    if r.random() < 0.5:
        expression = {"key": "zone", "operator": "In", "values": [r.choice(("z0", "z1"))]}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
        features.add("volume affinity")
    if (kind := r.random()) < 0.5:
        spec["csi"] = {"driver": _DRIVER, "volumeHandle": f"handle-{r.randint(0, 4)}"}
        features.add("volume limits")
    elif kind < 0.8:
        spec.update(_in_tree(r))
        features.add("volume limits, in-tree")
    else:
        spec["nfs"] = {"server": "s", "path": "/"}
    bound = {names.BIND_COMPLETED: "yes"}
    question["claims"].append(
        {
            "metadata": {"name": name, "namespace": namespace, "uid": name, "annotations": bound},
            "spec": {"volumeName": f"pv-{number}", "accessModes": ["ReadWriteOnce"], "storageClassName": ""},
            "status": {"phase": "Bound"},
        }
    )
    question["volumes"].append(
        {"metadata": {"name": f"pv-{number}", "labels": labels}, "spec": spec, "status": {"phase": "Bound"}}
    )
    mounted = {"name": f"v{number}", "persistentVolumeClaim": {"claimName": name}}
    pod["spec"].setdefault("volumes", []).append(mounted)


NAMESPACES: Final = {"n1": "x", "n2": "y", "n3": "x"}
#: The most kinds of things that the waiting pod asks, so that some nodes are left.
_MOST_ASKED: Final = 2
#: The part of snapshots with node affinity that all pods ask: each takes plug-ins of its own, as those with volumes.
_ENFORCED: Final = 0.03
#: One of this many pods asks nothing, so that it prefers some of many nodes.
_EASY: Final = 4
#: What is asked of each pod.
_ALWAYS: Final = frozenset({"others' anti-affinity", "cordon", "taints"})


@dataclass(frozen=True, slots=True)
class Drawn:
    """A snapshot, and what its pod asks and prefers by name."""

    question: Mapping[str, Any]
    features: frozenset[str]
    preferences: frozenset[str] = frozenset()


#: What a waiting pod may ask, each by its own function: it writes into the spec and returns names of features.
ASKS: Final[Mapping[str, Callable[[random.Random, dict[str, Any]], set[str]]]] = {
    "tolerations": tolerations,
    "selector": selector,
    "node affinity": node_affinity,
    "pod affinity": pod_affinity,
    "pod anti-affinity": anti_affinity,
    "spread": spread,
    "host ports": host_ports,
    "disks": disks,
    "features": features,
}


def draw(seed: int) -> Drawn:
    """The snapshot of this number, always the same."""
    r = random.Random(seed)  # noqa: S311 - nothing here is secret
    nodes = [_node(r, i) for i in range(r.randint(2, 8))]
    pods = [_running(r, i, nodes) for i in range(r.randint(0, 8))]
    pod, features = _waiting(r)
    is_easy = seed % _EASY == 0
    if is_easy:
        pod["spec"], features = {"schedulerName": names.SCHEDULER_NAME, **nothing()}, set(_ALWAYS)
    question: dict[str, Any] = {
        "nodes": nodes,
        "pods": pods,
        "namespaces": [{"metadata": {"name": n, "labels": {"team": team}}} for n, team in NAMESPACES.items()],
        "pod": pod,
    }
    if r.random() < SHARE and not is_easy:
        features |= add_volumes(r, question)
    if r.random() < _ENFORCED:
        question["addedAffinity"] = added_affinity(r)
        features.add("enforced affinity")
    features |= {name for each in pods for name in resizes(each)}
    preferences = add_preferences(_preferring(seed), question)
    return Drawn({**question, "scores": True}, frozenset(features), frozenset(preferences))


def _preferring(seed: int) -> random.Random:
    """Numbers of their own, so that what is drawn beside preferences is the same without them."""
    return random.Random(f"preferences of {seed}")  # noqa: S311 - nothing here is secret


def draw_several(seed: int, count: int) -> tuple[Drawn, list[dict[str, Any]]]:
    """A snapshot, and pods that wait in it beside its own."""
    r = random.Random(seed)  # noqa: S311 - nothing here is secret
    pods, preferring = [_waiting(r, f"new-{number}")[0] for number in range(count)], _preferring(seed)
    for pod in pods:
        waiting(preferring, pod)
    return draw(seed), pods


def _node(r: random.Random, number: int) -> dict[str, Any]:
    name = f"node-{number}"
    unschedulable = {"unschedulable": True} if r.random() < 0.1 else {}
    return {
        "metadata": {"name": name, "uid": f"u{number}", "labels": node_labels(r, name)},
        "spec": {"taints": taints(r), **unschedulable},
        "status": {
            "allocatable": allocatable(r),
            "conditions": [{"type": "Ready", "status": "True"}],
            "declaredFeatures": node_features(r),
        },
    }


def _pod(r: random.Random, name: str, spec: dict[str, Any], status: dict[str, Any]) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "namespace": r.choice(("n1", "n2")),
            "uid": name,
            "labels": of_pod(r),
            "resourceVersion": "1",
        },
        "spec": {"schedulerName": names.SCHEDULER_NAME, **spec},
        "status": status,
    }


def _running(r: random.Random, number: int, nodes: list[dict[str, Any]]) -> dict[str, Any]:
    spec = containers(r)
    if r.random() < 0.3:
        anti_affinity(r, spec)
    if r.random() < 0.2:
        host_ports(r, spec)
    if r.random() < 0.8:
        disks(r, spec)
    pod = _pod(r, f"p{number}", spec, running_status(r, spec))
    pod["metadata"]["namespace"] = r.choice(tuple(NAMESPACES))
    pod["spec"]["nodeName"] = r.choice(nodes)["metadata"]["name"]
    if r.random() < 0.1:
        pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    if r.random() < 0.3:
        pod["spec"]["schedulerName"] = "default-scheduler"
    return pod


def _waiting(r: random.Random, name: str = "new") -> tuple[dict[str, Any], set[str]]:
    spec = containers(r)
    features = asked(spec) | _ALWAYS
    for kind in r.sample(sorted(ASKS), r.randint(0, _MOST_ASKED)):
        features |= ASKS[kind](r, spec)
    return _pod(r, name, spec, {"phase": "Pending"}), features
