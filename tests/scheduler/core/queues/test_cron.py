"""When a window begins that a cron expression names."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.queues.cron import Cron, parsed


def epoch(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


@pytest.mark.parametrize(
    ("text", "now", "expected"),
    [
        # 2026-11-24 is a Tuesday.
        ("0 0 * * 1", "2026-11-24T15:04:05", "2026-11-23T00:00"),
        ("0 0 * * mon", "2026-11-23T00:00:00", "2026-11-23T00:00"),
        ("0 0 * * 1", "2026-11-22T23:59:59", "2026-11-16T00:00"),
        ("0 0 * * 7", "2026-11-24T12:00", "2026-11-22T00:00"),
        ("0 0 * * SUN", "2026-11-24T12:00", "2026-11-22T00:00"),
        ("30 8,20 * * *", "2026-11-24T08:29", "2026-11-23T20:30"),
        ("30 8,20 * * *", "2026-11-24T19:00", "2026-11-24T08:30"),
        ("*/15 * * * *", "2026-11-24T08:29", "2026-11-24T08:15"),
        ("5/20 * * * *", "2026-11-24T08:44", "2026-11-24T08:25"),
        ("0 9-17/4 * * *", "2026-11-24T16:59", "2026-11-24T13:00"),
        ("0 0 1 * *", "2026-11-24T12:00", "2026-11-01T00:00"),
        ("0 0 1 jan,jul *", "2026-11-24T12:00", "2026-07-01T00:00"),
        ("0 0 29 2 *", "2026-11-24T12:00", "2024-02-29T00:00"),
        ("0 0 29 2 */7", "2026-11-24T12:00", "2004-02-29T00:00"),
        ("0 0 29 2 *", "2104-02-28T12:00", "2096-02-29T00:00"),
        # Either day is enough where both are given, and not where one of them is any.
        ("0 0 20 * 1", "2026-11-22T12:00", "2026-11-20T00:00"),
        ("0 0 20 * 1", "2026-11-24T12:00", "2026-11-23T00:00"),
        ("0 0 */10 * 1", "2026-11-24T12:00", "2026-09-21T00:00"),
        ("@hourly", "2026-11-24T12:34:56", "2026-11-24T12:00"),
        ("@daily", "2026-11-24T12:34:56", "2026-11-24T00:00"),
        ("@weekly", "2026-11-24T12:34:56", "2026-11-22T00:00"),
        ("@monthly", "2026-11-24T12:34:56", "2026-11-01T00:00"),
        ("@yearly", "2026-11-24T12:34:56", "2026-01-01T00:00"),
    ],
)
def test_a_window_begins_at_the_last_time_that_the_expression_names(text: str, now: str, expected: str) -> None:
    assert parsed(text).last_s(epoch(now)) == epoch(expected)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no cron expression"),
        ("0 0 * *", "five fields"),
        ("0 0 * * * *", "five fields"),
        ("@reboot", "no cron expression"),
        ("60 0 * * *", "minute: '60' is not from 0 to 59"),
        ("0 24 * * *", "hour: '24' is not from 0 to 23"),
        ("0 0 0 * *", "day of the month: '0' is not from 1 to 31"),
        ("0 0 * 13 *", "month: '13' is not from 1 to 12"),
        ("0 0 * * 8", "day of the week: '8' is not from 0 to 7"),
        ("0 17-9 * * *", "the smaller first"),
        ("*/0 * * * *", "a step of 0"),
        ("0 0 L * *", "day of the month: 'l' is not from 1 to 31"),
        ("0 0 15W * *", "day of the month: '15w' is not from 1 to 31"),
        ("0 0 * * 1#2", "day of the week: '1#2' is not *"),
        ("0 0 31 2,4 *", "no such month has such a day"),
        ("0 0 * * " + "1," * 200, "no cron expression"),
        ("٣ 0 * * *", "minute: '٣' is not *"),
    ],
)
def test_other_expressions_are_refused_with_what_is_allowed(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=r"\w") as refused:
        parsed(text)
    assert why in str(refused.value)


_NUMBERS = st.integers(0, 5).map(str)
_FIELD = st.one_of(st.just("*"), st.just("*/7"), _NUMBERS, st.just("1-4"), st.just("2-6/3"), st.just("1,3"))


def named(cron: Cron, at: datetime) -> bool:
    """Whether an expression names a minute, field by field."""
    days = at.day in cron.days, at.isoweekday() % 7 in cron.weekdays
    has_day = any(days) if cron.is_either else all(days)
    return at.minute in cron.minutes and at.hour in cron.hours and at.month in cron.months and has_day


@given(fields=st.tuples(_FIELD, _FIELD, st.just("*"), st.just("*"), _FIELD), minute=st.integers(0, 10**7))
def test_no_later_minute_is_named(fields: tuple[str, ...], minute: int) -> None:
    cron, now = parsed(" ".join(fields)), datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=minute)
    found = datetime.fromtimestamp(cron.last_s(int(now.timestamp()) + 59), UTC)
    assert named(cron, found)
    later = now
    while later > found:
        assert not named(cron, later)
        later -= timedelta(minutes=1)
