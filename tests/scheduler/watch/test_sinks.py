"""The sinks of the cache's reflectors: what a list may and may not do to it."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import msgspec
import pytest

from scheduler.core.nodes.table import GPUS
from scheduler.watch.sinks import NodeSink, PodSink
from tests.conftest import AnyioBackend
from tests.scheduler.core.objects import NANO, changed, ended, node, pod, reservation
from tests.scheduler.watch.lists import cache, listed
from wire import names
from wire.core import Pod


@pytest.fixture(scope="module")
def anyio_backend(virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    return virtual_anyio_backend


async def turns_during(sink: PodSink, *pods: Pod) -> int:
    """How often another task runs while a list is taken."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await anyio.lowlevel.checkpoint()

    kept = [sink.keep(obj) for obj in pods]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(count)
        await anyio.lowlevel.checkpoint()
        before = turns
        await sink.replace(kept)
        taken = turns - before
        tasks.cancel_scope.cancel()
    return taken


async def test_only_the_first_list_lets_others_run_while_it_is_taken() -> None:
    made, sink = cache()
    await NodeSink(made).replace([NodeSink(made).keep(node(f"n{i}")) for i in range(400)])
    pods = [pod(f"p{i}", gpus=1, bound_to=f"n{i % 400}") for i in range(3000)]
    assert await turns_during(sink, *pods) >= 3000 // 1024 + 400 // 128 + 3000 // 128
    assert await turns_during(sink, *(changed(obj) for obj in pods)) == 0


async def test_after_the_first_list_the_ledger_is_counted() -> None:
    made, sink = cache()
    await NodeSink(made).replace([NodeSink(made).keep(node())])
    await listed(sink, pod("a", gpus=3, bound_to="n1"))
    ledger = made.cluster.ledger
    assert int(ledger.table.free[GPUS, ledger.row_of["n1"]]) == 5
    assert made.cluster.queues.sums.sums["default-queue"].held.gpu_nano == 3 * NANO
    assert made.cluster.validate() == []


async def test_what_is_not_on_a_list_is_gone_and_those_who_care_are_told() -> None:
    made, sink = cache()
    held = reservation("g")
    await listed(sink, pod("a"), pod("b", gpus=1, bound_to="n1"), held)
    told: list[str] = []
    made.on_pod = told.append
    await listed(sink, pod("c"))
    assert made.cluster.pods_beside({"uid-c"}) == []
    assert set(made.waiting) == {"uid-c"}
    assert made.reservations == {}
    assert {"uid-a", "uid-b", "uid-c", held.metadata.uid} <= set(told)


async def test_a_pod_that_the_cache_knows_in_this_version_is_not_read_again() -> None:
    made, sink = cache()
    same, other = pod("a"), pod("b")
    await listed(sink, same, other)
    assert sink.keep(same) == "uid-a"
    assert not isinstance(sink.keep(changed(other)), str)
    before = made.cluster.pod("uid-a")
    await listed(sink, same, changed(other))
    assert made.cluster.pod("uid-a") is before


async def test_pods_of_one_list_that_are_alike_are_read_once() -> None:
    _, sink = cache()
    kept = [sink.keep(pod(name, gpus=2, labels={"app": "a"})) for name in "ab"]
    one, other = (each.pod.record for each in kept if not isinstance(each, str))
    assert one is not None
    assert other is not None
    assert one.labels is other.labels
    await sink.replace(kept)
    later = sink.keep(pod("c", gpus=2, labels={"app": "a"}))
    assert not isinstance(later, str)
    assert later.pod.record is not None
    assert later.pod.record.labels is not one.labels  # of the list before nothing is kept


async def test_an_answer_that_came_while_the_list_did_is_newer_than_the_list() -> None:
    made, sink = cache()
    first = pod("a", gpus=1)
    await listed(sink, first)
    on_list = changed(first)
    kept = [sink.keep(on_list)]
    bound = msgspec.structs.replace(first.spec, node_name="n1")
    made.note_pod(changed(msgspec.structs.replace(first, spec=bound)))
    await sink.replace(kept)
    known = made.cluster.pod("uid-a")
    assert known is not None
    assert known.node == "n1"
    assert made.waiting == {}


async def test_a_pod_that_ended_in_the_gap_is_seen_to_have_ended() -> None:
    made, sink = cache()
    one = pod("a", gpus=1, bound_to="n1", group="gang")
    await listed(sink, one)
    freed: list[str] = []
    made.on_device_freed = freed.append
    await listed(sink, ended(one, names.SUCCEEDED))
    assert made.cluster.pod("uid-a") is None
    assert made.finished == {("ns", "gang")}
    assert freed == [""]
