from __future__ import annotations

import struct
from pathlib import PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.enforcement.caps import Tenancy
from nodeagent.core.enforcement.overuse import MIB
from nodeagent.enforcement.hamicore import HEAD_BYTES, Limits, hamicore_edits, is_held_to, limits_read

POD = "3f1c2a52-6d0c-4d55-9a30-3d5c7e0b6f3e"
WANTED = Limits(20_000, 30)


def holding(device: str = "GPU-a", **more: Any) -> Tenancy:
    return Tenancy(POD, "team/p", device, 250_000_000, 20_000, **more)


@pytest.mark.parametrize(
    ("tenant", "found"),
    [
        ([holding()], None),
        ([holding(compute_percent=100)], None),
        ([holding(cap_mib=20_000)], Limits(20_000, 0)),
        ([holding(compute_percent=30)], Limits(0, 30)),
        ([holding(cap_mib=20_000, compute_percent=30)], WANTED),
        ([holding(cap_mib=20_000), holding("GPU-b", cap_mib=10_000)], Limits(10_000, 0)),
        ([holding(cap_mib=20_000, compute_percent=40), holding("GPU-b", compute_percent=30)], WANTED),
    ],
)
def test_a_tenant_is_held_to_the_least_of_its_limits(tenant: list[Tenancy], found: Limits | None) -> None:
    assert limits_read(tenant) == found


def given_to(of: Limits) -> dict[str, Any]:
    host = [PurePosixPath(f"/host/{name}") for name in ("libvgpu.so", "preload", POD)]
    return hamicore_edits(of, library=host[0], preload=host[1], cache=host[2]).written()


def test_a_container_gets_the_library_before_all_others_and_one_file_to_write() -> None:
    mounts = {each["containerPath"]: each for each in given_to(WANTED)["mounts"]}
    assert {at: each["hostPath"] for at, each in mounts.items()} == {
        "/usr/local/vgpu/libvgpu.so": "/host/libvgpu.so",
        "/etc/ld.so.preload": "/host/preload",
        "/usr/local/vgpu/moorage.cache": f"/host/{POD}",
        "/tmp/vgpulock": "tmpfs",  # noqa: S108 - where the library looks
    }
    writable = [at for at, each in mounts.items() if "ro" not in each["options"]]
    assert writable == ["/usr/local/vgpu/moorage.cache", "/tmp/vgpulock"]  # noqa: S108 - the same
    assert "noexec" not in mounts["/usr/local/vgpu/libvgpu.so"]["options"]


def test_limits_are_said_for_all_gpus_and_for_each_so_that_a_pod_can_not_say_them() -> None:
    env = dict(each.split("=", 1) for each in given_to(WANTED)["env"])
    numbers = ["", *(f"_{number}" for number in range(16))]
    assert env == {
        **{f"CUDA_DEVICE_MEMORY_LIMIT{number}": "20000m" for number in numbers},
        **{f"CUDA_DEVICE_SM_LIMIT{number}": "30" for number in numbers},
        "CUDA_DEVICE_MEMORY_SHARED_CACHE": "/usr/local/vgpu/moorage.cache",
        "CUDA_OVERSUBSCRIBE": "false",
        "GPU_CORE_UTILIZATION_POLICY": "FORCE",
    }


@pytest.mark.parametrize(
    ("of", "absent"),
    [(Limits(20_000, 0), ("CUDA_DEVICE_SM_LIMIT", "GPU_CORE")), (Limits(0, 30), ("CUDA_DEVICE_MEMORY_LIMIT",))],
)
def test_what_is_not_limited_is_not_said(of: Limits, absent: tuple[str, ...]) -> None:
    assert not [each for each in given_to(of)["env"] if each.startswith(absent)]


def head(
    memory_mib: int = 20_000, percent: int = 30, *, magic: int = 19_920_718, major: int = 1, last: int | None = None
) -> bytes:
    """The head of a file as version 1.2 of the library writes it: two GPUs, and limits for sixteen."""
    said = struct.pack("<iIIiQ32xQ", magic, major, 2, 0, 0, 2)
    uuids = b"".join(name.ljust(96, b"\0") for name in (b"GPU-a", b"GPU-b", *[b""] * 14))
    memory = [memory_mib * MIB] * 15 + [memory_mib * MIB if last is None else last]
    return said + uuids + struct.pack("<32Q", *memory, *[percent] * 16)


def test_a_file_as_the_library_writes_it_is_read() -> None:
    assert len(head()) == HEAD_BYTES == 1_856
    assert is_held_to(head(), WANTED)


@pytest.mark.parametrize(
    ("what", "file", "wanted", "held"),
    [
        ("lower limits", head(10_000, 20), WANTED, True),
        ("more memory", head(20_001), WANTED, False),
        ("more compute", head(percent=31), WANTED, False),
        ("memory that is not limited", head(0), WANTED, False),
        ("compute that is not limited", head(percent=0), WANTED, False),
        ("compute that nobody limits", head(percent=100), Limits(20_000, 0), True),
        ("memory that nobody limits", head(0), Limits(0, 30), True),
        ("one GPU without a limit", head(last=0), WANTED, False),
        ("one GPU with more", head(last=1 << 63), WANTED, False),
        ("no process yet", b"", WANTED, False),
        ("zeros", bytes(HEAD_BYTES), WANTED, False),
        ("a short file", head()[:-1], WANTED, False),
        ("another magic number", head(magic=1), WANTED, False),
        ("another layout", head(major=2), WANTED, False),
        ("further bytes", head() + b"x" * 100, WANTED, True),
    ],
)
def test_which_files_say_that_limits_are_in_place(what: str, file: bytes, wanted: Limits, held: bool) -> None:
    assert is_held_to(file, wanted) is held, what


@given(st.binary(max_size=HEAD_BYTES + 10))
def test_of_any_bytes_an_answer_is_made(file: bytes) -> None:
    assert is_held_to(file, WANTED) is False


@given(st.lists(st.integers(0, 2**64 - 1), min_size=32, max_size=32))
def test_any_numbers_behind_a_sound_beginning_are_judged(numbers: list[int]) -> None:
    file = head()[: HEAD_BYTES - 256] + struct.pack("<32Q", *numbers)
    within = all(0 < each <= 20_000 * MIB for each in numbers[:16]) and all(0 < each <= 30 for each in numbers[16:])
    assert is_held_to(file, WANTED) is within
