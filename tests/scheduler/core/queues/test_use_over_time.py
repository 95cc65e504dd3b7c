"""When a window begins that a cron expression names."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.model.quota import QueueRecord, Resources
from scheduler.core.queues.fair_share import fair_shares, use_by_number
from scheduler.core.queues.tree import Tree
from scheduler.core.queues.use_over_time import (
    NOT_COUNTED,
    Added,
    Cron,
    Ppb,
    Source,
    UseOverTime,
    UsePeriod,
    UseRecord,
    Window,
    begun,
    counted,
    counts_written,
    parsed,
    read,
    read_counts,
    use_over_time,
    window_began_s,
    without_gone,
    written,
)

GPU = 10**9
MINUTE = 60
HOUR = 60 * MINUTE
START = 1_700_000_000
EVEN = Resources(10**6, 10**6, 10**6)


def gpus(count: float) -> Resources:
    return Resources(gpu_nano=round(count * GPU))


def ticked(
    period: UsePeriod, minutes: int, record: UseRecord | None = None, *, total: int = 8, **kept: float
) -> UseRecord:
    """A record after so many ticks of a minute, in which queues kept so many GPUs."""
    record = record or begun(period, START)
    for _ in range(minutes):
        now_s = record.at_s + MINUTE
        of = {name: gpus(count) for name, count in kept.items()}
        record = counted(record, period, now_s, kept=of, capacity=gpus(total))
    return record


def gpu_percent(record: UseRecord, period: UsePeriod) -> dict[str, int]:
    """What each queue used of the cluster's GPUs, in percent, rounded."""
    return {name: round(ppb[2] / 10**7) for name, ppb in use_over_time(record, period).of.items()}


def test_use_is_the_part_of_what_the_cluster_had() -> None:
    period = UsePeriod(window_s=HOUR)
    record = ticked(period, 10, a=4, b=2)
    record = ticked(period, 10, record, a=0, b=2)
    assert gpu_percent(record, period) == {"a": 25, "b": 25}


def test_nothing_was_used_of_a_cluster_that_has_nothing() -> None:
    period = UsePeriod()
    record = counted(begun(period, START), period, START + 60, kept={"a": gpus(1)}, capacity=Resources())
    assert use_over_time(record, period).of == {"a": (0, 0, 0)}


def test_a_window_by_cron_forgets_everything_when_the_next_one_begins() -> None:
    hour_of_start = START - START % HOUR
    period = UsePeriod(cron=parsed("@hourly"))
    record = ticked(period, 30, begun(period, hour_of_start), a=8)
    assert gpu_percent(record, period) == {"a": 100}
    record = ticked(period, 40, record, b=2)
    assert (record.at_s - record.began_s, record.began_s) == (10 * MINUTE, hour_of_start + HOUR)
    assert gpu_percent(record, period) == {"b": 25}


@pytest.mark.parametrize(
    ("minutes", "percent"),
    # The window slides: what was used an hour ago leaves it in the course of the next hour.
    [(0, 100), (15, 75), (30, 50), (59, 2), (60, 0), (200, 0)],
)
def test_a_sliding_window_forgets_step_by_step(minutes: int, percent: int) -> None:
    period = UsePeriod(window_s=HOUR)
    record = ticked(period, 60, total=8, a=8)
    record = ticked(period, minutes, record, total=8)
    assert gpu_percent(record, period).get("a", 0) == percent


@pytest.mark.parametrize(("minutes", "percent"), [(59, 100), (60, 0)])
def test_a_tumbling_window_forgets_at_once_when_it_ends(minutes: int, percent: int) -> None:
    window_start_s = START - 7 * 24 * HOUR
    period = UsePeriod(window_s=HOUR, window=Window.TUMBLING, window_start_s=window_start_s)
    record = ticked(period, minutes, total=8, a=8)
    assert gpu_percent(record, period).get("a", 0) == percent


def test_a_tumbling_window_begins_at_the_time_that_is_set() -> None:
    period = UsePeriod(window_s=HOUR, window=Window.TUMBLING, window_start_s=START + 10 * MINUTE)
    record = ticked(period, 9, a=8)
    assert gpu_percent(record, period) == {"a": 100}
    record = ticked(period, 1, record, a=8)
    assert gpu_percent(record, period) == {}
    record = ticked(period, 1, record, b=8)
    assert gpu_percent(record, period) == {"b": 100}


def test_half_of_the_weight_is_lost_in_each_half_life() -> None:
    period = UsePeriod(half_life_s=HOUR)
    record = ticked(period, 600, a=8)
    record = ticked(period, 60, record, a=0)
    # Half of all that counts is of the last hour.
    assert gpu_percent(record, period) == {"a": 50}


@given(
    kept=st.lists(st.tuples(st.integers(0, 8 * GPU), st.integers(0, 8 * GPU)), min_size=1, max_size=300),
    half_life_min=st.integers(1, 10_000),
)
def test_decay_in_integers_equals_decay_in_fractions(kept: list[tuple[int, int]], half_life_min: int) -> None:
    period = UsePeriod(half_life_s=half_life_min * MINUTE)
    record, used, cluster = begun(period, START), Fraction(0), Fraction(0)
    for a, b in kept:
        of = {"a": Resources(gpu_nano=a), "b": Resources(gpu_nano=b)}
        record = counted(record, period, record.at_s + MINUTE, kept=of, capacity=gpus(16))
        factor = Fraction(2.0 ** (-1 / half_life_min))
        used, cluster = used * factor + a * MINUTE, cluster * factor + 16 * GPU * MINUTE
    got = use_over_time(record, period).of["a"][2]
    assert abs(got - used / cluster * 10**9) < 1000  # a millionth of the cluster


@pytest.mark.parametrize("gap_s", [10 * MINUTE, 100 * HOUR])
def test_a_gap_counts_for_nobody_but_for_two_ticks(gap_s: int) -> None:
    period = UsePeriod(window_s=1000 * HOUR)
    record = ticked(period, 10, a=8)
    record = counted(record, period, record.at_s + gap_s, kept={"b": gpus(8)}, capacity=gpus(8))
    assert record.now.of == {"a": gpus(8 * 10 * MINUTE), "b": gpus(8 * 2 * MINUTE)}
    assert record.now.cluster == gpus(8 * 12 * MINUTE)


def test_a_clock_that_goes_back_adds_nothing_and_goes_on_from_there() -> None:
    period = UsePeriod(window_s=HOUR)
    record = ticked(period, 10, a=8)
    back = counted(record, period, record.at_s - 30 * MINUTE, kept={"b": gpus(8)}, capacity=gpus(8))
    assert back.now == record.now
    assert gpu_percent(ticked(period, 10, back, b=8), period) == {"a": 50, "b": 50}


@pytest.mark.parametrize("half_life_s", [0, HOUR])
def test_a_second_tick_at_the_same_time_changes_nothing(half_life_s: int) -> None:
    period = UsePeriod(half_life_s=half_life_s)
    record = ticked(period, 10, a=8)
    assert counted(record, period, record.at_s, kept={"b": gpus(8)}, capacity=gpus(8)) == record


def test_queues_that_are_gone_leave_the_record() -> None:
    period = UsePeriod(window_s=HOUR)
    record = ticked(period, 70, a=4, b=4)
    assert {*without_gone(record, {"b"}).now.of, *without_gone(record, {"b"}).last.of} == {"b"}


def test_a_record_survives_being_written() -> None:
    huge = Added(of={"a": Resources(1, 10**30, 3)}, cluster=Resources(1, 2, 3))
    record = UseRecord(at_s=START, began_s=START - 1, now=huge)
    assert read(written(record)) == record


def test_a_record_is_the_same_text_whichever_queue_was_counted_first() -> None:
    """So a record in which nothing has changed is not written again."""
    one, other = ({name: Resources(1, 2, 3) for name in order} for order in ("ab", "ba"))
    texts = {written(UseRecord(at_s=START, began_s=START, now=Added(of=of))) for of in (one, other)}
    assert len(texts) == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"at_s":1}',
        '{"at_s":1.5,"began_s":0}',
        '{"at_s":1,"began_s":0,"now":{"of":{"a":"x"}}}',
        '{"at_s":1,"began_s":0,"now":{"of":{"a":[1,2,-3]}}}',
        '{"at_s":1,"began_s":0,"now":{"cluster":[-1,2,3]}}',
        '{"at_s":' + "9" * 5000 + "}",
        "[" * 100_000,
    ],
)
def test_what_is_no_record_is_said_and_not_read(text: str) -> None:
    assert isinstance(read(text), str)


def test_a_negative_amount_is_named() -> None:
    text = '{"at_s":1,"began_s":0,"now":{"of":{"a":[1,2,-3]}}}'
    assert read(text) == "a: gpu is -3; it must not be below 0"


def test_who_used_more_gets_less_of_what_is_left() -> None:
    tree = Tree([QueueRecord(name="a", weight=EVEN), QueueRecord(name="b", weight=EVEN)])
    asked = [gpus(12), gpus(12)]
    # KAI's formula: n + k * (n - usage) = 0.5 + 0.5 - usage.
    used = UseOverTime(of={"a": (0, 0, 250_000_000), "b": (0, 0, 750_000_000)})
    assert fair_shares(tree, gpus(8), asked, used=used) == [gpus(6), gpus(2)]
    half = UseOverTime(of=used.of, weight_milli=0)
    assert fair_shares(tree, gpus(8), asked, used=half) == [gpus(4), gpus(4)]


def test_the_use_of_a_queue_counts_for_those_above_it() -> None:
    records = [
        QueueRecord(name="left", weight=EVEN),
        QueueRecord(name="right", weight=EVEN),
        QueueRecord(name="a", parent="left", weight=EVEN),
        QueueRecord(name="b", parent="left", weight=EVEN),
    ]
    tree = Tree(records)
    asked = {"left": gpus(12), "right": gpus(12), "a": gpus(12), "b": gpus(12)}
    used = UseOverTime(of={"a": (0, 0, 375_000_000), "b": (0, 0, 375_000_000), "gone": (0, 0, 10**9)})
    fair = fair_shares(tree, gpus(8), [asked[queue.name] for queue in tree.queues], used=used)
    assert {queue.name: fair[queue.number].gpu_nano // GPU for queue in tree.queues} == {
        "left": 2,
        "right": 6,
        "a": 1,
        "b": 1,
    }


def test_what_counts_survives_being_written() -> None:
    used = UseOverTime(of={"a": (1, 2, 3)}, weight_milli=500)
    assert read_counts(counts_written(used)) == used
    assert read_counts('{"of":{"a":[1,2,3]},"k_milli":500}') == used
    assert isinstance(read_counts("{"), str)
    assert isinstance(read_counts('{"of":{"a":[1,2]}}'), str)


@pytest.mark.parametrize(
    ("source", "of_top", "expected"), [(Source.SCHEDULER, None, (0, 0, 5)), (Source.PROMETHEUS, (0, 0, 7), (0, 0, 7))]
)
def test_what_prometheus_says_of_a_queue_includes_those_below_it(
    source: Source, of_top: Ppb | None, expected: Ppb
) -> None:
    tree = Tree([QueueRecord(name="top"), QueueRecord(name="a", parent="top"), QueueRecord(name="b", parent="top")])
    of: dict[str, Ppb] = {"a": (0, 0, 2), "b": (0, 0, 3)}
    used = UseOverTime(of={**of, "top": of_top} if of_top else of, source=source)
    found = use_by_number(tree, used)
    assert {queue.name: found[queue.number] for queue in tree.queues} == {**of, "top": expected}


@pytest.mark.parametrize(
    ("used", "is_counted"),
    [(UseOverTime(), True), (UseOverTime(source=Source.PROMETHEUS), True), (UseOverTime(source=Source.STALE), False)],
)
def test_what_nobody_knows_counts_for_nobody(used: UseOverTime, is_counted: bool) -> None:
    assert (used.is_counted, NOT_COUNTED.is_counted) == (is_counted, False)
    assert read_counts(counts_written(used)) == used


@pytest.mark.parametrize(
    ("period", "began_s"),
    [
        (UsePeriod(window_s=HOUR), START - HOUR),
        (UsePeriod(window_s=HOUR, window=Window.TUMBLING, window_start_s=START - 90 * MINUTE), START - 30 * MINUTE),
        (UsePeriod(cron=parsed("@daily")), START - START % (24 * HOUR)),
    ],
)
def test_a_window_reaches_from_its_begin_until_now(period: UsePeriod, began_s: int) -> None:
    assert window_began_s(period, START) == began_s


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
