"""What a process logs can be changed while it runs: ``PUT /log-level?level=debug&for_s=600`` where its health is asked.

Only from the same machine, or the same pod, as through ``kubectl port-forward``: the API server says who may do that.
After ``for_s`` the level is again what it was, so nobody forgets a cluster that logs everything.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from typing import Final

from aiohttp import web

from kube.telemetry.logevents import LogEvent, about

PATH: Final = "/log-level"
LEVELS: Final = ("debug", "info", "warning", "error")
#: Whose loggers have the level; those of libraries don't.
PACKAGES: Final = (
    "admission",
    "binder",
    "cli",
    "gpu",
    "kube",
    "nodeagent",
    "reservation",
    "runtime",
    "scheduler",
    "simulator",
    "ui",
    "wire",
)
DEFAULT_FOR_S: Final = 600
LONGEST_FOR_S: Final = 86_400

_log: Final = logging.getLogger(__name__)


def set_level(level: str) -> None:
    """Let our packages log this and worse."""
    for package in PACKAGES:
        logging.getLogger(package).setLevel(level.upper())


def level_now() -> str:
    """What our packages log."""
    return logging.getLevelName(logging.getLogger(__name__.partition(".")[0]).getEffectiveLevel()).lower()


class LogLevel:
    """Shows the level and changes it for a time."""

    def __init__(self) -> None:
        #: What it is set back to, and when.
        self._usual = ""
        self._back: asyncio.TimerHandle | None = None

    def add_to(self, app: web.Application) -> None:
        """Add the route."""
        app.router.add_get(PATH, self._show)
        app.router.add_put(PATH, self._change)

    async def _show(self, request: web.Request) -> web.Response:
        return web.Response(text=f"{level_now()}\n") if is_local(request) else _elsewhere()

    async def _change(self, request: web.Request) -> web.Response:
        if not is_local(request):
            return _elsewhere()
        level = request.query.get("level", "")
        for_s = request.query.get("for_s", str(DEFAULT_FOR_S))
        if level not in LEVELS:
            return web.Response(status=400, text=f"level: {level!r} is none of: {', '.join(LEVELS)}\n")
        if not for_s.isascii() or not for_s.isdigit() or not 0 < int(for_s[:6]) <= LONGEST_FOR_S or len(for_s) > 5:
            return web.Response(status=400, text=f"for_s: {for_s!r} is not a number from 1 to {LONGEST_FOR_S}\n")
        usual = self._set_for(level, int(for_s))
        return web.Response(text=f"{level} for {for_s} s, then {usual}\n")

    def _set_for(self, level: str, for_s: int) -> str:
        """Return what it will be afterwards."""
        if self._back is not None:
            self._back.cancel()
        self._usual = self._usual or level_now()
        # Told at whichever of the two lets it be told.
        _log.warning("the log level is changed", extra=about(LogEvent.LOG_LEVEL, chosen=level, for_s=for_s))
        set_level(level)
        self._back = asyncio.get_running_loop().call_later(for_s, self._set_back)
        return self._usual

    def _set_back(self) -> None:
        set_level(self._usual)
        _log.warning("the log level is what it was", extra=about(LogEvent.LOG_LEVEL, chosen=self._usual))
        self._usual, self._back = "", None


def is_local(request: web.Request) -> bool:
    """Whether a request comes from this machine itself: not through a Service, nor from another pod."""
    peer = request.transport.get_extra_info("peername") if request.transport is not None else None
    try:
        address = ipaddress.ip_address(peer[0] if peer else "")
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def _elsewhere() -> web.Response:
    return web.Response(status=403, text="the log level is for requests from the same pod: kubectl port-forward\n")
