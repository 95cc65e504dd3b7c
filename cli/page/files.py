"""The page's own files, which are the same for every reader."""

from __future__ import annotations

import functools
import importlib.resources
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from aiohttp import web

_TYPES: Final = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def add_files(router: web.UrlDispatcher) -> None:
    """Add a route for each file; ``index.html`` is the page itself."""
    for name, (kind, body) in _files().items():
        router.add_get(f"/{'' if name == 'index.html' else name}", _file(kind, body), allow_head=False)


def _file(kind: str, body: bytes) -> Handler:
    async def handler(_: web.Request) -> web.StreamResponse:
        return web.Response(body=body, content_type=kind, charset="utf-8")

    return handler


@functools.cache
def _files() -> Mapping[str, tuple[str, bytes]]:
    """All of them and nothing else."""
    folder = importlib.resources.files("cli.page") / "static"
    found = {entry.name: entry for entry in folder.iterdir()}
    return {
        name: (_TYPES[f".{name.rpartition('.')[2]}"], entry.read_bytes())
        for name, entry in sorted(found.items())
        if f".{name.rpartition('.')[2]}" in _TYPES
    }
