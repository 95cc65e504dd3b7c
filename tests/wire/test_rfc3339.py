from __future__ import annotations

import pytest

from wire.rfc3339 import parse_ns

S = 1_000_000_000
AT_S = 1_767_323_045


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("2026-01-02T03:04:05Z", AT_S * S),
        ("2026-01-02T04:34:05+01:30", AT_S * S),
        ("2026-01-01T22:04:05-05:00", AT_S * S),
        ("2026-01-02T03:04:05.5Z", AT_S * S + 500_000_000),
        ("2026-01-02T03:04:05.1234567891234Z", AT_S * S + 123_456_789),
        ("1969-12-31T23:59:59Z", -S),
        ("0001-01-01T00:00:00Z", -62_135_596_800 * S),
        ("0001-01-01T00:00:00+01:00", -62_135_600_400 * S),
    ],
)
def test_a_time_is_read_to_the_nanosecond(text: str, ns: int) -> None:
    assert parse_ns(text) == ns


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2026-01-02",
        "2026-01-02T03:04Z",
        "2026-01-02 03:04:05Z",
        "2026-01-02T03:04:05",
        "2026-01-02T03:04:05.Z",
        "2026-13-02T03:04:05Z",
        "2026-01-02T24:00:01Z",
        "2026-01-02T03:04:05+25:00",
        "0000-01-01T00:00:00Z",
        "\uff12026-01-02T03:04:05Z",
        "2026-01-02T03:04:05Z ",
        "2026-01-02T03:04:05." + "0" * 1_000_000 + "Z",
    ],
)
def test_what_is_no_time_is_none(text: str) -> None:
    assert parse_ns(text) is None
