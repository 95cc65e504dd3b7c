"""Measuring what an object keeps in memory."""

from __future__ import annotations

import sys

import msgspec


def sizeof(root: object) -> int:
    """Bytes of an object and all that it refers to, each counted once."""
    seen_ids: set[int] = set()
    todo: list[object] = [root]
    total = 0
    while todo:
        one = todo.pop()
        if id(one) in seen_ids or callable(one):
            continue
        seen_ids.add(id(one))
        total += sys.getsizeof(one)
        if isinstance(one, dict):
            todo += [*one.keys(), *one.values()]
        elif isinstance(one, list | tuple | set | frozenset):
            todo += one
        elif isinstance(one, msgspec.Struct):
            todo += [getattr(one, name) for name in one.__struct_fields__]
        elif hasattr(one, "__dict__"):
            todo.append(vars(one))
    return total
