"""A stage on which pods share GPUs: all components with their webhooks, and a stand-in for reservation processes.

A transport that asks again: for parts that take an hour and measure no latency, on a machine that others use too.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from fractions import Fraction
from typing import Any, Final

import anyio
import msgspec

from admission.mutate import mutated
from admission.settings import Choices, Settings
from bench import stage
from bench.contenders import ALONE
from bench.objects import Manifest
from bench.stage import Stage
from bench.standin import StandIn
from gpu.translation import Refusal
from kube.client.errors import Unreachable
from kube.client.transport import OBJECT_BYTES, Response, Transport
from tools.cluster.deployment import COMPONENTS, Deployment, Options
from tools.cluster.plane import ControlPlane
from wire import names

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
        self, path: str, *, query: Mapping[str, str], timeout_s: float
    ) -> AbstractAsyncContextManager[tuple[Response, AsyncIterator[bytes]]]:
        """See kube.client.transport.Transport."""
        return self._inner.stream(path, query=query, timeout_s=timeout_s)


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
    async with stage.stage(plane, nodes=nodes) as scene:
        if is_patient:
            scene.transport = Patient(scene.transport)
        with Deployment(plane, Options(components=components, arguments=arguments, device_teller=True)) as deployment:
            async with stage.transport(plane, deployment.teller_token) as teller, anyio.create_task_group() as tasks:
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
    for pod in (await scene.send("GET", stage.PODS))["items"]:
        group = _group(pod)
        asked[group] = asked.get(group, Fraction()) + Fraction(pod["metadata"]["annotations"][names.GPU_FRACTION])
    return [group for group, sum_of_it in asked.items() if sum_of_it > 1 or not group]


def _group(pod: dict[str, Any]) -> str:
    return str((pod["metadata"].get("labels") or {}).get(names.GPU_GROUP_LABEL, ""))
