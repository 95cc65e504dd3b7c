"""Why a GPU request can't be translated: data for programs, and the words that the user sees.

A refusal is an expected outcome, so it is returned. The text is the source system's own where it has one, because
people search for it; what is allowed is added to it, because those texts often lack that.
"""

from __future__ import annotations

import enum

import msgspec


class Mistake(enum.Enum):
    """What kind of mistake was made, over all dialects."""

    #: The request may be right, but this installation doesn't serve it.
    DISABLED = "disabled"
    #: Two requests that exclude each other.
    CONFLICTING = "conflicting"
    #: A request that means something only beside another one, which is missing.
    INCOMPLETE = "incomplete"
    #: A value that can't be read, or is outside of what is allowed.
    MALFORMED = "malformed"
    #: More devices than one container can be given.
    TOO_MANY = "too-many"
    #: More text than an object can hold.
    TOO_LARGE = "too-large"
    #: The container that shall get the devices is not in the pod.
    UNKNOWN_CONTAINER = "unknown-container"


class Refusal(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One refused field. ``value`` is shortened if it was long; ``message`` is for the user."""

    code: Mistake
    field: str
    value: str
    message: str
    allowed: str


def shown(value: str) -> str:
    """Shorten a value for people: an annotation may have 256 KiB."""
    return value if len(value) <= 64 else f"{value[:48]}... ({len(value)} characters)"


def told(refusal: Refusal) -> str:
    """Return a refusal's words: the dialect's own first, since people search for them, then field, value and rule."""
    value = msgspec.json.encode(refusal.value).decode()
    return f"{refusal.message} ({refusal.field} is {value}; allowed: {refusal.allowed})"
