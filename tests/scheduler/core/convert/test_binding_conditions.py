"""What devices of a claim report before pods are bound with them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.core.convert.devices import awaited, progress
from scheduler.core.model.devices import Awaited
from wire.resource import ResourceClaimStatus


def _result(device: str, *conditions: str, failures: tuple[str, ...] = (), share: str = "") -> dict[str, Any]:
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
        ([_result("a")], [], (), ""),
        ([_result("a", "Up")], [], ("Up of device x/p/a",), ""),
        ([_result("a", "Up")], [_reported("a", Up="False")], ("Up of device x/p/a",), ""),
        ([_result("a", "Up")], [_reported("a", Up="True")], (), ""),
        ([_result("a", "Up", "On")], [_reported("a", Up="True")], ("On of device x/p/a",), ""),
        # Of each device it is its own report that counts.
        ([_result("a", "Up"), _result("b", "Up")], [_reported("b", Up="True")], ("Up of device x/p/a",), ""),
        ([_result("a", "Up", share="1")], [_reported("a", "2", Up="True")], ("Up of device x/p/a",), ""),
        # A failure counts even if all else is true, and is none where nothing is waited for.
        (
            [_result("a", "Up", failures=("Bad",))],
            [_reported("a", Up="True", Bad="True")],
            (),
            "Bad of device x/p/a",
        ),
        ([_result("a", "Up", failures=("Bad",))], [_reported("a", Up="True", Bad="False")], (), ""),
        ([_result("a", failures=("Bad",))], [_reported("a", Bad="True")], (), ""),
        (
            [_result("a", "Up"), _result("b", "Up", failures=("Bad",))],
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
