"""Pictures of the page for docs/page.md and the README, of a simulated cluster at work."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from tools.browser.chromium import Chromium, Tab

#: A picture in a repository is read by people on slow lines, too.
MOST_BYTES: Final = 200 * 1024
_PORT: Final = 8485
_START_WITHIN_S: Final = 300.0
#: Until the first have come and gone, and each view has something in it.
_PLAY_S: Final = 25.0
_STILL_S: Final = 1.5
_LIVE: Final = "document.documentElement.dataset.connection === 'live' && document.documentElement.dataset.shown"
_A_SHARE: Final = """
[...document.querySelectorAll('td a')].map(a => a.getAttribute('href')).find(h => h.includes('/serving/'))
"""


async def take(folder: Path) -> None:
    """Make them all. Raises ValueError for one that is too large."""
    await anyio.Path(folder).mkdir(parents=True, exist_ok=True)
    async with Chromium() as browser:
        async with _page() as address, browser.tab(width=1280, height=720) as tab:
            await anyio.sleep(_PLAY_S)
            await _shot(tab, f"{address}#/map", folder / "map-light.png")
            await _shot(tab, f"{address}#/waiting", folder / "waiting.png", height=300)
            await _shot(tab, f"{address}#/pods", None)
            await _shot(tab, f"{address}{await tab.evaluate(_A_SHARE)}", folder / "pod.png", height=640)
            await tab.media(prefers_color_scheme="dark")
            await _shot(tab, f"{address}#/map?by=queue", folder / "map-dark.png", height=720)
        async with _page("--nodes", "120x8x80GiB") as address, browser.tab(width=1280, height=720) as tab:
            await _shot(tab, f"{address}#/map", folder / "map-many.png")


async def _shot(tab: Tab, address: str, path: Path | None, *, height: int = 720) -> None:
    await tab.size(1280, height)
    await tab.open(address)
    await tab.until(_LIVE)
    await anyio.sleep(_STILL_S)
    if path is None:
        return
    picture = await tab.picture()
    if len(picture) > MOST_BYTES:
        raise ValueError(f"{path.name}: {len(picture)} bytes, at most {MOST_BYTES}")
    await anyio.Path(path).write_bytes(picture)


@asynccontextmanager
async def _page(*arguments: str) -> AsyncIterator[str]:
    """The demo, as people start it."""
    process = await anyio.to_thread.run_sync(_started, arguments)
    try:
        assert process.stdout is not None
        with anyio.fail_after(_START_WITHIN_S):
            yield (await anyio.to_thread.run_sync(process.stdout.readline)).decode().strip()
    finally:
        process.terminate()
        await anyio.to_thread.run_sync(process.wait)


def _started(arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "cli.main", "ui", "--simulate", "--listen", f"127.0.0.1:{_PORT}", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE)
