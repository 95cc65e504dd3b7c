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
    names.CHARGED,
    names.CLAIMED_SHARE,
    names.FENCED,
    names.FENCED_BEFORE,
    names.FENCED_BECAUSE,
    names.GPU_PORTION_ANNOTATION,
    names.TENANTS,
    names.SCALES_FOR,
    names.GPU_MEMORY_RESERVE,
)
ANNOTATION_PREFIXES: Final = (names.VISIBLE_DEVICES_PREFIX, names.ENV_PREFIX)
#: How further ones begin and end: where NvFractions is installed, its daemon gives a container what stands there.
ANNOTATION_SHAPES: Final = ((names.NVFRACTIONS_PREFIX, names.NVFRACTIONS_DEVICES),)

#: Labels of a pod that only the scheduler and the binder write.
LABELS: Final = (names.GPU_GROUP_LABEL,)
LABEL_PREFIXES: Final = (names.MULTI_GPU_GROUP_LABEL_PREFIX,)

#: Annotations by which a reservation pod says which device it holds. On any other pod they mean nothing.
IDENTITY: Final = (names.RESERVE_FOR_GPU_INDEX, names.DEVICE_INDEX, names.DEVICE_MEMORY)
#: Those, and the one by which the node agent marks that it wrote them before the process inside ran.
TOLD: Final = (*IDENTITY, names.DEVICE_REPORTER)

#: Annotations that the webhook itself writes into a new pod; fixed from then on. A record may be brought along: it is
#: an ask like any other (gpu/record.py).
FIXED_AT_CREATION: Final = (names.SHARED_GPU_CONFIGMAP, names.GPU_RECORD)
#: How further fixed ones begin, which no new pod may bring along: each gives its containers any device they name.
FIXED_PREFIXES: Final = (names.NRI_DEVICES,)

#: Annotations in which a user asks for GPUs; fixed once the pod is placed.
ASKS: Final = (
    names.GPU_FRACTION,
    names.GPU_MEMORY,
    names.GPU_FRACTION_NUM_DEVICES,
    names.GPU_FRACTION_CONTAINER_NAME,
    names.GPU_FRACTION_CONTAINER_TYPE,
    names.MPS,
)
#: How further asks begin: KAI's old form for MIG slices. A pod that runs with one keeps a slice (contract 14.6).
ASK_PREFIXES: Final = (names.MIG_RESOURCE_PREFIX,)

#: Labels by which a pod counts in a queue; fixed once the pod is placed, as its PodGroup's name is (names.CHARGED).
COUNTED_LABELS: Final = (names.QUEUE_LABEL, names.PROJECT_LABEL, names.PREEMPTIBILITY_LABEL, names.NODE_POOL_LABEL)

#: What a new pod must not bring along.
_STRIPPED_ANNOTATIONS: Final = frozenset((*ANNOTATIONS, *TOLD, names.SHARED_GPU_CONFIGMAP))


def stripped(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return the pod without the keys that a new pod must not bring along. The input is left as it is."""
    metadata = dict(pod.get("metadata") or {})
    for field, is_stripped in (("annotations", _is_stripped), ("labels", is_label)):
        if metadata.get(field):
            metadata[field] = {key: text for key, text in metadata[field].items() if not is_stripped(key)}
    return {**pod, "metadata": metadata}


def is_annotation(key: str) -> bool:
    """Whether only the scheduler and the binder write this annotation."""
    shaped = any(key.startswith(first) and key.endswith(last) for first, last in ANNOTATION_SHAPES)
    return shaped or key in ANNOTATIONS or key.startswith(ANNOTATION_PREFIXES)


def is_label(key: str) -> bool:
    """Whether only the scheduler and the binder write this label."""
    return key in LABELS or key.startswith(LABEL_PREFIXES)


def is_fixed(key: str) -> bool:
    """Whether nobody changes this annotation once its pod is there."""
    return key in FIXED_AT_CREATION or key.startswith(FIXED_PREFIXES)


def is_ask(key: str) -> bool:
    """Whether nobody changes this annotation once its pod is placed."""
    return key in ASKS or key.startswith(ASK_PREFIXES)


def _is_stripped(key: str) -> bool:
    return key in _STRIPPED_ANNOTATIONS or key.startswith(FIXED_PREFIXES) or is_annotation(key)
