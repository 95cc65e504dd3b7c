"""Reads what queues depend on, and what ResourceClaims get, from files as ``kubectl`` writes them.

``kubectl get nodes,pods,queues,podgroups,bindrequests,resourceclaims,resourceslices,deviceclasses -A -o yaml`` lists
all of it, but for DeviceTaintRules (``devicetaintrules.v1beta2.resource.k8s.io``), which few clusters serve.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from cli import podfiles
from cli.podfiles import Placed
from cli.queueing.divided import Divided, divided
from cli.refusing import BadInput
from gpu.refusal import shown
from scheduler.core.report.listed_queues import ListedQueues
from wire.core import Node, ObjectMeta, Pod
from wire.crds.bindrequest import DEFINITION as BIND_REQUEST
from wire.crds.bindrequest import BindRequest
from wire.crds.podgroup import DEFINITION as POD_GROUP
from wire.crds.podgroup import PodGroup
from wire.crds.queue import DEFINITION as QUEUE
from wire.crds.queue import Queue
from wire.resource import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice

if TYPE_CHECKING:
    from cli.queueing.counting import Known
    from cli.queueing.devices import Devices
    from cli.queueing.pools import About

_CORE: Final = "v1"
_DEVICES: Final = "resource.k8s.io/v1"
_KINDS: Final[Mapping[tuple[str, str], type[msgspec.Struct]]] = {
    (_CORE, "Node"): Node,
    (_CORE, "Pod"): Pod,
    **{(_DEVICES, each.__name__): each for each in (DeviceClass, ResourceClaim, ResourceSlice)},
    ("resource.k8s.io/v1beta2", "DeviceTaintRule"): DeviceTaintRule,
    **{(f"{each.group}/{each.version}", each.kind): each.type for each in (QUEUE, POD_GROUP, BIND_REQUEST)},
}
#: Kinds without which nothing true can be said of claims.
_OF_CLAIMS: Final = frozenset({"DeviceClass", "ResourceClaim", "ResourceSlice"})
_WITHOUT_NAMESPACE: Final = frozenset({"Node", "Queue", "DeviceClass", "ResourceSlice", "DeviceTaintRule"})


def read(files: Sequence[str], about: About | None = None) -> Known:
    """Read files and folders, for the scheduler that decides on an object. Raises BadInput for what can't be read."""
    from cli.queueing.counting import Counting  # noqa: PLC0415 - what decides, NumPy included

    found = _found(files)
    counting = Counting(about=about, devices=_devices(found))
    return counting.count(
        found.nodes,
        map(counting.read_pod, found.pods),
        found=found.queues,
        groups=found.groups,
        requests=found.requests,
        unread=found.unread,
    )


def read_listed(files: Sequence[str]) -> Divided:
    """Read the same, of which only queues are counted, for each node pool. Raises BadInput."""
    found = _found(files)
    return divided(
        found.nodes,
        list(map(ListedQueues().read_pod, found.pods)),
        found=found.queues,
        groups=found.groups,
        requests=found.requests,
        unread=found.unread,
    )


def _devices(found: _Found) -> Devices | None:
    """What ResourceClaims get; None where the files do not have all that says it."""
    if not found.has_devices:
        return None
    from cli.queueing.devices import recorded  # noqa: PLC0415 - what decides, NumPy included

    rules = None if DeviceTaintRule.__name__ in found.unread_kinds else found.rules
    return recorded(classes=found.classes, slices=found.slices, claims=found.claims, rules=rules)


class _Found(msgspec.Struct, frozen=True, kw_only=True):
    """What queues and claims depend on, as it is written.

    ``unread``: what is of other kinds and versions; ``unread_kinds``: kinds that are read in another version only.
    """

    nodes: list[Node]
    pods: list[Pod]
    queues: list[Queue]
    groups: list[PodGroup]
    requests: list[BindRequest]
    classes: list[DeviceClass]
    slices: list[ResourceSlice]
    claims: list[ResourceClaim]
    rules: list[DeviceTaintRule]
    unread: list[str]
    unread_kinds: frozenset[str]

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
    for placed in podfiles.read_all(files).placed:
        named = str(placed.item.get("apiVersion")), str(placed.item.get("kind"))
        kind = _KINDS.get(named)
        if kind is None:
            others[named] += 1
        else:
            found[kind].append(_read(placed, kind))
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
        unread=_unread(others),
        unread_kinds=frozenset(kind for version, kind in others if _is_other_version(version, kind)),
    )


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
