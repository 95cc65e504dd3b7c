"""The server in memory, in virtual time."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from simulator.apiserver.server import MemoryApiServer
from simulator.clock import VirtualClock

AnyioBackend = tuple[str, dict[str, Any]]


@pytest.fixture(scope="module")
def anyio_backend(virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    return virtual_anyio_backend


@pytest.fixture
async def server() -> MemoryApiServer:
    clock = VirtualClock(asyncio.get_running_loop())
    return MemoryApiServer(clock=clock, rng=random.Random(1), auto_namespaces=True)
