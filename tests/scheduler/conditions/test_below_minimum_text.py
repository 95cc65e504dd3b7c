"""What is said of a gang below its minimum."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.conditions.suggestion_messages import below_minimum_text
from scheduler.core.model.verdict import SubgroupShort
from scheduler.core.what_if.explanation import BelowMinimum

SINCE = "It has been below its minimum since 2027-01-15 08:00:00Z: "


def told(**how: Any) -> str:
    usual = {"bound": 2, "minimum": 3, "since_s": 1_800_000_000, "left_s": 42, "until_s": 1_800_000_060}
    return below_minimum_text(BelowMinimum(**{**usual, **how}))


@pytest.mark.parametrize(
    ("how", "rest"),
    [
        ({}, "42 s are left: its pods are evicted at 2027-01-15 08:01:00Z unless it is complete by then."),
        (
            {"assumed_grace_s": 60},
            "42 s are left: its pods are evicted at 2027-01-15 08:01:00Z (by the default grace period, 60 s) "
            "unless it is complete by then.",
        ),
        ({"left_s": 0}, "Its time is over: its pods are evicted, unless waiting pods can complete it."),
        ({"left_s": 0, "until_s": None}, "Its PodGroup lets it run so without an end."),
        ({"is_going": True}, "Its pods are being evicted."),
    ],
)
def test_the_time_that_is_left_is_said(how: dict[str, Any], rest: str) -> None:
    assert told(**how) == f"{SINCE}2 have a node, required are 3. {rest}"


@pytest.mark.parametrize(
    ("short", "lacks"),
    [
        (SubgroupShort("a", 4, 1), "of its pods in sub-group a 1 have a node, required are 4."),
        (SubgroupShort("", 2, 1, is_of_subgroups=True), "of its sub-groups 1 are complete, required are 2."),
    ],
)
def test_what_lacks_is_named(short: SubgroupShort, lacks: str) -> None:
    assert told(short=short).startswith(SINCE + lacks)
