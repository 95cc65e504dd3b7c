"""Which calls are tried again, by tenacity, in this one place.

Reads change nothing, so they are tried again after each fault that may pass: no connection, 429, 5xx. Of writes only
those that the server turned away unread (429) are: after anything else the write may have happened, and only the caller
knows how to settle that (docs/design/protocol.md, step 3). 409 is never retried in place: the caller's premise is gone.

Waiting goes through anyio and the limit is counted on the event loop's clock, so both are virtual in simulations;
tenacity's own ``stop_after_delay`` reads the machine's clock and is not used for that reason. tenacity is imported when
a first try has failed: commands that people run would wait 15 ms for it.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

import anyio

from kube.client.backoff import BackoffRange
from kube.client.errors import ServerError, TooManyRequests, Unreachable

if TYPE_CHECKING:
    from tenacity import RetryCallState

R = TypeVar("R")

TRIES: Final = 5
LIMIT_S: Final = 15.0
_WAITS: Final = BackoffRange(first_s=0.25, most_s=4.0)


class Retry:
    """Repeats calls that are safe to repeat: at most ``tries`` times, none started after ``LIMIT_S``.

    The last failure is raised as it was. ``rng`` is the source of jitter.
    """

    def __init__(self, rng: random.Random, *, tries: int = TRIES) -> None:
        self._rng = rng
        self._tries = tries

    async def read(self, call: Callable[[], Awaitable[R]]) -> R:
        """Await ``call()``, again after Unreachable, 429 and 5xx."""
        return await self._repeat(call, _is_passing_for_a_read)

    async def write(self, call: Callable[[], Awaitable[R]]) -> R:
        """Await ``call()``, again after 429 only, and not before the server's Retry-After."""
        return await self._repeat(call, _is_turned_away)

    async def _repeat(self, call: Callable[[], Awaitable[R]], passing: Callable[[BaseException], bool]) -> R:
        """The first try goes without tenacity, whose bookkeeping costs a tenth of a call that succeeds at once."""
        give_up_at = anyio.current_time() + LIMIT_S
        try:
            return await call()
        except Exception as error:
            if not passing(error):
                raise
            failed: list[Exception] = [error]
        from tenacity import AsyncRetrying, retry_if_exception  # noqa: PLC0415 - see the module's docstring

        retrying = AsyncRetrying(
            sleep=anyio.sleep,
            stop=lambda state: self._is_over(state, give_up_at),
            wait=self._wait_s,
            retry=retry_if_exception(passing),
            reraise=True,
        )

        async def attempt() -> R:
            # tenacity awaits only what it can see to be a coroutine function, which a lambda is not.
            if failed:
                raise failed.pop()
            return await call()

        return await retrying(attempt)

    def _is_over(self, state: RetryCallState, give_up_at: float) -> bool:
        """Whether no try is left, or the next one would start after a time of the event loop's clock."""
        return state.attempt_number >= self._tries or anyio.current_time() + state.upcoming_sleep > give_up_at

    def _wait_s(self, state: RetryCallState) -> float:
        wait_s = _WAITS.jittered_s(state.attempt_number, self._rng)
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, TooManyRequests) and error.retry_after_s is not None:
            # Later than asked by the jitter, never earlier.
            return error.retry_after_s + wait_s
        return wait_s


def _is_passing_for_a_read(error: BaseException) -> bool:
    return isinstance(error, Unreachable | TooManyRequests | ServerError)


def _is_turned_away(error: BaseException) -> bool:
    return isinstance(error, TooManyRequests)
