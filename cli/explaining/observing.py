"""Events of a scheduler that explains: who wants to know of them implements ``Observer``."""

from __future__ import annotations

import enum


class Outcome(enum.StrEnum):
    """What became of a question."""

    ANSWERED = "answered"
    #: It makes no sense, is about nothing that is there, or the asker may not ask it.
    REFUSED = "refused"
    #: Too many questions at one time, or the cluster is not read yet.
    BUSY = "busy"
    #: The API server could not say what the asker may see.
    FAILED = "failed"


class Observer:
    """Ignores all of it."""

    def asked(self, outcome: Outcome, seconds: float) -> None:
        """Take the end of a question, and its duration."""

    def sliced(self, seconds: float) -> None:
        """Take the end of a slice of an explanation, and its CPU time: a decision may have waited for it."""
