from __future__ import annotations

from typing import Any

import pytest

from gpu.mig import Carved, Stage
from gpu.node_use import State
from gpu.share import NANO_PER_DEVICE
from ui.inspect.use import Row, Sum, age, carving, clock, idle, in_order, limit, percent, stale, sums
from wire.rfc3339 import parse_ns

HALF = NANO_PER_DEVICE // 2
AT = "2026-11-27T18:30:00Z"
NOW_NS = parse_ns(AT) or 0
SECOND = 10**9


def row(name: str, memory: int | None = 50, sm: int | None = 0, **how: Any) -> Row:
    given = {
        "namespace": "team-a",
        "uid": name,
        "node": "n",
        "device": "0",
        "nano": HALF,
        "state": State.CURRENT,
        **how,
    }
    return Row(name=name, memory_percent=memory, sm_percent=sm, **given)


def test_who_is_idle_comes_first_and_the_dearest_of_them_before_others() -> None:
    rows = [
        row("unknown", None, None),
        row("full", 100, 100),
        row("half", 50, 10),
        row("large", 50, 10, nano=NANO_PER_DEVICE),
        row("short", 0, idle_since="2026-11-27T18:00:00Z"),
        row("long", 0, idle_since="2026-11-27T12:00:00Z"),
        row("small and long", 0, nano=HALF // 2, idle_since="2026-11-27T12:00:00Z"),
        row("past", None, None, idle_since="2026-11-20T12:00:00Z", state=State.STALE),
    ]
    assert [each.name for each in in_order(rows, NOW_NS)] == [
        "long",
        "small and long",
        "short",
        "large",
        "half",
        "full",
        "past",
        "unknown",
    ]


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (
            Carved("GPU-a", 0, Stage.ASKED, ("2g", "1g")),
            "MIG slices of GPU 0 are asked for: 2g, 1g",
        ),
        (Carved("GPU-a", 1, Stage.UNDER_WAY, ()), "MIG slices of GPU 1 are being made: none"),
        (Carved("GPU-a", -1, Stage.FAILED, ("7g at 0",), "x"), "MIG slices of GPU-a could not be made (7g at 0): x"),
    ],
)
def test_mig_slices_are_told_with_how_far_they_came(one: Carved, said: str) -> None:
    assert carving(one) == said


def test_sums_are_weighed_by_size_and_say_of_how_many_nothing_is_known() -> None:
    rows = [
        row("a", 10, 0),
        row("b", 100, None, nano=NANO_PER_DEVICE),
        row("c", None, None),
        row("d", 0, 0, namespace="team-b", idle_since=AT),
    ]
    assert sums(rows, lambda each: each.namespace) == [
        Sum(name="team-b", shares=1, nano=HALF, idle_nano=HALF, memory_percent=0, sm_percent=0),
        Sum(name="team-a", shares=3, unknown=1, nano=2 * NANO_PER_DEVICE, memory_percent=70, sm_percent=0),
    ]
    (only,) = sums([row("c", None, None)], lambda each: each.node)
    assert (only.memory_percent, only.unknown) == (None, 1)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0s"), (59, "59s"), (60, "1m"), (3_599, "59m59s"), (3_600, "1h"), (7_265, "2h1m"), (90_000, "1d1h")],
)
def test_times_are_in_two_units_at_most(seconds: int, said: str) -> None:
    assert age(seconds * SECOND) == said


@pytest.mark.parametrize(
    ("at", "said"),
    [
        ("2026-11-27T13:05:09Z", "13:05Z"),
        ("2026-11-26T23:59:59Z", "2026-11-26 23:59Z"),
        ("2026-11-27T02:00:00+02:00", "00:00Z"),
        ("", "?"),
    ],
)
def test_a_time_of_another_day_has_its_date(at: str, said: str) -> None:
    assert clock(at, NOW_NS) == said


def test_words_for_people() -> None:
    assert idle(HALF, "2026-11-27T13:05:00Z", NOW_NS) == "13:05Z (5h25m, 2.7 GPU-hours)"
    assert idle(HALF, "", NOW_NS) == "-"
    assert (percent(None), percent(0), percent(100)) == ("?", "0%", "100%")
    assert (limit("kill", "after"), limit("", "")) == ("after (kill)", "-")
    assert stale("n", "2026-11-27T15:30:00Z", NOW_NS) == (
        "n: its agent has not worked for 3h; what its pods use now is not known"
    )
    assert stale("n", "", NOW_NS) == "n: its agent has not worked; what its pods use now is not known"
