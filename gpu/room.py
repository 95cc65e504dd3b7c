"""Whether a pod's annotations leave room for what is written beside them when the pod is bound.

The API server takes 256 KiB of annotations, but a Binding's it merges into the pod without looking: past the limit the
pod would be bound and every later write refused, the kubelet's first. So a pod without room is refused at the door, and
waits with a reason where it came in without being seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gpu.asked import needs_record, taken
from gpu.beside import PREFIXES
from gpu.dialects import metagpu
from gpu.refusal import Mistake, Refusal
from gpu.request import GpuRequest, SharedAsk
from gpu.translation import Translation
from wire import names

#: Bytes of all keys and values (TotalAnnotationSizeLimitB of k8s.io/apimachinery).
LARGEST: Final = 256 * 1024
#: For a container: the CDI names of what it is given beside its GPUs (gpu/beside.py), each with a UID and a comma.
_PER_CONTAINER_BESIDE: Final = sum(len(prefix) + 37 for prefix in PREFIXES)
#: For keys, the attempt and 8 earlier ones, the portion, the queue with its node pool, and why an attempt failed: 512
#: characters of up to 4 bytes (binder/telemetry/reasons.py).
_FIXED: Final = 4096
#: For a device of a container: its place in the grant with two UUIDs and an id of up to 80 characters, and that id once
#: more under the container's key, as a CDI name where that is on.
_PER_DEVICE: Final = 328 + len(names.CDI_DEVICE_PREFIX)

#: What other dialects write back comes on top of that (gpu/dialects/combine.py), each number with up to 9 digits. Once:
#: the node's name, times, and keys.
_FIXED_BACK: Final = 1024
#: For a container: up to five variables with their keys, and keys with its name.
_PER_CONTAINER_BACK: Final = 512
#: For a device of a container: twice with its UUID in HAMi's lists, and a variable with its limit.
_PER_ASK_BACK: Final = 400
#: For a place in HAMi's lists, which have one for each container up to the last that asks.
_PER_PLACE_BACK: Final = 2
#: For a container: two variables with its cap (gpu/drivercaps.py).
_PER_CONTAINER_CAPS: Final = 128
#: For a unit of MetaGPU: its name with the UUID.
_PER_UNIT_BACK: Final = 112

_OURS: Final = frozenset((
    names.RECEIVED_RESOURCE_TYPE, names.GRANT, names.CHARGED, names.FENCED, names.FENCED_BEFORE, names.FENCED_BECAUSE,
    names.GPU_PORTION_ANNOTATION,
))  # fmt: skip


def cramped(annotations: Mapping[str, str] | None, translation: Translation) -> Refusal | None:
    """Say why a pod with these annotations that asks this can't be bound; None if there is room.

    Whichever of its alternatives will be taken.
    """
    ways = [way for number in range(1 + len(translation.alternatives)) if (way := taken(translation, number))]
    is_foreign = needs_record(translation)
    return _cramped(
        annotations, kept=max(_of_ours(way) + (_back(way.request, way) if is_foreign else 0) for way in ways)
    )


def _of_ours(translation: Translation) -> int:
    """Bytes that a Binding and a fence write of any pod. A device on which several containers sit counts for each."""
    shares = _shares(translation.request)
    beside = _PER_CONTAINER_BESIDE * sum(map(bool, shares))
    caps = _PER_CONTAINER_CAPS * len(shares) * translation.driver_caps
    return _FIXED + _PER_DEVICE * sum(map(len, shares)) + beside + caps


def _back(request: GpuRequest, translation: Translation) -> int:
    """Bytes that are written back at most for one alternative."""
    shares = _shares(request)
    places = sum(asking.container.index + 1 for asking in request.containers)
    units = metagpu.most_units(translation, (ask for mine in shares for ask in mine))
    return (
        _FIXED_BACK
        + _PER_CONTAINER_BACK * len(shares)
        + _PER_ASK_BACK * sum(map(len, shares))
        + _PER_PLACE_BACK * places
        + _PER_UNIT_BACK * units
    )


def _shares(request: GpuRequest) -> list[list[SharedAsk]]:
    """What each container asks in part."""
    return [[ask for ask in asking.asks if isinstance(ask, SharedAsk)] for asking in request.containers]


def _cramped(annotations: Mapping[str, str] | None, *, kept: int) -> Refusal | None:
    allowed = LARGEST - kept
    taken = used(annotations or {})
    if taken <= allowed:
        return None
    return Refusal(
        code=Mistake.TOO_LARGE,
        field="metadata.annotations",
        value=f"{taken} bytes",
        message="the annotations leave no room for what is written when the pod is bound",
        allowed=f"at most {max(allowed, 0)} bytes of keys and values",
    )


def used(annotations: Mapping[str, str]) -> int:
    """Bytes of the keys and values of everybody else. Each is looked at once; most pods have few and short ones."""
    return sum(_bytes(key) + _bytes(value) for key, value in annotations.items() if not _is_ours(key))


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _is_ours(key: str) -> bool:
    return key in _OURS or key.startswith((names.VISIBLE_DEVICES_PREFIX, names.ENV_PREFIX))
