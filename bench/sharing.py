"""A stage on which pods share GPUs: all components with their webhooks, and a stand-in for reservation processes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from fractions import Fraction
from typing import Any

import anyio

from bench import stage
from bench.contenders import ALONE
from bench.stage import Stage
from bench.standin import StandIn
from tools.cluster import ControlPlane
from tools.deployment import Deployment, Options
from wire import names


@asynccontextmanager
async def sharing(plane: ControlPlane, *, nodes: int) -> AsyncIterator[tuple[Stage, StandIn, Deployment]]:
    """Everything runs, and nothing is there yet."""
    async with stage.stage(plane, nodes=nodes) as scene:
        with Deployment(plane, Options(arguments=ALONE, device_teller=True)) as deployment:
            async with stage.transport(plane, deployment.teller_token) as teller, anyio.create_task_group() as tasks:
                stand_in = StandIn(scene, teller)
                await tasks.start(stand_in.run)
                yield scene, stand_in, deployment
                deployment.check()
                tasks.cancel_scope.cancel()


async def over_full(scene: Stage) -> list[str]:
    """Groups whose pods ask for more than one GPU together, by what the users wrote; and pods of no group."""
    asked: dict[str, Fraction] = {}
    for pod in (await scene.send("GET", stage.PODS))["items"]:
        group = _group(pod)
        asked[group] = asked.get(group, Fraction()) + Fraction(pod["metadata"]["annotations"][names.GPU_FRACTION])
    return [group for group, sum_of_it in asked.items() if sum_of_it > 1 or not group]


def _group(pod: dict[str, Any]) -> str:
    return str((pod["metadata"].get("labels") or {}).get(names.GPU_GROUP_LABEL, ""))
