from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire.go import parse_float, parse_uint


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
