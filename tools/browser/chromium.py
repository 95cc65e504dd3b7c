"""Chromium without a screen, driven over the DevTools protocol: Debian's package, and nothing that is fetched later.

::

    async with Chromium() as browser, browser.tab() as tab:
        await tab.open("http://127.0.0.1:8484/")
        print(await tab.evaluate("document.title"))
"""

from __future__ import annotations

import base64
import itertools
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final, Self

import aiohttp
import anyio
import msgspec

PACKAGES: Final = ("chromium", "fonts-dejavu-core")
_PROGRAMS: Final = ("chromium", "chromium-browser", "google-chrome")
#: A busy machine takes long to start it.
_START_WITHIN_S: Final = 90.0
_ANSWER_WITHIN_S: Final = 60.0
_LOOK_AGAIN_S: Final = 0.05
#: Whether only the fragment of the address will change; then ``arrived`` is a promise that the page hears of it.
_LISTENS: Final = """
((to) => {
  const stays = to.hash !== "" && location.href !== to.href && location.href.split("#")[0] === to.href.split("#")[0];
  globalThis.arrived = stays && new Promise((done) => addEventListener("hashchange", () => done(true), {once: true}));
  return stays;
})(new URL(ADDRESS))
"""
_LARGEST_MESSAGE: Final = 1 << 28
_NOBODY_LISTENS: Final = "net::ERR_CONNECTION_REFUSED"
_OPTIONS: Final = (
    "--headless=new",
    "--remote-debugging-port=0",
    "--no-first-run",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--lang=en-US",
)


def program() -> str | None:
    """Where Chromium is; None if it is not there."""
    return next((found for name in _PROGRAMS if (found := shutil.which(name))), None)


class Failed(Exception):
    """Raised when the browser refuses a command, or a script in it throws."""


class Chromium:
    """A browser of its own, with a profile that is thrown away. An async context manager."""

    def __init__(self) -> None:
        self._stack = AsyncExitStack()
        self._numbers = itertools.count(1)
        self._answers: dict[int, dict[str, Any]] = {}
        self._came = anyio.Event()
        #: Events of tabs, by their sessions.
        self.events: dict[str, list[dict[str, Any]]] = {}

    async def __aenter__(self) -> Self:
        profile = self._stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        process = _started(profile)
        self._stack.callback(_end, process)
        port, path = await _address(anyio.Path(profile) / "DevToolsActivePort")
        session = await self._stack.enter_async_context(aiohttp.ClientSession())
        self._socket = await self._stack.enter_async_context(
            session.ws_connect(f"ws://127.0.0.1:{port}{path}", max_msg_size=_LARGEST_MESSAGE)
        )
        self.pid = process.pid
        tasks = await self._stack.enter_async_context(anyio.create_task_group())
        self._stack.callback(tasks.cancel_scope.cancel)
        tasks.start_soon(self._listen)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    async def call(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result. Raises Failed, TimeoutError."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        await self._socket.send_str(msgspec.json.encode(message | ({"sessionId": session} if session else {})).decode())
        with anyio.fail_after(_ANSWER_WITHIN_S):
            while number not in self._answers:
                await self._came.wait()
        answer = self._answers.pop(number)
        if "error" in answer:
            raise Failed(f"{method}: {answer['error']['message']}")
        result: dict[str, Any] = answer["result"]
        return result

    @asynccontextmanager
    async def tab(self, *, width: int = 1280, height: int = 800) -> AsyncIterator[Tab]:
        """Open a tab, and close it."""
        target = (await self.call("Target.createTarget", url="about:blank"))["targetId"]
        session = (await self.call("Target.attachToTarget", targetId=target, flatten=True))["sessionId"]
        tab = Tab(self, session)
        for domain in ("Page", "Runtime", "Network", "Log"):
            await tab.call(f"{domain}.enable")
        await tab.size(width, height)
        yield tab
        await self.call("Target.closeTarget", targetId=target)

    async def _listen(self) -> None:
        async for received in self._socket:
            message = msgspec.json.decode(received.data)
            if "id" in message:
                self._answers[message["id"]] = message
                came, self._came = self._came, anyio.Event()
                came.set()
            else:
                self.events.setdefault(message.get("sessionId", ""), []).append(message)


class Tab:
    """One page."""

    def __init__(self, browser: Chromium, session: str) -> None:
        self._browser = browser
        self._session = session

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command about this tab. Raises Failed."""
        return await self._browser.call(method, self._session, **parameters)

    async def open(self, address: str) -> None:
        """Go there, and wait until all that the page names is loaded.

        Where only the fragment changes, the page stays, and is complete as before: it has to have heard of the change.
        """
        is_there = await self.evaluate(_LISTENS.replace("ADDRESS", msgspec.json.encode(address).decode()))
        await self.call("Page.navigate", url=address)
        if is_there:
            await self.evaluate("globalThis.arrived")
        await self.until("document.readyState === 'complete' && document.documentElement !== null")

    async def evaluate(self, script: str) -> Any:
        """The value of an expression (awaited, if it is a promise). Raises Failed."""
        told = await self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in told:
            raise Failed(str(told["exceptionDetails"].get("exception", {}).get("description", told)))
        return told["result"].get("value")

    async def until(self, script: str, *, within_s: float = 120.0) -> Any:
        """Wait until an expression is true, and return it. Raises TimeoutError, which says what was waited for."""
        try:
            with anyio.fail_after(within_s):
                while not (value := await self.evaluate(script)):  # noqa: ASYNC110 - the browser tells nobody
                    await anyio.sleep(_LOOK_AGAIN_S)
        except TimeoutError as error:
            raise TimeoutError(f"not within {within_s:.0f} s: {script}") from error
        return value

    async def press(self, key: str) -> None:
        """Press a key: one of DOM's names, such as ArrowRight, Tab, Enter."""
        codes = {"Enter": 13, "Tab": 9, "Home": 36, "End": 35, " ": 32, ".": 190, "Escape": 27}
        arrows = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
        code = {**codes, **arrows}[key]
        text = {"text": {"Enter": "\r"}.get(key, key)} if key in {"Enter", " ", "."} else {}
        for kind in ("keyDown", "keyUp"):
            await self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=code,
                **(text if kind == "keyDown" else {}),
            )

    async def type(self, text: str) -> None:
        """Write into what has the focus."""
        await self.call("Input.insertText", text=text)

    async def size(self, width: int, height: int) -> None:
        """Make the window so large, in pixels of the page."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    async def media(self, kind: str = "", **features: str) -> None:
        """Be a printer (``print``), or a person with wishes: ``prefers_color_scheme="dark"``."""
        wishes = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        await self.call("Emulation.setEmulatedMedia", media=kind, features=wishes)

    async def accessible(self) -> list[tuple[str, str]]:
        """Role and name of all that a screen reader reads."""
        nodes = (await self.call("Accessibility.getFullAXTree"))["nodes"]
        return [
            (node["role"]["value"], node.get("name", {}).get("value", ""))
            for node in nodes
            if not node.get("ignored") and "role" in node
        ]

    async def picture(self) -> bytes:
        """What is to be seen now, as PNG."""
        return base64.b64decode((await self.call("Page.captureScreenshot", format="png"))["data"])

    def forget(self) -> None:
        """Forget what was complained of so far: it was meant to happen."""
        self._browser.events.pop(self._session, None)

    def complaints(self) -> list[str]:
        """What the browser has held against the page: errors, uncaught exceptions, breaches of its policy.

        That nobody listens where it asks is none: a test that ends stops its server while the page still asks.
        """
        found: list[str] = []
        for event in self._browser.events.get(self._session, ()):
            said = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                found.append(str(said["exceptionDetails"].get("exception", {}).get("description", said)))
            elif event["method"] == "Log.entryAdded" and said["entry"]["level"] == "error":
                found.append(f"{said['entry']['text']} {said['entry'].get('url', '')}")
        return [complaint for complaint in found if _NOBODY_LISTENS not in complaint]


async def _address(told: anyio.Path) -> tuple[str, str]:
    """Where the browser listens: it writes a file once it does."""
    with anyio.fail_after(_START_WITHIN_S):
        while True:
            lines = (await told.read_text()).split("\n") if await told.exists() else []
            if len(lines) > 1:
                return lines[0], lines[1]
            await anyio.sleep(_LOOK_AGAIN_S)


def _started(profile: str) -> subprocess.Popen[bytes]:
    found = program()
    assert found is not None, "Chromium is not there: make browser-install"
    # A sandbox needs rights that root in a container has not; the pages here are our own.
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    return subprocess.Popen(
        [found, *_OPTIONS, *sandbox, f"--user-data-dir={profile}", "about:blank"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
