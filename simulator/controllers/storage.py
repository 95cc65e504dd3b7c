"""Claims that a provisioner would bind: simulated as if it had, with a volume that can be used on any node.

A claim without a volume is bound by what its StorageClass names, and nobody of that runs here. Claims are left as they
are where the manifests say more: a volume, or a class that waits for a pod. Facts: Kubernetes, Dynamic Volume
Provisioning, and Ephemeral Volumes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from simulator.controllers.pods import child
from wire import names

Json = Mapping[str, Any]

_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"


class Storage(msgspec.Struct, frozen=True):
    """``classes``: StorageClasses by name; ``volumes``: names of PersistentVolumes.

    ``kept``: claims (namespace, name) that volumes are kept for; ``of_free``: classes of the other volumes.
    """

    classes: Mapping[str, Json] = {}
    volumes: Collection[str] = frozenset()
    kept: Collection[tuple[str, str]] = frozenset()
    of_free: Collection[str] = frozenset()

    @classmethod
    def of(cls, classes: Iterable[Json], volumes: Iterable[Json]) -> Storage:
        """Read the objects that are there."""
        specs = {str(each["metadata"].get("name")): child(each, "spec") for each in volumes}
        refs = [child(each, "claimRef") for each in specs.values()]
        return cls(
            {str(each["metadata"].get("name")): each for each in classes},
            specs.keys(),
            {(str(child(ref, "namespace")), str(child(ref, "name"))) for ref in refs if ref},
            {str(child(each, "storageClassName") or "") for each in specs.values() if not child(each, "claimRef")},
        )

    def bound(self, claim: Json, namespace: str) -> tuple[Json, Json] | None:
        """Return the volume that a provisioner makes for a claim before there is a pod, and the claim bound to it.

        None where none is made. A claim of ``kubectl get`` that is bound has its volume again.
        """
        spec, meta = child(claim, "spec"), child(claim, "metadata")
        volume, is_bound = child(spec, "volumeName"), child(child(meta, "annotations"), names.BIND_COMPLETED)
        if volume and is_bound and volume not in self.volumes:
            return _bound(claim, namespace, str(volume))
        is_kept = (namespace, child(meta, "name")) in self.kept
        is_left = volume or is_bound or is_kept or not self._is_provisioned(claim)
        return None if is_left else _bound(claim, namespace, f"pvc-{namespace}-{claim['metadata']['name']}")

    def _is_provisioned(self, claim: Json) -> bool:
        """Whether its class makes a volume at once. ``storageClassName: ""`` asks for one that somebody has made."""
        annotations = child(child(claim, "metadata"), "annotations")
        written = child(annotations, names.OLD_STORAGE_CLASS) or child(child(claim, "spec"), "storageClassName")
        if written == "":
            return False
        if written not in self.classes:
            return not self.of_free
        provisioner, mode = (self.classes[written].get(field) for field in ("provisioner", "volumeBindingMode"))
        is_immediate = (mode or "Immediate") == "Immediate"
        return is_immediate and provisioner not in {None, _NO_PROVISIONER} and written not in self.of_free


def _bound(claim: Json, namespace: str, volume: str) -> tuple[Json, Json]:
    meta, spec = claim["metadata"], child(claim, "spec") or {}
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


def of_pod(pod: Mapping[str, Any], name: str, uid: str) -> Iterator[Json]:
    """Yield the claims of a pod's generic ephemeral volumes, which go with it."""
    for volume in child(pod.get("spec"), "volumes") or ():
        template = child(child(volume, "ephemeral"), "volumeClaimTemplate")
        if not isinstance(template, Mapping):
            continue
        written = child(template, "metadata") or {}
        meta = {field: written[field] for field in ("labels", "annotations") if written.get(field)}
        owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid, "controller": True}
        yield {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {**meta, "name": f"{name}-{volume.get('name')}", "ownerReferences": [owner]},
            "spec": template.get("spec") or {},
        }
