"""What is kept of one object, however large each of its fields is: the API server takes 1.5 MiB of anything.

Each text, list and map of each kind that a tenant may write, and of nodes, is written large, one at a time. Kinds that
administrators and drivers write are not here: what is kept of them is some ten times their size at most.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import pytest

from scheduler.core.cluster import Cluster
from scheduler.core.model.settings import Settings
from scheduler.watch import secondary
from scheduler.watch.cache import Cache
from scheduler.watch.sinks import NodeSink, PodGroupSink, PodSink
from tests.wire.filled import ITEM, KEY, VALUE, WORDS, Path, fat, places
from wire import names
from wire.core import Node, Pod
from wire.crds.podgroup import PodGroup

pytestmark = pytest.mark.thorough

_KIB: Final = 1024
#: So much is written, more than is kept; what would be kept of it grows with it.
_SIZE: Final = 160 * _KIB
#: Texts that the API server bounds: names, words, times and amounts, and parts of keys and selectors of labels.
_SHORT: Final = frozenset({
    "name", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "nodeName", "key",
    "topologyKey", "labels", "matchLabels", "namespaces", "operator", "effect", "value", "claimName", "phase",
    "schedulerName", "priorityClassName", "restartPolicy", "whenUnsatisfiable", "matchLabelKeys", "nodeSelector",
    "resourceClaimName", "resourceClaimTemplateName", "generateName", "fieldPath", "accessModes", "volumeName",
    "storageClassName", "volumeMode", "volumeAttributesClassName", "deviceClassName", "matchAttribute",
    "distinctAttribute",
})  # fmt: skip
#: Parts of containers that are read as those of "containers" are; and what drivers and the scheduler write.
_LEFT_OUT: Final = frozenset({"initContainers", "ephemeralContainers", "initContainerStatuses", "allocation"})
_OF_TENANTS: Final = frozenset({"jobs", "persistentvolumeclaims", "resourceclaims", "poddisruptionbudgets"})
_AMOUNTS: Final = frozenset({"requests", "limits", "capacity", "allocatable", "overhead", "allocatedResources"})


class Texts:
    """Short texts, each another one."""

    def __init__(self) -> None:
        self._numbers = itertools.count()

    def at(self, place: Path) -> str:
        fields = [each for each in place if each not in {ITEM, VALUE, KEY}]
        last = fields[-1] if fields else ""
        if last in _AMOUNTS and place[-1] == VALUE:
            return "1"
        return WORDS.get(last, f"x{next(self._numbers):05d}")


def size(thing: object, seen: set[int]) -> int:
    """Bytes of an object and all that it refers to, each once."""
    if id(thing) in seen or thing is None or isinstance(thing, type):
        return 0
    seen.add(id(thing))
    found = sys.getsizeof(thing)
    match thing:
        case msgspec.Struct():
            return found + sum(size(getattr(thing, name), seen) for name in thing.__struct_fields__)
        case dict():
            return found + sum(size(each, seen) for pair in thing.items() for each in pair)
        case list() | tuple() | set() | frozenset():
            return found + sum(size(each, seen) for each in thing)
        case _:
            return found


def kinds() -> Iterator[tuple[str, Any, Any, dict[str, Any]]]:
    """What is followed: a name, the type, the sink, and what an object has beside the field that is large."""
    cache = Cache(Cluster(Settings(numa_alignment=True)))
    bound: dict[str, Any] = {"spec": {"nodeName": "n1", "containers": [{"name": "c"}]}, "status": {"phase": "Running"}}
    ours = {"schedulerName": names.SCHEDULER_NAME}
    yield "a pod of another scheduler", Pod, PodSink(cache), bound
    yield "a pod with a node", Pod, PodSink(cache), {**bound, "spec": {**bound["spec"], **ours}}
    yield "a pod that waits", Pod, PodSink(cache), {"spec": {"containers": [{"name": "c"}], **ours}}
    yield "nodes", Node, NodeSink(cache), {}
    yield "podgroups", PodGroup, PodGroupSink(cache), {}
    for kind in (*secondary.secondary(cache), secondary.budgets(cache)):
        if kind.resource.plural in _OF_TENANTS:
            yield kind.resource.plural, kind.resource.type, kind.sink, {}


KINDS: Final = {name: (cls, sink, base) for name, cls, sink, base in kinds()}
_MOST: Final = 144 * _KIB
#: 1,024 subgroups, which a gang may have.
_MOST_AT: Final[dict[Path, int]] = {("spec", "subGroups"): 512 * _KIB}


@pytest.mark.parametrize("name", KINDS)
def test_what_is_kept_of_an_object_is_bounded(name: str) -> None:
    cls, sink, base = KINDS[name]
    texts, decoder = Texts(), msgspec.json.Decoder(cls)
    too_large = {}
    for place, what in places(cls):
        is_bounded = what == "text" or "accessModes" in place
        if (is_bounded and _SHORT & set(place[-3:])) or _LEFT_OUT & set(place):
            continue
        tree = _joined(
            fat(cls, place, _SIZE, texts.at), {"metadata": {"name": "o", "namespace": "ns", "uid": "u"}}, base
        )
        kept = size(sink.keep(decoder.decode(msgspec.json.encode(tree))), set())
        if kept > _MOST_AT.get(place, _MOST):
            too_large[".".join(place)] = f"{kept // _KIB} KiB"
    assert too_large == {}


def _joined(tree: dict[str, Any], *others: dict[str, Any]) -> dict[str, Any]:
    for other in others:
        for key, value in other.items():
            if isinstance(value, dict):
                tree[key] = _joined(tree.get(key) or {}, value)
            else:
                tree.setdefault(key, value)
    return tree
