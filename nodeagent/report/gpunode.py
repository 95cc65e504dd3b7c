"""Keeps the GpuNode of this node: makes it, and writes its status, seldom. And Events about the agent's Node."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import anyio
import msgspec
from typing_extensions import override

from kube.client.api import Api
from kube.client.errors import AlreadyExists, ApiError, NotFound
from kube.client.resources import GPU_NODES, NODES
from kube.client.retry import Backoff, BackoffRange
from kube.events import EventRecorder, about
from kube.telemetry.logevents import EventSink, ignore
from kube.watch.reflector import Reflector, Sink
from kube.watch.signal import Signal
from nodeagent.core.report.status import Told, patch, status, write_at_s
from nodeagent.report.devices import AgentEvent, GpuNodeWritten
from wire.api_groups import WARNING
from wire.core import Node, ObjectMeta
from wire.crds.gpunode import GpuNode, GpuNodeStatus
from wire.rfc3339 import rfc3339
from wire.tombstones import is_older

_log: Final = logging.getLogger(__name__)


class NodeEvents:
    """``node``: its name. ``seen`` is the Node as it was seen last; None before."""

    def __init__(self, events: EventRecorder, *, node: str, seen: Callable[[], Node | None]) -> None:
        self._events = events
        self._node = node
        self._seen = seen

    def warn(self, reason: str, action: str, note: str) -> None:
        """Make a Warning, and log it."""
        _log.warning("%s: %s", reason, note)
        node = self._seen()
        # As kubelet names a Node that it has not read: kubectl describe shows events of either.
        metadata = ObjectMeta(name=self._node, uid=self._node) if node is None else node.metadata
        # Final: between two equal Events the state was another one, so they are not counted as a series.
        self._events.record(
            about(NODES, metadata), reason=reason, action=action, note=note, type=WARNING, is_final=True
        )


#: After a refused write, or while the kind is not served.
_AGAIN: Final = BackoffRange(first_s=2.0, most_s=120.0)


class _Latest(Sink[Any, Any]):
    """Keeps the one object that a watch by name shows."""

    def __init__(self, changed: Signal) -> None:
        self._changed = changed
        self.found: Any = None

    @override
    def keep(self, obj: Any) -> Any:
        return obj

    @override
    async def replace(self, kept: Sequence[Any]) -> None:
        self.found = kept[0] if kept else None
        self._changed.set()

    @override
    def upsert(self, obj: Any) -> None:
        # What was written meanwhile is known already.
        if self.found is not None and is_older(obj.metadata.resource_version, self.found.metadata.resource_version):
            return
        self.found = obj
        self._changed.set()

    @override
    def delete(self, obj: Any) -> None:
        self.found = None
        self._changed.set()


class Publishing:
    """``told`` is what the status is to say; the parts of the agent change it by ``tell``."""

    def __init__(self, api: Api, *, node: str, rng: random.Random, emit: EventSink[AgentEvent] = ignore) -> None:
        self._api = api
        self._emit = emit
        self._name = node
        self._changed = Signal()
        self._node, self._gpu_node = _Latest(self._changed), _Latest(self._changed)
        self._backoff = Backoff(_AGAIN, rng)
        self._last_s: float | None = None
        #: What was written last, and what the API server made of it: an older definition leaves fields out.
        self._written = (GpuNodeStatus(), GpuNodeStatus())
        self.told = Told()
        #: Called with the GpuNode that is there, or none, before anything is written.
        self.before_first: Callable[[GpuNode | None], None] | None = None
        selector = f"metadata.name={node}"
        self.nodes = Reflector(api, NODES, self._node, field_selector=selector, rng=rng)
        self.gpu_nodes = Reflector(api, GPU_NODES, self._gpu_node, field_selector=selector, rng=rng)

    @property
    def node(self) -> Node | None:
        """The Node as it was seen last; None before, and when it was deleted."""
        found: Node | None = self._node.found
        return found

    @property
    def gpu_node(self) -> GpuNode | None:
        """The GpuNode as it was seen last; None before, and when it was deleted."""
        found: GpuNode | None = self._gpu_node.found
        return found

    def tell(self, **parts: Any) -> None:
        """Change parts of what is told, by the fields of Told."""
        changed = replace(self.told, **parts)
        if changed != self.told:
            self.told = changed
            self._changed.set()

    async def run(self) -> None:
        """Write until cancelled."""
        await self.gpu_nodes.synced.wait()
        if self.before_first is not None:
            self.before_first(self._gpu_node.found)
        while True:
            due_s = self._due_s()
            if due_s is not None and due_s <= anyio.current_time():
                await self._write()
                continue
            with anyio.move_on_after(None if due_s is None else due_s - anyio.current_time()):
                await self._changed.wait()

    def _due_s(self) -> float | None:
        """Return when something is to be written; None: nothing, as things are."""
        if self._gpu_node.found is None:
            # Without its Node it would stay for ever.
            return None if self._node.found is None else 0.0
        stored = _undated(self._gpu_node.found.status)
        meant, made_of_it = self._written
        return write_at_s(status(self.told), meant if stored == made_of_it else stored, self._last_s)

    async def _write(self) -> None:
        try:
            if self._gpu_node.found is None:
                self._gpu_node.found = await self._api.create(GPU_NODES, _made(self._node.found))
                self._last_s = None
            wanted = status(self.told)
            body = patch(wanted, rfc3339(self._api.clock.now_ns()))
            stored = await self._api.patch(GPU_NODES, self._name, body, subresource="status")
            self._gpu_node.found, self._written = stored, (wanted, _undated(stored.status))
        except NotFound:
            # It was deleted meanwhile, or its kind was. The watch may have said so before the answer to a write of ours
            # came, which was kept then, and says it once only.
            self._gpu_node.found = None
            await self._pause("it is not there")
        except AlreadyExists:
            await self._pause("it was made by somebody else")
        except ApiError as error:
            await self._pause(str(error))
        else:
            self._backoff.succeed()
            self._last_s = anyio.current_time()
            self._emit(GpuNodeWritten())

    async def _pause(self, why: str) -> None:
        wait_s = self._backoff.fail()
        _log.warning("GpuNode %s could not be written: %s; again in %.1f s", self._name, why, wait_s)
        await anyio.sleep(wait_s)


def _undated(stored: GpuNodeStatus) -> GpuNodeStatus:
    """Without the time of its write, by which two statuses are not told apart."""
    return msgspec.structs.replace(stored, reported_at=None)


def _made(node: Node) -> dict[str, Any]:
    """Return a GpuNode that goes with its Node."""
    meta = node.metadata
    owner = {"apiVersion": "v1", "kind": "Node", "name": meta.name, "uid": meta.uid}
    return {"metadata": {"name": meta.name, "ownerReferences": [owner]}}
