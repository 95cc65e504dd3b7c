"""Faulty schedulers that suggest changes which help no more, or never did."""

from __future__ import annotations

from typing import Any

from typing_extensions import override

from scheduler.app import Scheduler
from scheduler.conditions.suggestions import Suggesting
from scheduler.core.what_if.edits import Edit


class TriesNothingAgain(Suggesting):
    """What was told once is told until the reason changes."""

    @override
    async def _still(self, key: Any, said: tuple[Edit, ...]) -> tuple[Edit, ...]:
        return said


class TriesNothing(Suggesting):
    """Whatever is thought of is told."""

    @override
    async def _helps(self, key: Any, edit: Edit | None) -> bool:
        return edit is not None


def suggesting_as(kind: type[Suggesting], api: Any, **rest: Any) -> Scheduler:
    """Make a scheduler that suggests in this way."""
    made = Scheduler(api, **rest)
    if made._suggesting is not None:
        made._suggesting.__class__ = kind
    return made
