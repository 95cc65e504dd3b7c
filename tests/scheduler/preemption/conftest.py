"""The shell of preemption, in virtual time."""

from __future__ import annotations

import pytest

from tests.conftest import AnyioBackend


@pytest.fixture(scope="module")
def anyio_backend(virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    return virtual_anyio_backend
