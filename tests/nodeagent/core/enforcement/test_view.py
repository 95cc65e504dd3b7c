from __future__ import annotations

import json
from typing import Any

import pytest

from nodeagent.core.enforcement.caps import Tenancy
from nodeagent.core.enforcement.overuse import MIB
from nodeagent.core.enforcement.tenants import MOST_BYTES, OwnShare, answer, refusal, refused
from nodeagent.core.enforcement.usage import TenantMeasures

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
