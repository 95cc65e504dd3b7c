"""What ResourceClaims ask and have, as it is written."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.core.convert.resource_claims import resource_claim_record
from scheduler.core.model.device_requests import AttributeRule, DeviceAsk, DeviceRequest, DeviceToleration
from scheduler.core.model.devices import ClaimAllocation, DeviceResult
from scheduler.core.model.pod_class import Requirement, Term
from tests.scheduler.core.device_objects import ask, claim, need, ways
from wire.quantity import NANO


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (ask(), {}),
        (ask(count=3), {"count": 3}),
        (ask(count=None), {"count": None}),
        ({"name": "r", "exactly": {"deviceClassName": "gpu"}}, {"count": 1}),
        (ask(cel=["a", "b"]), {"selectors": ("a", "b")}),
        (ask(adminAccess=True), {"is_admin": True}),
        (
            ask(tolerations=[{"key": "ill", "operator": "Exists", "tolerationSeconds": 5}]),
            {"tolerations": (DeviceToleration("ill", "Exists", "", "", 5),)},
        ),
        (
            ask(capacity={"requests": {"memory": "2", "links": "500m"}}),
            {"capacity": (("links", NANO // 2), ("memory", 2 * NANO))},
        ),
    ],
)
def test_a_request_says_what_it_needs(written: dict[str, Any], expected: dict[str, Any]) -> None:
    assert need(written).requests == (DeviceRequest((DeviceAsk(**{"name": "r", "device_class": "gpu", **expected}),)),)


def test_ways_of_a_request_keep_their_order_and_are_named_by_both() -> None:
    (request,) = need(ways("r", ask("big", cls="big"), ask("small", count=2))).requests
    assert (request.name, request.ways) == (
        "r",
        (DeviceAsk(name="r/big", device_class="big"), DeviceAsk(name="r/small", device_class="gpu", count=2)),
    )


def test_constraints_name_an_attribute_and_requests() -> None:
    rules: list[dict[str, Any]] = [{"matchAttribute": "d/numa", "requests": ["a"]}, {"distinctAttribute": "d/card"}]
    assert need(ask("a"), rules=rules).rules == (
        AttributeRule("d/numa", ("a",)),
        AttributeRule("d/card", (), is_distinct=True),
    )


def test_claims_of_two_pods_that_ask_the_same_need_the_same() -> None:
    one, other = (resource_claim_record(claim(ask(cel=["x"]), name=name)) for name in ("one", "other"))
    assert one.key != other.key
    assert one.need == other.need
    assert hash(one.need) == hash(other.need)


@pytest.mark.parametrize(
    ("requests", "rules", "field"),
    [
        ([{"name": "r"}], [], "spec.devices.requests[0]"),
        ([ask(), ask(cls="")], [], "spec.devices.requests[1].exactly.deviceClassName"),
        ([ask(allocationMode="Some")], [], "spec.devices.requests[0].exactly.allocationMode: Some"),
        ([ask(selectors=[{}])], [], "spec.devices.requests[0].exactly.selectors[0].cel"),
        (
            [ways("r", ask("a"), ask("b", selectors=[{}]))],
            [],
            "spec.devices.requests[0].firstAvailable[1].selectors[0].cel",
        ),
        ([ask(capacity={"requests": {"memory": "much"}})], [], "spec.devices.requests[0].exactly.capacity.requests: "),
        ([ask()], [{}], "spec.devices.constraints[0]"),
        ([ask()] * 33, [], "spec.devices.requests: 33, at most 32 are read"),
        ([ask()], [{"matchAttribute": "d/a"}] * 33, "spec.devices.constraints: 33, at most 32 are read"),
        ([ways("r", *[ask()] * 9)], [], "spec.devices.requests[0].firstAvailable: 9, at most 8 are read"),
        ([ask(tolerations=[{}] * 17)], [], "spec.devices.requests[0].exactly.tolerations: 17, at most 16 are read"),
        ([ask(cel=["x" * 10_000] * 7)], [], "spec.devices, in bytes: 70"),
        ([ask(f"r{n}", cel=["x" * 9_000]) for n in range(8)], [], "spec.devices, in bytes: 73"),
    ],
)
def test_a_claim_that_asks_what_is_not_read_names_the_field(requests: list[Any], rules: list[Any], field: str) -> None:
    record = resource_claim_record(claim(*requests, rules=rules))
    assert record.need is None
    assert record.unsupported.startswith(field)


def test_a_claim_of_as_many_requests_and_ways_as_there_may_be_is_read() -> None:
    most = [
        ways(f"r{number}", *[ask(f"w{way}", cel=["device.driver == 'gpu'"]) for way in range(8)])
        for number in range(32)
    ]
    assert resource_claim_record(claim(*most)).need is not None


def test_no_claim_takes_more_than_the_bytes_that_are_kept() -> None:
    long = [ask(f"r{number}", cel=[f"{number}{'x' * 1_850}"]) for number in range(32)]
    kept = resource_claim_record(claim(*long))
    assert kept.need is not None
    assert 60_000 < len(msgspec.json.encode(kept)) < 66_000
    longer = resource_claim_record(claim(*[ask(f"r{number}", cel=["x" * 10_000] * 4) for number in range(32)]))
    assert len(msgspec.json.encode(longer)) < 1_000


def test_an_allocation_is_read_back_with_its_consumers() -> None:
    results = [
        {"request": "r", "driver": "d", "pool": "p", "device": "gpu-0"},
        {"request": "r", "driver": "d", "pool": "p", "device": "gpu-1", "adminAccess": True},
        {
            "request": "r",
            "driver": "d",
            "pool": "p",
            "device": "gpu-2",
            "shareID": "s",
            "consumedCapacity": {"memory": "2"},
        },
    ]
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]
    status = {
        "allocation": {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": terms}},
        "reservedFor": [
            {"resource": "pods", "name": "a", "uid": "a-uid"},
            {"apiGroup": "x", "resource": "pods", "name": "b", "uid": "b-uid"},
        ],
    }
    record = resource_claim_record(claim(ask(), status=status))
    plain: dict[str, Any] = {"request": "r", "driver": "d", "pool": "p"}
    assert record.allocation == ClaimAllocation(
        results=(
            DeviceResult(**plain, device="gpu-0"),
            DeviceResult(**plain, device="gpu-1", is_admin=True),
            DeviceResult(**plain, device="gpu-2", consumed=(("memory", 2 * NANO),), share="s"),
        ),
        terms=(Term((), (Requirement("metadata.name", "In", ("n1",)),)),),
    )
    assert (record.reserved_for, record.others, record.unsupported) == (("a-uid",), 1, "")


def test_an_allocation_counts_although_the_requests_are_not_read() -> None:
    result = {
        "request": "r",
        "driver": "d",
        "pool": "p",
        "device": "gpu-0",
        "shareID": "s",
        "consumedCapacity": {"m": "much"},
    }
    record = resource_claim_record(claim({"name": "r"}, status={"allocation": {"devices": {"results": [result]}}}))
    assert record.allocation is not None
    # An amount that nobody can read is all of the device.
    assert [(each.device, each.consumed) for each in record.allocation.results] == [("gpu-0", None)]


def test_a_claim_of_a_template_names_its_pod_and_one_that_goes_says_so() -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p-uid", "controller": True}
    metadata = {"ownerReferences": [owner], "deletionTimestamp": "2026-11-27T00:00:00Z", "resourceVersion": "7"}
    record = resource_claim_record(claim(ask(), metadata=metadata))
    assert (record.owner, record.is_leaving, record.resource_version) == ("p-uid", True, "7")


@pytest.mark.parametrize(
    ("owner", "expected"),
    [
        ({}, ("", "g")),
        ({"apiVersion": "scheduling.k8s.io/v1beta1"}, ("", "g")),
        ({"apiVersion": "scheduling.run.ai/v2alpha2"}, ("g-uid", "")),
        ({"kind": "Workload"}, ("g-uid", "")),
        ({"controller": False}, ("", "")),
    ],
)
def test_a_claim_of_a_pod_group_of_kubernetes_is_no_pod_s_own(owner: dict[str, Any], expected: tuple[str, str]) -> None:
    of_group = {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "name": "g", "uid": "g-uid"}
    annotations = {"resource.kubernetes.io/extended-resource-claim": "true"}
    metadata = {"ownerReferences": [{**of_group, "controller": True, **owner}], "annotations": annotations}
    record = resource_claim_record(claim(ask(), metadata=metadata))
    assert (record.owner, record.group) == expected
    assert record.is_extended is (expected == ("g-uid", ""))
