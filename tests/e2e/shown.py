"""What a running component shows at its metrics address."""

from __future__ import annotations

import contextlib

import aiohttp

from tests.e2e.cluster import PATIENCE_S, eventually
from tests.runtime.metrics.exposed import series
from tools.cluster.deployment import Deployment


async def shown(moorage: Deployment, component: str) -> str:
    """All of it, once the component listens."""

    async def answered() -> str | None:
        with contextlib.suppress(aiohttp.ClientConnectionError):
            async with aiohttp.ClientSession() as session, session.get(moorage.metrics_url(component)) as response:
                assert response.status == 200
                return await response.text()
        return None

    return await eventually(answered, f"{component} to show metrics", within_s=PATIENCE_S)


async def total(moorage: Deployment, component: str, name: str, **labels: str) -> float:
    """The sum of a metric's samples that have these labels."""
    found = series(await shown(moorage, component))
    return sum(
        number for (own, given), number in found.items() if own == name and labels.items() <= dict(given).items()
    )
