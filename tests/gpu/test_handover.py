from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpu.bind_request import Handover, MalformedHandover, PlannedDevice, parse, render

WHOLE = {"rv": "10", "devices": [{"group": "g", "nano": 5}]}


def test_a_hand_over_is_read_as_it_was_written() -> None:
    handed = Handover("10", (PlannedDevice("g", 5), PlannedDevice("h", 7, 100)), "plan", 3)
    assert parse(render(handed)) == handed


def test_what_is_said_of_a_card_is_what_older_versions_read_and_of_a_slice_it_is_named() -> None:
    slice_ = PlannedDevice("g", 5, resource="nvidia.com/mig-1g.10gb")
    assert "resource" not in render(Handover("10", (PlannedDevice("g", 5),)))
    assert parse(render(Handover("10", (slice_,)))).devices == (slice_,)


@pytest.mark.parametrize("nano", [1, 1_000_000_000])
@pytest.mark.parametrize("percent", [0, 100])
def test_the_least_and_the_most_of_a_device_are_handed_over(nano: int, percent: int) -> None:
    handed = Handover("10", (PlannedDevice("g", nano, compute_percent=percent),))
    assert parse(render(handed)) == handed


def test_a_member_without_shares_has_no_devices() -> None:
    assert parse('{"rv": "10"}') == Handover("10")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        # Without a version the Binding would have no precondition.
        ({"rv": ""}, "rv is ''"),
        ({"rv": "1e3"}, "rv is '1e3'"),
        ({"rv": "\N{ARABIC-INDIC DIGIT ONE}"}, "a resourceVersion is a decimal number"),
        ({"members": 0}, "members is 0, at least 1"),
        ({"devices": [{"group": "g", "nano": 0}]}, "nano is 0, 1 to 1000000000"),
        ({"devices": [{"group": "g", "nano": 1_000_000_001}]}, "nano is 1000000001"),
        ({"devices": [{"group": "g", "nano": 5, "mem_mib": -1}]}, "mem_mib is -1"),
        ({"devices": [{"group": "g", "nano": 5}, {"group": "g", "nano": 5}]}, "the groups must be distinct"),
        # A Binding's labels are not validated by the server, and spoil every later update of the pod.
        ({"devices": [{"group": "", "nano": 5}]}, "group '' can't be the value of a label"),
        ({"devices": [{"group": "a b", "nano": 5}]}, "group 'a b'"),
        ({"devices": [{"group": "x" * 64, "nano": 5}]}, "can't be the value of a label"),
        ({"devices": [{"group": "-g", "nano": 5}]}, "group '-g'"),
        # It becomes the request of a pod that we make.
        ({"devices": [{"group": "g", "nano": 5, "resource": "cpu"}]}, "resource 'cpu' is not one of NVIDIA's"),
        ({"devices": [{"group": "g", "nano": 5, "resource": "nvidia.com/mig-x"}]}, "resource 'nvidia.com/mig-x'"),
        ({"devices": {}}, "Expected `array`"),
        # Of several fields that a newer version may write, the first by name.
        ({"zeal": 1, "devices": [{"group": "g", "nano": 5, "care": 1}]}, "^care is not known here"),
        ({"care": 1, "devices": [{"group": "g", "nano": 5, "zeal": 1}]}, "^care is not known here"),
    ],
)
def test_a_malformed_hand_over_is_refused_naming_the_field(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(MalformedHandover, match=message.replace("(", r"\(")):
        parse(msgspec.json.encode({**WHOLE, **changes}).decode())


@pytest.mark.parametrize(
    "text", [None, "", "{", "null", '"x"', '{"rv": "1", "x": ' + "[" * 50_000], ids=lambda text: str(text)[:20]
)
def test_what_is_no_hand_over_is_refused(text: str | None) -> None:
    with pytest.raises(MalformedHandover):
        parse(text)
