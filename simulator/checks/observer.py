"""Shows the checker every version of API objects, as plain JSON and by no code of the product but the transport."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
import msgspec
from anyio.abc import TaskStatus

from kube.client import errors
from kube.client.listing import WHOLE_BYTES
from kube.client.transport import Transport
from simulator.apiserver.types import ResourceType
from simulator.checks import nominations
from simulator.checks.checker import (
    BIND_REQUESTS,
    BUDGETS,
    CONFIG_MAPS,
    DELETED,
    NODES,
    NOMINATIONS,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    QUEUES,
    Checker,
)
from simulator.checks.claims import STORED
from wire import names

#: (plural, ADDED | MODIFIED | DELETED, object)
Observe = Callable[[str, str, dict[str, Any]], None]

PATHS: Final = {
    NODES: "/api/v1/nodes",
    PODS: "/api/v1/pods",
    CONFIG_MAPS: "/api/v1/configmaps",
    POD_GROUPS: "/apis/scheduling.run.ai/v2alpha2/podgroups",
    QUEUES: "/apis/scheduling.run.ai/v2/queues",
    BIND_REQUESTS: "/apis/scheduling.run.ai/v1alpha2/bindrequests",
    NOMINATIONS: f"/api/v1/namespaces/{names.SYSTEM_NAMESPACE}/configmaps",
    PRIORITY_CLASSES: "/apis/scheduling.k8s.io/v1/priorityclasses",
    BUDGETS: "/apis/policy/v1/poddisruptionbudgets",
}
_TIMEOUT_S: Final = 30.0
_PAUSE_S: Final = 1.0


@dataclass(slots=True)
class Observer:
    """Watches one kind by a plain list and watch. ``latest`` holds the objects that are there, by UID.

    Versions between a lost watch and the list after it are lost to the checker as well. The in-memory API server loses
    none.
    """

    transport: Transport
    plural: str
    observe: Observe
    latest: dict[str, dict[str, Any]] = field(default_factory=dict)
    _version: str = ""

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Watch for ever; started after the first list."""
        await self._list()
        task_status.started()
        while True:
            try:
                if not self._version:
                    await self._list()
                await self._watch()
            except errors.Unreachable:
                await anyio.sleep(_PAUSE_S)

    async def _list(self) -> None:
        listing = await objects(self.transport, self.plural)
        self._version = listing["metadata"]["resourceVersion"]
        there = {raw["metadata"]["uid"]: raw for raw in listing.get("items") or ()}
        for uid in [uid for uid in self.latest if uid not in there]:
            self._take(DELETED, self.latest[uid])
        for uid, raw in sorted(there.items(), key=_rank):
            self._take("MODIFIED" if uid in self.latest else "ADDED", raw)

    async def _watch(self) -> None:
        query = {"watch": "true", "resourceVersion": self._version}
        async with self.transport.stream(PATHS[self.plural], query=query, timeout_s=_TIMEOUT_S) as (head, lines):
            if head.status != 200:
                self._version = ""
                return
            async for line in lines:
                event = msgspec.json.decode(line)
                if event["type"] == "ERROR":
                    self._version = ""
                    return
                self._version = event["object"]["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    self._take(event["type"], event["object"])

    def _take(self, event: str, raw: dict[str, Any]) -> None:
        uid = raw["metadata"]["uid"]
        if event == DELETED:
            self.latest.pop(uid, None)
        else:
            self.latest[uid] = raw
        self.observe(self.plural, event, raw)


def _rank(item: tuple[str, dict[str, Any]]) -> int:
    """The order in which the objects of one list are told, which are all of one moment.

    What has ended uses nothing any more; then come the books of devices, then who is in them.
    """
    raw = item[1]
    if (raw.get("status") or {}).get("phase") in {names.SUCCEEDED, names.FAILED}:
        return 0
    return 1 if names.TENANTS in (raw["metadata"].get("annotations") or {}) else 2


async def objects(transport: Transport, plural: str) -> dict[str, Any]:
    """List all objects of a kind. Raises kube.client.errors.Unreachable when the server does not give the list."""
    response = await transport.request("GET", PATHS[plural], query={}, timeout_s=_TIMEOUT_S, most_bytes=WHOLE_BYTES)
    if response.status != 200:
        raise errors.Unreachable(f"list of {plural}: HTTP {response.status}")
    listing: dict[str, Any] = msgspec.json.decode(response.body)
    return listing


class _Named(msgspec.Struct):
    metadata: dict[str, Any]


_NAMED: Final = f'"name":"{nominations.NAME}'.encode()


@dataclass(frozen=True, slots=True, eq=False)
class Overhearing:
    """Takes what an in-memory API server stores, where one more watch would make another run of the same seed.

    ``MemoryApiServer.listen`` calls it.
    """

    checker: Checker

    def take(self, kind: ResourceType, raw: bytes, is_gone: bool) -> None:
        """Show records of nominations, names of ConfigMaps, budgets, PriorityClasses, and what is judged of claims."""
        if kind.plural in STORED and self.checker.claims.wants(kind.plural):
            stored: dict[str, Any] = msgspec.json.decode(raw)
            self.checker.claims.stored(kind.plural, stored, anyio.current_time(), is_gone=is_gone)
        if kind.plural == CONFIG_MAPS:
            meta: dict[str, Any] = msgspec.json.decode(raw, type=_Named).metadata
            there = self.checker.config_maps
            (there.discard if is_gone else there.add)((meta.get("namespace", ""), meta.get("name", "")))
        is_record = kind.plural == CONFIG_MAPS and _NAMED in raw
        if not is_record and kind.plural not in {BUDGETS, PRIORITY_CLASSES}:
            return
        said: dict[str, Any] = msgspec.json.decode(raw)
        if is_record and not _is_record(said["metadata"]):
            return
        event = DELETED if is_gone else "MODIFIED"
        self.checker.observed(NOMINATIONS if is_record else kind.plural, event, said, anyio.current_time())


def _is_record(metadata: dict[str, Any]) -> bool:
    is_ours = metadata.get("namespace") == names.SYSTEM_NAMESPACE
    return is_ours and nominations.pool_of(metadata.get("name", "")) is not None
