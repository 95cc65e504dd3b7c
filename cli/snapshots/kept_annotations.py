"""Annotations that decisions read, by the kind of their objects. A snapshot keeps these and no others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from gpu.dialects import nvannotations, vocabulary
from wire import gangwords, names
from wire.core import Job, Node, Pod
from wire.crds.bindrequest import BindRequest
from wire.crds.podgroup import PodGroup
from wire.crds.queue import Queue
from wire.resource import ResourceClaim
from wire.storage import PersistentVolume, PersistentVolumeClaim

#: Those that ask for a gang in one way or another, of pods and of Jobs.
_OF_GANGS: Final = frozenset({
    *gangwords.ALL, names.BATCH_MIN_MEMBER, names.SEGMENT_SIZE, names.SEGMENT_TOPOLOGY_REQUIRED,
    names.SEGMENT_TOPOLOGY_PREFERRED, names.TOPOLOGY_REQUIRED, names.TOPOLOGY_PREFERRED,
})  # fmt: skip
_OF_PODS: Final = frozenset({
    *_OF_GANGS, names.POD_GROUP_NAME, names.IGNORE_WORKLOAD_API, names.GPU_RECORD, names.GRANT, names.CHARGED,
    names.TENANTS, names.DEVICE_INDEX, names.DEVICE_MEMORY, names.RESERVE_FOR_GPU_INDEX, names.WITNESS,
    names.SHARED_GPU_CONFIGMAP, names.RECEIVED_RESOURCE_TYPE, names.DO_NOT_DISRUPT, names.REQUIRE_ENFORCEMENT,
    names.MAX_RUNTIME,
})  # fmt: skip


def _of_pod(key: str) -> bool:
    is_mig = key.startswith(names.MIG_RESOURCE_PREFIX)
    return key in _OF_PODS or is_mig or vocabulary.is_word(key, is_label=False) or nvannotations.is_written(key)


#: Type of an object -> whether an annotation of it is kept. Of other types none is.
IS_KEPT: Final[Mapping[type, Callable[[str], bool]]] = {
    Pod: _of_pod,
    Node: {names.NODE_CARDS, names.NODE_UUIDS, names.NODE_ENFORCES, names.HAMI_NODE_REGISTER}.__contains__,
    Job: _OF_GANGS.__contains__,
    PodGroup: frozenset({*_OF_GANGS, names.STALE_SINCE, names.PLAN}).__contains__,
    Queue: {names.PATIENCE}.__contains__,
    BindRequest: {names.HANDOVER}.__contains__,
    PersistentVolume: {names.OLD_STORAGE_CLASS}.__contains__,
    PersistentVolumeClaim: {names.BIND_COMPLETED, names.OLD_STORAGE_CLASS, names.SELECTED_NODE}.__contains__,
    ResourceClaim: {names.EXTENDED_RESOURCE_CLAIM}.__contains__,
}
