"""One Chromium for all tests, and a tab for each; where it is not there, they are left out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from typing import Protocol

import pytest

from tests.conftest import AnyioBackend
from tools.browser import axe
from tools.browser.chromium import Chromium, Tab, program


class Faults(Protocol):
    """What axe finds wrong with what a tab shows now (tools/browser/axe.py)."""

    def __call__(self, *rules: str) -> Awaitable[list[str]]: ...


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


@pytest.fixture
def faults(tab: Tab) -> Faults:
    """Asks axe-core about the tab; where that is not there, the test is left out."""
    if axe.path() is None:
        pytest.skip("LEFT OUT: what axe-core finds on the page: it is not there (make browser-install)")

    async def found(*rules: str) -> list[str]:
        return await axe.faults(tab, rules=rules)

    return found
