"""A recorded run in a browser: the bar with which one goes to any moment of it, by mouse, keys, ear and address."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import anyio
import msgspec
import pytest

from gpu.share import NANO_PER_DEVICE
from kube.serving import serve
from tests.browser.conftest import Faults
from tests.scheduler.core.objects import bound, changed, node, pod, reservation
from tools.browser.chromium import Chromium, Tab
from ui.commands.page import Opened
from ui.page.index import FORM, Line
from ui.page.timeline import Recorded
from ui.page.values import EventLine
from wire import names

pytestmark = pytest.mark.browser

#: 2026-01-01T00:00:00Z
BEGAN_MS = 1_767_225_600_000
TOLD = "document.querySelector('.winding output').textContent"
AT = "document.getElementById('moment')?.value"
PODS = "[...document.querySelectorAll('tbody tr')].map(r => r.innerText.split('\\t'))"
SPEED = "s = document.querySelector('select'); s.value = '{}'; s.dispatchEvent(new Event('change'))"
HOSTILE = "<img src=x onerror='window.hacked=1'>"


def story() -> list[Line]:
    """In step after a second; every ten seconds a pod comes, and is bound five seconds later. 60 s in all."""
    lines = [Line(form=FORM, began_ms=BEGAN_MS), Line(node=node("n1", gpus=8)), Line(node=node("n2", gpus=8))]
    lines.append(Line(at_ms=1000, is_in_step=True))
    for number in range(6):
        at_ms = 10_000 * number + 2000
        made = changed(pod(f"p{number}", gpus=1), creation_timestamp=f"2026-01-01T00:00:{at_ms // 1000:02}Z")
        lines.append(Line(at_ms=at_ms, pod=made))
        placed = msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, node_name="n1"))
        running = msgspec.structs.replace(made.status, phase=names.RUNNING)
        lines.append(Line(at_ms=at_ms + 5000, pod=msgspec.structs.replace(placed, status=running)))
    warned = EventLine(key="ns/e", namespace="ns", pod="p3", type="Warning", reason=HOSTILE, at="2026-01-01T00:00:33Z")
    lines.append(Line(at_ms=33_000, event=warned))
    lines.append(Line(at_ms=60_000, node=node("n3", gpus=8)))
    return sorted(lines, key=lambda line: line.at_ms)


def write(path: Path, lines: list[Line]) -> None:
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "run.jsonl"
    write(path, story())
    return path


@asynccontextmanager
async def opened(path: Path, port: int = 0) -> AsyncIterator[str]:
    listener = socket.create_server(("127.0.0.1", port))
    with closing(Recorded(path)) as recorded:
        made = Opened(recorded, epoch="e", source="a test", speed=1.0, hosts=None)
        async with anyio.create_task_group() as tasks:

            async def answer(*, task_status: anyio.abc.TaskStatus[None]) -> None:
                await serve(made.app(), listener, task_status=task_status)

            await tasks.start(answer)
            await recorded.read()
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
            tasks.cancel_scope.cancel()


async def stopped_at(tab: Tab, address: str, view: str) -> None:
    """A link with a moment: it is shown, and nothing moves."""
    await tab.open(f"{address}/{view}")
    await tab.until("document.querySelector('.winding') && document.documentElement.dataset.shown")


async def stands(tab: Tab, ms: int) -> None:
    await tab.until(f"document.documentElement.dataset.shown.endsWith('-{ms}') && {AT} === '{ms}'")


async def test_a_link_shows_the_moment_with_its_ages_and_its_clock(tab: Tab, path: Path) -> None:
    async with opened(path) as address:
        await stopped_at(tab, address, "#/pods?at=30.4s")
        await stands(tab, 30_400)
        rows = await tab.evaluate(PODS)
        assert [(row[0], row[1], row[-1]) for row in rows] == [
            ("ns/p0", "Running", "28 s"),
            ("ns/p1", "Running", "18 s"),
            ("ns/p2", "Running", "8.4 s"),
        ]
        assert (await tab.evaluate(TOLD)).startswith("0:30.4 of 1:00.0")
        assert await tab.evaluate(f"{TOLD}.includes(new Date({BEGAN_MS + 30_400}).toLocaleString())")
        await stopped_at(tab, address, "#/events?at=40s")
        await stands(tab, 40_000)
        await tab.until("document.querySelector('tbody time') !== null")
        at = "document.querySelector('tbody time').textContent"
        assert await tab.evaluate(f"{at} === new Date({BEGAN_MS + 33_000}).toLocaleTimeString()")


async def test_it_is_wound_back_and_forth_and_the_address_says_where(tab: Tab, path: Path) -> None:
    async with opened(path) as address:
        await stopped_at(tab, address, "#/waiting?at=33s")
        waiting = "[...document.querySelectorAll('tbody tr')].map(r => r.innerText.split('\\t')[0])"
        assert await tab.evaluate(waiting) == ["ns/p3"]
        for label, ms, names_ in (("10 s back", 23_000, ["ns/p2"]), ("10 s on", 33_000, ["ns/p3"])):
            await tab.evaluate(f"document.querySelector('[aria-label=\"{label}\"]').click()")
            await stands(tab, ms)
            await tab.until(f"location.hash === '#/waiting?at={ms // 1000}s'")
            await tab.until(f"JSON.stringify({waiting}) === '{msgspec.json.encode(names_).decode()}'")
        await tab.evaluate(
            "const m = document.getElementById('moment'); m.value = 59000; m.dispatchEvent(new Event('input'))"
        )
        await stands(tab, 59_000)
        await tab.until("document.getElementById('main').innerText.includes('No pod waits')")
        # A link of the page leads to another view of the same moment; an address without a view, too.
        await tab.evaluate("document.querySelector('a[href=\"#/map\"]').click()")
        await tab.until("location.hash === '#/map?at=59s'")
        assert await tab.evaluate("document.querySelectorAll('.node').length") == 2
        await tab.evaluate("location.hash = '#/map?at=60s'")
        await tab.until("document.querySelectorAll('.node').length === 3")
        await tab.evaluate("history.back()")
        await tab.until("document.querySelectorAll('.node').length === 2")


async def test_steps_in_quick_succession_add_up(tab: Tab, path: Path) -> None:
    async with opened(path) as address:
        await stopped_at(tab, address, "#/map?at=20s")
        await tab.evaluate("b = document.querySelector('[aria-label=\"10 s on\"]'); b.click(); b.click(); b.click()")
        await stands(tab, 50_000)
        await tab.until("location.hash === '#/map?at=50s'")


async def test_a_pods_path_is_that_of_the_moment(tab: Tab, path: Path) -> None:
    async with opened(path) as address:
        await stopped_at(tab, address, "#/pod/ns/p1?at=14s")
        await tab.until("document.querySelectorAll('.way li').length > 3")
        reached = "[...document.querySelectorAll('.way .reached b')].map(b => b.textContent).join()"
        assert await tab.evaluate(reached) == "created"
        await tab.evaluate("location.hash = '#/pod/ns/p1?at=20s'")
        await tab.until(f"{reached} === 'created,bound'")
        await tab.evaluate("location.hash = '#/pod/ns/p1?at=5s'")
        await tab.until("document.getElementById('main').innerText.includes('no such pod at that moment')")
    tab.forget()  # the browser complains of a 404


async def test_a_pods_path_tells_what_its_reservation_told_by_then(tab: Tab, path: Path) -> None:
    """The pod itself is the same before and after."""
    share = bound(pod("s", fraction="0.5"), "n1", ("g", NANO_PER_DEVICE // 2))
    held = reservation("g", "n1", book={"uid-s": NANO_PER_DEVICE // 2})
    told = reservation("g", "n1", book={"uid-s": NANO_PER_DEVICE // 2}, index=5)
    lines = [Line(form=FORM), Line(node=node("n1", gpus=8)), Line(pod=share), Line(pod=held), Line(is_in_step=True)]
    lines += [Line(at_ms=10_000, pod=told), Line(at_ms=20_000, node=node("n2"))]
    write(path, lines)
    async with opened(path) as address:
        await stopped_at(tab, address, "#/pod/ns/s?at=5s")
        await tab.until("document.getElementById('main').innerText.includes('What it was given')")
        assert "GPU 5" not in await tab.evaluate("document.getElementById('main').innerText")
        await tab.evaluate("location.hash = '#/pod/ns/s?at=15s'")
        await stands(tab, 15_000)
        await tab.until("document.getElementById('main').innerText.includes('GPU 5')")


async def test_it_is_played_and_faster_and_stops_at_the_end(tab: Tab, path: Path) -> None:
    async with opened(path) as address:
        await tab.open(f"{address}/")
        await tab.until(f"Number({AT}) > 1500")  # who opens a run sees it played
        await tab.evaluate(SPEED.format("60"))
        await stands(tab, 60_000)
        await tab.until("document.querySelectorAll('.node').length === 3")
        await tab.until("document.getElementById('live').textContent === 'stopped at 1:00.0'")
        await tab.until("location.hash === '#/map?at=60s'")
        await tab.evaluate(SPEED.format("0.5"))
        await tab.evaluate("document.querySelector('[aria-label=\"Play\"]').click()")  # from the beginning
        await tab.until(f"Number({AT}) < 50000")


async def test_keys_are_those_of_players_and_the_map_keeps_its_own(tab: Tab, path: Path) -> None:
    async with opened(path) as address:
        await stopped_at(tab, address, "#/map?at=20s")
        await tab.press("ArrowRight")
        await stands(tab, 25_000)
        await tab.evaluate("document.getElementById('moment').focus()")
        await tab.press("ArrowLeft")
        await stands(tab, 20_000)
        await tab.press("Home")
        await stands(tab, 1000)
        await tab.evaluate("document.querySelectorAll('a.device')[0].focus()")
        await tab.press("ArrowRight")
        assert await tab.evaluate("[...document.querySelectorAll('a.device')].indexOf(document.activeElement)") == 1
        assert await tab.evaluate(AT) == "1000"
        await tab.evaluate("document.activeElement.blur()")
        await tab.press(" ")
        await tab.until(f"Number({AT}) > 1000")
        await tab.press(" ")
        await tab.until("document.getElementById('live').textContent.startsWith('stopped')")


async def test_winding_takes_no_focus(tab: Tab, path: Path) -> None:
    """Even where another place of the run was drawn, and all of it is told anew."""
    async with opened(path) as address:
        await stopped_at(tab, address, "#/map?at=20s")
        await tab.evaluate("document.querySelectorAll('a.device')[2].focus()")
        await tab.evaluate("location.hash = '#/map?at=50s'")
        await stands(tab, 50_000)
        await tab.until("document.querySelectorAll('.share').length === 5")
        assert await tab.evaluate("[...document.querySelectorAll('a.device')].indexOf(document.activeElement)") == 2


async def test_the_bar_is_heard(tab: Tab, path: Path) -> None:
    async with opened(path) as address:
        await stopped_at(tab, address, "#/map?at=20s")
        heard = await tab.accessible()
        assert {("slider", "Moment of the recorded run"), ("button", "Play"), ("button", "10 s back")} <= set(heard)
        assert {("button", "10 s on"), ("combobox", "Speed"), ("region", "Recorded run")} <= set(heard)
        told = await tab.evaluate("document.getElementById('moment').getAttribute('aria-valuetext')")
        assert told.startswith("0:20.0 of 1:00.0, ")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_bar_can_be_read_in_the_light_and_in_the_dark(
    tab: Tab, faults: Faults, path: Path, scheme: str
) -> None:
    await tab.media(prefers_color_scheme=scheme)
    async with opened(path) as address:
        await stopped_at(tab, address, "#/map?at=20s")
        await tab.evaluate("document.querySelector('.marks').open = true")
        assert await faults() == []


async def test_on_paper_the_moment_is_told_and_there_is_nothing_to_press(tab: Tab, path: Path) -> None:
    async with opened(path) as address:
        await tab.media("print")
        await stopped_at(tab, address, "#/map?at=20s")
        shown = "[...document.querySelectorAll('.winding *')].filter(e => e.checkVisibility()).map(e => e.tagName)"
        assert set(await tab.evaluate(shown)) == {"OUTPUT", "B"}


async def test_what_was_warned_of_is_a_list_of_links_and_stays_text(tab: Tab, path: Path) -> None:
    async with opened(path) as address:
        await stopped_at(tab, address, "#/pods?at=20s")
        assert await tab.evaluate("document.querySelectorAll('.ticks i').length") == 1
        assert await tab.evaluate("document.querySelector('.marks summary').textContent") == "1 warning"
        await tab.evaluate("document.querySelector('.marks summary').focus()")
        await tab.press("Enter")
        await tab.press("Tab")
        link = await tab.evaluate("document.activeElement.textContent")
        assert link == f"0:33.0 {HOSTILE} ns/p3"
        await tab.press("Enter")
        await stands(tab, 33_000)
        await tab.until("location.hash === '#/pods?at=33s'")
        assert await tab.evaluate("window.hacked") is None
        await tab.press("Escape")
        assert not await tab.evaluate("document.querySelector('.marks').open")
        assert await tab.evaluate("document.activeElement.tagName") == "SUMMARY"


async def test_two_readers_of_one_page_do_not_disturb_each_other(tab: Tab, chromium: Chromium, path: Path) -> None:
    async with opened(path) as address, chromium.tab() as other:
        await stopped_at(tab, address, "#/pods?at=20s")
        await stopped_at(other, address, "#/pods?at=50s")
        count = "document.querySelectorAll('tbody tr').length"
        for step in range(1, 4):
            for each, start in ((tab, 20), (other, 50)):
                await each.evaluate("document.getElementById('moment').focus()")
                await each.press(".")
                ms = start * 1000 + 100 * step
                await stands(each, ms)
                await each.until(f"{count} === {2 if start == 20 else 5}")


async def test_a_page_whose_server_is_away_says_so_and_goes_on_when_it_is_back(tab: Tab, path: Path) -> None:
    async with opened(path) as address:
        await stopped_at(tab, address, "#/pods?at=20s")
        port = int(address.rpartition(":")[2])
    await tab.evaluate("document.querySelector('[aria-label=\"10 s on\"]').click()")
    await tab.until("document.documentElement.dataset.connection === 'broken'")
    async with opened(path, port):
        await stands(tab, 30_000)
        await tab.until("document.querySelectorAll('tbody tr').length === 3")
    tab.forget()  # of the refused connections
