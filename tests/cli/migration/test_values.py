"""KAI's values, fed to the parser of the setting that they are mapped to."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

from cli.migration.config import CONFIG, SHARD, config_rows, duration, epoch_seconds, shard_rows, thousandths
from cli.migration.rows import Code, Row
from runtime.settings.declaration import add_options
from runtime.settings.scheduler import SchedulerOptions
from runtime.settings.sources import from_line
from scheduler.core.model.settings import Strategy
from scheduler.core.queues.use_over_time import Window
from tests.kai import left as kai

_ARGUMENTS = "scheduler.args."
_OF_CONFIG = {"nodeScaleAdjuster.args.gpuMemoryToFractionRatio"}
_USE = "usageDBConfig.usageParams"
#: An option of KAI's, its value, and the setting that comes of it.
TAKEN: list[tuple[str, Any, str, Any]] = [
    ("placementStrategy.gpu", "spread", "gpu_strategy", Strategy.SPREAD),
    ("placementStrategy.cpu", "spread", "cpu_strategy", Strategy.SPREAD),
    ("args.default-staleness-grace-period", "2m30s", "default_staleness_grace_period", 150.0),
    ("args.stuck-in-releasing-threshold", "30s", "stuck_in_releasing_threshold", 30.0),
    ("minRuntime.preemptMinRuntime", "10m", "default_preempt_min_runtime", 600.0),
    ("minRuntime.reclaimMinRuntime", "1h30m", "default_reclaim_min_runtime", 5400.0),
    ("kValue", 0.5, "queue_use_weight", 500),
    ("kValue", 2, "queue_use_weight", 2000),
    ("usageDBConfig.connectionString", "http://p:9090", "queue_use_prometheus", "http://p:9090"),
    (f"{_USE}.windowSize", "2w", "queue_use_window", 14 * 86_400.0),
    (f"{_USE}.windowSize", "1d12h", "queue_use_window", 36 * 3600.0),
    (f"{_USE}.windowSize", "168h0m0s", "queue_use_window", 7 * 86_400.0),
    (f"{_USE}.windowType", "tumbling", "queue_use_window_type", Window.TUMBLING),
    (f"{_USE}.tumblingWindowStartTime", "2026-01-05T00:00:00Z", "queue_use_window_start", 1_767_571_200),
    (f"{_USE}.cronString", "0 0 * * 1", "queue_use_window_cron", "0 0 * * 1"),
    (f"{_USE}.halfLifePeriod", "3d", "queue_use_half_life", 3 * 86_400.0),
    (f"{_USE}.fetchInterval", "30s", "queue_use_fetch_interval", 30.0),
    (f"{_USE}.stalenessPeriod", "1h", "queue_use_staleness_period", 3600.0),
    ("nodeScaleAdjuster.args.gpuMemoryToFractionRatio", 0.25, "gpu_memory_to_fraction_ratio", 250_000_000),
]


def rows(path: str, value: Any) -> list[Row]:
    """What is reported of one option that a shard, or the Config, sets."""
    spec = value
    for part in reversed(path.split(".")):
        spec = {part: spec}
    if path in _OF_CONFIG:
        return [each for each in config_rows(kai.custom("Config", "c", spec)) if path in each.about]
    return list(shard_rows(kai.custom("SchedulingShard", "s", spec)))


def started_with(row: Row) -> SchedulerOptions:
    """The scheduler's settings with the one argument that a row says to set."""
    name, _, value = row.values["chart"].removeprefix(_ARGUMENTS).partition("=")
    parser = argparse.ArgumentParser()
    add_options(parser, SchedulerOptions)
    return from_line(SchedulerOptions, parser.parse_args([f"--{name}={value}"]))


@pytest.mark.parametrize(("path", "value", "field", "expected"), TAKEN)
def test_a_mapped_value_is_one_that_the_scheduler_takes(path: str, value: Any, field: str, expected: Any) -> None:
    (mapped,) = rows(path, value)
    assert (mapped.code, mapped.values["chart"].startswith(_ARGUMENTS)) == (Code.OPTION_MAPPED, True)
    found = getattr(started_with(mapped), field)
    assert (found.text if field == "queue_use_window_cron" else found) == expected


def test_every_option_that_becomes_an_argument_is_tried_here() -> None:
    mapped = {path for path, option in (CONFIG | SHARD).items() if option.chart.startswith(_ARGUMENTS)}
    assert mapped == {path for path, *_ in TAKEN}


@pytest.mark.parametrize(
    ("path", "value"), [("kValue", 1), ("kValue", 1.0), (f"{_USE}.windowSize", "1w"), (f"{_USE}.windowType", "sliding")]
)
def test_a_default_of_kais_that_is_the_default_here_is_not_reported(path: str, value: Any) -> None:
    assert rows(path, value) == []


def test_a_window_by_cron_needs_no_type() -> None:
    assert [each.code for each in rows(f"{_USE}.windowType", "cron")] == [Code.OPTION_UNUSED]


@pytest.mark.parametrize(
    ("path", "value", "why"),
    [
        ("args.default-staleness-grace-period", "-1s", "'-1s' is not a number with ms, s, m or h"),
        ("kValue", -1, "'-1000' is not a whole number from 0"),
        ("kValue", 5000.0, "'5000000' is not a whole number from 0"),
        ("usageDBConfig.connectionString", "http://me:secret@p", "a URL with a user is not taken"),
        (f"{_USE}.windowSize", "2y", "'17520h' is more than a year"),
        (f"{_USE}.windowSize", "a week", "'a week' is not a number with ms, s, m or h"),
        (f"{_USE}.windowType", "hopping", "'hopping' is none of: sliding, tumbling"),
        (f"{_USE}.tumblingWindowStartTime", "monday", "'monday' is not a whole number"),
        (f"{_USE}.cronString", "each week", "'each week'"),
        (f"{_USE}.halfLifePeriod", "5s", "'5s' is out of range"),
    ],
)
def test_a_value_that_the_scheduler_refuses_is_reported_with_the_reason(path: str, value: Any, why: str) -> None:
    (refused,) = rows(path, value)
    assert refused.code is Code.OPTION_UNFIT
    assert refused.values["why"].startswith(why)
    assert refused.do.startswith(f"set {_ARGUMENTS}")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("1w", "168h"),
        ("1h30m", "90m"),
        ("1500ms", "1.5s"),
        ("250us", "0.00025s"),
        ("0.5d", "12h"),
        ("90", "90"),
        ("1 w", "1 w"),
        (["1w"], '["1w"]'),
    ],
)
def test_a_duration_is_written_in_units_that_settings_have(given: Any, expected: str) -> None:
    assert duration(given) == expected


@pytest.mark.parametrize(
    ("given", "expected"), [(0.0004, "0"), (1.2345, "1234"), (3, "3000"), (True, "true"), ("x", "x")]
)
def test_a_number_is_written_in_thousandths(given: Any, expected: str) -> None:
    assert thousandths(given) == expected


def test_a_time_without_a_zone_is_left_as_it_is() -> None:
    assert epoch_seconds("2026-01-05T00:00:00") == "2026-01-05T00:00:00"
    assert epoch_seconds("2026-01-05T01:00:00+01:00") == "1767571200"
