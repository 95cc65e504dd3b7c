from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzzing import fuzzed
from wire.go import MalformedDuration, parse_ns

S = 1_000_000_000


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("60s", 60 * S),
        ("-1s", -S),
        ("+5m", 300 * S),
        ("1h30m", 5_400 * S),
        ("1h0m0.5s", 3_600 * S + S // 2),
        ("1.5s", S + S // 2),
        (".5s", S // 2),
        ("5.s", 5 * S),
        ("0", 0),
        ("-0", 0),
        ("250ms", S // 4),
        ("3us", 3_000),
        ("3µs", 3_000),
        ("1.9ns", 1),
        ("30s1h", 3_630 * S),
        ("2562047h47m16.854775807s", 2**63 - 1),
    ],
)
def test_a_duration_is_read_as_go_reads_it(text: str, nanoseconds: int) -> None:
    assert parse_ns(text) == nanoseconds


@pytest.mark.parametrize(
    "text",
    [
        "", "-", "5", "s", ".s", "1d", "1 s", " 1s", "1s ", "--1s", "1s-1s", "1e3s", "1_0s", "٣s", "1S", "inf",
        "2562047h47m16.854775808s", "9" * 60 + "h", "1" * 100 + "s",
    ],
)  # fmt: skip
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(MalformedDuration):
        parse_ns(text)


@fuzzed
@given(st.text(alphabet="0123456789.hmsnuµ+- ", max_size=12))
def test_nothing_else_is_ever_raised(text: str) -> None:
    with contextlib.suppress(MalformedDuration):
        assert isinstance(parse_ns(text), int)
