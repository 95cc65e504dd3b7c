from __future__ import annotations

import json
from pathlib import PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.enforcement.caps import Tenancy
from nodeagent.core.enforcement.overuse import MIB, Device, Process, Sample
from nodeagent.core.enforcement.tenants import (
    MOST_BYTES,
    OwnShare,
    TenantMeasures,
    Use,
    Using,
    answer,
    content,
    is_sound,
    refusal,
    refused,
)

QUARTER = Tenancy("uid", "team/p", "GPU-a", 250_000_000, asked_mib=20_000, cap_mib=30_000, mode="mps")


def body(response: bytes) -> Any:
    head, _, said = response.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 ")
    assert f"Content-Length: {len(said)}".encode() in head
    return json.loads(said)


def test_a_tenant_is_shown_share_cap_and_use() -> None:
    measured = TenantMeasures(QUARTER, 2, 5000 * MIB + 1, 12, QUARTER.cap_mib * MIB)
    assert body(answer([OwnShare(QUARTER, measured, "kill")])) == {
        "shares": [
            {
                "device": "GPU-a",
                "shareNano": 250_000_000,
                "shareMiB": 20_000,
                "capMiB": 30_000,
                "enforced": "kill",
                "mode": "mps",
                "usedMiB": 5001,
                "smPercent": 12,
                "processes": 2,
            }
        ]
    }


def test_what_is_not_known_is_null_and_no_zero() -> None:
    unknown = Tenancy("uid", "team/p", "GPU-a", 1)
    (share,) = body(answer([OwnShare(unknown)]))["shares"]
    assert {key for key, value in share.items() if value is None} == {
        "shareMiB",
        "capMiB",
        "usedMiB",
        "smPercent",
        "processes",
    }
    untold = TenantMeasures(unknown, 1, None, None, None)
    (share,) = body(answer([OwnShare(unknown, untold)]))["shares"]
    assert (share["usedMiB"], share["smPercent"], share["processes"]) == (None, None, 1)
    assert body(answer([])) == {"shares": []}


@pytest.mark.parametrize(
    ("question", "status"),
    [
        (b"GET /share HTTP/1.1\r\nHost: x", None),
        (b"GET /share HTTP/1.0", None),
        (b"POST /share HTTP/1.1", 405),
        (b"DELETE /share HTTP/1.1", 405),
        (b"GET / HTTP/1.1", 404),
        (b"GET /share/../../etc HTTP/1.1", 404),
        (b"GET /share?pod=other HTTP/1.1", 404),
        (b"GET http://x/share HTTP/1.1", 404),
        (b"", 400),
        (b"GET /share", 400),
        (b"GET  /share HTTP/1.1", 400),
        (b"\x16\x03\x01\x02\x00", 400),
        (b"GET /share HTTP/2.0", 400),
        (b"GET /share HTTP/1.1\r\n".ljust(MOST_BYTES - 1, b"a"), None),
        (b"GET /share HTTP/1.1\r\n".ljust(MOST_BYTES, b"a"), 431),
    ],
)
def test_one_question_is_answered_and_all_others_are_refused(question: bytes, status: int | None) -> None:
    assert refused(question) == status
    if status is not None:
        assert body(refusal(status))["allowed"] == "GET /share"
        assert refusal(status).split(b" ")[1] == str(status).encode()


POD = "3f1c2a52-6d0c-4d55-9a30-3d5c7e0b6f3e"
OTHER = "00000000-1111-4222-8333-444444444444"


def test_each_pod_is_a_device_that_mounts_its_own_folder_and_no_other() -> None:
    said = json.loads(content(PurePosixPath("/run/moorage/view"), [POD, OTHER]))
    assert (said["cdiVersion"], said["kind"]) == ("0.5.0", "moorage.dev/view")
    assert {device["name"]: device["containerEdits"] for device in said["devices"]} == {
        pod: {
            "mounts": [
                {
                    "hostPath": f"/run/moorage/view/{pod}",
                    "containerPath": "/run/moorage/view",
                    "options": ["ro", "nosuid", "nodev", "noexec", "rbind", "rprivate"],
                }
            ]
        }
        for pod in (POD, OTHER)
    }


def test_the_same_pods_are_the_same_file() -> None:
    assert content(PurePosixPath("/v"), [POD, OTHER]) == content(PurePosixPath("/v"), [OTHER, POD])


@pytest.mark.parametrize("uid", ["", "..", "../x", f"{POD}/..", POD.upper(), f"{POD}\n", "a" * 36, "kubelet-file"])
def test_what_is_no_uid_names_no_folder(uid: str) -> None:
    assert is_sound(POD)
    assert not is_sound(uid)


SECOND = 10**9
MINUTE = 60 * SECOND
KEY = ("pod-a", "GPU-1")
USING_QUARTER = Tenancy("pod-a", "team/p", "GPU-1", 250_000_000, asked_mib=1000)


def look(at_ns: int, *used: tuple[int | None, int | None], device: str = "GPU-1") -> Sample:
    """Memory in MiB and SM percent of the device of each process of the pod."""
    processes = tuple(
        Process(number, 1, None if mib is None else mib * MIB, sm, "pod-a") for number, (mib, sm) in enumerate(used)
    )
    return Sample(at_ns, (Device(device, 4000 * MIB, 0, processes),))


def after(*samples: Sample, held: Tenancy = USING_QUARTER) -> Using:
    using = Using()
    for sample in samples:
        using = using.after(sample, [held])
    return using


@pytest.mark.parametrize(
    ("used", "use"),
    [
        ((), Use(0, 0)),
        (((1, 0),), Use(5, 0)),
        (((50, 1),), Use(5, 5)),
        (((51, 2),), Use(10, 10)),
        (((1000, 25),), Use(100, 100)),
        (((1001, 100),), Use(105, 400)),
        # Its processes together.
        (((300, 10), (200, 5)), Use(50, 60)),
        (((10**9, 100),) * 4, Use(1000, 1000)),
        # The driver tells the memory and not the SMs, or neither.
        (((300, 10), (200, None)), Use(50, None)),
        (((300, 10), (None, 5)), Use(None, 60)),
        (((None, None),), Use(None, None)),
    ],
)
def test_use_is_of_the_share_up_to_the_next_step(used: tuple[tuple[int | None, int | None], ...], use: Use) -> None:
    assert after(look(0, *used)).uses(0) == {KEY: use}


def test_a_device_that_could_not_be_read_keeps_what_is_known_of_its_tenants_and_hides_no_others() -> None:
    other = Tenancy("pod-a", "team/p", "GPU-2", 250_000_000, asked_mib=1000)
    unknown = Tenancy("pod-a", "team/p", "GPU-3", 250_000_000, asked_mib=1000)
    using = after(look(0, (300, 10)))
    using = using.after(look(0, (50, 1), device="GPU-2"), [unknown, USING_QUARTER, other])
    assert using.uses(0) == {KEY: Use(30, 40), other.key: Use(5, 5)}


def test_memory_is_the_peak_and_sm_the_mean_of_five_minutes() -> None:
    samples = [
        look(second * SECOND, (900 if second == 10 else 100, 25 if second < 100 else 0)) for second in range(300)
    ]
    using = after(*samples)
    assert using.uses(299 * SECOND) == {KEY: Use(90, 35)}
    later = after(*samples, *[look(second * SECOND, (100, 0)) for second in range(300, 330)])
    assert later.uses(329 * SECOND)[KEY].memory_peak_percent == 10
    assert all(len(tenant.buckets) <= 30 for tenant in later.tenants.values())


def test_what_is_steady_does_not_change() -> None:
    using, told = Using(), set()
    for second in range(1_000):
        using = using.after(look(second * SECOND, (420 + second % 3, 10 + second % 2)), [USING_QUARTER])
        if second > 300:
            told.add(using.uses(second * SECOND)[KEY])
    assert len(told) == 1


def idle_s(minutes: int, *, used: tuple[int | None, int | None] = (10, 1), held: Tenancy = USING_QUARTER) -> int:
    using = after(*(look(minute * MINUTE // 2, used) for minute in range(2 * minutes + 1)), held=held)
    return seconds(using, minutes * MINUTE, held)


def seconds(using: Using, now_ns: int, held: Tenancy = USING_QUARTER) -> int:
    """For how long it has been idle; 0: it is not."""
    since_ns = using.uses(now_ns)[held.key].idle_since_ns
    return 0 if since_ns is None else (now_ns - since_ns) // SECOND


@pytest.mark.parametrize(
    ("used", "is_idle"),
    [((10, 1), True), ((50, 1), True), ((51, 1), False), ((10, 2), False), ((10, None), False), ((None, 0), False)],
)
def test_idle_is_who_uses_five_percent_at_most_for_half_an_hour(
    used: tuple[int | None, int | None], *, is_idle: bool
) -> None:
    assert idle_s(29, used=used) == 0
    assert idle_s(30, used=used) == (1_800 if is_idle else 0)
    assert idle_s(90, used=used) == (5_400 if is_idle else 0)


def test_small_shares_are_never_idle() -> None:
    assert idle_s(60, held=Tenancy("pod-a", "team/p", "GPU-1", 249_999_999, asked_mib=1000)) == 0


def test_one_busy_look_begins_anew() -> None:
    looks = [look(number * MINUTE // 2, (10, 25 if number == 30 else 0)) for number in range(121)]
    assert seconds(after(*looks), 60 * MINUTE) == 45 * 60


def test_a_time_without_looks_is_not_idle() -> None:
    """The memory enforcer or the driver was away."""
    looks = [look(number * MINUTE // 2, (10, 0)) for number in range(121) if not 30 < number < 34]
    assert seconds(after(*looks), 60 * MINUTE) == 43 * 60


def test_a_device_that_could_not_be_read_changes_nothing_and_one_that_is_let_go_is_forgotten() -> None:
    using = after(look(0, (500, 25)))
    unread = using.after(look(SECOND, (9, 9), device="GPU-2"), [USING_QUARTER])
    assert unread.uses(SECOND) == using.uses(SECOND)
    assert unread.after(look(2 * SECOND), []).uses(2 * SECOND) == {}


def test_of_a_device_that_is_not_read_for_long_nothing_is_known_and_nobody_is_called_idle() -> None:
    using = after(*(look(number * MINUTE // 2, (10, 0)) for number in range(121)))
    assert using.uses(60 * MINUTE)[KEY] == Use(5, 0, 0)
    unread = [look(60 * MINUTE + number * SECOND, device="GPU-2") for number in range(0, 360, 10)]
    for sample in unread:
        using = using.after(sample, [USING_QUARTER])
    assert using.uses(61 * MINUTE)[KEY] == Use(5, 0, 0)
    assert using.uses(61 * MINUTE + SECOND)[KEY] == Use(5, 0, None)
    assert using.uses(66 * MINUTE)[KEY] == Use(None, None, None)


def test_a_share_of_another_size_begins_anew() -> None:
    looks = [look(number * MINUTE // 2, (10, 0)) for number in range(121)]
    using = after(*looks).after(look(61 * MINUTE, (10, 0)), [Tenancy("pod-a", "t/p", "GPU-1", 500_000_000, 2000)])
    assert seconds(using, 61 * MINUTE) == 0


USED = st.tuples(st.none() | st.integers(0, 5_000), st.none() | st.integers(0, 100))


@given(st.lists(st.tuples(st.integers(0, 400), st.lists(USED, max_size=3)), max_size=20))
def test_use_is_always_a_step_and_never_below_what_was_used_last(
    looks: list[tuple[int, list[tuple[int | None, int | None]]]],
) -> None:
    using, now_ns = Using(), 0
    for pause_s, used in looks:
        now_ns += pause_s * SECOND
        using = using.after(look(now_ns, *used), [USING_QUARTER])
        use = using.uses(now_ns)[KEY]
        assert (use.memory_peak_percent or 0) % 5 == 0 == (use.sm_mean_percent or 0) % 5
        if all(mib is not None for mib, _ in used):
            assert use.memory_peak_percent is not None
            assert use.memory_peak_percent >= min(sum(mib or 0 for mib, _ in used) / 10, 1_000)
        assert sum(len(tenant.buckets) for tenant in using.tenants.values()) <= 30
