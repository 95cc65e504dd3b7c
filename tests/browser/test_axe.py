"""What axe-core finds on each view, in the light and in the dark, wide and narrow: nothing."""

from __future__ import annotations

import pytest

from tests.browser.conftest import Faults
from tests.whole import IS_WHOLE
from tools.browser.chromium import Tab
from tools.browser.pictures import FEW, MANY, Moment, at, played, served

pytestmark = pytest.mark.browser

VIEWS = (
    *("#/map?unusable=1", "#/map?by=queue", "#/waiting", "#/pods", "#/queues", "#/groups", "#/events"),
    *("#/node/node-0", "#/pod/{share}", "#/pod/{waiting}?explain=1", "#/no-such"),
)
DRAWN = "document.documentElement.dataset.connection === 'live' && document.documentElement.dataset.shown"


@pytest.fixture(scope="module")
async def few() -> Moment:
    return await played(FEW)


#: In make test-all each scheme and each width once.
SHOWN = [("light", 1280), ("dark", 400), *([("light", 400), ("dark", 1280)] if IS_WHOLE else [])]


@pytest.mark.parametrize(("scheme", "width"), SHOWN)
async def test_nothing_stands_in_the_way_of_people_who_see_little_or_nothing(
    tab: Tab, faults: Faults, few: Moment, scheme: str, width: int
) -> None:
    await tab.media(prefers_color_scheme=scheme)
    await tab.size(width, 900)
    async with served(few) as address:
        for view in VIEWS:
            await tab.open(f"{address}/{at(few, view)}")
            await tab.until(f"{DRAWN} && document.querySelectorAll('.device, .way li, tbody tr, main p').length")
            await tab.until("!document.querySelector('.explain[open]') || !!document.querySelector('.explain h3')")
            assert (view, await faults()) == (view, [])


async def test_nothing_does_so_where_devices_are_small(tab: Tab, faults: Faults) -> None:
    async with served(await played(MANY)) as address:
        await tab.open(f"{address}/#/map")
        await tab.until(f"{DRAWN} && document.querySelectorAll('.small .device').length")
        assert await faults() == []


FAULTS = {
    "color-contrast": "document.querySelector('.share b').style.color = '#8ab'",
    "button-name": "document.body.querySelector('main').append(document.createElement('button'))",
    "link-name": "document.querySelector('a.device').removeAttribute('aria-label'); for (const s of "
    "document.querySelectorAll('a.device')[0].children) s.textContent = ''; "
    "document.querySelector('a.device').removeAttribute('title')",
}


@pytest.mark.parametrize("rule", FAULTS)
async def test_a_fault_would_be_found(tab: Tab, faults: Faults, few: Moment, rule: str) -> None:
    async with served(few) as address:
        await tab.open(f"{address}/#/map")
        await tab.until(f"{DRAWN} && document.querySelectorAll('.share b').length")
        await tab.evaluate(f"{FAULTS[rule]}; 1")
        assert [fault.partition(":")[0] for fault in await faults()] == [rule]
