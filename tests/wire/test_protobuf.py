from __future__ import annotations

import pytest

from nodeagent.kubeletapi.deviceplugin import (
    AllocateRequest,
    AllocateResponse,
    ContainerResponse,
    Device,
    DeviceList,
    RegisterRequest,
)
from wire.protobuf import Malformed, fields, integer, integers, parts, strings

# What protoc's own encoder makes of the same messages, by its text format.
REGISTER = (
    b"\n\x07v1beta1"  # version: "v1beta1"
    b"\x12\x08gpu.sock"  # endpoint: "gpu.sock"
    b"\x1a\x0envidia.com/gpu"  # resource_name: "nvidia.com/gpu"
    b'"\x00'  # options {}
)


def test_a_registration_is_encoded_as_the_api_says() -> None:
    assert RegisterRequest("gpu.sock", "nvidia.com/gpu").encode() == REGISTER


def test_a_list_tells_id_and_health_of_each_device() -> None:
    assert (
        DeviceList([Device("a"), Device("b", is_healthy=False)]).encode()
        == b"\n\x0c\n\x01a\x12\x07Healthy\n\x0e\n\x01b\x12\tUnhealthy"
    )


def test_an_allocation_request_is_read_as_it_was_written() -> None:
    request = AllocateRequest((("GPU-1", "GPU-2"), ()))
    assert AllocateRequest.decode(request.encode()) == request


def test_an_allocation_answers_with_an_environment() -> None:
    assert AllocateResponse([ContainerResponse(environment={"K": "v"})]).encode() == b"\n\x08\n\x06\n\x01K\x12\x01v"


def test_lengths_of_more_than_127_bytes_take_two() -> None:
    long = "x" * 300
    assert parts(RegisterRequest(long, "r").encode(), 2) == [long.encode()]
    assert RegisterRequest(long, "r").encode()[10:12] == b"\xac\x02"


def test_fields_that_we_do_not_know_are_skipped() -> None:
    # 8: varint 300, 9: fixed 64, 10: fixed 32, and then what we look for
    unknown = b"\x40\xac\x02" + b"\x49" + bytes(8) + b"\x55" + bytes(4)
    assert strings(unknown + b"\n\x01a", 1) == ["a"]
    assert dict(fields(unknown)) == {8: 300}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"\n\x05abc", "field 1 ends 2 bytes after the message"),
        (b"\x49\x00", "field 9 ends 7 bytes after the message"),
        (b"\x0b", "field 1 has wire type 3: 0, 1, 2 and 5 are allowed"),
        (b"\x80", "a number at byte 0 does not end"),
        (b"\xff" * 11, "a number at byte 0 does not end"),
        (b"\n\x01\xff", "field 1 is not UTF-8"),
    ],
)
def test_what_is_no_message_is_refused(content: bytes, why: str) -> None:
    with pytest.raises(Malformed, match=why):
        strings(content, 1)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0, b""),
        (1, b"\x08\x01"),
        (300, b"\x08\xac\x02"),
        (-1, b"\x08" + b"\xff" * 9 + b"\x01"),
        (2**63 - 1, b"\x08" + b"\xff" * 8 + b"\x7f"),
        (-(2**63), b"\x08" + b"\x80" * 9 + b"\x01"),
    ],
)
def test_integers_are_of_64_bits_and_have_a_sign(value: int, written: bytes) -> None:
    assert integer(1, value) == written
    assert integers(written, 1) == ([value] if value else [])
