"""Labels and taints of nodes, and what a pod asks of a node and of the pods there.

A function that draws one part of a pod writes it into the spec and names what it asks (``features``).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Final

from tools.kubeoracle.drawing.amounts import Spec, features
from wire import names

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


#: What a waiting pod may ask, each by its own function: it writes into the spec and returns names of features.
ASKS: Final[Mapping[str, Callable[[random.Random, Spec], set[str]]]] = {
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
