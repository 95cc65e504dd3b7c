"""Fields of objects of other people's kinds, read and checked, and sub-groups of a PodGroup before they are written.

A value that is not allowed raises Refused with the object, the field and the value (kai-contract 2.2 for sub-groups).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from gpu.translation import shown
from podgrouper.core.answers import MOST_PARTS, Code, Json, Refusal, Refused
from wire.crds.podgroup import SUBGROUP_NAME, SubGroup
from wire.go import parse_int

_MOST = 2**31 - 1
#: What JSON has comes first: to ask whether it is another mapping takes five times as long.
_MAPPING: Final = (dict, Mapping)
_COUNT = f"a number from 0 to {_MOST}"


def at(value: object, path: str) -> Any:
    """Return what stands at a path of keys with dots between them; None if a key is missing."""
    for key in path.split("."):
        value = value.get(key) if isinstance(value, _MAPPING) else None
    return value


def count(obj: Json, path: str, default: int | None = None) -> int | None:
    """Return a count of pods or replicas at a path; ``default`` if the field is absent."""
    return checked_count(obj, path, at(obj, path), default)


def checked_count(obj: Json, field: str, value: object, default: int | None = None) -> int | None:
    """Check a count that was found in ``field`` of ``obj``."""
    if value is None:
        return default
    if type(value) is not int or not 0 <= value <= _MOST:
        raise malformed(obj, field, value, _COUNT)
    return value


def annotated_count(obj: Json, name: str) -> int | None:
    """Return a positive number from an annotation; None without one."""
    text = annotations_of(obj).get(name)
    if text is None:
        return None
    return read_count(obj, f"metadata.annotations[{name}]", text)


def read_count(obj: Json, field: str, text: str) -> int:
    """Read a positive number that a label or annotation of ``obj`` holds."""
    number = parse_int(text)
    if number is None or not 1 <= number <= _MOST:
        raise malformed(obj, field, text, f"a number from 1 to {_MOST}")
    return number


def index(pod: Json, label: str) -> int:
    """Read a pod's number among its like from a label, from 0 on."""
    text = labels_of(pod).get(label, "")
    number = parse_int(text)
    if number is None or number < 0:
        raise malformed(pod, f"metadata.labels[{label}]", text or None, "a number of 0 or more")
    return number


def mappings(obj: Json, path: str) -> Sequence[Json]:
    """Return a list of objects at a path; empty if absent."""
    value = at(obj, path)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(each, _MAPPING) for each in value):
        raise malformed(obj, path, value, "a list of objects")
    return value


def mapping(obj: Json, path: str) -> Json:
    """Return an object at a path; empty if absent."""
    value = at(obj, path)
    if value is None:
        return {}
    if not isinstance(value, _MAPPING):
        raise malformed(obj, path, value, "an object")
    return value


def text(obj: Json, path: str) -> str:
    """Return the text at a path; "" if absent or not text."""
    value = at(obj, path)
    return value if isinstance(value, str) else ""


def labels_of(obj: Json) -> Mapping[str, str]:
    """Return the labels of an object."""
    return _texts(at(obj, "metadata.labels"))


def annotations_of(obj: Json) -> Mapping[str, str]:
    """Return the annotations of an object."""
    return _texts(at(obj, "metadata.annotations"))


def about(obj: Json) -> str:
    """Name an object for messages."""
    return f"{shown(text(obj, 'kind'))} {shown(text(obj, 'metadata.name'))}".strip()


def malformed(obj: Json, field: str, value: object, allowed: str) -> Refused:
    """Return the refusal of a value."""
    said = "absent" if value is None else shown(repr(value))
    return Refused(Refusal(code=Code.MALFORMED, about=about(obj), field=field, value=said, allowed=allowed))


def not_carried_out(obj: Json, field: str, value: str, allowed: str) -> Refused:
    """Return the refusal of a value that another scheduler serves and Moorage does not."""
    return Refused(
        Refusal(code=Code.NOT_CARRIED_OUT, about=about(obj), field=field, value=shown(value), allowed=allowed)
    )


def _texts(value: object) -> Mapping[str, str]:
    found = value if isinstance(value, _MAPPING) else {}
    return {key: each for key, each in found.items() if isinstance(key, str) and isinstance(each, str)}


_NAME: Final = re.compile(SUBGROUP_NAME, re.ASCII)


def bounded(top: Json, parts: Sequence[SubGroup], count: int) -> None:
    """Refuse a workload of which ``count`` more parts would be too many, before they are made."""
    if len(parts) + count <= MOST_PARTS:
        return
    raise Refused(
        Refusal(
            code=Code.TOO_MANY_PARTS,
            about=about(top),
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
            raise malformed(top, "subGroups.name", part.name, allowed)
        seen.add(part.name)
