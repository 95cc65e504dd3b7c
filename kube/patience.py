"""Asking until there is an answer, for what is safe to ask again."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import anyio

from kube.errors import ApiError

T = TypeVar("T")

_log: Final = logging.getLogger(__name__)
_FIRST_PAUSE_S: Final = 0.2
_LONGEST_PAUSE_S: Final = 10.0


async def until_answered(call: Callable[[], Awaitable[T]]) -> T:
    """Repeat ``call`` until it does not raise ApiError, with growing pauses.

    For idempotent or preconditioned calls only, whose errors are all either passing or somebody else's to mend
    (credentials, rights): the work can't go on without the answer, and must not be forgotten.
    """
    pause_s = _FIRST_PAUSE_S
    while True:
        try:
            return await call()
        except ApiError as error:
            _log.warning("no clear answer, asking again in %.1f s: %s", pause_s, error)
        await anyio.sleep(pause_s)
        pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
