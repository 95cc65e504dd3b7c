"""One Chromium for all tests, and a tab for each; where it is not there, they are left out."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.conftest import AnyioBackend
from tools.browser.chromium import Chromium, Tab, program


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if program() is None:
        left_out = pytest.mark.skip(
            reason="LEFT OUT: the tests of the page in a browser: no Chromium (make browser-install)"
        )
        for item in items:
            if item.get_closest_marker("browser") is not None:
                item.add_marker(left_out)


@pytest.fixture(scope="session")
def anyio_backend() -> AnyioBackend:
    """A browser does not wait for virtual time."""
    return ("asyncio", {})


@pytest.fixture(scope="module")
async def chromium() -> AsyncIterator[Chromium]:
    async with Chromium() as browser:
        yield browser


@pytest.fixture
async def tab(chromium: Chromium) -> AsyncIterator[Tab]:
    """A tab against which the browser holds nothing in the end."""
    async with chromium.tab() as made:
        yield made
        assert made.complaints() == []
