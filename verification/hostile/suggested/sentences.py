"""The suggested changes that a pod's condition shows, read from its text as a user reads it."""

from __future__ import annotations

import calendar
import re
import time
from collections.abc import Iterator
from decimal import Decimal
from typing import Final, NamedTuple, TypeAlias

import msgspec

from scheduler.core.what_if.group_changes import CPU, FRACTION, GPU_MEMORY, GPUS, MEMORY, Asking, Members

_SENTENCE: Final = re.compile(
    r"(?:This change lets it start|Each of these changes, alone, lets it start) "
    r"\(tried, and renewed within (?P<minutes>\d+) minutes\): (?P<changes>.*)\.\Z",
    re.DOTALL,
)
_ASKING: Final = re.compile(r"request (?P<amount>[0-9.]+) (?P<unit>.+) per pod")
_MEMBERS: Final = re.compile(r"start with (?P<pods>\d+) pods? \(minMember: \d+\)")
_WAIT: Final = re.compile(r"wait until (?P<until>[-0-9]+ [:0-9]+Z) at the latest, when \d+ pods? ended, .*")
#: The unit of an amount, and how many of the edit's units are one of it.
_UNITS: Final = {
    "of a GPU": (FRACTION, 10**9),
    "MiB of GPU memory": (GPU_MEMORY, 1),
    "GPU": (GPUS, 1),
    "GPUs": (GPUS, 1),
    "CPU cores": (CPU, 1000),
    "MiB of memory": (MEMORY, 1),
}


class WaitUntil(msgspec.Struct, frozen=True):
    """It starts when the pods have ended that end by this time (wall clock)."""

    until_s: int


#: A change that can be suggested in a condition.
Suggestible: TypeAlias = Asking | Members | WaitUntil


class Claim(NamedTuple):
    """A pod (UID) is said to start after this change."""

    uid: str
    change: Suggestible


class Sentence(msgspec.Struct, frozen=True):
    """``renewed_s``: no change in it is shown for longer than this after it stopped helping."""

    changes: tuple[Suggestible, ...]
    renewed_s: int


class Unreadable(ValueError):
    """Raised for a sentence of a form that nobody described; the message has it."""


def sentence_of(message: str) -> Sentence | None:
    """Read the sentence with which a condition's message ends; None without one. Raises Unreadable."""
    found = _SENTENCE.search(message)
    if found is None:
        return None
    return Sentence(tuple(_changes(found["changes"])), 60 * int(found["minutes"]))


def _changes(text: str) -> Iterator[Suggestible]:
    for one in text.split("; "):
        if found := _ASKING.fullmatch(one):
            what, units = _UNITS[found["unit"]]
            yield Asking(what, int(Decimal(found["amount"]) * units))
        elif found := _MEMBERS.fullmatch(one):
            yield Members(int(found["pods"]))
        elif found := _WAIT.fullmatch(one):
            yield WaitUntil(calendar.timegm(time.strptime(found["until"], "%Y-%m-%d %H:%M:%SZ")))
        else:
            raise Unreadable(one)
