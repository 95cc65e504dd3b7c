"""A tree of sub-groups written without levels, where that says the same.

This version's scheduler starts groups whose sub-groups have a minimum of pods each; of `minSubGroup` and `parent` it
says that it does not support them. A tree in which every level needs all its children is its leaves.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from wire.crds.podgroup import PodGroup, SubGroup


def flattened(group: PodGroup) -> PodGroup:
    """Return the group with its leaves only; the group itself where a level can do without one of its children."""
    parts = group.spec.sub_groups or []
    children = Counter(part.parent or "" for part in parts)
    needed = {part.name: part.min_sub_group for part in parts} | {"": group.spec.min_sub_group}
    if not _has_levels(group, parts) or not all(
        _needs_all(needed.get(name), count) for name, count in children.items()
    ):
        return group
    # What holds for a level with a place of its own can't be said of its leaves one by one.
    if any(part.topology_constraint for part in parts if part.name in children):
        return group
    leaves = [msgspec.structs.replace(part, parent=None) for part in parts if part.name not in children]
    total = sum(leaf.min_member or 0 for leaf in leaves)
    spec = msgspec.structs.replace(group.spec, min_member=total, min_sub_group=None, sub_groups=leaves)
    return msgspec.structs.replace(group, spec=spec)


def _has_levels(group: PodGroup, parts: list[SubGroup]) -> bool:
    return group.spec.min_sub_group is not None or any(p.parent or p.min_sub_group is not None for p in parts)


def _needs_all(minimum: int | None, children: int) -> bool:
    return minimum is None or minimum == children
