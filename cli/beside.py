"""What manifests say beside pods, as far as the scheduler would look at it: claims, PodGroups, who adopts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from scheduler.core.convert import volumes
from scheduler.core.convert.pod_groups import pod_group_record
from scheduler.core.convert.volumes import ClaimRecord
from scheduler.core.model.records import PodGroupRecord
from wire import names
from wire.core import ObjectMeta
from wire.crds.podgroup import PodGroup
from wire.storage import PersistentVolumeClaim, StorageClass
from workloads.core.foreign.manifests import Gangs

#: Namespace and name.
Key = tuple[str, str]
_Type = TypeVar("_Type")
_DEFAULT_NAMESPACE: Final = "default"


class Beside(msgspec.Struct):
    """The objects of all files by their names; None for one that can't be read.

    ``adopting``: namespaces that adopt pods of other schedulers. ``late``: StorageClasses that wait for a pod.
    ``gangs``: those in the words of other schedulers.
    """

    claims: dict[Key, ClaimRecord | None] = {}
    groups: dict[Key, PodGroupRecord | None] = {}
    gangs: Gangs = msgspec.field(default_factory=Gangs)
    adopting: set[str] = set()
    late: set[str] = set()


def beside(objects: Iterable[Mapping[str, Any]]) -> Beside:
    """Gather them."""
    found = Beside()
    for each in objects:
        _take(found, each)
    return found


def _take(found: Beside, raw: Mapping[str, Any]) -> None:
    meta = _read(raw.get("metadata"), ObjectMeta)
    if meta is None:
        return
    key = (meta.namespace or _DEFAULT_NAMESPACE, meta.name)
    if found.gangs.note(raw, key[0]):
        return
    match raw.get("kind"):
        case "PersistentVolumeClaim":
            claim = _read(raw, PersistentVolumeClaim)
            found.claims[key] = None if claim is None else volumes.claim_record(claim)
        case "PodGroup" if str(raw.get("apiVersion")).startswith(f"{names.SCHEDULING_GROUP}/"):
            group = _read(raw, PodGroup)
            found.groups[key] = None if group is None else pod_group_record(group)
        case "Namespace" if (meta.labels or {}).get(names.ADOPT) == "true":
            found.adopting.add(meta.name)
        case "StorageClass":
            storage_class = _read(raw, StorageClass)
            if storage_class is not None and volumes.storage_class_record(storage_class).waits:
                found.late.add(meta.name)
        case _:
            pass


def _read(raw: object, type_: type[_Type]) -> _Type | None:
    try:
        return msgspec.convert(raw, type_)
    except msgspec.ValidationError:
        return None
