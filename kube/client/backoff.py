"""Waiting between tries: for how long, and until there is an answer.

Asking until there is an answer, for what is safe to ask again.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

import anyio
import msgspec

from kube.client.errors import ApiError, BadName, Forbidden


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
