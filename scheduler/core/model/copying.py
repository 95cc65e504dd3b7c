"""A copy of an object with some attributes of its own: for tables that a changed snapshot may write."""

from __future__ import annotations

from copy import copy
from typing import Any, TypeVar

T = TypeVar("T")


def copied(thing: T, **parts: Any) -> T:
    """Copy an object, with these attributes in the place of its own; it shares all others."""
    made = copy(thing)
    for name, part in parts.items():
        setattr(made, name, part)
    return made
