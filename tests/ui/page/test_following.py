"""What the page keeps of what an API server has. In virtual time."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec

from kube.client.api import Api
from kube.client.clock import SystemClock
from kube.client.resources import EVENTS, NODES, PODS
from kube.client.retry import Retry
from kube.client.transport import Response, Transport
from simulator.apiserver.server import MemoryApiServer
from tests.ui.page.test_answering import plain_node, plain_pod
from tests.ui.page.test_frames import drawn
from ui.page.objects import MOST_EVENTS, Objects
from ui.page.stream import UNKNOWN, Frames
from ui.page.watch import Following

VIRTUAL_TIME = True


def event(name: str, at: str) -> dict[str, Any]:
    said = {"reason": "R", "action": "A", "type": "Normal", "reportingController": "c", "reportingInstance": "c-0"}
    regarding = {"kind": "Pod", "name": "p", "namespace": "n"}
    return {"metadata": {"name": name}, "eventTime": at, "regarding": regarding, **said}


class Limited:
    """A Transport for whom some paths are allowed alone, as the API server's RBAC does it."""

    def __init__(self, transport: Transport, *allowed: str) -> None:
        self._transport = transport
        self.allowed = set(allowed)

    def _refused(self, path: str) -> Response | None:
        if path in self.allowed:
            return None
        status = {"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403, "message": f"not {path}"}
        return Response(403, {}, msgspec.json.encode(status))

    async def request(self, method: str, path: str, **how: Any) -> Response:
        return self._refused(path) or await self._transport.request(method, path, **how)

    @asynccontextmanager
    async def stream(self, path: str, **how: Any) -> AsyncIterator[tuple[Response, AsyncIterator[bytes]]]:
        if (refused := self._refused(path)) is not None:
            yield refused, _nothing()
            return
        async with self._transport.stream(path, **how) as opened:
            yield opened


async def _nothing() -> AsyncIterator[bytes]:
    lines: tuple[bytes, ...] = ()
    for line in lines:
        yield line


#: What a Role in each of two namespaces gives.
TWO = [
    path.format(team)
    for team in ("team-a", "team-b")
    for path in (
        "/api/v1/namespaces/{}/pods",
        "/apis/events.k8s.io/v1/namespaces/{}/events",
        "/apis/scheduling.run.ai/v1alpha2/namespaces/{}/bindrequests",
        "/apis/scheduling.run.ai/v2alpha2/namespaces/{}/podgroups",
    )
]


@asynccontextmanager
async def followed(
    namespaces: Sequence[str], *allowed: str
) -> AsyncIterator[tuple[MemoryApiServer, Api, Following, Objects]]:
    """A pod of each of three teams on a node with four GPUs, and who follows some namespaces of it."""
    server = MemoryApiServer(clock=SystemClock(), rng=random.Random(1), auto_namespaces=True)
    api = Api(server.transport("user"), retry=Retry(random.Random(2)))
    objects = Objects()
    reader = Api(Limited(server.transport("reader"), *allowed), retry=Retry(random.Random(4)))
    following = Following(reader, objects, rng=random.Random(3), namespaces=namespaces)
    async with anyio.create_task_group() as tasks:
        await tasks.start(server.run)
        await api.create(NODES, plain_node("n1", gpus=4))
        for team in ("a", "b", "c"):
            await api.create(PODS, plain_pod(f"of-{team}", "n1"), namespace=f"team-{team}")
        tasks.start_soon(following.run)
        yield server, api, following, objects
        tasks.cancel_scope.cancel()


def named(objects: Objects) -> set[str]:
    return {pod.metadata.name for pod in objects.pods.values()}


async def test_who_may_read_some_namespaces_alone_follows_these() -> None:
    async with followed(["team-a", "team-b"], *TWO) as (_, api, following, objects):
        await anyio.sleep(5)
        assert following.is_in_step
        assert (named(objects), set(objects.nodes), following.has_nodes) == ({"of-a", "of-b"}, set(), False)
        said = "; ".join(following.troubles())
        assert said.startswith("pods of other namespaces than team-a, team-b; nodes: ")
        assert "/api/v1/namespaces/kai-resource-reservation/pods" in said
        assert "events" not in said
        # A list of one namespace says nothing of the other.
        await api.create(PODS, plain_pod("late"), namespace="team-b")
        await following._needed[0].catch_up()
        await anyio.sleep(5)
        assert named(objects) == {"of-a", "of-b", "late"}


async def test_with_the_right_to_read_nodes_there_is_a_map_on_which_nothing_is_idle() -> None:
    async with followed(["team-a"], *TWO, "/api/v1/nodes") as (_, _, following, objects):
        await anyio.sleep(5)
        assert following.has_nodes
        (card,) = drawn(Frames(objects, "e")).nodes
        assert [device.kind for device in card.devices] == ["whole", UNKNOWN, UNKNOWN, UNKNOWN]
        assert (card.idle_nano, card.unknown_nano) == (0, 3 * 10**9)


async def test_without_the_right_to_read_pods_of_one_there_is_nothing_to_show_and_why() -> None:
    async with followed(["team-a", "team-c"], *TWO) as (_, _, following, _):
        await anyio.sleep(5)
        assert not following.is_in_step
        assert "/api/v1/namespaces/team-c/pods" in "; ".join(following.troubles())


async def test_events_of_several_namespaces_are_the_newest_of_all_of_them() -> None:
    async with followed(["team-a", "team-b"], *TWO) as (_, api, following, objects):
        await anyio.sleep(5)
        for number in range(MOST_EVENTS):
            await api.create(EVENTS, event(f"old-{number}", "2026-01-01T00:00:00.000000Z"), namespace="team-b")
        await api.create(EVENTS, event("new", "2026-01-01T00:00:01.000000Z"), namespace="team-a")
        for each in following._wanted:
            if each.resource is EVENTS:
                await each.catch_up()
        assert len(objects.events) == MOST_EVENTS
        assert list(objects.events)[-1] == "team-a/new"


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
        # What is dropped was never shown, so no reader gets its removal.
        assert objects.marks.events.keys() == objects.events.keys()
        await api.create(EVENTS, event("late", "2025-01-01T00:00:00.000000Z"), namespace="team-b")
        await anyio.sleep(1)
        assert list(objects.events)[-1] == "team-b/late"
        tasks.cancel_scope.cancel()
