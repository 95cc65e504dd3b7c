"""A stage on which pods share GPUs: all components with their webhooks, and a stand-in for reservation processes."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from fractions import Fraction
from typing import Any

import anyio

from admission.mutate import mutated
from admission.settings import Choices, Settings
from bench import stage
from bench.contenders import ALONE
from bench.objects import Manifest
from bench.patient import Patient
from bench.stage import Stage
from bench.standin import StandIn
from gpu.refusal import Refusal
from tools.cluster.deployment import COMPONENTS, Deployment, Options
from tools.cluster.plane import ControlPlane
from wire import names


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
