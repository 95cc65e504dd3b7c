"""Tests of the agent's shell run in virtual time, but for those with sockets (kubeletapi)."""

from __future__ import annotations

import pytest

from tests.conftest import AnyioBackend


@pytest.fixture(scope="module")
def anyio_backend(request: pytest.FixtureRequest, virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    has_sockets = "kubeletapi" in request.path.parts
    return ("asyncio", {}) if has_sockets else virtual_anyio_backend
