"""The checker of the simulations (simulator/checks/checker.py) on the real API server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio

from kube.client import config
from kube.client.http import HttpTransport
from simulator.checks.checker import SHOWN, Checker
from simulator.checks.observer import Observer
from tests.e2e.cluster import Scene
from tools.cluster.plane import ControlPlane


@asynccontextmanager
async def judged(plane: ControlPlane, scene: Scene, *invariants: str) -> AsyncIterator[Checker]:
    """Watch a scene; in the end these invariants must have held."""
    ca_file = plane.folder / "e2e-ca.pem"
    checker = Checker(scene.nodes.devices)
    checker.findings.start_s = anyio.current_time()

    def observe(plural: str, event: str, raw: dict[str, Any]) -> None:
        checker.observed(plural, event, raw, anyio.current_time())

    credentials = config.plain(plane.url, ca_file=str(ca_file), token=plane.token)
    async with HttpTransport(credentials) as transport, anyio.create_task_group() as tasks:
        for plural in SHOWN:
            await tasks.start(Observer(transport, plural, observe).run)
        scene.ground_truth.listeners.append(checker.recorded)
        yield checker
        scene.ground_truth.listeners.remove(checker.recorded)
        tasks.cancel_scope.cancel()
    checker.finish(anyio.current_time())
    told = {invariant: checker.report[invariant] for invariant in invariants}
    assert told == dict.fromkeys(invariants, "held")
