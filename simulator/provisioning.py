"""Claims that a provisioner would bind: simulated as if it had, with a volume that can be used on any node.

A claim without a volume is bound by what its StorageClass names, and nobody of that runs here. Claims are left as they
are where the manifests say more: a volume, or the class itself. Facts: Kubernetes, Dynamic Volume Provisioning.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from simulator.podmaking import child
from wire import names

Json = Mapping[str, Any]


def is_provisioned(claim: Json, classes: Collection[str]) -> bool:
    """Whether a provisioner would make a volume for a claim. ``classes``: StorageClasses that the manifests bring.

    ``storageClassName: ""`` asks for a volume that somebody has made.
    """
    spec, meta = child(claim, "spec"), child(claim, "metadata")
    written = child(child(meta, "annotations"), names.OLD_STORAGE_CLASS) or child(spec, "storageClassName")
    has_volume = child(spec, "volumeName") or child(child(meta, "annotations"), names.BIND_COMPLETED)
    return not has_volume and written != "" and written not in classes


def provisioned(claim: Json, namespace: str) -> tuple[Json, Json]:
    """Return the volume that a provisioner makes for a claim, and the claim bound to it."""
    meta, spec = claim["metadata"], child(claim, "spec") or {}
    volume = f"pvc-{namespace}-{meta['name']}"
    annotations = {**(meta.get("annotations") or {}), names.BIND_COMPLETED: "yes"}
    bound = {**claim, "metadata": {**meta, "annotations": annotations}, "spec": {**spec, "volumeName": volume}}
    made = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": volume},
        "spec": {
            "accessModes": spec.get("accessModes"),
            "capacity": child(spec.get("resources"), "requests"),
            "claimRef": {"namespace": namespace, "name": meta["name"]},
        },
    }
    return made, bound
