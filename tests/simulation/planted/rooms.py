"""Faulty schedulers that make room wrong: past budgets, and for anybody (S7, S14)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec
from typing_extensions import override

from kube.client.transport import Response
from scheduler.core.assumed.intents import Intents
from scheduler.core.cluster import Cluster
from scheduler.core.model.settings import Settings
from scheduler.core.nodes.kept_room import KeptRoom
from tests.simulation.planted.wires import Wire

_EVICTION: Final = "/eviction"


class KeepsNothing(Cluster):
    """Nodes are not charged with what intents keep."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.commits.intents.__class__ = _KeepingNothing


class _KeepingNothing(Intents):
    __slots__ = ()

    @override
    def kept_at(self, node: str) -> list[KeptRoom]:
        return [msgspec.structs.replace(room, places=()) for room in super().kept_at(node)]

    @override
    def all_kept(self) -> Iterator[tuple[str, KeptRoom]]:
        for node, room in super().all_kept():
            yield node, msgspec.structs.replace(room, places=())


class DeletesVictims(Wire):
    """An eviction is sent as the deletion that it comes to, so budgets are not asked."""

    @override
    async def request(self, method: str, path: str, **rest: Any) -> Response:
        if not path.endswith(_EVICTION):
            return await self.inner.request(method, path, **rest)
        said = msgspec.json.decode(rest["body"]).get("deleteOptions") or {}
        body = msgspec.json.encode({"apiVersion": "v1", "kind": "DeleteOptions", **said})
        return await self.inner.request("DELETE", path.removesuffix(_EVICTION), **{**rest, "body": body})
