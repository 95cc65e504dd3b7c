from __future__ import annotations

import reprlib
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzzing import fuzzed
from wire import quantity
from wire.quantity import LARGEST, NANO, MalformedQuantity

POWER_OF_TEN = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
POWER_OF_TWO = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


def _id(value: str | float) -> str:
    """The same in every process, and short: ``hash(nan)`` and the text of a huge int are neither."""
    text = f"{value.bit_length()} bits" if isinstance(value, int) and abs(value) >= 2**63 else reprlib.repr(value)
    return f"{type(value).__name__}-{text}-{'minus' if isinstance(value, int) and value < 0 else ''}"


@pytest.mark.parametrize(
    ("text", "nano"),
    [
        ("0", 0),
        ("-0", 0),
        ("0.", 0),
        (".0", 0),
        ("00000", 0),
        ("0Ki", 0),
        ("0e999999999", 0),
        ("1", NANO),
        ("+1", NANO),
        ("-1", -NANO),
        ("007", 7 * NANO),
        ("1.", NANO),
        ("1.G", 10**9 * NANO),
        (".5", NANO // 2),
        ("5.", 5 * NANO),
        ("-.5Ki", -512 * NANO),
        ("1n", 1),
        ("1u", 1_000),
        ("100m", 10**8),
        ("0.1", 10**8),
        ("1k", 1_000 * NANO),
        ("1Ki", 1_024 * NANO),
        ("1M", 10**6 * NANO),
        ("1E", 10**18 * NANO),
        ("1E3", 1_000 * NANO),
        ("1e3", 1_000 * NANO),
        ("1e+3", 1_000 * NANO),
        ("12e-3", 12 * 10**6),
        ("1.5Gi", 1536 * 2**20 * NANO),
        ("7Ei", 7 * 2**60 * NANO),
        ("9223372036854775807", LARGEST * NANO),
        ("-9223372036854775807", -LARGEST * NANO),
        ("1.5n", 2),
        ("-1.5n", -2),
        ("0.1n", 1),
        ("1e-10", 1),
        ("1e-999999999999", 1),
        ("-1e-999999999999", -1),
        ("0.0000000001Ki", 103),
    ],
)
def test_a_quantity_is_read_exactly_and_rounded_away_from_zero_below_a_nano(text: str, nano: int) -> None:
    assert quantity.parse_nano(text) == nano


@pytest.mark.parametrize(
    ("number", "nano"),
    [(0, 0), (1, NANO), (-3, -3 * NANO), (0.1, 10**8), (0.5, 5 * 10**8), (1e16, 10**25), (1e-7, 100), (2.0, 2 * NANO)],
)
def test_a_bare_number_means_its_shortest_text(number: float, nano: int) -> None:
    assert quantity.parse_nano(number) == nano


@pytest.mark.parametrize(
    "value",
    [
        "",
        " ",
        " 1",
        "1 ",
        "1\n",
        "+",
        "-",
        ".",
        "Ki",
        "m",
        "e3",
        "--1",
        "+-1",
        "1.1.M",
        "1+1.0M",
        "0.1mi",
        "0.1am",
        "aoeu",
        ".5i",
        "1i",
        "-3.01i",
        "-3.01e-",
        "1e",
        "1e1.5",
        "1Kib",
        "1ki",
        "1K",
        "1mi",
        "0x10",
        "1_000",
        "1,5",
        "inf",
        "NaN",
        "٣",
        "1１",  # noqa: RUF001 - a full-width digit is the case
        "½",
        "9223372036854775808",
        "8Ei",
        "10E",
        "1e19",
        "1e999999999",
        "1e" + "9" * 100,
        "9" * 128,
        "2" * 129,
        "0" * 129,
        "1" * 1_000_000,
        2**63,
        -(2**63),
        1 << 100_000,
        1e19,
        float("nan"),
        float("inf"),
        float("-inf"),
        True,
    ],
    ids=_id,
)
def test_what_is_no_quantity_is_refused_by_name(value: str | float) -> None:
    with pytest.raises(MalformedQuantity, match=r"^quantity .* is not a number of at most") as refused:
        quantity.parse_nano(value)
    assert refused.value.value is value
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize(
    ("value", "milli", "mib", "whole_bytes"),
    [
        # milli and mib: what is had, what is asked.
        ("0", (0, 0), (0, 0), 0),
        ("1", (1000, 1000), (0, 1), 1),
        ("100m", (100, 100), (0, 1), 1),
        ("100.5m", (100, 101), (0, 1), 1),
        ("1n", (0, 1), (0, 1), 1),
        ("1Mi", (2**20 * 1000, 2**20 * 1000), (1, 1), 2**20),
        ("1048577", (1048577000, 1048577000), (1, 2), 1048577),
        ("128974848", (128974848000, 128974848000), (123, 123), 128974848),
        ("129e6", (129 * 10**9, 129 * 10**9), (123, 124), 129 * 10**6),
        ("129M", (129 * 10**9, 129 * 10**9), (123, 124), 129 * 10**6),
        ("-1.5", (-1500, -1500), (-1, 0), -1),
    ],
)
def test_what_is_asked_rounds_up_and_what_is_had_rounds_down(
    value: str, milli: tuple[int, int], mib: tuple[int, int], whole_bytes: int
) -> None:
    assert (quantity.milli_down(value), quantity.milli_up(value)) == milli
    assert (quantity.mib_down(value), quantity.mib_up(value)) == mib
    assert quantity.bytes_up(value) == whole_bytes


@pytest.mark.parametrize(("value", "count"), [("2", 2), (8, 8), ("1k", 1000), ("2000m", 2), (3.0, 3), ("-1", -1)])
def test_a_count_may_be_written_in_any_form(value: str | float, count: int) -> None:
    assert quantity.whole(value) == count


@pytest.mark.parametrize("value", ["0.5", "500m", "1n", 1.5, "-0.5"])
def test_a_count_that_is_not_whole_is_refused(value: str | float) -> None:
    with pytest.raises(MalformedQuantity, match="is not a whole number"):
        quantity.whole(value)


@given(
    digits=st.integers(0, 10**25),
    places=st.integers(0, 30),
    suffix=st.sampled_from([*POWER_OF_TEN, *POWER_OF_TWO]) | st.integers(-40, 40),
    negative=st.booleans(),
)
def test_any_number_is_read_as_the_rational_that_it_writes(
    digits: int, places: int, suffix: str | int, negative: bool
) -> None:
    written = str(digits).rjust(places + 1, "0")
    number = f"{written[: len(written) - places]}.{written[len(written) - places :]}"
    if isinstance(suffix, int):
        scale, text = Fraction(10) ** suffix, f"{number}e{suffix}"
    elif suffix in POWER_OF_TWO:
        scale, text = Fraction(2 ** POWER_OF_TWO[suffix]), number + suffix
    else:
        scale, text = Fraction(10) ** POWER_OF_TEN[suffix], number + suffix
    exact = Fraction(digits, 10**places) * scale * NANO
    nano = -(-exact.numerator // exact.denominator)

    if nano > LARGEST * NANO:
        with pytest.raises(MalformedQuantity):
            quantity.parse_nano(text)
    else:
        assert quantity.parse_nano("-" * negative + text) == (-nano if negative else nano)


@fuzzed
@given(st.text(max_size=40) | st.text("0123456789.eE+-numkMGTPiK ", max_size=12))
def test_any_text_gives_an_integer_or_the_one_error(text: str) -> None:
    try:
        nano = quantity.parse_nano(text)
    except MalformedQuantity:
        return
    assert abs(nano) <= LARGEST * NANO


@given(st.integers(-LARGEST * NANO, LARGEST * NANO))
def test_a_canonical_nano_text_comes_back(nano: int) -> None:
    assert quantity.parse_nano(f"{nano}n") == nano


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=0, max_value=1e18))
def test_a_float_is_read_as_the_text_that_json_has_for_it(number: float) -> None:
    assert quantity.parse_nano(number) == quantity.parse_nano(repr(number))


@pytest.mark.parametrize(
    ("nano", "text"), [(0, "0"), (2 * NANO, "2"), (NANO // 2, "500m"), (250_000, "250u"), (333_333_333, "333333333n")]
)
def test_an_amount_is_written_in_the_coarsest_unit_that_is_exact(nano: int, text: str) -> None:
    assert quantity.decimal_text(nano) == text


@given(st.integers(0, LARGEST * NANO))
def test_an_amount_that_was_written_is_read_as_the_same(nano: int) -> None:
    assert quantity.parse_nano(quantity.decimal_text(nano)) == nano


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (1, "1"), (1024, "1Ki"), (8 * 2**30, "8Gi"), (3 * 2**59, "1536Pi"), (10**9, "1000000000")],
)
def test_bytes_are_written_with_the_largest_suffix_that_is_exact(count: int, text: str) -> None:
    assert quantity.binary_text(count) == text


@given(st.integers(0, LARGEST))
def test_bytes_that_were_written_are_read_as_the_same(count: int) -> None:
    assert quantity.bytes_up(quantity.binary_text(count)) == count
