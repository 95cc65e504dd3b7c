"""Which calls are tried again, by tenacity, and how long is waited between tries: in this one place.

Reads change nothing, so they are tried again after each fault that may pass: no connection, 429, 5xx. Of writes only
those that the server turned away unread (429) are: after anything else the write may have happened, and only the caller
knows how to settle that (docs/design/protocol.md, step 3). 409 is never retried in place: the caller's premise is gone.
What is safe to ask again may be asked until there is an answer.

Waiting goes through anyio and the limit is counted on the event loop's clock, so both are virtual in simulations;
tenacity's own ``stop_after_delay`` reads the machine's clock and is not used for that reason. tenacity is imported when
a first try has failed: commands that people run would wait 15 ms for it.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

import anyio
import msgspec

from kube.client.errors import ApiError, BadName, Forbidden, ServerError, TooManyRequests, Unreachable


class BackoffRange(msgspec.Struct, frozen=True, kw_only=True):
    """The first and the longest wait, in seconds, before jitter."""

    first_s: float
    most_s: float

    def jittered_s(self, failures: int, rng: random.Random) -> float:
        """Seconds to wait after that many failures in a row (1, 2...): half to all of the nominal wait.

        The jitter keeps callers that failed together from coming back together.
        """
        nominal_s = min(self.most_s, self.first_s * 2.0 ** min(failures - 1, 60))
        return nominal_s * rng.uniform(0.5, 1.0)


@dataclass(slots=True)
class Backoff:
    """Counts failures in a row and says how long to wait after each."""

    range: BackoffRange
    rng: random.Random
    failures: int = 0

    def fail(self) -> float:
        """Count a failure; return the seconds to wait."""
        self.failures += 1
        return self.range.jittered_s(self.failures, self.rng)

    def succeed(self) -> None:
        """Start over."""
        self.failures = 0


T = TypeVar("T")

#: Twice as often is no pause any more that anybody waits for, and no number that a float can't hold.
_MOST_DOUBLINGS: Final = 60

_log: Final = logging.getLogger(__name__)
_FIRST_PAUSE_S: Final = 0.2
_LONGEST_PAUSE_S: Final = 10.0
#: A right that is missing is given by a person.
_LONGEST_FORBIDDEN_S: Final = 300.0


def doubled_s(first_s: float, times: int, *, longest_s: float) -> float:
    """How long to wait after ``times`` further failures: each makes it twice as long, up to ``longest_s``."""
    return min(first_s * (1 << min(times, _MOST_DOUBLINGS)), longest_s)


async def until_answered(
    call: Callable[[], Awaitable[T]], *, on_forbidden: Callable[[Forbidden], None] | None = None
) -> T:
    """Repeat ``call`` until it does not raise ApiError, with growing pauses.

    For idempotent or preconditioned calls only, whose errors are all either passing or somebody else's to mend
    (credentials, rights): the work can't go on without the answer, and must not be forgotten. What is forbidden is
    told once, in the server's words, which name the right; then it is asked for ever more rarely. Raises BadName: a
    request that can't be sent has no answer.
    """
    pause_s = _FIRST_PAUSE_S
    told = ""
    while True:
        try:
            return await call()
        except BadName:
            raise
        except Forbidden as error:
            longest_s = _LONGEST_FORBIDDEN_S
            if told != str(error):
                told = str(error)
                _log.error(
                    "forbidden, and asked again until it is allowed, every %d s in the end: %s", longest_s, error
                )
                if on_forbidden is not None:
                    on_forbidden(error)
        except ApiError as error:
            longest_s = _LONGEST_PAUSE_S
            _log.warning("no clear answer, asking again in %.1f s: %s", pause_s, error)
        await anyio.sleep(pause_s)
        pause_s = min(pause_s * 2, longest_s)


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
