"""What pods of one foreign gang say of it, and that they say the same.

What the first pod of a gang says is kept on its PodGroup (annotation ``moorage.dev/foreign-gang``) until the PodGroup
is deleted. A pod that says something else is refused: it neither joins nor changes the gang. Only what pods and their
owners say is compared; the PodGroup of the other scheduler is one for all of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gpu.refusal import shown
from wire import names
from workloads.core import fields
from workloads.core.foreign import words
from workloads.core.foreign.words import Gang
from workloads.core.values import Code, Json, Refusal

_LEAST, _QUEUE, _PRIORITY = "minimum", "queue", "priorityClass"


def said(gang: Gang, *, queue: str, priority: str) -> str:
    """Return what a pod says of its gang, as text that is equal for pods that agree."""
    found = {"name": gang.name, _LEAST: gang.least, _QUEUE: queue, _PRIORITY: priority}
    return json.dumps({key: value for key, value in found.items() if value not in {None, ""}}, sort_keys=True)


def difference(pod: Json, own: str, first: str) -> Refusal | None:
    """Return why a pod that says ``own`` is not of the gang that says ``first``; None if it is."""
    if own == first:
        return None
    mine, theirs = _read(own), _read(first)
    for key in (_LEAST, _QUEUE, _PRIORITY):
        if mine.get(key) != theirs.get(key):
            return _refusal(pod, _field(pod, key), mine.get(key), theirs.get(key))
    return _refusal(pod, names.FOREIGN_GANG, own, first)


def _field(pod: Json, key: str) -> str:
    gang = words.gang_of(pod) if key == _LEAST else None
    return gang.least_field if gang is not None and gang.least_field else key


def _refusal(pod: Json, field: str, value: object, first: object) -> Refusal:
    allowed = f"{_shown(first)}, as the gang's first pod says"
    about = fields.about(pod)
    return Refusal(code=Code.GANG_DIFFERS, about=about, field=field, value=_shown(value), allowed=allowed)


def _read(text: str) -> Mapping[str, Any]:
    """Read such a text; of one that somebody has spoilt nothing."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _shown(value: object) -> str:
    return "absent" if value is None else shown(str(value))
