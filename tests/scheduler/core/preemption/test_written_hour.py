"""Evictions of an hour: what is written is read back, and what was not written so counts for nothing."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.preemption.eviction_history import (
    PIECES,
    SPAN_S,
    WHOLE,
    Counts,
    Hour,
    Piece,
    Take,
    Taken,
    read,
    size,
    written,
)
from scheduler.core.preemption.nomination_record import MOST_TIMES, WINDOW_S, Texts
from tests.fuzzing import fuzzed

NOW_S = 1_800_000_000
_uids = st.uuids().map(str) | st.text(min_size=1, max_size=12)
_at_s = st.integers(0, 2 * NOW_S)
_times = st.lists(_at_s, min_size=1, max_size=MOST_TIMES).map(lambda times: tuple(sorted(times)))
_parts = st.integers(0, WHOLE).map(lambda part: {"others": WHOLE} if not part else {"a": part, "b": WHOLE - part})
_takes = st.builds(Take, _at_s, st.lists(_uids, min_size=1, max_size=3).map(tuple), _parts)
_taken = st.builds(
    Taken,
    st.dictionaries(_uids, _times, max_size=3),
    st.lists(_takes, max_size=3).map(lambda takes: {take.nominees[0]: take for take in takes}),
    st.dictionaries(st.text(max_size=8), st.builds(Counts, st.integers(0, 2**52), st.integers(0, 2**52)), max_size=3),
    _at_s,
)
_pieces = st.builds(Piece, st.integers(0, 2**40), st.dictionaries(st.text(max_size=8), _taken, max_size=3))


@given(_pieces)
def test_what_is_written_is_read_back_and_takes_no_more_bytes_than_it_is_counted_for(piece: Piece) -> None:
    text = written(piece, Texts())
    assert read(text) == (piece, ())
    for namespace, taken in piece.of.items():
        own = written(Piece(piece.number, {namespace: taken}), Texts())
        frame = len(msgspec.json.encode(written(Piece(piece.number), Texts())))
        escaped = len(msgspec.json.encode(namespace)) * 2  # a namespace of Kubernetes has nothing to escape
        assert len(msgspec.json.encode(own)) - frame <= size(namespace, taken, Texts()) + escaped


@fuzzed
@given(st.binary() | st.text())
def test_whatever_stands_there_does_not_raise(text: bytes | str) -> None:
    read(text)


PARTS = {"others": WHOLE}
TAKES = {"pod": Take(3, ("pod", "other"), PARTS)}
COUNTS = {"others": Counts(4, 5)}
GOOD = json.loads(written(Piece(7, {"team": Taken({"job": (1, 2)}, TAKES, COUNTS, 6)}), Texts()))


@pytest.mark.parametrize(
    ("change", "because", "left"),
    [
        ({"evicted": {"=job": [-1]}}, "evicted: '=job': [-1]", Taken({}, TAKES, COUNTS, 6)),
        ({"evicted": {"x": [1]}}, "'x' is no UID", Taken({}, TAKES, COUNTS, 6)),
        ({"takes": [[1]]}, "takes: [1]", Taken({"job": (1, 2)}, {}, COUNTS, 6)),
        ({"takes": [[1, PARTS, "x"]]}, "'x' is no UID", Taken({"job": (1, 2)}, {}, COUNTS, 6)),
        ({"takes": [[1, PARTS, 2]]}, "takes: [1, {", Taken({"job": (1, 2)}, {}, COUNTS, 6)),
        ({"takes": [[1, {"others": 999}, "=x"]]}, "allowed: parts of 1000", Taken({"job": (1, 2)}, {}, COUNTS, 6)),
        ({"takes": [[1, {"a": "1000"}, "=x"]]}, "allowed: parts of 1000", Taken({"job": (1, 2)}, {}, COUNTS, 6)),
        ({"counts": {"others": [-1, 5]}}, "counts: (-1, 5)", Taken({"job": (1, 2)}, TAKES, {}, 6)),
        ({"last_s": -6}, "last_s: -6", Taken({"job": (1, 2)}, TAKES, COUNTS, 0)),
    ],
)
def test_what_is_spoilt_counts_for_nothing_and_the_rest_counts(
    change: dict[str, Any], because: str, left: Taken
) -> None:
    text = json.dumps({**GOOD, "of": {"team": {**GOOD["of"]["team"], **change}}})
    piece, (unread,) = read(text)
    assert piece == Piece(7, {"team": left})
    assert because in unread


@pytest.mark.parametrize("text", ["x", '{"number": -1, "of": {}}', '{"number": 1}', '{"number":1,"of":{},"x":1}'])
def test_a_piece_that_nobody_wrote_counts_for_nothing(text: str) -> None:
    piece, unread = read(text)
    assert piece == Piece()
    assert len(unread) == 1


def test_a_piece_is_used_again_when_it_has_counted_for_an_hour() -> None:
    assert PIECES * SPAN_S >= WINDOW_S + SPAN_S
    number = NOW_S // SPAN_S
    hour = Hour().put(Piece(number, {"team": Taken({"job": ((number + 1) * SPAN_S - 1,)})}))
    last_s = (number + 1) * SPAN_S - 1 + WINDOW_S
    assert hour.evicted(last_s - 1) == {"job": ((number + 1) * SPAN_S - 1,)}
    assert hour.evicted(last_s) == {}
    assert hour.at(number * SPAN_S).of
    assert not hour.at((number + PIECES) * SPAN_S).of
