"""Reads what queues depend on, and what ResourceClaims get, from files as ``kubectl`` writes them.

``kubectl get nodes,pods,queues,podgroups,priorityclasses,bindrequests,topologies.kai.scheduler,poddisruptionbudgets,
resourceclaims,resourceslices,deviceclasses -A -o yaml`` lists it, ``kubectl get configmaps -n kai-scheduler -o yaml``
the record of evictions: all but DeviceTaintRules, which few clusters serve. A cluster without a rule says so by the
list of the API: ``kubectl get --raw /apis/resource.k8s.io/v1beta2/devicetaintrules``. What ``kubectl get`` prints of no
objects does not name their kind, so files without rules do not tell whether there are any.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gpu.translation import shown
from runtime import manifests
from runtime.manifests import Placed
from runtime.text import BadInput
from scheduler.core.model.settings import NodePool, own_name
from scheduler.core.report.queue_explanation import ListedQueues
from ui.queues.pools import Divided, EvictionsRead, Found, digested, divided, pools_of
from wire.api_groups import PodDisruptionBudget
from wire.core import ConfigMap, Node, ObjectMeta, Pod, PriorityClass
from wire.crds.bindrequest import DEFINITION as BIND_REQUEST
from wire.crds.bindrequest import BindRequest
from wire.crds.podgroup import DEFINITION as POD_GROUP
from wire.crds.podgroup import PodGroup
from wire.crds.queue import DEFINITION as QUEUE
from wire.crds.queue import Queue
from wire.crds.topology import DEFINITION as TOPOLOGY
from wire.crds.topology import Topology
from wire.names import NOMINATIONS, SYSTEM_NAMESPACE
from wire.resource import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice

if TYPE_CHECKING:
    from ui.queues.count import Devices, Known
    from ui.queues.pools import About

_CORE: Final = "v1"
_DEVICES: Final = "resource.k8s.io/v1"
#: What the API adds to a kind for a list of it, with ``metadata`` and ``items`` that do not repeat their kind.
_LIST: Final = "List"
_KINDS: Final[Mapping[tuple[str, str], type[msgspec.Struct]]] = {
    (_CORE, "Node"): Node,
    (_CORE, "Pod"): Pod,
    **{(_DEVICES, each.__name__): each for each in (DeviceClass, ResourceClaim, ResourceSlice)},
    ("resource.k8s.io/v1beta2", "DeviceTaintRule"): DeviceTaintRule,
    (_CORE, "ConfigMap"): ConfigMap,
    ("scheduling.k8s.io/v1", "PriorityClass"): PriorityClass,
    ("policy/v1", "PodDisruptionBudget"): PodDisruptionBudget,
    **{(f"{each.group}/{each.version}", each.kind): each.type for each in (QUEUE, POD_GROUP, BIND_REQUEST, TOPOLOGY)},
}
#: Kinds without which nothing true can be said of claims.
_OF_CLAIMS: Final = frozenset({"DeviceClass", "ResourceClaim", "ResourceSlice"})
_WITHOUT_NAMESPACE: Final = frozenset(
    {"Node", "PriorityClass", "Queue", "Topology", "DeviceClass", "ResourceSlice", "DeviceTaintRule"}
)


def read(files: Sequence[str], about: About | None = None, *, wall_s: int = 0) -> Known:
    """Read files and folders, for the scheduler that decides on an object. ``wall_s``: now.

    Raises BadInput for what can't be read.
    """
    from ui.queues.count import Counting  # what decides, NumPy included

    found = _found(files)
    found = msgspec.structs.replace(found, records=_evictions(found, wall_s))
    counting = Counting(about=about, devices=_devices(found))
    return counting.count(digested(found, counting.read_pod))


def _evictions(found: _Found, wall_s: int) -> dict[str, EvictionsRead]:
    """The records of evictions among the ConfigMaps, by node pool."""
    from scheduler.core.preemption import eviction_history, nomination_record
    from ui.queues.reader import evictions_read

    texts = {each.metadata.name: each.data or {} for each in found.maps if each.metadata.namespace == SYSTEM_NAMESPACE}
    records: dict[str, EvictionsRead] = {}
    for pool in pools_of(found.queues):
        of = NodePool(value=pool)
        if (data := texts.get(own_name(NOMINATIONS, of))) is not None:
            pieces = [texts.get(name, {}).get(eviction_history.KEY, "") for name in eviction_history.piece_names(of)]
            text = data.get(nomination_record.KEY, "")
            records[pool] = evictions_read(pool, text, pieces, wall_s=wall_s, unread=found.unread)
    return records


def read_listed(files: Sequence[str]) -> Divided:
    """Read the same, of which only queues are counted, for each node pool. Raises BadInput."""
    return divided(digested(_found(files), ListedQueues().read_pod))


def _devices(found: _Found) -> Devices | None:
    """What ResourceClaims get; None where the files do not have all that says it."""
    if not found.has_devices:
        return None
    from ui.queues.count import recorded  # what decides, NumPy included

    return recorded(classes=found.classes, slices=found.slices, claims=found.claims, rules=found.known_rules)


class _Found(Found[Pod], frozen=True, kw_only=True):
    """What queues and claims depend on, as it is written.

    ``unread``: also what is of other kinds and versions; ``unread_kinds``: kinds that are read in another version only.
    ``listed``: kinds of which the files have a list of the API, be it empty.
    """

    classes: list[DeviceClass]
    slices: list[ResourceSlice]
    claims: list[ResourceClaim]
    rules: list[DeviceTaintRule]
    maps: list[ConfigMap]
    unread: list[str]
    unread_kinds: frozenset[str]
    listed: frozenset[str]

    @property
    def known_rules(self) -> list[DeviceTaintRule] | None:
        """All rules; None where there may be others: the files have neither a rule nor a list, or another version."""
        kind = DeviceTaintRule.__name__
        are_all_read = kind not in self.unread_kinds and (bool(self.rules) or kind in self.listed)
        return self.rules if are_all_read else None

    @property
    def has_devices(self) -> bool:
        """Whether the files say what claims get: claims, and classes and slices if a claim is not allocated.

        A kind of which there is nothing was left out, or the cluster has none of it; a file does not tell which.
        """
        if not self.claims or self.unread_kinds & _OF_CLAIMS:
            return False
        are_allocated = all(each.status.allocation is not None for each in self.claims)
        return are_allocated or bool(self.classes and self.slices)


def _found(files: Sequence[str]) -> _Found:
    found: dict[type[msgspec.Struct], list[Any]] = {kind: [] for kind in _KINDS.values()}
    others: Counter[tuple[str, str]] = Counter()
    all_placed = manifests.read_all(files).placed
    for placed in chain.from_iterable(map(_each, all_placed)):
        named = _named(placed)
        kind = _KINDS.get(named)
        if kind is None:
            others[named] += 1
        else:
            found[kind].append(_read(placed, kind))
    listed = frozenset(of for placed in all_placed if (of := _listed_kind(placed)) is not None)
    return _Found(
        nodes=found[Node],
        pods=found[Pod],
        queues=found[Queue],
        groups=found[PodGroup],
        requests=found[BindRequest],
        classes=found[DeviceClass],
        slices=found[ResourceSlice],
        claims=found[ResourceClaim],
        rules=found[DeviceTaintRule],
        maps=found[ConfigMap],
        priority_classes=found[PriorityClass] if found[PriorityClass] or "PriorityClass" in listed else None,
        topologies=found[Topology] if found[Topology] or "Topology" in listed else None,
        budgets=found[PodDisruptionBudget] if found[PodDisruptionBudget] or "PodDisruptionBudget" in listed else None,
        knows_evictions=any(each.metadata.namespace == SYSTEM_NAMESPACE for each in found[ConfigMap]),
        unread=_unread(others),
        unread_kinds=frozenset(kind for version, kind in others if _is_other_version(version, kind)),
        listed=listed,
    )


def _named(placed: Placed) -> tuple[str, str]:
    """The apiVersion and kind of an object."""
    return str(placed.item.get("apiVersion")), str(placed.item.get("kind"))


def _listed_kind(placed: Placed) -> str | None:
    """The kind that a list of the API is of; None for other objects, and lists of what is not read."""
    version, kind = _named(placed)
    of = kind.removesuffix(_LIST)
    is_list = of != kind and (version, of) in _KINDS and isinstance(placed.item.get("items"), list)
    return of if is_list else None


def _each(placed: Placed) -> Iterator[Placed]:
    """The objects of a list of the API, any other object itself."""
    kind = _listed_kind(placed)
    if kind is None:
        yield placed
        return
    for item in placed.item["items"]:
        if isinstance(item, Mapping):
            named = {**item, "apiVersion": placed.item["apiVersion"], "kind": kind}
            yield msgspec.structs.replace(placed, item=named)


def _unread(others: Counter[tuple[str, str]]) -> list[str]:
    """Sentences about objects that are not read, which are counted by apiVersion and kind."""
    counts: Counter[tuple[str, str]] = Counter()
    for (version, kind), count in others.items():
        is_other = _is_other_version(version, kind)
        why = f"version {shown(version)} is not read" if is_other else "queues do not depend on them"
        counts[shown(kind), why] += count
    return [f"{count} of kind {kind}: {why}" for (kind, why), count in sorted(counts.items())]


def _is_other_version(version: str, kind: str) -> bool:
    """Whether objects of this kind and API group are read in another version."""
    return any(kind == read and _group(version) == _group(of) for of, read in _KINDS)


def _group(version: str) -> str:
    """The API group of an apiVersion, "" for the core."""
    return version.rpartition("/")[0]


def _read(placed: Placed, kind: type[msgspec.Struct]) -> Any:
    """An object with the name, namespace and UID that the API server would see to."""
    metadata = placed.item.get("metadata")
    named = {key: _text(value) for key, value in metadata.items()} if isinstance(metadata, Mapping) else {}
    try:
        read = msgspec.convert({**placed.item, "metadata": named}, kind)
    except msgspec.ValidationError as error:
        what = f"{placed.item['kind']} {shown(str(named.get('name') or '(no name)'))}"
        raise BadInput(f"{placed.file}: document {placed.document}: {what}: {error}") from error
    meta: ObjectMeta = read.metadata  # type: ignore[attr-defined] # all kinds here have it
    namespace = "" if placed.item["kind"] in _WITHOUT_NAMESPACE else meta.namespace or "default"
    uid = meta.uid or f"{placed.item['kind']}/{namespace}/{meta.name}"
    return msgspec.structs.replace(read, metadata=msgspec.structs.replace(meta, namespace=namespace, uid=uid))


def _text(value: object) -> object:
    """YAML makes a date of what looks like one and is not in quotes."""
    if isinstance(value, datetime.datetime):
        return (
            value.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if value.tzinfo else f"{value.isoformat()}Z"
        )
    return value
