from __future__ import annotations

import pytest

from tools.node.dradriver import Claim, Prepared, Status, plugin_info, prepared, unprepared
from wire.protobuf import Malformed, flag, message, parts, strings, text

CLAIM = text(1, "ns") + text(2, "uid-1") + text(3, "name")


def test_claims_are_read_of_a_request() -> None:
    request = message(1, CLAIM) + message(1, text(2, "uid-2"))
    assert Claim.decode_all(request) == (Claim("ns", "uid-1", "name"), Claim("", "uid-2", ""))


@pytest.mark.parametrize(
    ("content", "status"),
    [(flag(1, value=True), Status(True)), (text(2, "no"), Status(False, "no")), (b"", Status(False))],
)
def test_kubelets_answer_to_a_registration_is_read(content: bytes, status: Status) -> None:
    assert Status.decode(content) == status


def test_what_is_no_message_is_refused() -> None:
    with pytest.raises(Malformed):
        Claim.decode_all(b"\x0a\x05x")


def test_a_driver_introduces_itself() -> None:
    info = plugin_info("gpu.test", "/dra.sock")
    assert [strings(info, number) for number in (1, 2, 3, 4)] == [
        ["DRAPlugin"],
        ["gpu.test"],
        ["/dra.sock"],
        ["v1.DRAPlugin"],
    ]


def test_each_claim_is_answered_by_its_devices_or_by_why_not() -> None:
    answer = prepared({"uid-1": [Prepared(("r",), "node", "gpu-0", ("k=a", "k=b"))], "uid-2": "broken"})
    first, second = parts(answer, 1)
    assert (strings(first, 1), strings(second, 1)) == (["uid-1"], ["uid-2"])
    (devices,) = parts(first, 2)
    (device,) = parts(devices, 1)
    assert [strings(device, number) for number in (1, 2, 3, 4)] == [["r"], ["node"], ["gpu-0"], ["k=a", "k=b"]]
    (failure,) = parts(second, 2)
    assert (parts(failure, 1), strings(failure, 2)) == ([], ["broken"])


def test_a_claim_that_was_given_back_has_an_answer_without_words() -> None:
    (entry,) = parts(unprepared(["uid-1"]), 1)
    assert (strings(entry, 1), parts(entry, 2)) == (["uid-1"], [b""])
