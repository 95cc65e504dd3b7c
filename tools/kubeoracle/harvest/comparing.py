"""Upstream's answer to each row beside Moorage's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from tools.kubeoracle.comparing import is_same
from tools.kubeoracle.harvest.filling import node_names, question
from tools.kubeoracle.harvest.rows import Row
from tools.kubeoracle.ours import Ours, answer

#: Reasons of other plug-ins than the row's, which may keep a node out beside what the row is about.
_BESIDE: Final = {"podtopologyspread": frozenset({"taint", "cordoned", "affinity", "selector"})}


def differences(row: Row, answering: Callable[[dict[str, Any]], Ours] = answer) -> Iterator[str]:
    """In what Moorage's answer differs from the row's, in words; nothing where they are the same."""
    ours = answering(question(row))
    if ours.blocker and any(wanted is None for wanted in row.wanted):
        yield f"ours waits: {ours.blocker}"
    if ours.blocker:
        return
    for name, wanted in zip(node_names(row), row.wanted, strict=True):
        why = ours.why.get(name, frozenset())
        if wanted is None and name not in ours.feasible and not (why and why <= _BESIDE.get(row.package, frozenset())):
            yield f"{name}: theirs lets it in, ours says {sorted(why)}"
        if wanted is not None and name in ours.feasible:
            yield f"{name}: theirs says {wanted.reasons}, ours lets it in"
        elif wanted is not None and not is_same(wanted, why) and not why & _BESIDE.get(row.package, frozenset()):
            yield f"{name}: theirs says {wanted.plugin} {wanted.reasons}, ours {sorted(why)}"
