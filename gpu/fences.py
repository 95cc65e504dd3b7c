"""The attempts of a pod that were withdrawn, as its annotations tell.

A later fence must not hide an earlier one: a process that was slow would go on with an attempt that was withdrawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from wire import names

#: Earlier fences that are kept. A pod has one attempt at a time, and a withdrawn one is ended within minutes.
_MOST_BEFORE: Final = 8


def fences(annotations: Mapping[str, str] | None) -> tuple[str, ...]:
    """Attempts that were fenced, the last one first."""
    found = annotations or {}
    last = found.get(names.FENCED, "")
    before = found.get(names.FENCED_BEFORE, "").split()[:_MOST_BEFORE]
    return tuple(dict.fromkeys((last, *before))) if last else ()


def fencing(annotations: Mapping[str, str] | None, attempt: str) -> dict[str, str]:
    """Return the annotations that fence ``attempt`` and keep the earlier fences."""
    before = [one for one in fences(annotations) if one != attempt][:_MOST_BEFORE]
    kept = {names.FENCED_BEFORE: " ".join(before)} if before else {}
    return {names.FENCED: attempt, **kept}
