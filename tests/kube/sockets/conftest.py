"""Tests in this folder speak over loopback sockets, so in real time (but wait for nothing longer than 0.3 s)."""

from __future__ import annotations

import pytest


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
