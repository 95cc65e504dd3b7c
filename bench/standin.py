"""Answers for kubelets and reservation processes: reservation pods run at once, or after a delay, and name a device.

As much as there is without machines: the status under the administrator's identity as kubelet writes it, the device's
identity under the token of the simulated teller, and the end of a pod that is being deleted.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import anyio
import msgspec
from anyio.abc import TaskGroup, TaskStatus

from bench.stage import Stage
from kube.client.api import MERGE_PATCH, check
from kube.client.errors import Conflict, NotFound
from kube.client.transport import Transport
from wire import names

_PODS = f"/api/v1/namespaces/{names.RESERVATION_NAMESPACE}/pods"
_TIMEOUT_S = 30.0


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str = ""


class _Pod(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: _Pod


_event = msgspec.json.Decoder(_Event)
_list = msgspec.json.Decoder(_Pod)


class StandIn:
    """Watches the reservation namespace; ``delay_s`` is how long a reservation takes to start."""

    def __init__(self, scene: Stage, teller: Transport, *, delay_s: float = 0.0) -> None:
        self.delay_s = delay_s
        self._kubelet = scene.transport
        self._teller = teller
        self._known: set[str] = set()
        self._ended: set[str] = set()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Answer until cancelled."""
        head = check(await self._kubelet.request("GET", _PODS, query={"limit": "1"}, timeout_s=_TIMEOUT_S))
        version, started = _list.decode(head.body).metadata.resource_version, False
        async with anyio.create_task_group() as tasks:
            while True:
                query = {"watch": "true", "resourceVersion": version}
                async with self._kubelet.stream(_PODS, query=query, timeout_s=_TIMEOUT_S) as (answer, lines):
                    check(answer)
                    if not started:
                        task_status.started()
                        started = True
                    async for line in lines:
                        event = _event.decode(line)
                        version = event.object.metadata.resource_version
                        self._take(event, tasks)

    def _take(self, event: _Event, tasks: TaskGroup) -> None:
        pod = event.object.metadata
        if event.type not in {"ADDED", "MODIFIED"}:
            return
        if pod.uid not in self._known:
            self._known.add(pod.uid)
            tasks.start_soon(self._begin, pod)
        if pod.deletion_timestamp and pod.uid not in self._ended:
            self._ended.add(pod.uid)
            tasks.start_soon(self._end, pod)

    async def _begin(self, pod: _Meta) -> None:
        await anyio.sleep(self.delay_s)
        running = {"name": names.RESERVATION_CONTAINER, "ready": True, "restartCount": 0, "image": "", "imageID": ""}
        status = {"phase": names.RUNNING, "containerStatuses": [{**running, "state": {"running": {}}}]}
        device = {names.RESERVE_FOR_GPU_INDEX: f"GPU-{uuid.uuid4()}"}
        try:
            await _patch(self._kubelet, pod, "/status", {"status": status})
            await _patch(self._teller, pod, "", {"metadata": {"annotations": device}})
        except (NotFound, Conflict):
            return  # it is gone already

    async def _end(self, pod: _Meta) -> None:
        """What kubelet does when the containers of a pod that is being deleted have ended."""
        body = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "gracePeriodSeconds": 0,
            "preconditions": {"uid": pod.uid},
        }
        try:
            check(
                await self._kubelet.request(
                    "DELETE", f"{_PODS}/{pod.name}", query={}, body=msgspec.json.encode(body), timeout_s=_TIMEOUT_S
                )
            )
        except (NotFound, Conflict):
            return


async def _patch(transport: Transport, pod: _Meta, subresource: str, patch: Mapping[str, Any]) -> None:
    body = {**patch, "metadata": {**patch.get("metadata", {}), "uid": pod.uid}}
    check(
        await transport.request(
            "PATCH",
            f"{_PODS}/{pod.name}{subresource}",
            query={},
            body=msgspec.json.encode(body),
            content_type=MERGE_PATCH,
            timeout_s=_TIMEOUT_S,
        )
    )
