from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.enforcement.messages import (
    MOST_BYTES,
    MOST_CAPS,
    MOST_HELD,
    Done,
    Frames,
    Limited,
    MalformedMessage,
    Report,
    framed,
    read_caps,
    read_report,
    write_caps,
    write_report,
)
from nodeagent.core.enforcement.overuse import Action, Deed, Device, Process, Sample

POD = "3f1c2a52-6d0c-4d55-9a30-3d5c7e0b6f3e"
CARD = "GPU-5e2b1c00-0000-4000-8000-000000000001"


def body(frame: bytes) -> bytes:
    (message,) = Frames().cut(frame)
    return message


def test_caps_come_as_they_were_sent() -> None:
    caps = {(POD, CARD): 5120, (POD, "MIG-x"): 1}
    assert read_caps(body(write_caps(caps))) == caps
    assert read_caps(body(write_caps({}))) == {}


def test_a_warden_ignores_what_only_a_newer_agent_says() -> None:
    assert read_caps(json.dumps({"caps": [[POD, CARD, 5]], "more": 1}).encode()) == {(POD, CARD): 5}


@pytest.mark.parametrize(
    "said",
    [
        [],
        {},
        {"caps": {}},
        {"kill": [1]},
        {"caps": [[POD, CARD]]},
        {"caps": [[POD, CARD, 0]]},
        {"caps": [[POD, CARD, -1]]},
        {"caps": [[POD, CARD, True]]},
        {"caps": [[POD, CARD, 1.5]]},
        {"caps": [[POD, CARD, 1 << 40]]},
        {"caps": [[POD, CARD, "5"]]},
        {"caps": [["", CARD, 5]]},
        {"caps": [["../../1", CARD, 5]]},
        {"caps": [[POD.upper(), CARD, 5]]},
        {"caps": [[POD, "", 5]]},
        {"caps": [[POD, "GPU-a\n", 5]]},
        {"caps": [[POD, "GPU-" + "a" * 100, 5]]},
        {"caps": [[POD, CARD, 5], [POD, CARD, 6]]},
        {"caps": [[POD, CARD, 5]] * (MOST_CAPS + 1)},
    ],
)
def test_of_caps_that_are_not_all_well_formed_none_counts(said: Any) -> None:
    with pytest.raises(MalformedMessage, match="allowed"):
        read_caps(json.dumps(said).encode())


@pytest.mark.parametrize("message", [b"", b"{", b"\xff", b"[" * 100_000, b'{"caps":[' + b"9" * 10_000 + b"]}", b"null"])
def test_what_is_no_json_is_refused(message: bytes) -> None:
    with pytest.raises(MalformedMessage, match="allowed"):
        read_caps(message)
    with pytest.raises(MalformedMessage):
        read_report(message)


WHOLE = st.integers(0, 2**64 - 1)
PERCENT = st.none() | st.integers(0, 100)
WORD = st.text(max_size=64)
PROCESSES = st.lists(
    st.builds(Process, WHOLE, WHOLE, st.none() | WHOLE, PERCENT, WORD, WORD, WORD, WHOLE), max_size=4
).map(lambda found: tuple(sorted(found, key=lambda one: -(one.used_bytes or 0))))
SAMPLES = st.builds(
    Sample,
    WHOLE,
    st.lists(st.builds(Device, WORD, WHOLE, WHOLE, PROCESSES, PERCENT), max_size=3).map(tuple),
    st.lists(WORD, max_size=2).map(tuple),
)
DEEDS = st.builds(Deed, WORD, WORD, WHOLE, WHOLE, st.sampled_from(Action), PROCESSES, st.booleans())
DONE = st.lists(st.builds(Done, DEEDS, st.lists(WORD, max_size=4).map(tuple), WHOLE), max_size=3).map(tuple)


@given(st.builds(Report, SAMPLES, DONE, st.lists(WORD, max_size=2).map(tuple), st.none() | WHOLE, WHOLE, st.booleans()))
def test_a_report_comes_as_it_was_sent(report: Report) -> None:
    assert read_report(body(write_report(report))) == report


@given(
    st.recursive(
        st.none() | st.integers() | st.text() | st.booleans(), lambda of: st.lists(of) | st.dictionaries(st.text(), of)
    )
)
def test_no_json_makes_a_reader_fail_otherwise(said: Any) -> None:
    for read in (read_caps, read_report):
        for message in (said, {"caps": said}, {"caps": [said]}):
            with contextlib.suppress(MalformedMessage):
                read(json.dumps(message).encode())


@given(st.binary(max_size=60))
def test_no_bytes_make_a_reader_fail_otherwise(message: bytes) -> None:
    for read in (read_caps, read_report):
        with pytest.raises(MalformedMessage):
            read(message)


@given(st.lists(st.binary(max_size=20), max_size=5), st.lists(st.integers(1, 7), min_size=1))
def test_messages_are_cut_the_same_however_they_come(messages: list[bytes], steps: list[int]) -> None:
    stream = b"".join(len(one).to_bytes(4, "big") + one for one in messages)
    found: list[bytes] = []
    frames, at, number = Frames(), 0, 0
    while at < len(stream):
        step = steps[number % len(steps)]
        found += frames.cut(stream[at : at + step])
        at, number = at + step, number + 1
    assert found == messages


def test_a_length_beyond_the_bound_is_refused_before_its_bytes_come() -> None:
    with pytest.raises(MalformedMessage, match=f"at most {MOST_BYTES} are allowed"):
        list(Frames().cut((MOST_BYTES + 1).to_bytes(4, "big")))


def test_a_frame_is_its_length_and_its_json() -> None:
    assert framed({"caps": []}) == b'\x00\x00\x00\x0b{"caps":[]}'


@pytest.mark.parametrize(
    "limited", [None, Limited(), Limited(((POD, CARD), (POD, "GPU-b"))), Limited((), "the driver can't")]
)
def test_limits_by_the_driver_come_as_they_were_sent(limited: Limited | None) -> None:
    report = Report(Sample(5), driver=limited)
    assert read_report(body(write_report(report))) == report


def test_a_warden_of_before_has_no_limits_by_the_driver() -> None:
    said = json.loads(body(write_report(Report(Sample(5), caps=1))))
    del said["driver"]
    assert read_report(json.dumps(said).encode()) == Report(Sample(5), caps=1)


@pytest.mark.parametrize("said", [1, [], [[]], [[], 1], [[[POD]], ""], [[[POD, 1]], ""], [[], "x" * 101], {"held": []}])
def test_limits_of_another_form_are_refused(said: Any) -> None:
    report = json.loads(body(write_report(Report(Sample(5)))))
    with pytest.raises(MalformedMessage):
        read_report(json.dumps({**report, "driver": said}).encode())


def test_a_report_names_so_many_limits_and_so_long_a_reason() -> None:
    held = tuple((POD, f"GPU-{number}") for number in range(MOST_HELD + 1))
    found = read_report(body(write_report(Report(Sample(5), driver=Limited(held, "w" * 200)))))
    assert found.driver == Limited(held[:MOST_HELD], "w" * 100)
