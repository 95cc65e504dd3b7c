from __future__ import annotations

import asyncio
import io
from functools import partial

import anyio
import pytest

from runtime.output import Progress
from tests.cli.terminal import Terminal, Watch

VIRTUAL_TIME = True


def lines(out: io.StringIO, *, until_s: int) -> str:
    """What is said when there is something to say ten times a second."""
    clock = Watch()
    progress = Progress("reading", out=out, now_s=clock)
    for tenth in range(10 * until_s):
        clock.now_s = 100.0 + tenth / 10
        progress.tick(partial(str, tenth // 10))
    return out.getvalue()


@pytest.mark.parametrize(
    ("until_s", "said"), [(2, ""), (3, "moorage: 2 ...\n"), (13, "moorage: 2 ...\nmoorage: 7 ...\nmoorage: 12 ...\n")]
)
def test_nothing_is_said_for_two_seconds_and_then_a_line_every_five(until_s: int, said: str) -> None:
    assert lines(Terminal(), until_s=until_s) == said


def test_a_file_or_a_pipe_gets_no_lines() -> None:
    assert lines(io.StringIO(), until_s=60) == ""


def test_what_is_said_is_worked_out_for_a_line_only() -> None:
    clock, asked = Watch(), 0
    progress = Progress(out=Terminal(), now_s=clock)

    def say() -> str:
        nonlocal asked
        asked += 1
        return "counted"

    for _ in range(1000):
        clock.now_s += 0.01
        progress.tick(say)
    assert asked == 2


async def test_who_waits_for_a_cluster_is_told_for_what_and_no_longer_than_that() -> None:
    out, loop = Terminal(), asyncio.get_running_loop()
    progress = Progress("the first check", out=out, now_s=loop.time)
    with progress.waiting():
        await anyio.sleep(3)
        progress.doing = "the second check"
        await anyio.sleep(6)
    await anyio.sleep(60)
    assert out.getvalue() == "moorage: the first check ...\nmoorage: the second check ...\n"
