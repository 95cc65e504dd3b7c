"""Which changes of what pods depend on have the scheduler decide again."""

from __future__ import annotations

import anyio
import msgspec

from scheduler.core.model.settings import Settings
from scheduler.watch.cache import Cache
from scheduler.watch.secondary import plain_owners
from tests.scheduler.core.objects import cluster, node, pod
from wire import names
from wire.core import Job


def stateful_set(name: str, queue: str) -> Job:
    meta = {"namespace": "ns", "name": name, "uid": name, "labels": {names.QUEUE_LABEL: queue}}
    return msgspec.convert({"metadata": meta}, Job)


async def is_woken(cache: Cache) -> bool:
    """Whether anybody was woken since this was asked last."""
    with anyio.move_on_after(1.0):
        await cache.wake.wait()
        return True
    return False


async def test_stateful_sets_that_no_pod_waits_for_wake_nobody() -> None:
    made = cluster(
        node(), pod("m", gpus=1, owner=("apps/v1", "StatefulSet")), settings=Settings(workloads_are_grouped=True)
    )
    cache = Cache(made)
    (sink,) = [kind.sink for kind in plain_owners(cache) if kind.resource.kind == "StatefulSet"]
    sink.in_step(True)
    assert await is_woken(cache)
    sink.upsert(stateful_set("other", "a"))
    assert not await is_woken(cache)
    sink.upsert(stateful_set("o", "a"))
    assert await is_woken(cache)
    sink.upsert(stateful_set("o", "a"))
    sink.delete(stateful_set("other", "a"))
    assert not await is_woken(cache)
    sink.delete(stateful_set("o", "a"))
    assert await is_woken(cache)
