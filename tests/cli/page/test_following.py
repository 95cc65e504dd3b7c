"""What the page keeps of what an API server has. In virtual time."""

from __future__ import annotations

import random
from typing import Any

import anyio
import pytest

from cli.page.following import Following
from cli.page.objects import MOST_EVENTS, Objects
from kube.api import Api
from kube.clock import SystemClock
from kube.memory.server import MemoryApiServer
from kube.resources import EVENTS
from kube.retry import Retry
from tests.conftest import AnyioBackend


@pytest.fixture(scope="module")
def anyio_backend(virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    return virtual_anyio_backend


def event(name: str, at: str) -> dict[str, Any]:
    said = {"reason": "R", "action": "A", "type": "Normal", "reportingController": "c", "reportingInstance": "c-0"}
    regarding = {"kind": "Pod", "name": "p", "namespace": "n"}
    return {"metadata": {"name": name}, "eventTime": at, "regarding": regarding, **said}


async def test_of_a_long_list_the_newest_events_are_kept_whatever_their_namespaces() -> None:
    """A list comes by namespace: the last ones of it are those of the last namespaces, however old."""
    server = MemoryApiServer(clock=SystemClock(), rng=random.Random(1), auto_namespaces=True)
    api = Api(server.transport("user"), retry=Retry(random.Random(2)))
    objects = Objects()
    following = Following(api, objects, rng=random.Random(3))
    async with anyio.create_task_group() as tasks:
        await tasks.start(server.run)
        for number in range(MOST_EVENTS):
            await api.create(EVENTS, event(f"old-{number}", "2026-01-01T00:00:00.000000Z"), namespace="team-z")
        for number in range(10):
            at = f"2026-01-01T00:00:01.{number:06d}Z"
            await api.create(EVENTS, event(f"new-{9 - number}", at), namespace="team-a")
        await tasks.start(following.run)
        await anyio.sleep(1)
        assert len(objects.events) == MOST_EVENTS
        assert [key for key in objects.events if "new" in key] == [f"team-a/new-{9 - n}" for n in range(10)]
        # What is dropped was never shown, so nobody is told that it is gone.
        assert objects.marks.events.keys() == objects.events.keys()
        await api.create(EVENTS, event("late", "2025-01-01T00:00:00.000000Z"), namespace="team-b")
        await anyio.sleep(1)
        assert list(objects.events)[-1] == "team-b/late"
        tasks.cancel_scope.cancel()
