"""Whole numbers as Go's strconv.ParseInt reads them, in base 10 and 64 bits."""

from __future__ import annotations

import pytest

from wire.go import parse_int


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
