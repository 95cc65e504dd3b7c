"""A driver that hangs is asked nothing more before it has answered, and costs one thread."""

from __future__ import annotations

import threading

import anyio
import anyio.lowlevel
import pytest
from typing_extensions import override

from nodeagent.core.mig_partitioning import CardSlices, NotDone, Spot
from nodeagent.driver_thread import OneQuestion
from nodeagent.mig.nvml import AskedAside, MigCards
from tests.conftest import AnyioBackend

_SOON_S = 0.02
_LONG_S = 60.0


@pytest.fixture
def anyio_backend() -> AnyioBackend:
    """Threads have no virtual time."""
    return ("asyncio", {})


class _Hangs(MigCards):
    """Destroys when it is let."""

    def __init__(self) -> None:
        self.let = threading.Event()
        self.calls: list[str] = []

    @override
    def read(self) -> dict[str, CardSlices]:
        self.calls.append("read")
        return {}

    @override
    def destroy(self, card: str, spot: Spot) -> None:
        self.calls.append(f"destroy {spot}")
        self.let.wait()
        self.calls.append("destroyed")


async def test_an_answer_is_returned_and_an_error_raised() -> None:
    one = OneQuestion()
    assert await one.ask(lambda: 7, within_s=_LONG_S) == 7
    with pytest.raises(ZeroDivisionError):
        await one.ask(lambda: 1 // 0, within_s=_LONG_S)
    assert await one.ask(lambda: 8, within_s=_LONG_S) == 8


async def test_questions_come_one_after_the_other() -> None:
    one, running, most = OneQuestion(), list[int](), list[int]()

    def question() -> None:
        running.append(1)
        most.append(len(running))
        running.pop()

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(lambda: one.ask(question, within_s=_LONG_S))
    assert most == [1] * 20


async def test_a_driver_that_does_not_answer_in_time_is_waited_for_no_longer() -> None:
    driver = _Hangs()
    try:
        with pytest.raises(NotDone, match=r"did not answer within 0\.02 s"):
            await AskedAside(driver, OneQuestion(), within_s=_SOON_S).destroy("GPU-a", Spot(0, "1g.10gb"))
    finally:
        driver.let.set()


async def test_nothing_is_asked_of_a_driver_while_a_destruction_may_still_come_about() -> None:
    driver, one = _Hangs(), OneQuestion()
    asked = AskedAside(driver, one, within_s=_LONG_S)
    before = threading.active_count()
    try:
        async with anyio.create_task_group() as giving_up:
            giving_up.start_soon(asked.destroy, "GPU-a", Spot(0, "1g.10gb"))
            while not driver.calls:
                await anyio.lowlevel.checkpoint()
            giving_up.cancel_scope.cancel()
        for _ in range(3):
            with pytest.raises(NotDone):
                await asked.read()
        assert driver.calls == ["destroy 1g.10gb at 0"]
        assert threading.active_count() <= before + 1
    finally:
        driver.let.set()
    while "read" not in driver.calls:
        try:
            await asked.read()
        except NotDone:
            await anyio.lowlevel.checkpoint()
    assert driver.calls == ["destroy 1g.10gb at 0", "destroyed", "read"]


async def test_a_question_that_is_given_up_in_time_is_never_asked() -> None:
    one, asked = OneQuestion(), list[int]()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await one.ask(lambda: asked.append(1), within_s=_LONG_S)
    assert await one.ask(lambda: 9, within_s=_LONG_S) == 9
    assert asked == []
