"""A stage on which pods share GPUs: all components with their webhooks, and a stand-in for kubelets.

The stand-in is as much as there is without machines: reservation pods run at once, or after a delay, and name a device.
It writes the status under the administrator's identity as kubelet does, the device's identity under the token of the
simulated agent, and the end of a pod that is being deleted. Requests are retried: parts take an hour, measure no
latency, and the machine is used by others, too.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from fractions import Fraction
from typing import Any, Final

import anyio
import msgspec
from anyio.abc import TaskGroup, TaskStatus

from admission.mutate import mutated
from admission.settings import Choices, Settings
from bench import bench_cluster
from bench.bench_cluster import Stage
from bench.contenders import ALONE
from bench.objects import Manifest
from gpu.translation import Refusal
from kube.client.api import MERGE_PATCH, check
from kube.client.errors import Conflict, NotFound, Unreachable
from kube.client.transport import JSON, OBJECT_BYTES, Response, Transport
from tools.cluster.deployment import COMPONENTS, Deployment, Options
from tools.cluster.plane import ControlPlane
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


_TRIES: Final = 20
_PAUSE_S: Final = 3.0
#: What an earlier try may have left behind: for the one who asks it is done.
_DONE: Final = {"POST": 409, "DELETE": 404}


class Patient:
    """Repeats calls that are answered with 429 or 5xx, or not at all. Watches go through as they are."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str],
        body: bytes | None = None,
        content_type: str = "application/json",
        accept: str = JSON,
        timeout_s: float,
        most_bytes: int = OBJECT_BYTES,
    ) -> Response:
        """See kube.client.transport.Transport. The last try's failure is raised, or handed back, as it was."""
        number = 0
        while True:
            number += 1
            try:
                answer = await self._inner.request(
                    method,
                    path,
                    query=query,
                    body=body,
                    content_type=content_type,
                    accept=accept,
                    timeout_s=timeout_s,
                    most_bytes=most_bytes,
                )
            except Unreachable:
                if number == _TRIES:
                    raise
            else:
                if number > 1 and answer.status == _DONE.get(method):
                    return msgspec.structs.replace(answer, status=200)
                if number == _TRIES or (answer.status < 500 and answer.status != 429):
                    return answer
            await anyio.sleep(_PAUSE_S)

    def stream(
        self, path: str, *, query: Mapping[str, str], accept: str = JSON, timeout_s: float
    ) -> AbstractAsyncContextManager[tuple[Response, AsyncIterator[bytes]]]:
        """See kube.client.transport.Transport."""
        return self._inner.stream(path, query=query, accept=accept, timeout_s=timeout_s)


@asynccontextmanager
async def sharing(
    plane: ControlPlane,
    *,
    nodes: int,
    components: Sequence[str] = COMPONENTS,
    arguments: Mapping[str, Sequence[str]] = ALONE,
    is_patient: bool = False,
) -> AsyncIterator[tuple[Stage, StandIn, Deployment]]:
    """Everything runs, and nothing is there yet. Without ADMISSION there are no webhooks and no policies.

    ``is_patient``: calls of the bench and of its stand-in that fail are repeated.
    """
    async with bench_cluster.stage(plane, nodes=nodes) as scene:
        if is_patient:
            scene.transport = Patient(scene.transport)
        with Deployment(plane, Options(components=components, arguments=arguments, device_teller=True)) as deployment:
            async with (
                bench_cluster.transport(plane, deployment.teller_token) as teller,
                anyio.create_task_group() as tasks,
            ):
                stand_in = StandIn(scene, Patient(teller) if is_patient else teller)
                await tasks.start(stand_in.run)
                yield scene, stand_in, deployment
                deployment.check()
                tasks.cancel_scope.cancel()


def admitted(pod: Manifest) -> Manifest:
    """A pod as the webhook would have made it, for benches that run without. Raises ValueError if it is refused."""
    made = mutated(pod, choices=Choices(), settings=Settings(), rng=random.Random(0))
    if isinstance(made, Refusal):
        raise ValueError(f"the pod of the bench was refused: {made}")  # noqa: TRY004 - a pod is no type
    return made.pod


async def over_full(scene: Stage) -> list[str]:
    """Groups whose pods ask for more than one GPU together, by what the users wrote; and pods of no group."""
    asked: dict[str, Fraction] = {}
    for pod in (await scene.send("GET", bench_cluster.PODS))["items"]:
        group = _group(pod)
        asked[group] = asked.get(group, Fraction()) + Fraction(pod["metadata"]["annotations"][names.GPU_FRACTION])
    return [group for group, sum_of_it in asked.items() if sum_of_it > 1 or not group]


def _group(pod: dict[str, Any]) -> str:
    return str((pod["metadata"].get("labels") or {}).get(names.GPU_GROUP_LABEL, ""))
