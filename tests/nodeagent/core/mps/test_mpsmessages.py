from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.enforcement.messages import Frames, MalformedMessage
from nodeagent.core.mps.control import Wanted
from nodeagent.core.mps.limits import (
    _MOST_MIB,
    MOST_TENANTS,
    Held,
    Report,
    read_report,
    read_wanted,
    write_report,
    write_wanted,
)
from tests.nodeagent.core.mps.test_mpssteps import GPU, POD

MINE = Wanted(POD, GPU, 5_120, 30)
SAID: list[Any] = [POD, GPU, 5_120, 30]


def body(frame: bytes) -> bytes:
    (message,) = Frames().cut(frame)
    return message


def test_what_is_written_is_read() -> None:
    assert read_wanted(body(write_wanted([MINE]))) == (MINE,)
    for report in (
        Report((Held(MINE, was_joined=True),), "the MPS server is not ready"),
        Report(why="no", is_down=True),
        Report(gone=(GPU,)),
    ):
        assert read_report(body(write_report(report))) == report


@pytest.mark.parametrize(("mib", "percent"), [(0, 1), (0, 100), (1, 1), (_MOST_MIB, 100)])
def test_the_least_and_the_most_that_a_tenant_may_have_are_read(mib: int, percent: int) -> None:
    wanted = Wanted(POD, GPU, mib, percent)
    assert read_wanted(body(write_wanted([wanted]))) == (wanted,)


@pytest.mark.parametrize(
    ("message", "report"),
    [
        (b'{"held":[],"down":false}', Report()),
        (b'{"held":[],"why":"x","down":false}', Report(why="x")),
        (
            b'{"held":[],"why":"","down":true,"gone":["%s"],"more":{"a":[1.5,null]}}' % GPU.encode(),
            Report((), "", True, (GPU,)),
        ),
        (
            b'{"held":[["%s","%s",5120,30,true]],"why":"","down":false,"modes":[]}' % (POD.encode(), GPU.encode()),
            Report((Held(MINE, was_joined=True),)),
        ),
    ],
)
def test_a_report_of_an_mps_daemon_of_another_version_is_read(message: bytes, report: Report) -> None:
    """Bytes, as today's writer changes with the reader."""
    assert read_report(message) == report


@pytest.mark.parametrize("more", [b"", b',"exclusive":true', b',"version":9,"also":[[[]]]'])
def test_tenants_of_an_agent_of_another_version_are_read(more: bytes) -> None:
    message = b'{"tenants":[["%s","%s",5120,30]]%s}' % (POD.encode(), GPU.encode(), more)
    assert read_wanted(message) == (MINE,)


def test_what_is_written_can_be_read_by_the_next_versions() -> None:
    """These are read for as long as MPS daemons of this version may run: a change here is a change for them."""
    assert body(write_wanted([MINE])) == b'{"tenants":[["%s","%s",5120,30]]}' % (POD.encode(), GPU.encode())
    assert body(write_report(Report())) == b'{"held":[],"why":"","down":false,"gone":[]}'


def test_a_tenant_that_no_mps_daemon_takes_is_left_out_for_the_others() -> None:
    assert read_wanted(body(write_wanted([Wanted("x", GPU, 1, 1), MINE]))) == (MINE,)


@pytest.mark.parametrize(
    "said",
    [
        {"tenants": [[POD, GPU, 1]]},
        {"tenants": [["../x", GPU, 1, 1]]},
        {"tenants": [[POD, "GPU-a --force", 1, 1]]},
        {"tenants": [[POD, GPU, -1, 1]]},
        {"tenants": [[POD, GPU, True, 1]]},
        {"tenants": [[POD, GPU, 1 << 31, 1]]},
        {"tenants": [[POD, GPU, 1, 0]]},
        {"tenants": [[POD, GPU, 1, 101]]},
        {"tenants": [[POD, GPU, 1.5, 1]]},
        {"tenants": [SAID, SAID]},
        {"tenants": [SAID] * (MOST_TENANTS + 1)},
        {"tenants": {}},
        {"tenant": [], "more": []},
        {},
        [],
        None,
    ],
)
def test_tenants_of_another_form_are_refused_whole(said: object) -> None:
    with pytest.raises(MalformedMessage, match="allowed"):
        read_wanted(json.dumps(said).encode())


@pytest.mark.parametrize(
    "said",
    [
        {"held": [SAID], "why": "", "down": False},
        {"held": [[*SAID, 1]], "why": "", "down": False},
        {"held": [], "why": "x" * 201, "down": False},
        {"held": [], "why": None, "down": False},
        {"held": [], "why": "", "down": 1},
        {"held": [], "why": "", "gone": []},
        {"why": "", "down": False, "gone": []},
        {"held": [], "why": "", "down": False, "gone": ["GPU-a"]},
        {"held": [], "why": "", "down": False, "gone": [[]]},
    ],
)
def test_reports_of_another_form_are_refused(said: object) -> None:
    with pytest.raises(MalformedMessage, match="allowed"):
        read_report(json.dumps(said).encode())


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_read(said: bytes) -> None:
    for read in (read_wanted, read_report):
        with pytest.raises(MalformedMessage):
            read(said)


@pytest.mark.parametrize("more", [b"[" * 100_000, b"9" * 5_000])
def test_what_can_not_be_held_is_refused_also_in_a_field_that_is_not_known(more: bytes) -> None:
    for message in (more, b'{"tenants":[],"more":' + more + b"}"):
        with pytest.raises(MalformedMessage):
            read_wanted(message)
