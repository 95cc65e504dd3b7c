"""What sub-groups of a PodGroup have to satisfy (kai-contract 2.2), checked before they are written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from wire.crds.podgroup import SUBGROUP_NAME, SubGroup
from workloads.core import fields
from workloads.core.values import MOST_PARTS, Code, Json, Refusal, Refused

_NAME: Final = re.compile(SUBGROUP_NAME, re.ASCII)


def bounded(top: Json, parts: Sequence[SubGroup], count: int) -> None:
    """Refuse a workload of which ``count`` more parts would be too many, before they are made."""
    if len(parts) + count <= MOST_PARTS:
        return
    raise Refused(
        Refusal(
            code=Code.TOO_MANY_PARTS,
            about=fields.about(top),
            field="subGroups",
            value=str(len(parts) + count),
            allowed=f"at most {MOST_PARTS}",
        )
    )


def check(top: Json, parts: Sequence[SubGroup]) -> None:
    """Refuse names that the API server would not take, and names that two parts have."""
    seen: set[str] = set()
    for part in parts:
        if not _NAME.fullmatch(part.name) or part.name in seen:
            allowed = f"each name once, in the form {SUBGROUP_NAME}"
            raise fields.malformed(top, "subGroups.name", part.name, allowed)
        seen.add(part.name)
