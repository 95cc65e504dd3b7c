"""Whether a pod's annotations leave room for what is written beside them when the pod is bound.

The API server takes 256 KiB of annotations, but a Binding's it merges into the pod without looking: past the limit the
pod would be bound and every later write refused, the kubelet's first. So a pod without room is refused at the door, and
waits with a reason where it came in without being seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gpu.refusal import Mistake, Refusal
from gpu.request import GpuRequest
from wire import names

#: Bytes of all keys and values (TotalAnnotationSizeLimitB of k8s.io/apimachinery).
LARGEST: Final = 256 * 1024
#: For keys, the attempt, the portion, and why an attempt failed: 512 characters of up to 4 bytes (binder/reasons.py).
_FIXED: Final = 4096
#: For a device: its place in the grant with two UUIDs and an id of up to 80 characters, and that id once more.
_PER_DEVICE: Final = 320

_OURS: Final = frozenset((
    names.RECEIVED_RESOURCE_TYPE, names.GRANT, names.FENCED, names.FENCED_BECAUSE, names.GPU_PORTION_ANNOTATION,
))  # fmt: skip


def cramped(annotations: Mapping[str, str] | None, request: GpuRequest) -> Refusal | None:
    """Say why a pod with these annotations that asks this can't be bound; None if there is room."""
    allowed = LARGEST - _FIXED - _PER_DEVICE * len(request.shared)
    taken = used(annotations or {})
    if taken <= allowed:
        return None
    return Refusal(
        code=Mistake.TOO_LARGE,
        field="metadata.annotations",
        value=f"{taken} bytes",
        message="the annotations leave no room for what is written when the pod is bound",
        allowed=f"at most {allowed} bytes of keys and values",
    )


def used(annotations: Mapping[str, str]) -> int:
    """Bytes of the keys and values of everybody else. Each is looked at once; most pods have few and short ones."""
    return sum(_bytes(key) + _bytes(value) for key, value in annotations.items() if not _is_ours(key))


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _is_ours(key: str) -> bool:
    return key in _OURS or key.startswith(names.VISIBLE_DEVICES_PREFIX)
