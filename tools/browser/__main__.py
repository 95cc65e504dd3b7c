"""``python -m tools.browser check`` says whether there is what the tests of the page need; ``install`` gets it.

``screenshots`` makes the pictures of docs/page from a simulated cluster.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import anyio

from tools import goprogram
from tools.browser import axe
from tools.browser.chromium import PACKAGES, Chromium, program
from tools.browser.pictures import BUILD, build, take
from tools.node.debian import Unavailable, apt

_PICTURES = Path(__file__).parents[2] / "docs" / "page"


def check() -> int:
    """Say in one line if tests are left out; that is no error."""
    if program() is None:
        print("LEFT OUT: the tests of the page in a browser: no Chromium (make browser-install)", flush=True)
    elif axe.path() is None:
        print("LEFT OUT: what axe-core finds on the page: it is not there (make browser-install)", flush=True)
    return 0


def install() -> int:
    """Install Chromium from Debian and axe-core from npm, where they are not there yet."""
    if program() is None:
        try:
            apt("apt-get", "install", "--yes", "--no-install-recommends", *PACKAGES)
        except Unavailable as why:
            print(f"{why}\nWithout it the tests of the page in a browser are left out", file=sys.stderr)
            return 1
    try:
        axe.ensure()
    except goprogram.Unavailable as why:
        print(f"{why}\nWithout it what axe-core finds on the page is left out of the tests", file=sys.stderr)
        return 1
    return 0


def screenshots() -> int:
    """Renew the pictures, those that tests compare with what they take (tests/browser/test_pictures.py)."""
    anyio.run(_renew)
    return 0


async def _renew() -> None:
    async with Chromium() as browser:
        for name, png in (await take(browser)).items():
            await (anyio.Path(_PICTURES) / name).write_bytes(png)
        await (anyio.Path(_PICTURES) / BUILD).write_text(f"{await build(browser)}\n")


_COMMANDS: Mapping[str, Callable[[], int]] = {"check": check, "install": install, "screenshots": screenshots}


def main(arguments: Sequence[str]) -> int:
    """Do one of them."""
    if len(arguments) != 1 or arguments[0] not in _COMMANDS:
        print(f"usage: python -m tools.browser {'|'.join(_COMMANDS)}", file=sys.stderr)
        return 2
    return _COMMANDS[arguments[0]]()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
