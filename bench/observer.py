"""When pods were created, bound, and given a reason why they wait, as one light watch saw it.

All times are those at which this process read the event, so what the watch costs is in no difference. Only three
fields are decoded.
"""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import msgspec
from anyio.abc import TaskStatus

from kube.client.api import check
from kube.client.transport import Transport

_TIMEOUT_S = 10.0


class _Meta(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    name: str = ""
    resource_version: str = ""


class _Spec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    node_name: str = ""


class _Condition(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    status: str = ""


class _Status(msgspec.Struct, frozen=True, gc=False):
    conditions: tuple[_Condition, ...] = ()


class _Seen(msgspec.Struct, frozen=True, gc=False):
    metadata: _Meta = _Meta()
    spec: _Spec = _Spec()
    status: _Status = _Status()


class _Event(msgspec.Struct, frozen=True, gc=False):
    type: str
    object: _Seen = _Seen()


_WAITS = _Condition(type="PodScheduled", status="False")

_event = msgspec.json.Decoder(_Event)
_list = msgspec.json.Decoder(_Seen)


class Observer:
    """Watches the pods of a namespace. Times are the event loop's."""

    def __init__(self, transport: Transport, namespace: str) -> None:
        self.created_at: dict[str, float] = {}
        self.bound_at: dict[str, float] = {}
        self.nodes: dict[str, str] = {}
        #: When a pod was first seen with a reason why it waits.
        self.refused_at: dict[str, float] = {}
        #: Events so far: one a write.
        self.seen = 0
        self._transport = transport
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._version = ""
        self._awaited: set[str] = set()
        self._all_bound = anyio.Event()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Watch from now on, until cancelled.

        Raises kube.client.errors.ApiError: a bench that missed events is void.
        """
        head = check(await self._transport.request("GET", self._path, query={"limit": "1"}, timeout_s=_TIMEOUT_S))
        self._version = _list.decode(head.body).metadata.resource_version
        started = False
        while True:
            query = {"watch": "true", "resourceVersion": self._version}
            async with self._transport.stream(self._path, query=query, timeout_s=_TIMEOUT_S) as (answer, lines):
                check(answer)
                if not started:
                    task_status.started()
                    started = True
                async for line in lines:
                    self._take(_event.decode(line))

    def _take(self, event: _Event) -> None:
        name, node = event.object.metadata.name, event.object.spec.node_name
        if event.type == "ERROR":
            raise RuntimeError("the watch of the bench failed")
        self._version = event.object.metadata.resource_version
        now = anyio.current_time()
        self.seen += 1
        self.created_at.setdefault(name, now)
        if name not in self.refused_at and _WAITS in event.object.status.conditions:
            self.refused_at[name] = now
        if node and name not in self.bound_at:
            self.bound_at[name] = now
            self.nodes[name] = node
            self._awaited.discard(name)
            if not self._awaited:
                self._all_bound.set()

    async def bound(self, names: Sequence[str], *, within_s: float) -> None:
        """Wait until all these pods are bound. Raises TimeoutError with how many are."""
        self._awaited = set(names) - self.bound_at.keys()
        self._all_bound = anyio.Event()
        with anyio.move_on_after(within_s):
            if self._awaited:
                await self._all_bound.wait()
        if self._awaited:
            raise TimeoutError(f"{len(self._awaited)} of {len(names)} pods were not bound within {within_s:.0f} s")

    def waits_s(self, names: Sequence[str]) -> list[float]:
        """Created to bound, of each of these pods."""
        return [self.bound_at[name] - self.created_at[name] for name in names]
