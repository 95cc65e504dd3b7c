"""Which keys of a pod are ours to write, and which a user fixes: one list for the webhook and for the policies.

A *protected* key is written by the scheduler or the binder only. A new pod that brings one along (a backup, a copied
spec) loses it at the webhook; afterwards the API server itself refuses changes (admission/policies.py), so the
protection does not depend on the webhook being up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from wire import names

#: Annotations of a pod that only the scheduler and the binder write.
ANNOTATIONS: Final = (
    names.RECEIVED_RESOURCE_TYPE,
    names.GRANT,
    names.GPU_RECORD,
    names.FENCED,
    names.FENCED_BECAUSE,
    names.GPU_PORTION_ANNOTATION,
    names.TENANTS,
    names.SCALES_FOR,
)
ANNOTATION_PREFIXES: Final = (names.VISIBLE_DEVICES_PREFIX,)

#: Labels of a pod that only the scheduler and the binder write.
LABELS: Final = (names.GPU_GROUP_LABEL,)
LABEL_PREFIXES: Final = (names.MULTI_GPU_GROUP_LABEL_PREFIX,)

#: Annotations by which a reservation pod says which device it holds. On any other pod they mean nothing.
IDENTITY: Final = (names.RESERVE_FOR_GPU_INDEX, names.DEVICE_INDEX, names.DEVICE_MEMORY)

#: Annotations that the webhook itself writes into a new pod; fixed from then on.
FIXED_AT_CREATION: Final = (names.SHARED_GPU_CONFIGMAP,)

#: Annotations in which a user asks for GPUs; fixed once the pod is placed.
ASKS: Final = (
    names.GPU_FRACTION,
    names.GPU_MEMORY,
    names.GPU_FRACTION_NUM_DEVICES,
    names.GPU_FRACTION_CONTAINER_NAME,
    names.GPU_FRACTION_CONTAINER_TYPE,
    names.MPS,
)

#: What a new pod must not bring along.
_STRIPPED_ANNOTATIONS: Final = frozenset((*ANNOTATIONS, *IDENTITY, *FIXED_AT_CREATION))


def stripped(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return the pod without the keys that a new pod must not bring along. The input is left as it is."""
    metadata = dict(pod.get("metadata") or {})
    for field, exact, prefixes in (
        ("annotations", _STRIPPED_ANNOTATIONS, ANNOTATION_PREFIXES),
        ("labels", frozenset(LABELS), LABEL_PREFIXES),
    ):
        if metadata.get(field):
            metadata[field] = _without(metadata[field], exact, prefixes)
    return {**pod, "metadata": metadata}


def _without(texts: Mapping[str, str], exact: frozenset[str], prefixes: tuple[str, ...]) -> dict[str, str]:
    return {key: value for key, value in texts.items() if key not in exact and not key.startswith(prefixes)}
