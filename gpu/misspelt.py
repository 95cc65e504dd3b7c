"""Keys that look like a request for a share of a GPU and are none: misspelt, or a label instead of an annotation.

``moorage lint`` reports them of files, admission warns of them when a pod is created. Both use the same words.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

import msgspec

from wire import names
from wire.core import Pod

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
