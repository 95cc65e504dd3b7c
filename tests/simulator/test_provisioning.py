"""Claims that a provisioner would bind."""

from __future__ import annotations

from typing import Any

import pytest

from kube.client.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from simulator.manifests import Manifest, Reader

LINE = "taken as bound, because no provisioner is simulated: 1 PersistentVolumeClaim"


def claim(annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    size = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    meta = {"name": "data", "namespace": "team", "annotations": annotations or {}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": {**size, **spec}}


def other(kind: str, name: str, api_version: str = "v1") -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": {}}


def read(*objects: dict[str, Any]) -> tuple[list[Manifest], list[str]]:
    reader = Reader()
    return reader.grouped(reader.read(objects, origin="f")), list(reader.passed.lines())


@pytest.mark.parametrize("spec", [{}, {"storageClassName": "fast"}], ids=["the default class", "a class"])
def test_a_claim_without_a_volume_is_bound_to_one_that_is_made_for_it(spec: dict[str, Any]) -> None:
    (volume, bound), lines = read(claim(**spec))
    assert (volume.resource, bound.resource) == (PERSISTENT_VOLUMES, PERSISTENT_VOLUME_CLAIMS)
    assert bound.body["spec"]["volumeName"] == volume.body["metadata"]["name"] == "pvc-team-data"
    assert bound.body["metadata"]["annotations"] == {"pv.kubernetes.io/bind-completed": "yes"}
    assert volume.body["spec"]["claimRef"] == {"namespace": "team", "name": "data"}
    assert lines == [LINE]


@pytest.mark.parametrize(
    "objects",
    [
        [claim(volumeName="pv")],
        [claim({"pv.kubernetes.io/bind-completed": "yes"})],
        [claim(storageClassName="")],
        [claim(storageClassName="fast"), other("StorageClass", "fast", "storage.k8s.io/v1")],
        [
            claim({"volume.beta.kubernetes.io/storage-class": "fast"}),
            other("StorageClass", "fast", "storage.k8s.io/v1"),
        ],
        [claim(), other("PersistentVolume", "pv")],
    ],
    ids=["names a volume", "lost its volume", "no class", "the class is there", "by annotation", "a volume is there"],
)
def test_a_claim_of_which_the_manifests_say_more_stays_as_it_is(objects: list[dict[str, Any]]) -> None:
    found, lines = read(*objects)
    (left,) = [each.body for each in found if each.resource is PERSISTENT_VOLUME_CLAIMS]
    assert left == objects[0]
    assert lines == []
