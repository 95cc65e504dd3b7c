"""Which pods belong to a gang, and what a PodGroup demands. Pods and PodGroups in, values out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from wire import gangs, names
from wire.core import ObjectMeta, OwnerReference, Pod

_MOST_DIGITS = 9
#: The field of a pod that names a PodGroup of Kubernetes' own.
_GROUP = "spec.schedulingGroup"
#: KAI's annotations that its pod-grouper turns into a structure of the PodGroup; nothing here reads them.
_KAIS_SEGMENTS = (names.SEGMENT_SIZE, names.SEGMENT_TOPOLOGY_REQUIRED)
_KAIS_STRUCTURE = (*_KAIS_SEGMENTS, names.TOPOLOGY_REQUIRED)
#: KAI's annotations by which pods prefer a place together; they keep no pod waiting, and nothing looks at them.
_KAIS_PREFERENCES = (names.SEGMENT_TOPOLOGY_PREFERRED, names.TOPOLOGY_PREFERRED)


def asked_elsewhere(pod: Pod) -> str:
    """By what ``pod`` asks to be started with others in a way that is not carried out; "" if by nothing.

    That counts for pods that name no PodGroup: one that is named alone says how many start together.
    """
    return ", ".join(filter(None, [*_upstream(pod), asked_by(pod.metadata)]))


def asked_by(meta: ObjectMeta) -> str:
    """The labels and annotations that ask for a gang in such a way, of a pod or of its owner; "" if there are none."""
    found = [*gangs.written(meta.labels, meta.annotations), *kais_structure(meta.annotations)]
    if _least(meta.annotations) != 1:
        found.append(f"annotation {names.BATCH_MIN_MEMBER}")
    return ", ".join(found)


def is_translated(pod: Pod) -> bool:
    """Whether words of another scheduler name a gang, of which the grouping of workloads makes a PodGroup."""
    meta = pod.metadata
    found = gangs.written(meta.labels, meta.annotations)
    return _GROUP in _upstream(pod) or any(word in gangs.TRANSLATED for word in found)


def not_carried_out(asked: str) -> str:
    """The detail of a verdict about such a pod, with what helps."""
    return f"starting together by {asked} (without a PodGroup in annotation {names.POD_GROUP_NAME})"


def _upstream(pod: Pod) -> Iterator[str]:
    if (pod.metadata.annotations or {}).get(names.IGNORE_WORKLOAD_API) == "true":
        return
    if pod.spec.workload_ref:
        yield "spec.workloadRef"
    if pod.spec.scheduling_group:
        yield _GROUP


def kais_structure(annotations: dict[str, str] | None) -> list[str]:
    """Annotations of KAI's that ask for a structure of the gang or a place for it."""
    return [f"annotation {name}" for name in _KAIS_STRUCTURE if annotations and annotations.get(name)]


def kais_segments(annotations: Mapping[str, str] | None) -> list[str]:
    """Of these, what a PodGroup says of its own parts by its subgroups alone."""
    return [f"annotation {name}" for name in _KAIS_SEGMENTS if annotations and annotations.get(name)]


def preferences(annotations: Mapping[str, str] | None) -> list[str]:
    """Annotations of KAI's that prefer a place for pods together and have no effect."""
    return [name for name in _KAIS_PREFERENCES if annotations and annotations.get(name)]


def _least(annotations: dict[str, str] | None) -> int:
    """How many pods start together by KAI's annotation: 1 without it, 0 for what can't be read."""
    text = (annotations or {}).get(names.BATCH_MIN_MEMBER)
    if text is None:
        return 1
    return max(1, int(text)) if text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS else 0


def asks_more_than(annotations: dict[str, str] | None, minimum: int) -> bool:
    """Whether KAI's annotation asks for more pods at once than ``minimum``, or can't be read."""
    least = _least(annotations)
    return least == 0 or least > max(1, minimum)


def gang_kind(pod: Pod) -> str:
    """Kind of the gang that ``pod`` is a part of by its owner or labels, "" if it is a pod alone.

    Pods of a Job, ReplicaSet or StatefulSet are pods alone, as far as they say themselves (owners.py).
    """
    return gang_kind_of(pod.metadata)


def gang_kind_of(meta: ObjectMeta) -> str:
    """The same of a pod or of its owner."""
    for owner in meta.owner_references or ():
        if is_gang_kind(_api_group(owner), owner.kind):
            return owner.kind
    labels = meta.labels or {}
    return next((kind for label, kind in gangs.LABELS.items() if labels.get(label)), "")


def is_gang_kind(group: str, kind: str) -> bool:
    """Whether pods of an owner of this kind start together."""
    return kind in gangs.KINDS.get(group, ())


def _api_group(owner: OwnerReference) -> str:
    return owner.api_version.partition("/")[0]
