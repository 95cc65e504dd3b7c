"""Only ends that somebody has set are known, and the earliest that helps is found."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.core.what_if.known_ends import Wait, candidates
from tests.scheduler.core.objects import node, pod
from tests.scheduler.core.what_if.given import WALL_S, edits, tries

STARTED = "2027-01-15T07:00:00Z"
STARTED_S = WALL_S - 3_600


def runs(name: str, deadline: int = 0, runtime: str = "", **asked: Any) -> Any:
    spec = {"activeDeadlineSeconds": deadline} if deadline else {}
    made = pod(
        name, bound_to="n1", spec=spec, annotations={"moorage.dev/max-runtime": runtime} if runtime else {}, **asked
    )
    return msgspec.structs.replace(made, status=msgspec.structs.replace(made.status, start_time=STARTED))


def waits(*objects: Any) -> list[Wait]:
    return [edit for edit in edits(candidates, tries(*objects)) if isinstance(edit, Wait)]


@pytest.mark.parametrize(
    ("running", "gpus", "until", "last"),
    [
        ((runs("a", 7_200, gpus=1), runs("b", 36_000, gpus=1)), 1, 7_200, ("a", "deadline")),
        ((runs("a", 7_200, gpus=1), runs("b", 36_000, gpus=1)), 2, 36_000, ("b", "deadline")),
        ((runs("a", 7_200, "1h30m", gpus=2),), 2, 5_400, ("a", "max-runtime")),
        ((runs("a", gpus=2),), 1, None, None),
        ((runs("a", 7_200, gpus=1), runs("b", gpus=1)), 2, None, None),
    ],
)
def test_the_earliest_end_that_helps_is_found(
    running: tuple[Any, ...], gpus: int, until: int | None, last: tuple[str, str] | None
) -> None:
    found = waits(node(gpus=2), *running, pod("p", gpus=gpus))
    assert [wait.until_s for wait in found] == ([] if until is None else [STARTED_S + until])
    assert [(wait.ends[0].name, wait.ends[0].by) for wait in found] == ([] if last is None else [last])


def test_an_end_that_is_over_is_now() -> None:
    (wait,) = waits(node(gpus=1), runs("a", 60, gpus=1), pod("p", gpus=1))
    assert wait.until_s == WALL_S


def test_what_comes_free_may_be_another_s() -> None:
    older = pod("older", gpus=1, created="2025-01-01T00:00:00Z")
    assert edits(candidates, tries(node(gpus=1), runs("a", 7_200, gpus=1), older, pod("p", gpus=1))) == []
