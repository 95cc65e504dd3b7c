"""Tests under kube/ run in virtual time, except those that speak over sockets (they say so themselves)."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.virtualtime import VirtualTimeLoop


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"loop_factory": VirtualTimeLoop}
