"""The pictures of docs/page show what the page shows now, and a change of it is seen in them."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import pytest

from tests.browser.comparing import difference
from tests.docs.pages import ROOT
from tools.browser.chromium import Chromium, Tab
from tools.browser.pictures import BUILD, FEW, PICTURES, Moment, build, played, shot, take
from wire.core import Pod

pytestmark = pytest.mark.browser

COMMITTED = anyio.Path(ROOT) / "docs" / "page"
TAKEN = anyio.Path(ROOT) / "build" / "pictures"
#: Another build of the browser than the one that made them may draw letters differently, and nothing else.
LETTERS_PERCENT = 10.0
MAP = next(picture for picture in PICTURES if picture.name == "map-light.png")


async def test_the_pictures_show_what_is(chromium: Chromium, tab: Tab) -> None:
    await TAKEN.mkdir(parents=True, exist_ok=True)
    is_same_build = await build(chromium) == (await (COMMITTED / BUILD).read_text()).strip()
    wrong = []
    for name, png in (await take(chromium)).items():
        await (TAKEN / name).write_bytes(png)
        found = await difference(tab, await (COMMITTED / name).read_bytes(), png)
        if found.percent > (0.0 if is_same_build else LETTERS_PERCENT):
            wrong.append(f"docs/page/{name} is not what the page shows, build/pictures/{name} is: {found}")
    assert not wrong, "; ".join([*wrong, "look at both; make screenshots renews those of docs/page"])


def test_there_are_no_other_pictures() -> None:
    assert sorted(path.name for path in (ROOT / "docs" / "page").glob("*.png")) == sorted(p.name for p in PICTURES)


def _drop(pod: Pod, shown: Moment) -> None:
    shown.objects.drop_pod(pod.metadata.uid)


@pytest.mark.parametrize(
    ("css", "change"),
    [
        (".colour-4 { background-color: #4a86d0 !important }", None),
        (".bar nav { margin-left: 1px }", None),
        ("", _drop),
    ],
    ids=["another colour", "a pixel to the right", "a pod less"],
)
async def test_a_change_is_seen(
    chromium: Chromium, tab: Tab, css: str, change: Callable[[Pod, Moment], None] | None
) -> None:
    shown = await played(FEW)
    before = await shot(chromium, shown, MAP)
    if change is not None:
        change(next(pod for pod in shown.objects.pods.values() if pod.metadata.namespace == "notebooks"), shown)
        shown.draw()
    taken = await shot(chromium, shown, MAP, css=css)
    assert (await difference(tab, before, taken)).tiles


async def test_pictures_of_other_sizes_differ(tab: Tab) -> None:
    one, other = [await (COMMITTED / name).read_bytes() for name in ("map-light.png", "pod.png")]
    found = await difference(tab, one, other)
    assert (str(found), found.percent) == ("1280x720 and 1280x640 pixels", 100.0)


async def test_a_picture_that_shows_something_else_is_more_than_other_letters(tab: Tab) -> None:
    one, other = [await (COMMITTED / name).read_bytes() for name in ("map-light.png", "map-many.png")]
    assert (await difference(tab, one, other)).percent > LETTERS_PERCENT


async def test_other_letters_alone_are_no_other_picture(chromium: Chromium, tab: Tab) -> None:
    shown = await played(FEW)
    before = await shot(chromium, shown, MAP)
    taken = await shot(chromium, shown, MAP, css="* { letter-spacing: 0.2px !important }")
    assert 0 < (await difference(tab, before, taken)).percent < LETTERS_PERCENT
