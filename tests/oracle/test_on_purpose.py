"""What differs from kube-scheduler on purpose. Each is a row of docs/reference/differences.md."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.core.model.settings import Settings
from tools.kubeoracle.ours import answer
from tools.kubeoracle.program import Oracle

pytestmark = pytest.mark.oracle
_ANTI = "requiredDuringSchedulingIgnoredDuringExecution"


def _node(name: str = "n", **has: Any) -> dict[str, Any]:
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "10", **has.pop("allocatable", {})}
    ready = {"conditions": [{"type": "Ready", "status": has.pop("ready", "True")}]}
    return {
        "metadata": {"name": name, "uid": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": has,
        "status": {"allocatable": allocatable, **ready},
    }


def _pod(name: str = "p", *, node: str = "", memory: str = "1Gi", **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"memory": memory}}}
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": name, "labels": {"app": "a"}, "resourceVersion": "1"},
        "spec": {"schedulerName": "kai-scheduler", "nodeName": node, "containers": [container], **spec},
        "status": {"phase": "Pending"},
    }


def _both(oracle: Oracle, *nodes: dict[str, Any], pod: dict[str, Any], running: tuple[dict[str, Any], ...] = ()) -> Any:
    question = {"nodes": nodes, "pods": running, "namespaces": [{"metadata": {"name": "ns"}}], "pod": pod}
    (theirs,) = oracle.ask([question])
    return frozenset(theirs.feasible or ()), answer(question).feasible


def test_nodes_that_are_not_ready_are_out_whatever_is_tolerated(oracle: Oracle) -> None:
    tolerating = _pod(tolerations=[{"operator": "Exists"}])
    assert _both(oracle, _node(ready="False"), pod=tolerating) == (frozenset(("n",)), frozenset())


def test_memory_counts_in_mib_rounded_against_the_asker(oracle: Oracle) -> None:
    bytes_more = _pod(memory=str(1024**3 + 1))
    node = _node(allocatable={"memory": str(1024**3 + 1)})
    assert _both(oracle, node, pod=bytes_more) == (frozenset(("n",)), frozenset())
    assert _both(oracle, node, pod=_pod()) == (frozenset(("n",)), frozenset(("n",)))


def test_images_do_not_count_by_default_and_packing_is_the_strategys(oracle: Oracle) -> None:
    nodes = [_node("n"), _node("m")]
    nodes[0]["status"]["images"] = [{"names": ["i:latest"], "sizeBytes": 2**31}]
    question = {"nodes": nodes, "pods": [_pod("r", node="m")], "pod": _pod(), "scores": True}
    (theirs,) = oracle.ask([question])
    sums = {name: sum(scores.values()) for name, scores in theirs.scores.items()}
    assert sums["n"] > sums["m"]
    assert answer(question, settings=Settings()).chosen == "m"


def test_nodes_that_are_alike_are_chosen_by_name(oracle: Oracle) -> None:
    question = {"nodes": [_node("n"), _node("m")], "pods": [], "pod": _pod(), "scores": True}
    (theirs,) = oracle.ask([question])
    assert theirs.scores["n"] == theirs.scores["m"]
    assert answer(question).chosen == "m"


def test_of_very_many_preferences_the_first_count(oracle: Oracle) -> None:
    drawn = [
        {"weight": 1, "preference": {"matchExpressions": [{"key": "is", "operator": "In", "values": [name]}]}}
        for name in (*["n"] * 32, *["m"] * 33)
    ]
    preferring = _pod(affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": drawn}})
    nodes = [_node(name) for name in "nm"]
    for node in nodes:
        node["metadata"]["labels"]["is"] = node["metadata"]["name"]
    question = {"nodes": nodes, "pods": [], "pod": preferring, "scores": True}
    (theirs,) = oracle.ask([question])
    assert theirs.scores["m"]["NodeAffinity"] > theirs.scores["n"]["NodeAffinity"]
    assert answer(question).chosen == "n"


def test_a_rule_about_other_pods_is_told_rather_than_an_amount(oracle: Oracle) -> None:
    term = {"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": "kubernetes.io/hostname"}
    keeping = _pod("r", node="n", affinity={"podAntiAffinity": {_ANTI: [term]}})
    question = {"nodes": [_node()], "pods": [keeping], "namespaces": [], "pod": _pod(memory="100Gi")}
    (theirs,) = oracle.ask([question])
    assert theirs.why is not None
    assert theirs.why["n"].reasons == ("Insufficient memory",)
    assert answer(question).why == {"n": frozenset(("others-anti-affinity",))}


def test_an_unreadable_selector_of_a_running_pod_takes_everything_in_its_namespaces(oracle: Oracle) -> None:
    selector = {"matchExpressions": [{"key": "app", "operator": "Newer", "values": ["a"]}]}
    term = {"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"}
    keeping = _pod("r", node="n", affinity={"podAntiAffinity": {_ANTI: [term]}})
    assert _both(oracle, _node(), _node("m"), pod=_pod(), running=(keeping,)) == (
        frozenset(("n", "m")),
        frozenset(("m",)),
    )


def test_a_resize_that_is_infeasible_frees_nothing_that_the_status_does_not_name(oracle: Oracle) -> None:
    running = _pod("r", node="n")
    running["spec"]["containers"][0]["resources"]["requests"]["example.com/fpga"] = "1"
    given = {"memory": "1Gi"}
    told = {"name": "c", "image": "i", "imageID": "", "allocatedResources": given, "resources": {"requests": given}}
    pending = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
    running["status"] = {"phase": "Running", "containerStatuses": [told], "conditions": [pending]}
    asking = _pod()
    asking["spec"]["containers"][0]["resources"]["requests"]["example.com/fpga"] = "1"
    node = _node(allocatable={"example.com/fpga": "1"})
    assert _both(oracle, node, pod=asking, running=(running,)) == (frozenset(("n",)), frozenset())


def test_a_node_that_has_the_volume_of_a_pod_attached_takes_the_pod_at_its_limit(oracle: Oracle) -> None:
    driver, volume = "disk.example.com", {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}
    claim = {
        "metadata": {
            "name": "c",
            "namespace": "ns",
            "uid": "c",
            "annotations": {"pv.kubernetes.io/bind-completed": ""},
        },
        "spec": {"volumeName": "v", "accessModes": ["ReadWriteOnce"], "storageClassName": ""},
        "status": {"phase": "Bound"},
    }
    limits = {"name": driver, "nodeID": "n", "allocatable": {"count": 1}}
    question = {
        "nodes": [_node()],
        "pods": [],
        "namespaces": [],
        "pod": _pod(volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]),
        "claims": [claim],
        "volumes": [
            {
                "metadata": {"name": "v"},
                "spec": {
                    **volume,
                    "claimRef": {"namespace": "ns", "name": "c", "uid": "c"},
                    "csi": {"driver": driver, "volumeHandle": "h"},
                },
            }
        ],
        "csiNodes": [{"metadata": {"name": "n"}, "spec": {"drivers": [limits]}}],
        "attachments": [
            {
                "metadata": {"name": "a"},
                "spec": {"attacher": driver, "nodeName": "n", "source": {"persistentVolumeName": "v"}},
            }
        ],
    }
    (theirs,) = oracle.ask([question])
    assert theirs.why is not None
    assert theirs.why["n"].reasons == ("node(s) exceed max volume count",)
    assert answer(question).feasible == frozenset(("n",))


def test_zones_of_volumes_of_drivers_inside_kubernetes_are_not_translated(oracle: Oracle) -> None:
    zone = "topology.kubernetes.io/zone"
    node = _node()
    node["metadata"]["labels"][zone] = "z"
    terms = [{"matchExpressions": [{"key": zone, "operator": "In", "values": ["z"]}]}]
    volume = {
        "metadata": {"name": "v"},
        "spec": {
            "claimRef": {"namespace": "ns", "name": "c", "uid": "c"},
            "gcePersistentDisk": {"pdName": "d"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
        },
    }
    bound = {"pv.kubernetes.io/bind-completed": "yes"}
    claim = {
        "metadata": {"namespace": "ns", "name": "c", "uid": "c", "annotations": bound},
        "spec": {"volumeName": "v"},
        "status": {"phase": "Bound"},
    }
    migrated = {"storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/gce-pd"}
    question = {
        "nodes": [node],
        "pods": [],
        "pod": _pod(volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]),
        "claims": [claim],
        "volumes": [volume],
        "csiNodes": [{"metadata": {"name": "n", "annotations": migrated}, "spec": {"drivers": []}}],
    }
    (theirs,) = oracle.ask([question])
    assert (theirs.feasible, answer(question).feasible) == ((), frozenset(("n",)))
    node["metadata"]["labels"]["topology.gke.io/zone"] = "z"
    (theirs,) = oracle.ask([question])
    assert (theirs.feasible, answer(question).feasible) == (("n",), frozenset(("n",)))
