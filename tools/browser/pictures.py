"""Pictures of the page for docs/page.md and the README: of a simulated cluster, the same each time they are taken.

A play (simulator) runs for some seconds of its virtual time, then the page serves what it had come to.
"""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import groupby
from typing import Final

import anyio
import anyio.abc
import anyio.to_thread
import msgspec

from kube.client.api import Api
from kube.client.clock import SystemClock
from kube.client.retry import Retry
from kube.serving import serve
from simulator.clock import VirtualClock, VirtualTimeLoop
from simulator.nodes import shape
from tools.browser.chromium import Chromium, Tab
from ui.page.auth import Open
from ui.page.explanations import Listed, PageExplains, listed
from ui.page.objects import Objects
from ui.page.server import Answering
from ui.page.simulated import Play
from ui.page.watch import Following, Publishing, Unusable
from ui.queues import reader
from ui.queues.pools import EvictionsRead

#: 2026-03-02T10:00:00Z: when the play begins.
_BEGINS_NS: Final = 1_772_445_600 * 1_000_000_000


class Moment:
    """What the page is made of, ``now_ms`` milliseconds after the epoch. ``records``: records of evictions, by pool."""

    def __init__(self, objects: Objects, now_ms: int, records: Mapping[str, EvictionsRead]) -> None:
        self.objects = objects
        self.now_ms = now_ms
        self.records = records
        self.publishing = Publishing("moment", make=lambda _: objects)

    async def listed(self, _: int | None) -> Listed:
        """List it, for explanations."""
        return listed(self.objects, self.now_ms // 1000, records=self.records)

    def draw(self) -> None:
        """Show the objects as they are now."""
        Unusable(self.objects, self.publishing.note_unusable).count()
        for _ in self.publishing.frames.draw():
            pass


async def moment(nodes: Sequence[str], *, at_s: float) -> Moment:
    """What ``moorage ui --simulate`` with these ``--nodes`` shows after a number of seconds, made in virtual time."""
    # Virtual time has a loop of its own, and that a thread.
    made = Moment(*await anyio.to_thread.run_sync(_made, nodes, at_s))
    made.draw()
    return made


def _made(nodes: Sequence[str], at_s: float) -> tuple[Objects, int, dict[str, EvictionsRead]]:
    return anyio.run(_played, nodes, at_s, backend_options={"loop_factory": VirtualTimeLoop})


async def _played(nodes: Sequence[str], at_s: float) -> tuple[Objects, int, dict[str, EvictionsRead]]:
    clock = VirtualClock(asyncio.get_running_loop(), epoch_ns=_BEGINS_NS)
    play = Play(shape.parse(nodes), seed=0, clock=clock)
    objects = Objects()
    api = Api(play.transport, retry=Retry(random.Random(1)))
    following = Following(api, objects, rng=random.Random(2))
    async with anyio.create_task_group() as tasks:
        await tasks.start(play.run)
        await tasks.start(following.run)
        await anyio.sleep(at_s)
        now_ms = clock.now_ns() // 1_000_000
        records = await reader.evictions(api, tuple(objects.queues.values()), now_ms // 1000, [])
        tasks.cancel_scope.cancel()
    return objects, now_ms, records


class _Still:
    """A source (ui/page/server.py) of which nothing more will come."""

    is_in_step = True

    def troubles(self) -> tuple[str, ...]:
        return ()

    def silent_s(self) -> int:
        return 0

    def idle(self) -> tuple[str, ...]:
        return ()


@asynccontextmanager
async def served(shown: Moment) -> AsyncIterator[str]:
    """Serve its page to this machine; the address."""
    explains = PageExplains(shown.listed, clock=SystemClock())
    answering = Answering(shown.publishing, _Still(), Open(), source="simulated cluster", hosts=None, explains=explains)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with anyio.create_task_group() as tasks:

            async def answer(*, task_status: anyio.abc.TaskStatus[None]) -> None:
                await serve(answering.app(), listener, task_status=task_status)

            await tasks.start(answer)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
            tasks.cancel_scope.cancel()


#: Beside the pictures: the build of the browser that made them, and its font.
BUILD: Final = "made-with.txt"
#: A picture in a repository is read by people on slow lines, too.
MOST_BYTES: Final = 200 * 1024
FEW: Final = ("3x8x80GiB", "1x4x24GiB")
MANY: Final = ("48x4x80GiB",)
#: Until the first have come and gone, and each view has something in it.
_PLAYED_S: Final = 25.0
_DRAWN: Final = "document.documentElement.dataset.connection === 'live' && document.documentElement.dataset.shown"
#: A pod's path is asked for when it is looked at.
_IS_THERE: Final = (
    f"{_DRAWN} && document.querySelectorAll('.device, .way li, tbody tr').length "
    "&& !document.querySelector('.explain[open] [role=status]')"
)
#: The page's clock stands still, and its font is one that Debian has: no picture may depend on when and where.
_STILL: Final = """
(() => {
  const Real = Date;
  globalThis.Date = class extends Real {
    constructor(...of) { super(...(of.length ? of : [NOW])); }
    static now() { return NOW; }
  };
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(`:root { font-family: "DejaVu Sans" !important } * { transition: none !important } EXTRA`);
  addEventListener("DOMContentLoaded", () => { document.adoptedStyleSheets = [sheet]; });
})()
"""

#: Of a line in the font of the pictures, or in another one where that is not there.
_WIDTH: Final = """
(() => {
  const context = new OffscreenCanvas(1, 1).getContext("2d");
  context.font = '100px "DejaVu Sans", monospace';
  return context.measureText("Moorage shares GPUs: 0123456789 %").width;
})()
"""

#: A pod of the play that waits for ever.
WAITING: Final = "vision/pretrain-0"


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """``view``: the link, with ``{share}`` for a pod that has a part of a GPU, ``{waiting}`` for one that waits.

    ``nodes``: of the cluster, by shapes.
    """

    name: str
    view: str
    nodes: tuple[str, ...] = FEW
    height: int = 720
    is_dark: bool = False


PICTURES: Final = (
    Picture(name="map-light.png", view="#/map"),
    Picture(name="map-dark.png", view="#/map?by=queue", is_dark=True),
    Picture(name="waiting.png", view="#/waiting", height=300),
    Picture(name="queues.png", view="#/queues", height=360),
    Picture(name="groups.png", view="#/groups", height=640),
    Picture(name="pod.png", view="#/pod/{share}", height=640),
    Picture(name="explain.png", view="#/pod/{waiting}?explain=1", height=900),
    Picture(name="map-many.png", view="#/map", nodes=MANY),
)


async def played(nodes: tuple[str, ...]) -> Moment:
    """What pictures of these nodes show."""
    return await moment(nodes, at_s=_PLAYED_S if nodes == FEW else 1.0)


async def take(browser: Chromium) -> dict[str, bytes]:
    """Take them all: PNG by name. Raises ValueError for one that is too large."""
    taken: dict[str, bytes] = {}
    for nodes, wanted in groupby(PICTURES, key=lambda picture: picture.nodes):
        shown = await played(nodes)
        for picture in wanted:
            taken[picture.name] = await shot(browser, shown, picture)
            if (size := len(taken[picture.name])) > MOST_BYTES:
                raise ValueError(f"{picture.name}: {size} bytes, at most {MOST_BYTES}")
    return taken


async def build(browser: Chromium) -> str:
    """Which build of the browser this is, and how wide its font is: others may draw letters differently."""
    async with browser.tab() as tab:
        width_px = round(await tab.evaluate(_WIDTH), 2)
    return f"{(await browser.call('Browser.getVersion'))['product']}, a line of {width_px} px"


async def shot(browser: Chromium, shown: Moment, picture: Picture, *, css: str = "") -> bytes:
    """Take one; with more ``css``, for those who want to see that it matters."""
    async with served(shown) as address, browser.tab(width=1280, height=picture.height) as tab:
        await _hold_still(tab, shown.now_ms, css)
        await tab.media(prefers_color_scheme="dark" if picture.is_dark else "light")
        await tab.open(f"{address}/{at(shown, picture.view)}")
        await tab.until(_IS_THERE)
        return await tab.picture()


async def _hold_still(tab: Tab, now_ms: int, css: str) -> None:
    await tab.call("Emulation.setTimezoneOverride", timezoneId="UTC")
    await tab.call("Emulation.setLocaleOverride", locale="en-US")
    script = _STILL.replace("NOW", str(now_ms)).replace("EXTRA", css)
    await tab.call("Page.addScriptToEvaluateOnNewDocument", source=script)


def at(shown: Moment, view: str) -> str:
    """Return a view's link with the pods that it is about."""
    return view.format(share=a_share(shown), waiting=WAITING)


def a_share(shown: Moment) -> str:
    """The oldest pod of the team that serves models, which asks for parts of GPUs: namespace/name."""
    serving = [pod.metadata for pod in shown.objects.pods.values() if pod.metadata.namespace == "serving"]
    first = min(serving, key=lambda meta: (meta.creation_timestamp or "", meta.name))
    return f"{first.namespace}/{first.name}"
