"""Keeps what enforces a tenant's cap from being told anew with each look, where it comes and goes. Pure.

A loss is told at once: nobody is said to be limited who is not. What is gained within 30 s after a loss is told when
they are over. So a tenant whose limit alternates costs two writes in 30 s at most, and one that is limited for the
first time waits for nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from nodeagent.core.enforced import is_weaker

#: After a loss.
PAUSE_NS: Final = 30 * 10**9
_Key = TypeVar("_Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Steady:
    """What is told of a tenant: ``word`` of ``status.tenants[].enforced``. ``lost_ns``: when a better one was lost."""

    word: str
    lost_ns: int | None = None


def steadied(before: Mapping[_Key, Steady], now: Mapping[_Key, str], now_ns: int) -> dict[_Key, Steady]:
    """Return what is told from now on, of those that are there now. ``now``: what enforces their caps in truth."""
    return {key: _steadied(before.get(key), word, now_ns) for key, word in now.items()}


def _steadied(told: Steady | None, word: str, now_ns: int) -> Steady:
    if told is None:
        return Steady(word)
    if told.word == word:
        return told
    if is_weaker(word, told.word):
        return Steady(word, now_ns)
    is_over = told.lost_ns is None or now_ns - told.lost_ns >= PAUSE_NS
    return Steady(word) if is_over else told
