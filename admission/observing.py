"""What of the webhooks is counted, as values; the metrics library is used by runtime/metrics, not here."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, Protocol

from typing_extensions import override

from kube.watch.reflector import Reflector


class Answered(enum.Enum):
    """How a review was answered. The value is its stable name for machines."""

    #: Allowed as it came.
    ALLOWED = "allowed"
    #: Allowed with a patch.
    PATCHED = "patched"
    REFUSED = "refused"
    #: It could not be read: 400, so the API server does what the webhook's failurePolicy says.
    MALFORMED = "malformed"
    #: It is larger than an object can be, or our own code failed: 413 or 500.
    FAILED = "failed"


class Observer(Protocol):
    """Is called with what happens. It must not raise, and returns within microseconds."""

    def watches(self, reflectors: Sequence[Reflector[Any]]) -> None:
        """By what the process keeps in step; told once."""
        ...

    def reviewed(self, webhook: str, answered: Answered, took_s: float) -> None:
        """A review was answered by ``webhook``, so long after it had begun to come."""
        ...


class Unobserved(Observer):
    """Nobody counts."""

    @override
    def watches(self, reflectors: Sequence[Reflector[Any]]) -> None:
        """Nothing."""

    @override
    def reviewed(self, webhook: str, answered: Answered, took_s: float) -> None:
        """Nothing."""


def answered_by(review: dict[str, Any]) -> Answered:
    """How this review's answer answers."""
    response = review["response"]
    if not response["allowed"]:
        return Answered.REFUSED
    return Answered.PATCHED if "patch" in response else Answered.ALLOWED
