"""What is read of claims, volumes and what is said of them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.core.convert import volumes
from scheduler.core.model.records import ClaimUse
from tests.scheduler.core.objects import attachment, claim, csi_node, pod, storage_class, volume
from wire.storage import PersistentVolumeClaim, VolumeAttachment

_BOUND = {"pv.kubernetes.io/bind-completed": "yes"}


def _claim(spec: dict[str, Any], **metadata: Any) -> PersistentVolumeClaim:
    meta = {"namespace": "ns", "name": "data", **metadata}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": {}}, PersistentVolumeClaim)


@pytest.mark.parametrize(
    ("text", "zones"),
    [("a", ("a",)), ("b__a", ("a", "b")), ("a__ a", ("a",)), ("", ()), ("a__", ())],
)
def test_a_volume_is_of_the_zones_that_its_label_names_if_it_names_none_that_is_empty(
    text: str, zones: tuple[str, ...]
) -> None:
    rule = volumes.volume_record(volume("pv", labels={"topology.kubernetes.io/zone": text})).rule
    assert (rule.zones if rule is not None else ()) == ((("topology.kubernetes.io/zone", zones),) if zones else ())


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (_claim({}), {}),
        (_claim({"volumeName": "pv"}), {"volume": "pv"}),
        (_claim({}, annotations=_BOUND), {}),
        (_claim({"volumeName": "pv"}, annotations=_BOUND), {"volume": "pv", "is_bound": True}),
        (claim("data", phase="Lost"), {"is_lost": True}),
        (claim("data", phase="Pending"), {}),
        (claim("data", deleting=True), {"is_leaving": True}),
        (claim("data", modes=["ReadOnlyMany", "ReadWriteOncePod"]), {"is_alone": True}),
        (_claim({"storageClassName": "new"}), {"storage_class": "new"}),
        (
            _claim({"storageClassName": "new"}, annotations={"volume.beta.kubernetes.io/storage-class": "old"}),
            {"storage_class": "old"},
        ),
        (claim("data", owner="u"), {"owner": "u"}),
        (
            _claim(
                {},
                ownerReferences=[
                    {"kind": "A", "name": "a", "uid": "a"},
                    {"kind": "B", "name": "b", "uid": "b", "controller": True},
                ],
            ),
            {"owner": "b"},
        ),
    ],
)
def test_a_claim_is_read_as_it_is_written(made: PersistentVolumeClaim, expected: dict[str, Any]) -> None:
    read = msgspec.structs.replace(volumes.claim_record(made), uid="", need=None)
    assert read == volumes.ClaimRecord(namespace="ns", name="data", **expected)


def test_a_volume_that_can_be_used_anywhere_has_no_rule() -> None:
    assert volumes.volume_record(volume("pv", labels={"color": "blue"})).rule is None
    assert volumes.volume_record(volume("pv", affinity=[])).rule is not None
    named = volumes.volume_record(volume("pv", csi=("driver", "handle")))
    assert (named.attached, named.claim, named.key) == (("driver", "handle"), ("ns", "data"), "pv")


@pytest.mark.parametrize(("mode", "waits"), [("WaitForFirstConsumer", True), ("Immediate", False), ("", False)])
def test_a_class_waits_for_a_consumer_or_does_not(mode: str, waits: bool) -> None:
    assert volumes.storage_class_record(storage_class("c", mode)) == volumes.StorageClassRecord("c", waits)


def test_a_driver_without_a_count_has_no_limit_and_one_of_none_takes_none() -> None:
    assert volumes.limits_record(csi_node("n", a=0, b=None, c=3)) == volumes.LimitsRecord("n", {"a": 0, "c": 3})


def test_an_inline_volume_that_is_attached_has_no_name() -> None:
    named = volumes.attachment_record(attachment("x", "n", of="pv", driver="d"))
    assert (named.node, named.driver, named.volume) == ("n", "d", "pv")
    spec = {"attacher": "d", "nodeName": "n", "source": {}}
    inline = msgspec.convert({"metadata": {"name": "x"}, "spec": spec}, VolumeAttachment)
    assert volumes.attachment_record(inline).volume == ""


def test_a_pod_uses_each_claim_once_and_ephemeral_ones_are_its_own() -> None:
    mounted = [
        {"name": "a", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "b", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "c", "ephemeral": {"volumeClaimTemplate": {}}},
        {"name": "d", "emptyDir": {}},
    ]
    uses = volumes.claims_of(pod("p", spec={"volumes": mounted}))
    assert uses == (ClaimUse("data"), ClaimUse("p-c", is_own=True))
