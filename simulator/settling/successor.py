"""The pod that a controller makes in the place of one that is gone, and who leaves a node that is drained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from gpu.grant import Charged, render_charged
from scheduler.core.convert.owners import controller_uid
from wire import names
from wire.core import Pod, PodStatus

#: What a Binding writes: a pod that was just made has none of it.
_WRITTEN: Final = frozenset({
    names.GRANT,
    names.CHARGED,
    names.RECEIVED_RESOURCE_TYPE,
    names.GPU_PORTION_ANNOTATION,
    names.GPU_GROUP_LABEL,
})  # fmt: skip
_PREFIXES: Final = (names.VISIBLE_DEVICES_PREFIX, names.MULTI_GPU_GROUP_LABEL_PREFIX)
#: Pods of a DaemonSet, and static pods (their owner is the Node), which ``kubectl drain`` leaves.
_STAY: Final = frozenset({"DaemonSet", "Node"})


def has_successor(pod: Pod) -> bool:
    """Whether something makes the pod again."""
    return bool(controller_uid(pod.metadata))


def leaves_drained_node(pod: Pod) -> bool:
    """Whether ``kubectl drain --ignore-daemonsets --force`` takes a pod off its node."""
    return not any(owner.controller and owner.kind in _STAY for owner in pod.metadata.owner_references or ())


def successor(pod: Pod, *, uid: str, rv: str, created: str) -> Pod:
    """Return the pod that is made again: it waits, and keeps its name. ``created``: as the API server writes it.

    What a webhook or gate would do to it again is not known: it is taken as admitted and free to start.
    """
    meta = pod.metadata
    return msgspec.structs.replace(
        pod,
        metadata=msgspec.structs.replace(
            meta,
            uid=uid,
            resource_version=rv,
            creation_timestamp=created,
            deletion_timestamp=None,
            labels=_unwritten(meta.labels),
            annotations=_unwritten(meta.annotations),
        ),
        spec=msgspec.structs.replace(pod.spec, node_name=""),
        status=PodStatus(phase=names.PENDING),
    )


def bound(pod: Pod, node: str, *, rv: str, started: str, charged: Charged | None = None) -> Pod:
    """Return a pod that runs on a node since ``started``. ``charged``: what it was placed for in its queue."""
    annotations = {**(pod.metadata.annotations or {}), **render_charged(charged)}
    return msgspec.structs.replace(
        pod,
        metadata=msgspec.structs.replace(pod.metadata, resource_version=rv, annotations=annotations),
        spec=msgspec.structs.replace(pod.spec, node_name=node, scheduling_gates=None),
        status=PodStatus(
            phase=names.RUNNING,
            start_time=started,
            resource_claim_statuses=pod.status.resource_claim_statuses,
            extended_resource_claim_status=pod.status.extended_resource_claim_status,
        ),
    )


def _unwritten(found: Mapping[str, str] | None) -> dict[str, str] | None:
    if not found:
        return None
    return {key: text for key, text in found.items() if key not in _WRITTEN and not key.startswith(_PREFIXES)} or None
