"""Numbers and durations as Go writes and reads them."""

from __future__ import annotations

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzzing import fuzzed
from wire.go import MalformedDuration, parse_float, parse_int, parse_ns, parse_uint


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1.0),
        ("+1.", 1.0),
        ("-.5", -0.5),
        ("1e3", 1000.0),
        ("1_23.50_0_0e+1_2", 1.235e14),
        ("0x1p-1", 0.5),
        ("0x1P+1", 2.0),
        ("0x.8p0", 0.5),
        ("0x1.8p0", 1.5),
        ("0x_1_2.3_4_5p+1_2", 74565.0),
        ("1e-999999999999", 0.0),
        ("0x1p-99999", 0.0),
    ],
)
def test_a_literal_of_go_is_read(text: str, value: float) -> None:
    assert parse_float(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "+",
        "e5",
        "1e",
        "1e+",
        "1 ",
        " 1",
        "1\n",
        "0x",
        "0x1",
        "0x1.8",
        "0x.p0",
        "0x1p",
        "0b1",
        "0o7",
        "_1",
        "1_",
        "1__0",
        "1_.0",
        "1._0",
        "1_e0",
        "1e_0",
        "1e0_",
        "-_1",
        "0x1_p0",
        "0x1p_0",
        "1e400",
        "-1e400",
        "0x1p9999",
        "inf",
        "-Infinity",
        "+nan",
        "-nan",
        "1f",
        "1d",
        "0.5m",
        "١",  # noqa: RUF001 - a digit of another script is the case
        "ınf",  # noqa: RUF001 - a letter that lower-cases like i is the case
    ],
    ids=ascii,
)
def test_what_go_refuses_or_finds_out_of_range_is_no_number(text: str) -> None:
    assert parse_float(text) is None


@pytest.mark.parametrize("text", ["nan", "NaN", "NAN"])
def test_nan_is_a_number_that_compares_with_nothing(text: str) -> None:
    value = parse_float(text)
    assert value is not None
    assert math.isnan(value)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_finite_float_is_read_from_its_texts(value: float) -> None:
    assert parse_float(repr(value)) == value
    assert parse_float(value.hex()) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", 0), ("7", 7), ("0007", 7), ("18446744073709551615", 2**64 - 1), ("0" * 10_000, 0)],
    ids=lambda value: str(value)[:24],
)
def test_an_unsigned_integer_is_read(text: str, value: int) -> None:
    assert parse_uint(text) == value


@pytest.mark.parametrize(
    "text",
    ["", "-1", "+1", "1.0", "1e3", "0x1", "1_0", " 1", "1 ", "²", "٣", "18446744073709551616", "9" * 5000],
    ids=lambda text: ascii(text[:24]),
)
def test_what_is_no_unsigned_integer_is_refused(text: str) -> None:
    assert parse_uint(text) is None


# Whole numbers as Go's strconv.ParseInt reads them, in base 10 and 64 bits.


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("10", 10),
        ("+5", 5),
        ("-5", -5),
        ("-0", 0),
        ("007", 7),
        ("0" * 5000 + "7", 7),
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", None),
        ("-9223372036854775808", -(2**63)),
        ("-9223372036854775809", None),
        ("9" * 5000, None),
        ("", None),
        ("+", None),
        ("+-5", None),
        ("1_0", None),
        (" 10", None),
        ("10\n", None),
        ("0x10", None),
        ("1e3", None),
        ("1.0", None),
        ("\u0661\u0660", None),
    ],
)
def test_a_text_is_the_number_that_go_reads(text: str, number: int | None) -> None:
    assert parse_int(text) == number


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
