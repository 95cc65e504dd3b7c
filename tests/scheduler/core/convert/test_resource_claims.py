"""What ResourceClaims ask and have, as it is written."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.core.convert.constraints import MOST_CLAIMS, claim_uses
from scheduler.core.convert.devices import awaited, device_class_record, progress
from scheduler.core.convert.resource_claims import (
    MOST_ASKS,
    by_claim,
    claim_name,
    extended_asks,
    is_extended,
    resource_claim_record,
    written,
)
from scheduler.core.model.device_requests import (
    AttributeRule,
    DeviceAsk,
    DeviceRequest,
    DeviceToleration,
    ResourceClaimUse,
)
from scheduler.core.model.devices import Awaited, ClaimAllocation, DeviceResult
from scheduler.core.model.pod_class import Demand, Requirement, Term
from tests.scheduler.core.device_objects import ask, claim, device_class, need, ways
from wire import names
from wire.core import Pod
from wire.quantity import NANO
from wire.resource import AllocationResult, DeviceClass, ResourceClaimStatus


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


# What is written into the status of a claim, and that it reads back as what was chosen.

_CLASSES = {
    "gpu": device_class("gpu", config=[{"opaque": {"driver": "d", "parameters": {"mode": "plain"}}}]),
    "nic": device_class("nic"),
}


def _result(request: str = "r", device: str = "gpu-0", **more: Any) -> DeviceResult:
    return DeviceResult(request=request, driver="d", pool="p", device=device, **more)


def _plain(result: AllocationResult) -> dict[str, Any]:
    read: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(result))
    return read


def test_a_choice_reads_back_as_it_was_made() -> None:
    chosen = ClaimAllocation(
        results=(
            _result(tolerations=(DeviceToleration("ill", "Exists", "", "NoSchedule", 5),)),
            _result(device="gpu-1", is_admin=True),
            _result(device="gpu-2", consumed=(("links", NANO // 2), ("memory", 3 * 2**30 * NANO))),
        ),
        terms=(Term((Requirement("rack", "In", ("r1",)),), (Requirement("metadata.name", "In", ("n1",)),)),),
        ways=(0,),
    )
    asked = claim(ask(count=3))
    status = {"allocation": _plain(written(chosen, asked, _CLASSES.get))}
    back = resource_claim_record(claim(ask(count=3), status=status)).allocation
    assert back is not None
    assert back.results[2].share
    assert [msgspec.structs.replace(each, share="") for each in back.results] == list(chosen.results)
    assert back.terms == chosen.terms


def test_a_repeated_write_is_equal_and_each_part_has_an_id_of_its_own() -> None:
    chosen = ClaimAllocation(results=(_result(consumed=()), _result(consumed=())), ways=(0,))
    asked = claim(ask(count=2))
    first, second = (written(chosen, asked, _CLASSES.get) for _ in range(2))
    assert first == second
    shares = [each.share_id for each in first.devices.results or ()]
    assert len(set(shares)) == 2
    other = written(chosen, claim(ask(count=2), name="other"), _CLASSES.get)
    assert {each.share_id for each in other.devices.results or ()}.isdisjoint(shares)


def test_parameters_of_classes_come_first_and_those_of_ways_that_were_not_taken_are_left_out() -> None:
    config = [
        {"opaque": {"driver": "d", "parameters": {"of": "all"}}},
        {"requests": ["pick/big"], "opaque": {"driver": "d", "parameters": {"of": "big"}}},
        {"requests": ["pick/small"], "opaque": {"driver": "d", "parameters": {"of": "small"}}},
        {"requests": ["pick"], "opaque": {"driver": "d", "parameters": {"of": "pick"}}},
    ]
    asked = claim(ask("plain"), ways("pick", ask("big", cls="nic"), ask("small")), config=config)
    chosen = ClaimAllocation(results=(_result("plain"), _result("pick/small", "gpu-1")), ways=(0, 1))
    read = _plain(written(chosen, asked, _CLASSES.get))["devices"]["config"]
    assert [(each["source"], each.get("requests"), each["opaque"]["parameters"]) for each in read] == [
        ("FromClass", ["plain", "pick/small"], {"mode": "plain"}),
        ("FromClaim", None, {"of": "all"}),
        ("FromClaim", ["pick/small"], {"of": "small"}),
        ("FromClaim", ["pick"], {"of": "pick"}),
    ]


def test_devices_of_all_nodes_leave_the_node_open() -> None:
    assert "nodeSelector" not in _plain(
        written(ClaimAllocation(results=(_result(),), ways=(0,)), claim(ask()), _CLASSES.get)
    )


# Which ResourceClaims a pod uses.

_TEMPLATE = {"name": "own", "resourceClaimTemplateName": "t"}


def test_of_a_pod_with_very_many_claims_one_more_is_read_than_it_may_have() -> None:
    entries = [{"name": f"x{number}", "resourceClaimName": f"c{number}"} for number in range(10_000)]
    assert len(claim_uses(msgspec.convert({"spec": {"resourceClaims": entries}}, Pod))) == MOST_CLAIMS + 1


@pytest.mark.parametrize(
    ("entries", "made", "expected"),
    [
        ([], [], ()),
        ([{"name": "x", "resourceClaimName": "c"}], [], (ResourceClaimUse("x", "c"),)),
        ([_TEMPLATE], [], (ResourceClaimUse("own", is_own=True),)),
        (
            [_TEMPLATE],
            [{"name": "own", "resourceClaimName": "p-own-1"}],
            (ResourceClaimUse("own", "p-own-1", is_own=True),),
        ),
        # The status says that no claim is needed.
        ([_TEMPLATE], [{"name": "own"}], ()),
        # What names neither is no claim that can be read: the pod waits for another reason.
        ([{"name": "x"}, {"name": "y", "resourceClaimName": "c"}], [], (ResourceClaimUse("y", "c"),)),
    ],
)
def test_claims_are_named_or_made_from_templates(
    entries: list[dict[str, Any]], made: list[dict[str, Any]], expected: tuple[ResourceClaimUse, ...]
) -> None:
    pod = msgspec.convert({"spec": {"resourceClaims": entries}, "status": {"resourceClaimStatuses": made}}, Pod)
    assert claim_uses(pod) == expected


@pytest.mark.parametrize(("written", "group"), [({"podGroupName": "g"}, "g"), ({"podGroupName": 1}, ""), (None, "")])
def test_a_claim_from_a_template_may_be_that_of_the_pod_s_group(written: dict[str, Any] | None, group: str) -> None:
    made = [{"name": "own", "resourceClaimName": "of-g"}]
    spec = {"resourceClaims": [_TEMPLATE], "schedulingGroup": written}
    pod = msgspec.convert({"spec": spec, "status": {"resourceClaimStatuses": made}}, Pod)
    assert claim_uses(pod) == (ResourceClaimUse("own", "of-g", is_own=True, group=group),)


# What devices of a claim report before pods are bound with them.


def _binding_conditions_result(
    device: str, *conditions: str, failures: tuple[str, ...] = (), share: str = ""
) -> dict[str, Any]:
    return {
        "request": "r",
        "driver": "x",
        "pool": "p",
        "device": device,
        "bindingConditions": list(conditions),
        "bindingFailureConditions": list(failures),
        "shareID": share or None,
    }


def _reported(device: str, share: str = "", **conditions: str) -> dict[str, Any]:
    found = [{"type": name, "status": status} for name, status in conditions.items()]
    return {"driver": "x", "pool": "p", "device": device, "shareID": share or None, "conditions": found}


@pytest.mark.parametrize(
    ("results", "reported", "pending", "failure"),
    [
        ([_binding_conditions_result("a")], [], (), ""),
        ([_binding_conditions_result("a", "Up")], [], ("Up of device x/p/a",), ""),
        ([_binding_conditions_result("a", "Up")], [_reported("a", Up="False")], ("Up of device x/p/a",), ""),
        ([_binding_conditions_result("a", "Up")], [_reported("a", Up="True")], (), ""),
        ([_binding_conditions_result("a", "Up", "On")], [_reported("a", Up="True")], ("On of device x/p/a",), ""),
        # Of each device it is its own report that counts.
        (
            [_binding_conditions_result("a", "Up"), _binding_conditions_result("b", "Up")],
            [_reported("b", Up="True")],
            ("Up of device x/p/a",),
            "",
        ),
        (
            [_binding_conditions_result("a", "Up", share="1")],
            [_reported("a", "2", Up="True")],
            ("Up of device x/p/a",),
            "",
        ),
        # A failure counts even if all else is true, and is none where nothing is waited for.
        (
            [_binding_conditions_result("a", "Up", failures=("Bad",))],
            [_reported("a", Up="True", Bad="True")],
            (),
            "Bad of device x/p/a",
        ),
        ([_binding_conditions_result("a", "Up", failures=("Bad",))], [_reported("a", Up="True", Bad="False")], (), ""),
        ([_binding_conditions_result("a", failures=("Bad",))], [_reported("a", Bad="True")], (), ""),
        (
            [_binding_conditions_result("a", "Up"), _binding_conditions_result("b", "Up", failures=("Bad",))],
            [_reported("b", Bad="True")],
            (),
            "Bad of device x/p/b",
        ),
    ],
)
def test_what_is_true_is_no_longer_waited_for(
    results: list[Any], reported: list[Any], pending: tuple[str, ...], failure: str
) -> None:
    status = {"allocation": {"devices": {"results": results}}, "devices": reported}
    assert progress(msgspec.convert(status, ResourceClaimStatus)) == (pending, failure)


def test_a_claim_without_an_allocation_waits_for_nothing() -> None:
    assert progress(ResourceClaimStatus()) == ((), "")


def test_failures_alone_are_not_waited_for() -> None:
    assert awaited(["Up"], ["Bad"]) == Awaited(("Up",), ("Bad",))
    assert awaited(None, ["Bad"]) is None


# Device classes, and selectors of classes and requests, as they are written.


def test_a_class_keeps_its_expressions_and_parameters() -> None:
    opaque = {"opaque": {"driver": "d", "parameters": {"kind": "GpuConfig", "mode": [1, 2]}}}
    record = device_class("gpu", "device.driver == 'd'", config=[opaque, {}])
    assert (record.key, record.selectors, record.wrong) == ("gpu", ("device.driver == 'd'",), "")
    assert [(driver, msgspec.json.decode(text)) for driver, text in record.configs] == [
        ("d", {"kind": "GpuConfig", "mode": [1, 2]})
    ]


@pytest.mark.parametrize(
    ("selectors", "wrong"),
    [
        ([{}], "spec.selectors[0].cel"),
        ([{"cel": {"expression": "true"}}, {"unheard": {}}], "spec.selectors[1].cel"),
        ([{"cel": {"expression": "x" * 10241}}], "spec.selectors[0].cel.expression: longer than 10240 bytes"),
        ([{"cel": {"expression": "true"}}] * 33, "spec.selectors: 33, at most 32 are read"),
    ],
)
def test_a_class_with_a_selector_that_is_not_read_names_it(selectors: list[object], wrong: str) -> None:
    written = msgspec.convert({"metadata": {"name": "gpu"}, "spec": {"selectors": selectors}}, DeviceClass)
    assert device_class_record(written).wrong == wrong


def test_a_class_for_an_extended_resource_names_it() -> None:
    written = msgspec.convert({"spec": {"extendedResourceName": "example.com/gpu"}}, DeviceClass)
    assert device_class_record(written).extended_resource == "example.com/gpu"


# Extended resources of pods, container by container.

_GPU = names.GPU_RESOURCE


def _container(name: str, requests: dict[str, str], *, limits: dict[str, str] | None = None, **more: Any) -> Any:
    return {"name": name, "resources": {"requests": requests, "limits": limits}, **more}


def _pod(*containers: Any, init: Any = (), status: Any = None) -> Pod:
    written = {"spec": {"containers": [*containers], "initContainers": [*init]}, "status": status or {}}
    return msgspec.convert(written, Pod)


def test_each_container_is_read_with_its_place_and_that_of_the_resource() -> None:
    pod = _pod(
        _container("main", {"cpu": "1", _GPU: "2", "a.example.com/nic": "1"}),
        _container("other", {"cpu": "1"}),
        init=[_container("first", {_GPU: "1"}), _container("beside", {_GPU: "3"}, restartPolicy="Always")],
    )
    found = [(e.container, e.index, e.resource, e.place, e.amount, e.is_brief) for e in extended_asks(pod)]
    assert found == [
        ("first", 0, _GPU, 0, 1, True),
        ("beside", 1, _GPU, 0, 3, False),
        ("main", 2, "a.example.com/nic", 0, 1, False),
        ("main", 2, _GPU, 2, 2, False),
    ]


@pytest.mark.parametrize("amount", ["0", "what"])
def test_what_is_nothing_or_can_t_be_read_is_left_out(amount: str) -> None:
    assert extended_asks(_pod(_container("main", {_GPU: amount}))) == ()


def test_a_limit_without_a_request_is_the_request() -> None:
    (ask,) = extended_asks(_pod(_container("main", {}, limits={_GPU: "2"})))
    assert (ask.amount, ask.place) == (2, 0)


def test_a_pod_with_more_than_a_claim_can_have_asks_nothing() -> None:
    containers = [_container(f"c{number}", {_GPU: "1"}) for number in range(MOST_ASKS + 1)]
    assert len(extended_asks(_pod(*containers[1:]))) == MOST_ASKS
    assert extended_asks(_pod(*containers)) == ()


@pytest.mark.parametrize(
    ("resource", "expected"),
    [
        (_GPU, True),
        ("deviceclass.resource.kubernetes.io/gpu", True),
        ("cpu", False),
        ("hugepages-2Mi", False),
        ("storage.kubernetes.io/x", False),
        ("requests.nvidia.com/gpu", False),
    ],
)
def test_resources_of_a_domain_of_others_are_extended(resource: str, expected: bool) -> None:
    assert is_extended(resource) is expected


def test_resources_that_the_status_maps_are_taken_from_a_claim() -> None:
    mapping = {"containerName": "main", "resourceName": _GPU, "requestName": "r"}
    status = {"extendedResourceClaimStatus": {"resourceClaimName": "c", "requestMappings": [mapping]}}
    demand = Demand(cpu_milli=1, gpus=2, extended=(("example.com/nic", 1),))
    pod = _pod(_container("main", {_GPU: "2"}), status=status)
    assert claim_name(pod) == "c"
    assert by_claim(demand, pod) == Demand(cpu_milli=1, extended=(("example.com/nic", 1),), claimed=((_GPU, 2),))
    assert (claim_name(_pod()), by_claim(demand, _pod())) == ("", demand)
