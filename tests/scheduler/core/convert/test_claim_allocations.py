"""What is written into the status of a claim, and that it reads back as what was chosen."""

from __future__ import annotations

from typing import Any

import msgspec

from scheduler.core.convert.resource_claims import resource_claim_record, written
from scheduler.core.model.device_requests import DeviceToleration
from scheduler.core.model.devices import ClaimAllocation, DeviceResult
from scheduler.core.model.pod_class import Requirement, Term
from tests.scheduler.core.device_objects import ask, claim, device_class, ways
from wire.quantity import NANO
from wire.resource import AllocationResult

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
