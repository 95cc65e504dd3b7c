"""Claims that are bound, and the drivers, limits and attachments of their volumes."""

from __future__ import annotations

import random
from typing import Final

from tools.kubeoracle.drawing.amounts import Spec
from wire import names

_DRIVER: Final = "disk.example.com"
#: Kinds of volumes that drivers inside Kubernetes served -> the CSI driver that does now, and the field with the name.
_IN_TREE: Final = {
    "gcePersistentDisk": ("pd.csi.storage.gke.io", "pdName"),
    "awsElasticBlockStore": ("ebs.csi.aws.com", "volumeID"),
    "azureDisk": ("disk.csi.azure.com", "diskURI"),
    "cinder": ("cinder.csi.openstack.org", "volumeID"),
    "portworxVolume": ("pxd.portworx.com", "volumeID"),
}


def add_volumes(r: random.Random, question: Spec) -> set[str]:
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


def _mount_inline(r: random.Random, question: Spec) -> set[str]:
    """Some pods name a volume without a claim."""
    found: set[str] = set()
    for pod in (question["pod"], *question["pods"]):
        if r.random() < 0.3:
            pod["spec"].setdefault("volumes", []).append({"name": "inline", **_in_tree(r)})
            found |= {"volume limits, inline"} if pod is question["pod"] else set()
    return found


def _attach(r: random.Random, question: Spec) -> bool:
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


def _is_claim(volume: Spec) -> bool:
    return "persistentVolumeClaim" in volume


def _driver(volume: Spec) -> str:
    """The CSI driver of a PersistentVolume; "" if it has none."""
    in_tree = (driver for kind, (driver, _) in _IN_TREE.items() if kind in volume["spec"])
    return _DRIVER if "csi" in volume["spec"] else next(in_tree, "")


def _handle(volume: Spec) -> str:
    """What its driver knows it by, if it is not one of a driver that was inside Kubernetes."""
    return str(volume["spec"].get("csi", {}).get("volumeHandle", ""))


def _limited(r: random.Random, driver: str, node: str) -> Spec:
    return {"name": driver, "nodeID": node, "allocatable": {"count": r.randint(1, 2)}}


def _in_tree(r: random.Random) -> Spec:
    """A source of a volume, of few names."""
    kind = r.choice([*_IN_TREE])
    name = r.choice(("vol-1", "vol-2", "vol-3"))
    source = {_IN_TREE[kind][1]: name}
    if kind == "awsElasticBlockStore" and r.random() < 0.5:
        source["volumeID"] = f"aws://z0/{name}"
    if kind == "azureDisk":
        source["diskName"] = name
    return {kind: source}


def _share(r: random.Random, question: Spec) -> set[str]:
    """The waiting pod mounts a claim that one pod at a time may use; now and then one that runs does so already."""
    claim = question["claims"][-1]
    claim["spec"]["accessModes"] = ["ReadWriteOncePod"]
    namespace = claim["metadata"]["namespace"]
    mounted = {"name": "alone", "persistentVolumeClaim": {"claimName": claim["metadata"]["name"]}}
    beside = [pod for pod in question["pods"] if pod["metadata"]["namespace"] == namespace]
    if beside and r.random() < 0.6:
        r.choice(beside)["spec"].setdefault("volumes", []).append(mounted)
    return {"volume for one pod"}


def _mount(r: random.Random, question: Spec, pod: Spec, features: set[str]) -> None:
    number = len(question["claims"])
    name, namespace = f"claim-{number}", pod["metadata"]["namespace"]
    labels: dict[str, str] = {}
    spec: Spec = {
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
