"""Tests of the agent's shell run in virtual time, but for those with sockets (kubeletapi)."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import AnyioBackend
from tests.nodeagent.groups import Groups, hierarchy, unified


@pytest.fixture(scope="module")
def anyio_backend(request: pytest.FixtureRequest, virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    has_sockets = "kubeletapi" in request.path.parts
    return ("asyncio", {}) if has_sockets else virtual_anyio_backend


@pytest.fixture
def pod() -> str:
    return str(uuid.uuid4())


@pytest.fixture
def groups() -> Iterator[Groups]:
    yield from _made(hierarchy())


@pytest.fixture
def unified_groups() -> Iterator[Groups]:
    yield from _made(unified())


def _made(mounted: Path | None) -> Iterator[Groups]:
    if mounted is None:
        pytest.skip("control groups can't be made on this machine")
    try:
        made = Groups(mounted / f"moorage-test-{uuid.uuid4().hex[:8]}")
    except OSError as error:
        pytest.skip(f"control groups can't be made on this machine: {error}")
    yield made
    made.end()
