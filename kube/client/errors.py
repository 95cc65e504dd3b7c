"""What can go wrong when talking to the API server, named by condition.

::

    ApiError
    +-- Unreachable              nothing usable came back; a write may or may not have happened
    |   +-- Timeout              the answer did not come in time
    +-- Undecodable              the answer came, but its object is not of the shape expected
    +-- TooLarge                 the answer is longer than anything of its kind is
    +-- TooLate                  not sent: the time until which this process may write is over
    +-- BadName                  not sent: a name in its path is none
    +-- Refused                  the server answered with a Status
        +-- BadRequest           400
        +-- Unauthorized         401
        +-- Forbidden            403
        +-- NotFound             404
        +-- Conflict             409 (changed, already bound, gated)
        |   +-- AlreadyExists    409 on create
        +-- Gone                 410
        +-- Invalid              422
        +-- TooManyRequests      429, with retry_after_s
        +-- ServerError          5xx; a write may or may not have happened
"""

from __future__ import annotations

from typing import Final

from wire.core import Status

#: Of a value that is refused, in a message.
_SHOWN: Final = 100


class ApiError(Exception):
    """Raised when a call to the API server did not do what was asked."""

    #: Whether a write that raised this may have been carried out.
    outcome_unknown = False


class Unreachable(ApiError):
    """Raised when the connection failed or broke before a whole answer was there."""

    outcome_unknown = True


class Timeout(Unreachable):
    """Raised when the answer did not come within the call's time-out."""


class Undecodable(ApiError):
    """Raised when the answer holds an object that does not decode; of a write, it has been carried out."""

    outcome_unknown = True


class TooLate(ApiError):
    """Raised instead of sending a write, when the lease under which it would be made has too little time left."""


class TooLarge(ApiError):
    """Raised when the answer is longer than anything of its kind is; of a write, it has been carried out."""

    outcome_unknown = True


class BadName(ApiError):
    """Raised instead of sending a request for an object by what can't be its name."""

    def __init__(self, field: str, value: str, allowed: str) -> None:
        super().__init__(f"{field} is {value[:_SHOWN]!r}{'...' if len(value) > _SHOWN else ''}; allowed: {allowed}")
        self.field = field
        self.value = value
        self.allowed = allowed


class Refused(ApiError):
    """Raised when the server answered with an error Status."""

    def __init__(self, code: int, status: Status, *, retry_after_s: float | None = None) -> None:
        super().__init__(status.message or status.reason or f"HTTP {code}")
        self.code = code
        self.status = status
        self.retry_after_s = retry_after_s

    @property
    def reason(self) -> str:
        """The machine-readable reason of the Status (``AlreadyExists``, ``Expired``...)."""
        return self.status.reason


class BadRequest(Refused):
    """Raised when the server can't read the request (400)."""


class Unauthorized(Refused):
    """Raised when the credentials are missing, expired or wrong (401)."""


class Forbidden(Refused):
    """Raised when the credentials do not allow this, or an admission policy refuses it (403)."""


class NotFound(Refused):
    """Raised when the object is not there (404)."""


class Conflict(Refused):
    """Raised when a precondition failed: the object changed, is bound, gated, or another of its name lives (409)."""


class AlreadyExists(Conflict):
    """Raised when a create met an object of that name (409)."""


class Gone(Refused):
    """Raised when the resourceVersion or continue token is too old (410)."""


class Invalid(Refused):
    """Raised when the object fails validation (422)."""


class TooManyRequests(Refused):
    """Raised when the server asks to come back later, or a PodDisruptionBudget forbids an eviction (429)."""


class ServerError(Refused):
    """Raised when the server failed (5xx)."""

    outcome_unknown = True


_BY_CODE: dict[int, type[Refused]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}


def refused(code: int, status: Status, *, retry_after_s: float | None = None) -> Refused:
    """Return the error for an HTTP status code and its Status body."""
    if code == 409 and status.reason == "AlreadyExists":
        return AlreadyExists(code, status, retry_after_s=retry_after_s)
    kind = _BY_CODE.get(code, ServerError if code >= 500 else Refused)
    return kind(code, status, retry_after_s=retry_after_s)
