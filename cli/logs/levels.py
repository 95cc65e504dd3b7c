"""What is logged: the level is of our own packages; libraries log warnings and worse at every level.

At debug level libraries log what they send and receive: kubernetes_asyncio the answer to a renewal of a token.
"""

from __future__ import annotations

import logging
import sys
from typing import Final, TextIO

import anyio

from cli.logs.forms import JsonForm, TextForm
from cli.logs.repeats import Limited
from kube.telemetry.loglevel import PACKAGES, set_level

_LOOK_EVERY_S: Final = 10.0


def begin(level: str, form: str, stream: TextIO | None = None) -> Limited:
    """Let the process log to ``stream`` (stderr), and nowhere else. ``form`` auto: text on a terminal, else JSON."""
    to = stream or sys.stderr
    is_json = form == "json" or (form == "auto" and not to.isatty())
    handler = Limited(to)
    handler.setFormatter(JsonForm() if is_json else TextForm())
    root = logging.getLogger()
    for other in root.handlers[:]:
        root.removeHandler(other)
        other.close()
    root.addHandler(handler)
    root.setLevel(logging.ERROR if level == "error" else logging.WARNING)
    for package in PACKAGES:
        logging.getLogger(package).setLevel(logging.NOTSET)
    set_level(level)
    return handler


async def tell_repeats(handler: Limited) -> None:
    """Tell what is held back when it is due, until cancelled; then tell the rest."""
    try:
        while True:
            await anyio.sleep(_LOOK_EVERY_S)
            handler.tell_due()
    finally:
        handler.tell_all()
