"""Objects as people write them: where they have pods.

A pod template is known by its form, ``spec.containers`` or ``spec.podSpec.containers`` under a key, so templates of
kinds that are not known here are found as well: a Deployment's, a CronJob's, each task's of a Volcano Job. ``moorage
lint`` and ``moorage simulate`` both read manifests by this module.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from gpu.translation import shown
from wire.core import Pod

#: Before the reason that ``read_pod`` gives.
MALFORMED: Final = "the API server would not take this pod"
#: The pod's spec within the spec of a clique of Grove.
_POD_SPEC: Final = "podSpec"
#: No API object has more levels; this bounds the work on a hostile file.
_DEEPEST: Final = 64


def templates(obj: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the pods and pod templates in an object with their paths ("" for the object itself), outermost first.

    What YAML aliases repeat is looked at once.
    """
    return _templates(obj, "", _DEEPEST, set())


def read_pod(raw: Mapping[str, Any]) -> tuple[Pod | None, str]:
    """Return a pod or template as a pod, or why it is none.

    Numbers and booleans where text has to be are the most common mistake in YAML, so they have a sentence of their own.
    """
    metadata = raw.get("metadata")
    for field in ("annotations", "labels"):
        entries = metadata.get(field) if isinstance(metadata, Mapping) else None
        for key, value in entries.items() if isinstance(entries, Mapping) else ():
            if not isinstance(value, str):
                return None, f"metadata.{field}[{key}] is {shown(repr(value))} and has to be text: put it in quotes"
    try:
        return msgspec.convert({"metadata": metadata or {}, "spec": raw.get("spec") or {}}, Pod), ""
    except msgspec.ValidationError as error:
        return None, str(error)


def without_nulls(value: Any) -> Any:
    """Return a value of a manifest without fields that are null: the API server takes such a field as absent."""
    if isinstance(value, Mapping):
        return {key: without_nulls(each) for key, each in value.items() if each is not None}
    return [*map(without_nulls, value)] if isinstance(value, list) else value


def _templates(value: object, path: str, depth: int, seen: set[int]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if not isinstance(value, Mapping | list) or depth == 0 or id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, list):
        for index, each in enumerate(value):
            yield from _templates(each, f"{path}[{index}]", depth - 1, seen)
        return
    spec = value.get("spec")
    if _is_pod_spec(spec):
        yield path, value
        return
    if isinstance(spec, Mapping) and _is_pod_spec(spec.get(_POD_SPEC)):
        meta = value.get("metadata")
        # A clique of Grove's has labels and annotations beside its spec.
        holder = meta if isinstance(meta, Mapping) else value
        copied = {field: holder[field] for field in ("labels", "annotations") if holder.get(field)}
        yield f"{path}.spec.{_POD_SPEC}".lstrip("."), {"metadata": copied, "spec": spec[_POD_SPEC]}
        return
    for key, each in value.items():
        yield from _templates(each, f"{path}.{key}" if path else str(key), depth - 1, seen)


def _is_pod_spec(spec: object) -> bool:
    return isinstance(spec, Mapping) and isinstance(spec.get("containers"), list)
