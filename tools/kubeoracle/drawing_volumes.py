"""Claims that are bound, with volumes that have zones and node affinity, and limits of CSI drivers."""

from __future__ import annotations

import random
from typing import Any, Final

from wire import names

#: So many snapshots have volumes: each takes the oracle caches of its own, which cost ten times as much as the rest.
SHARE: Final = 0.08
_DRIVER: Final = "disk.example.com"

Question = dict[str, Any]


def add(r: random.Random, question: Question) -> set[str]:
    """Give the waiting pod and some running ones claims that are bound."""
    question.update(claims=[], volumes=[], classes=[], csiNodes=[], attachments=[])
    features: set[str] = set()
    for pod in question["pods"]:
        if r.random() < 0.5:
            _mount(r, question, pod, set())
    for _ in range(r.randint(1, 2)):
        _mount(r, question, question["pod"], features)
    for node in question["nodes"]:
        if r.random() < 0.6:
            node["metadata"]["labels"][names.ZONE_LABEL] = r.choice(("z0", "z1"))
        if r.random() < 0.7:
            allocatable = {"count": r.randint(1, 2)}
            driver = {"name": _DRIVER, "nodeID": node["metadata"]["name"], "allocatable": allocatable}
            question["csiNodes"].append({"metadata": {"name": node["metadata"]["name"]}, "spec": {"drivers": [driver]}})
    if _attach(r, question) and "volume limits" in features:
        features.add("volume limits, attachments")
    if r.random() < 0.4:
        features |= _share(r, question)
    return features


def _attach(r: random.Random, question: Question) -> bool:
    """The driver has volumes on nodes, or still has them, though no pod there uses them; those of the waiting pod not.

    A node that has one of these already is full by it at kube-scheduler, and here it is not (docs/differences.md).
    """
    mounted = {
        each["persistentVolumeClaim"]["claimName"] for each in question["pod"]["spec"]["volumes"] if _is_claim(each)
    }
    attached = [each for each in question["volumes"] if "csi" in each["spec"]]
    own = {_handle(each) for each in attached if each["spec"]["claimRef"]["name"] in mounted}
    for node in question["nodes"]:
        for volume in attached:
            if _handle(volume) not in own and r.random() < 0.3:
                source = {"persistentVolumeName": volume["metadata"]["name"]}
                spec = {"attacher": _DRIVER, "nodeName": node["metadata"]["name"], "source": source}
                name = f"attachment-{len(question['attachments'])}"
                question["attachments"].append({"metadata": {"name": name}, "spec": spec})
    return bool(question["attachments"])


def _is_claim(volume: Question) -> bool:
    return "persistentVolumeClaim" in volume


def _handle(volume: Question) -> str:
    return str(volume["spec"]["csi"]["volumeHandle"])


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
    if r.random() < 0.7:
        spec["csi"] = {"driver": _DRIVER, "volumeHandle": f"handle-{r.randint(0, 4)}"}
        features.add("volume limits")
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
