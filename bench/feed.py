"""An API server that only lists and watches, in a process of its own: ``python -m bench.feed`` prints its port.

It serves made-up nodes and pods in pages, and on the pods' watch a number of events as fast as they are taken, so that
what a cache costs can be measured without anything else on the loop. Pods are about 5 KB, as real ones are.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import msgspec
from aiohttp import web

from bench import objects
from wire import names

_LOOPBACK = "127.0.0.1"
_VERSION = 1_000_000
_EVENTS_A_WRITE = 16


def uid(number: int) -> str:
    """The UID of a pod."""
    return f"{number:08x}-0000-4000-8000-000000000000"


def pod(number: int, nodes: int, *, version: int = 1) -> bytes:
    """A pod that runs on the node that its number falls on: the first 8 of a node have a GPU each, the others none."""
    name = f"pod-{number:06}"
    made = objects.whole(name, node=f"node-{number % nodes:04}")
    if number // nodes >= objects.CARDS:
        del made["spec"]["containers"][0]["resources"]["limits"]
    made["metadata"] |= {
        "namespace": "bench",
        "uid": uid(number),
        "resourceVersion": str(version),
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"app": "train", "job": f"job-{number // 100}"},
        "annotations": {names.RECEIVED_RESOURCE_TYPE: names.RECEIVED_REGULAR},
        "managedFields": _MANAGED,
    }
    made["spec"]["containers"][0]["env"] = [{"name": f"VARIABLE_{i}", "value": f"value {i}"} for i in range(10)]
    made["status"] = _STATUS
    return msgspec.json.encode(made)


_STATUS = {
    "phase": "Running",
    "conditions": [
        {"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    ],
    "containerStatuses": [
        {"name": "main", "ready": True, "restartCount": 0, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
    ],
}
#: What no component reads and every server sends: most of a pod's bytes.
_MANAGED: list[dict[str, Any]] = [
    {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "v1",
        "time": "2026-01-01T00:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {f"f:field-{i}": {f'k:{{"name":"{i}"}}': {".": {}, "f:value": {}}} for i in range(28)},
    }
    for manager in ("kube-controller-manager", "kubelet")
]


class Feed:
    """``pods`` on ``nodes``, then ``events`` about them."""

    def __init__(self, *, pods: int, nodes: int, events: int) -> None:
        self._pods = pods
        self._nodes = [msgspec.json.encode(node) for node in objects.nodes(nodes)]
        self._events = list(self._made(events))

    def application(self) -> web.Application:
        """The routes."""
        app = web.Application()
        app.router.add_get("/api/v1/nodes", self._answer_nodes)
        app.router.add_get("/api/v1/pods", self._answer_pods)
        return app

    def _made(self, events: int) -> Iterator[bytes]:
        for number in range(events):
            body = pod(number % self._pods, len(self._nodes), version=_VERSION + 1 + number)
            yield b'{"type":"MODIFIED","object":' + body + b"}\n"

    async def _answer_nodes(self, request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            return await self._watch(request, [])
        return _page(request, len(self._nodes), lambda number: self._nodes[number])

    async def _answer_pods(self, request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            return await self._watch(request, self._events)
        return _page(request, self._pods, lambda number: pod(number, len(self._nodes)))

    async def _watch(self, request: web.Request, events: list[bytes]) -> web.StreamResponse:
        """Send all there is, then stay silent until the other side goes."""
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        await answer.prepare(request)
        for start in range(0, len(events), _EVENTS_A_WRITE):
            await answer.write(b"".join(events[start : start + _EVENTS_A_WRITE]))
        await anyio.sleep_forever()
        return answer


def _page(request: web.Request, count: int, item: Callable[[int], bytes]) -> web.Response:
    start, limit = int(request.query.get("continue", "0")), int(request.query.get("limit", str(count)))
    end = min(start + limit, count)
    meta = {"resourceVersion": str(_VERSION), **({"continue": str(end)} if end < count else {})}
    items = b",".join(item(number) for number in range(start, end))
    body = b'{"kind":"List","apiVersion":"v1","metadata":' + msgspec.json.encode(meta) + b',"items":[' + items + b"]}"
    return web.Response(body=body, content_type="application/json")


async def _serve(feed: Feed) -> None:
    runner = web.AppRunner(feed.application(), access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, _LOOPBACK, 0)
    await site.start()
    port = runner.addresses[0][1]
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    await anyio.sleep_forever()


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    for what in ("pods", "nodes", "events"):
        parser.add_argument(f"--{what}", type=int, required=True)
    told = parser.parse_args()
    anyio.run(_serve, Feed(pods=told.pods, nodes=told.nodes, events=told.events))


if __name__ == "__main__":
    main()
