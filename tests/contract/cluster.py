"""What a contract test works with: raw requests on one API server, in a namespace of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import msgspec

from kube.client.transport import Transport
from simulator.apiserver.server import MemoryApiServer
from simulator.apiserver.types import custom

MERGE = "application/merge-patch+json"
JSON = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"

TIMEOUT_S = 10.0
_POLL_S = 0.05
_POLLS = 600

#: A custom resource of the suite's own, known to both servers.
WIDGETS = custom("contract.moorage.dev", "v1", "widgets", "Widget", namespaced=True)
WIDGETS_CRD: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": WIDGETS.qualified},
    "spec": {
        "group": WIDGETS.group,
        "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


class Answer(msgspec.Struct, frozen=True):
    """Status code and decoded body."""

    code: int
    body: dict[str, Any]

    @property
    def rv(self) -> str:
        """resourceVersion of the object or list."""
        return str(self.body["metadata"]["resourceVersion"])

    @property
    def uid(self) -> str:
        return str(self.body["metadata"]["uid"])

    @property
    def failure(self) -> tuple[int, str]:
        """Code and reason: what clients tell cases apart by."""
        assert self.body["kind"] == "Status", self.body
        assert self.body["code"] == self.code
        return self.code, self.body.get("reason", "")

    @property
    def names(self) -> list[str]:
        return [item["metadata"]["name"] for item in self.body["items"]]


class Event(msgspec.Struct, frozen=True):
    """One line of a watch."""

    type: str
    object: dict[str, Any]

    @property
    def brief(self) -> tuple[str, str]:
        return self.type, self.object["metadata"]["name"]


class Cluster:
    """One API server, and a namespace that nobody else uses."""

    def __init__(
        self,
        transport: Transport,
        namespace: str,
        *,
        compact: Callable[[], Awaitable[None]],
        memory: MemoryApiServer | None = None,
    ) -> None:
        self.transport = transport
        #: The server, if it is the one in memory.
        self.memory = memory
        self.namespace = namespace
        #: Forget all history.
        self.compact = compact
        self.pods = f"/api/v1/namespaces/{namespace}/pods"
        self.config_maps = f"/api/v1/namespaces/{namespace}/configmaps"
        self.leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self.events = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
        self.widgets = f"/apis/contract.moorage.dev/v1/namespaces/{namespace}/widgets"

    async def send(
        self, method: str, path: str, body: Any = None, *, content_type: str = "application/json", **query: str
    ) -> Answer:
        raw = body if isinstance(body, bytes | None) else msgspec.json.encode(body)
        response = await self.transport.request(
            method, path, query=query, body=raw, content_type=content_type, timeout_s=TIMEOUT_S
        )
        return Answer(response.status, msgspec.json.decode(response.body))

    async def get(self, path: str, **query: str) -> Answer:
        return await self.send("GET", path, **query)

    async def made(self, path: str, body: Any) -> Answer:
        """Create an object that is expected to be fine."""
        answer = await self.send("POST", path, body)
        assert answer.code == 201, answer.body
        return answer

    async def patch(self, path: str, patch: Any, content_type: str = MERGE, **query: str) -> Answer:
        return await self.send("PATCH", path, patch, content_type=content_type, **query)

    async def delete(self, path: str, options: Any = None, **query: str) -> Answer:
        return await self.send("DELETE", path, options, **query)

    async def now(self, path: str) -> str:
        """Return the current resourceVersion, from which a watch sees what comes."""
        return (await self.get(path, limit="1")).rv

    async def watch(self, path: str, count: int, **query: str) -> list[Event]:
        """Return the first ``count`` events of a watch."""
        events: list[Event] = []
        with anyio.fail_after(TIMEOUT_S):
            async with self.transport.stream(path, query={"watch": "true", **query}, timeout_s=TIMEOUT_S) as (
                head,
                lines,
            ):
                assert head.status == 200, head.body
                async for line in lines:
                    events.append(msgspec.json.decode(line, type=Event))
                    if len(events) == count:
                        return events
        raise AssertionError(f"the watch ended after {len(events)} of {count} events: {events}")

    async def watch_to_its_end(self, path: str, **query: str) -> list[Event]:
        """Return all events of a watch with a time-out."""
        events: list[Event] = []
        with anyio.fail_after(TIMEOUT_S):
            async with self.transport.stream(path, query={"watch": "true", **query}, timeout_s=TIMEOUT_S) as (
                head,
                lines,
            ):
                assert head.status == 200, head.body
                events += [msgspec.json.decode(line, type=Event) async for line in lines]
        return events

    async def until_code(self, path: str, code: int) -> Answer:
        """Ask until the answer has this code: for what controllers do in their own time."""
        for _ in range(_POLLS):
            answer = await self.get(path)
            if answer.code == code:
                return answer
            await anyio.sleep(_POLL_S)
        raise AssertionError(f"GET {path} never answered {code}")


def pod(name: str, *, finalizers: tuple[str, ...] = (), **spec: Any) -> dict[str, Any]:
    """A pod with one container."""
    meta: dict[str, Any] = {"name": name, **({"finalizers": list(finalizers)} if finalizers else {})}
    body = {"containers": [{"name": "main", "image": "busybox"}], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": body}


def config_map(name: str, data: dict[str, str] | None = None, **meta: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **meta}, "data": data or {}}


def widget(name: str, **parts: Any) -> dict[str, Any]:
    meta = {"name": name, **parts.pop("metadata", {})}
    return {"apiVersion": WIDGETS.api_version, "kind": "Widget", "metadata": meta, **parts}


def event(name: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "moorage.dev/contract",
        "reportingInstance": "test",
        "action": "Test",
        "reason": "Tested",
        "type": "Normal",
        "note": "a note",
        "regarding": {"kind": "Pod", "namespace": "x", "name": "y"},
    }
