"""A process dies at each of its writes, before or after it lands: the next one carries on, and nobody goes in vain."""

from __future__ import annotations

import asyncio
import functools

import anyio
import pytest

from kube.client.resources import PODS
from scheduler.core.model.preemption import Ended
from simulator.apiserver.calls import Call
from simulator.clock import VirtualTimeLoop
from tests.quick import few
from tests.scheduler.preemption.preemption_stage import NS, Process, Stage, stage

TAKEN = tuple(f"v{i}" for i in range(8))


def is_write(call: Call) -> bool:
    return call.user == "scheduler" and call.verb not in {"get", "list", "watch"} and call.kind.plural != "events"


async def story(at: Stage, process: Process) -> None:
    """Two nominations are written and carried out; one is given up, another one follows, and the first is revised."""
    process.decide(at.nomination("h-0", "h", "v0", "v1"), at.nomination("i-0", "i", "v2"))
    await anyio.sleep(2)
    process.give_up(process.nominations[1], Ended.BOUND)
    process.decide(at.nomination("j-0", "j", "v3"))
    await anyio.sleep(2)
    process.decide(at.nomination("h-0", "h", "v0", "v1", "v4"))
    await anyio.sleep(120)


async def played(strike: int, *, is_after: bool) -> tuple[list[str], list[str]]:
    """Play the story, with the process killed at a write. Returns its writes, and what was wrong."""
    wrong: list[str] = []
    async with stage(*TAKEN) as (at, tasks):
        for name in ("h", "i", "j"):
            await at.pod(name, is_bound=False)
        process = Process(at, "scheduler")
        await process.start(tasks)
        died = anyio.Event()
        seen: list[str] = []

        def die(call: Call) -> None:
            seen.append(f"{call.verb} {call.kind.plural}/{call.subresource} {call.name}")
            if len(seen) == strike + 1:
                process.transport.kill()
                died.set()

        if is_after:
            at.server.faults.on_answer.append(lambda call, _: die(call) if is_write(call) else None)
        else:
            at.server.faults.on_request.append(lambda call: die(call) if is_write(call) else None)
        async with anyio.create_task_group() as telling:
            telling.start_soon(story, at, process)
            with anyio.move_on_after(300):
                await died.wait()
            if not died.is_set():
                return seen, wrong
            telling.cancel_scope.cancel()
        process.kill()
        wrong += await after(at, strike, is_after=is_after)
    return seen, wrong


async def after(at: Stage, strike: int, *, is_after: bool) -> list[str]:
    """What is wrong after the next process has led for a while."""
    second = Process(at, "scheduler-2")
    await second.start(at.tasks)
    on_record = [nomination.id for nomination in at.record.nominations]
    wrong = []
    if [nomination.id for nomination in second.nominations] != on_record:
        wrong.append(
            f"it lets stand {[nomination.id for nomination in second.nominations]}, and {on_record} is written"
        )
    written = {victim.name for nomination in at.record.nominations for victim in nomination.victims}
    await anyio.sleep(120)
    there = {pod.metadata.name for pod in (await at.api.list(PODS, namespace=NS)).items}
    if left := written & there:
        wrong.append(f"{left} were to go and are there")
    evicted = at.evictions()
    if len(set(evicted)) != len(evicted):
        wrong.append(f"evicted twice: {evicted}")
    if (free := second.free_gpus()) != len(evicted) - len(second.nominations):
        wrong.append(f"{free} GPUs are free: {len(evicted)} pods left one, and {len(second.nominations)} wait for one")
    if at.unwritten:
        wrong.append(f"evicted before it was written: {at.unwritten}")
    return [f"write {strike}, {'after' if is_after else 'before'}: {each}" for each in wrong]


def play(strike: int, *, is_after: bool) -> tuple[list[str], list[str]]:
    """The same, on a loop of its own."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(played(strike, is_after=is_after))


@functools.cache
def writes() -> tuple[str, ...]:
    seen, _ = play(-2, is_after=False)
    return tuple(seen)


def test_the_story_has_all_kinds_of_writes() -> None:
    told = writes()
    assert [write.split()[1] for write in told] == [
        *["configmaps/"] * 2,
        *["pods/eviction"] * 3,
        *["configmaps/"] * 2,
        "pods/eviction",
        *["configmaps/"] * 2,
        "pods/eviction",
    ]


@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("strike", few(range(11), 2))
def test_a_crash_at_a_write_makes_no_difference_in_the_end(strike: int, is_after: bool) -> None:
    assert strike < len(writes())
    seen, wrong = play(strike, is_after=is_after)
    assert len(seen) > strike
    assert wrong == []
