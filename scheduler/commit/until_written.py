"""A write that has a claim bound or allocated, tried until the server has answered or nobody wants it any more."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from kube.client.errors import Conflict, Forbidden, NotFound, Refused
from kube.client.patience import until_answered

T = TypeVar("T")


class NotWritten(Exception):
    """Raised when a claim or a volume is not what was decided on, or the server refuses for good.

    ``is_overtaken``: nobody failed; a new decision finds what is there now.
    """

    def __init__(self, because: str, *, is_overtaken: bool) -> None:
        super().__init__(because)
        self.is_overtaken = is_overtaken


async def until_written(
    write: Callable[[], Awaitable[T]],
    *,
    named: str,
    changed: str,
    limiter: anyio.CapacityLimiter,
    is_wanted: Callable[[], bool],
) -> T | None:
    """Return what a write returns; None if nobody wants it any more. Raises NotWritten.

    ``named``: the object, for people; ``changed``: the reason where it is gone. ``limiter``: of requests at a time. A
    pause between two of them holds no place: a claim that the server refuses again and again would hold up those of
    others.
    """

    async def attempt() -> T | None:
        async with limiter:
            return await _tried(write, named, changed) if is_wanted() else None

    return await until_answered(attempt)


async def _tried(write: Callable[[], Awaitable[T]], named: str, changed: str) -> T:
    """Try once. What has changed since it was read is read again; rights that lack are given by a person."""
    try:
        return await write()
    except Conflict:
        raise
    except NotFound as error:
        raise NotWritten(f"{changed}: {named}: {error}", is_overtaken=True) from error
    except Refused as error:
        if error.outcome_unknown or isinstance(error, Forbidden):
            raise
        raise NotWritten(f"Refused: {named}: {error}", is_overtaken=False) from error
