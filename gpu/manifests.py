"""Objects as people write them: where they have pods, and keys that ask for no GPU though they look like it.

A pod template is known by its form, ``spec.containers`` under a key, so templates of kinds that are not known here are
found as well: a Deployment's, a CronJob's, each task's of a Volcano Job. ``moorage lint`` and ``moorage simulate`` both
read manifests by this module.

Keys that look like a request for a share of a GPU and are none: misspelt, or a label instead of an annotation.

``moorage lint`` reports them of files, admission warns of them when a pod is created. Both use the same words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

import msgspec

from gpu.translation import shown
from wire import names
from wire.core import Pod

#: Before the reason that ``read_pod`` gives.
MALFORMED: Final = "the API server would not take this pod"
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


def _templates(value: object, path: str, depth: int, seen: set[int]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if not isinstance(value, Mapping | list) or depth == 0 or id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, list):
        for index, each in enumerate(value):
            yield from _templates(each, f"{path}[{index}]", depth - 1, seen)
        return
    spec = value.get("spec")
    if isinstance(spec, Mapping) and isinstance(spec.get("containers"), list):
        yield path, value
        return
    for key, each in value.items():
        yield from _templates(each, f"{path}.{key}" if path else str(key), depth - 1, seen)


KAI_KEYS: Final = (
    names.GPU_FRACTION,
    names.GPU_MEMORY,
    names.GPU_FRACTION_NUM_DEVICES,
    names.GPU_FRACTION_CONTAINER_NAME,
)
_CLEARML_LABEL: Final = "clearml-injector/fraction"


class IgnoredKey(msgspec.Struct, frozen=True):
    """A key without effect. ``code`` is stable, for programs; ``text`` continues the key: why, and what to write."""

    code: Literal["misspelt", "wrong-place"]
    key: str
    text: str


def ignored_keys(pod: Pod) -> Iterator[IgnoredKey]:
    """Return the pod's labels and annotations that look like a request and have no effect."""
    annotations, labels = pod.metadata.annotations or {}, pod.metadata.labels or {}
    for key in annotations:
        plain = key.rpartition("/")[2].replace("_", "-").lower()
        if plain in KAI_KEYS and key != plain:
            yield IgnoredKey("misspelt", key, f"means nothing; write {plain}")
    for key in KAI_KEYS:
        if key in labels:
            yield IgnoredKey("wrong-place", key, "means nothing as a label; it is an annotation")
    if _CLEARML_LABEL in annotations:
        yield IgnoredKey("wrong-place", _CLEARML_LABEL, "means nothing as an annotation; it is a label")
