"""Checks of ``moorage lint`` (docs/translate.md): likely mistakes in pods, and what admission says of other objects.

Each check of a pod is a pure function from the pod as written in a file, and what Moorage makes of it, to findings. A
finding is a warning where the API server takes the pod, and admission too. Thresholds are of sizes that no GPU has had,
or that say another unit was meant. Queues and PodGroups are judged; a Queue with the other Queues of the same files.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, Literal

import msgspec

from admission.objects.findings import Allowed, Finding, Judgement, Refused, Rule, misfits, read, told
from admission.objects.podgroup import MOST_SUB_GROUPS, judge_group, sub_groups, too_many
from admission.objects.queue import Others, judge_written
from gpu.device_plugin import amounts, containers
from gpu.dialects import aliyun, hami, koordinator, volcano, volcano_share
from gpu.dialects.nvfractions import is_asked, is_written
from gpu.dialects.replicas import PREFIX, is_vendors
from gpu.keys import KAI_KEYS, IgnoredKey, KeyFault, ignored_keys, is_ours, unknown_keys
from gpu.request import MemoryAsk
from gpu.translation import Translation, shown
from runtime.manifests import FoundPod, Placed
from scheduler.core.convert.demand import readable_demand
from wire import names
from wire.core import Pod
from wire.crds.definition import Definition
from wire.crds.podgroup import DEFINITION as POD_GROUP
from wire.crds.podgroup import PodGroup
from wire.crds.queue import DEFINITION as QUEUE
from wire.crds.queue import Queue

#: A TiB: no card has as much, so bytes or KiB were meant.
_LARGEST_MIB: Final = 2**20
#: So few MiB are more likely a count of GiB.
_SMALLEST_MIB: Final = 100
_PLAIN_DEVICES: Final = frozenset({"", "void", "none"})
#: Dialects in which a count of the vendor's resource means whole GPUs.
_NOBODYS: Final = frozenset({"kai", "plugin"})
_CLEARML_IMAGE: Final = "clearml/fractional-gpu:"
_HAMI_ANNOTATIONS: Final = (
    names.HAMI_MODE,
    names.HAMI_USE_TYPE,
    names.HAMI_NO_USE_TYPE,
    names.HAMI_USE_UUID,
    names.HAMI_NO_USE_UUID,
    names.HAMI_NUMA_BIND,
    names.HAMI_GPU_POLICY,
)
_WRITTEN: Final = (
    *hami.WRITTEN_KEYS,
    *volcano.WRITTEN_KEYS,
    *volcano_share.WRITTEN_KEYS,
    *koordinator.WRITTEN_KEYS,
    names.GRANT,
    names.CHARGED,
)


#: Resources by which GPUs are asked for with any settings.
_RESOURCES: Final = (
    names.GPU_RESOURCE, names.HAMI_MEMORY, names.HAMI_MEMORY_PERCENTAGE, names.HAMI_CORES, names.HAMI_PRIORITY,
    *volcano.OWN, *volcano_share.OWN, *koordinator.OWN, aliyun.MEMORY, aliyun.COUNT,
)  # fmt: skip
#: How alike a name has to be to one that was probably meant.
_ALIKE: Final = 0.9
#: Code of a note on pods with several GPUs: whether it matters is the nodes' to say.
TIME_SLICES: Final = "time-slices"

#: Codes of what is right or wrong by what a cluster has.
BY_CLUSTER: Final = frozenset({TIME_SLICES, "queue-missing", "priority-class-missing"})

Level = Literal["error", "warning", "note"]


class Suspicion(msgspec.Struct, frozen=True):
    """One finding. ``code`` is stable, for programs; ``field`` is where, ``text`` goes on from it: what and why."""

    code: str
    field: str
    text: str
    level: Level = "warning"


def missing(code: str, kind: str, name: str, known: Collection[str]) -> Suspicion:
    """Say that an object is in none of the files; a warning if it is like one that is there."""
    field = f"{kind} {shown(name)}"
    if near := get_close_matches(name, known, 1, _ALIKE):
        return Suspicion(code, field, f"is in none of these files; is {near[0]} meant?")
    return Suspicion(code, field, "is in none of these files: the pods need it in the cluster", "note")


Check = Callable[[FoundPod, Pod, Translation], Iterator[Suspicion]]


def suspicions(found: FoundPod, pod: Pod, translation: Translation) -> Iterator[Suspicion]:
    """All findings of one pod, in the order of the checks."""
    for check in _CHECKS:
        yield from check(found, pod, translation)


def _pasted_label(found: FoundPod, pod: Pod, translation: Translation) -> Iterator[Suspicion]:
    """K13: a node's label that people paste as an annotation of the pod, which then runs without a limit."""
    annotations = pod.metadata.annotations or {}
    if names.NODE_GPU_MEMORY in annotations:
        value = shown(annotations[names.NODE_GPU_MEMORY])
        text = f"is a label of nodes, so {value!r} asks for nothing; write {names.GPU_MEMORY} in MiB"
        yield Suspicion("pasted-node-label", names.NODE_GPU_MEMORY, text)


def _other_unit(found: FoundPod, pod: Pod, translation: Translation) -> Iterator[Suspicion]:
    """A12 and its like: bytes, GiB or MiB where another of them is read."""
    for asking in translation.request.containers:
        for mem_mib in sorted({ask.mem_mib for ask in asking.asks if isinstance(ask, MemoryAsk)}):
            field = f"container {asking.container.name}"
            if mem_mib > _LARGEST_MIB:
                yield Suspicion("unit", field, f"asks for {mem_mib} MiB of one GPU, more than any has: another unit?")
            elif mem_mib < _SMALLEST_MIB:
                yield Suspicion("unit", field, f"asks for {mem_mib} MiB of one GPU: are GiB meant?")


def _ignored(found: FoundPod, pod: Pod, translation: Translation) -> Iterator[Suspicion]:
    """Keys that look like a request and have no effect. Admission warns of the same."""
    meta = pod.metadata
    for ignored in (*ignored_keys(meta.labels, meta.annotations), *unknown_keys(meta.labels, meta.annotations)):
        yield Suspicion(ignored.code, ignored.key, ignored.text, _level(ignored))


def _level(ignored: IgnoredKey) -> Level:
    """Another system may read a key of its own."""
    return "note" if ignored.code is KeyFault.UNKNOWN_KEY and not is_ours(ignored.key) else "warning"


def _wrong_place(found: FoundPod, pod: Pod, translation: Translation) -> Iterator[Suspicion]:
    """Annotations of a workload that its pods don't get."""
    own = pod.metadata.annotations or {}
    for key in sorted(found.owner_annotations):
        if (key in KAI_KEYS or is_asked(key)) and key not in own:
            text = f"stands at the {found.kind} and not at {found.path or 'its template'}, so its pods don't get it"
            yield Suspicion("wrong-place", key, text)


def _written(found: FoundPod, pod: Pod, translation: Translation) -> Iterator[Suspicion]:
    """What only a Binding writes: left over in an exported manifest, or forged."""
    for key in sorted(pod.metadata.annotations or {}):
        is_aliyuns = key in {aliyun.INDEX, aliyun.ASSIGNED, aliyun.ASSUME_TIME, aliyun.POD_UNITS}
        if key in _WRITTEN or is_written(key) or is_aliyuns:
            yield Suspicion("written-by-binding", key, "is written when the pod is bound; what stands here is lost")


def _time_slices(found: FoundPod, pod: Pod, translation: Translation) -> Iterator[Suspicion]:
    """KAI's users meet it: two replicas of a time-sliced plugin are two GPUs in the books, and may be the same one."""
    count = readable_demand(pod).gpus if translation.dialect in _NOBODYS else 0
    if count > 1:
        text = (
            f"is {count} for the pod: on nodes that offer each GPU several times (time-slicing, MPS) several may be "
            "the same one; --distinct-gpus of the scheduler leaves such nodes out"
        )
        yield Suspicion(TIME_SLICES, names.GPU_RESOURCE, text, "note")


def _shown_devices(found: FoundPod, pod: Pod, translation: Translation) -> Iterator[Suspicion]:
    """A variable that shows a container devices that nobody gave it (A11, N7)."""
    for ref, container in containers(pod.spec):
        for variable in container.env or ():
            if variable.name == names.ENV_VISIBLE_DEVICES and variable.value not in _PLAIN_DEVICES:
                field = f"env {names.ENV_VISIBLE_DEVICES} of container {ref.name}"
                text = f"{shown(variable.value)!r} shows it devices that it did not ask for; leave it out"
                yield Suspicion("visible-devices", field, text)


def _unlimited(found: FoundPod, pod: Pod, translation: Translation) -> Iterator[Suspicion]:
    """HAMi-core's way out, beside a share that is to be capped."""
    if not translation.wishes.memory_cap:
        return
    for ref, container in containers(pod.spec):
        for variable in container.env or ():
            if variable.name == names.ENV_CUDA_DISABLE_CONTROL and variable.value == "true":
                field = f"env {names.ENV_CUDA_DISABLE_CONTROL} of container {ref.name}"
                yield Suspicion("no-limit", field, "lifts the limits of the share that the pod asks for")


def _whole_for_hami(found: FoundPod, pod: Pod, translation: Translation) -> Iterator[Suspicion]:
    """T3: HAMi's annotations beside a plain count, which means whole GPUs to everybody else."""
    said = [key for key in _HAMI_ANNOTATIONS if key in (pod.metadata.annotations or {})]
    if said and translation.dialect in _NOBODYS and translation.request.whole:
        text = f"belongs to HAMi, but {names.GPU_RESOURCE} alone asks for whole GPUs; say how much of each"
        yield Suspicion("whole-gpus", said[0], text)


def _unread(found: FoundPod, pod: Pod, translation: Translation) -> Iterator[Suspicion]:
    """Resources that only a setting makes known (I1, N3): without it the pod asks for what no node of ours has."""
    taken_out = {edit.resource for edit in translation.edits}
    for ref, container in containers(pod.spec):
        for name in amounts(container):
            if is_vendors(name) or name in taken_out or name in _RESOURCES:
                continue
            field = f"{name} of container {ref.name}"
            if near := get_close_matches(name, _RESOURCES, 1, _ALIKE):
                yield Suspicion("unread", field, f"is not read; is {near[0]} meant?")
            elif name.startswith(PREFIX) and "gpu" in name:
                text = "is not read; if it is a plugin's name for shares of GPUs, say so in the settings of replicas"
                yield Suspicion("unread", field, text)


def _gone_type(found: FoundPod, pod: Pod, translation: Translation) -> Iterator[Suspicion]:
    """K10: lived in one version of KAI."""
    if (pod.metadata.annotations or {}).get(names.GPU_FRACTION_CONTAINER_TYPE) == names.CONTAINER_TYPE_INIT:
        text = f"is read no more by newer KAI; name the container with {names.GPU_FRACTION_CONTAINER_NAME}"
        yield Suspicion("gone", names.GPU_FRACTION_CONTAINER_TYPE, text)


def _memory_in_tag(found: FoundPod, pod: Pod, translation: Translation) -> Iterator[Suspicion]:
    """C13: an image that takes GPU memory which is in nobody's books."""
    for ref, container in containers(pod.spec):
        if _CLEARML_IMAGE in container.image and not translation.request.containers:
            text = "takes the memory in its tag from a GPU that the pod does not ask for"
            yield Suspicion("unaccounted", f"image of container {ref.name}", text)


def _own_node(found: FoundPod, pod: Pod, translation: Translation) -> Iterator[Suspicion]:
    """A node that no scheduler chose, so nobody gives the pod a device there."""
    if pod.spec.node_name and translation.request.is_shared:
        text = f"is {shown(pod.spec.node_name)!r}: the pod runs there without its share; write spec.nodeSelector"
        yield Suspicion("own-node", "spec.nodeName", text)


_CHECKS: Final[tuple[Check, ...]] = (
    _pasted_label,
    _other_unit,
    _ignored,
    _wrong_place,
    _written,
    _time_slices,
    _shown_devices,
    _unlimited,
    _whole_for_hami,
    _unread,
    _gone_type,
    _memory_in_tag,
    _own_node,
)


_KINDS: Final = {(f"{each.group}/{each.version}", each.kind): each for each in (QUEUE, POD_GROUP)}


#: Kinds without namespace that have keys of ours.
_OF_CLUSTERS: Final = frozenset({"Namespace", "Node", "PriorityClass", "Queue", "Topology"})


class Said(msgspec.Struct, frozen=True):
    """One finding of one object. ``namespace``: "" for a Queue, which has none."""

    placed: Placed
    namespace: str
    name: str
    level: Level
    code: str
    field: str
    text: str


def said_of_objects(objects: Sequence[Placed]) -> Iterator[Said]:
    """Yield the findings of all Queues and PodGroups, in the order of the files."""
    found = [(each, kind, _read(each.item, kind)) for each in objects if (kind := _kind(each.item)) is not None]
    queues = Others(one for _, _, one in found if isinstance(one, Queue))
    for placed, kind, one in found:
        judged = _judged(one, queues)
        yield from _said(placed, judged if isinstance(one, Finding) else _by_schema(judged, placed, kind))


def _by_schema(judged: Judgement, placed: Placed, kind: Definition) -> Judgement:
    """A judgement with what the API server says of the object before: what it refuses, and what it drops."""
    found = list(misfits(placed.item, kind))
    refused = tuple(each for each in found if each.rule is Rule.VALUE)
    warnings = (*(each for each in found if each.rule is not Rule.VALUE), *judged.warnings)
    if isinstance(judged, Refused):
        return Refused((*refused, *judged.findings), warnings)
    return Refused(refused, warnings) if refused else Allowed(warnings)


def said_of_keys(objects: Sequence[Placed]) -> Iterator[Said]:
    """Yield the keys without effect of all objects but pods: of KAI and Moorage, whose keys have no other reader."""
    for placed in objects:
        metadata, kind = placed.item.get("metadata"), placed.item.get("kind")
        if kind == "Pod" or not isinstance(metadata, Mapping):
            continue
        labels, annotations = (_texts(metadata.get(field)) for field in ("labels", "annotations"))
        for each in (*ignored_keys(labels, annotations), *unknown_keys(labels, annotations)):
            yield said(placed, Suspicion(each.code, each.key, each.text))


def said(placed: Placed, found: Suspicion) -> Said:
    """A finding of an object."""
    metadata = placed.item.get("metadata")
    meta: Mapping[str, Any] = metadata if isinstance(metadata, Mapping) else {}
    namespace = str(meta.get("namespace") or ("" if placed.item.get("kind") in _OF_CLUSTERS else "default"))
    about = (placed, shown(namespace), shown(str(meta.get("name") or "(no name)")))
    return Said(*about, found.level, found.code, found.field, f"{found.field} {found.text}")


def _texts(entries: object) -> dict[str, str]:
    """Those of ours that are text."""
    found = entries.items() if isinstance(entries, Mapping) else ()
    return {key: text for key, text in found if isinstance(key, str) and isinstance(text, str) and is_ours(key)}


def count(objects: Sequence[Placed]) -> dict[str, int]:
    """Return how many objects of each kind are judged, kinds that are there only."""
    kinds = [kind.kind for each in objects if (kind := _kind(each.item)) is not None]
    return {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}


def _kind(item: Mapping[str, Any]) -> Definition | None:
    version, kind = item.get("apiVersion"), item.get("kind")
    return _KINDS.get((version, kind)) if isinstance(version, str) and isinstance(kind, str) else None


def _read(item: Mapping[str, Any], kind: Definition) -> msgspec.Struct:
    """The name, annotations and spec: other fields of a manifest are not judged."""
    if kind is POD_GROUP and (number := sub_groups(item)) > MOST_SUB_GROUPS:
        return too_many(number)
    metadata = item.get("metadata")
    written = metadata if isinstance(metadata, Mapping) else {}
    judged = {field: written[field] for field in ("name", "annotations") if written.get(field) is not None}
    return read({"metadata": judged, "spec": item.get("spec")}, kind.type)


def _judged(one: msgspec.Struct, queues: Others) -> Judgement:
    if isinstance(one, Queue):
        return judge_written(one, old=None, others=queues)
    if isinstance(one, PodGroup):
        return judge_group(one, old=None)
    return Refused((one,)) if isinstance(one, Finding) else Refused(())


def _said(placed: Placed, judgement: Judgement) -> Iterator[Said]:
    metadata = placed.item.get("metadata")
    named: Mapping[str, Any] = metadata if isinstance(metadata, Mapping) else {}
    namespace = str(named.get("namespace") or "default") if placed.item["kind"] == POD_GROUP.kind else ""
    about = (placed, shown(namespace), shown(str(named.get("name") or "(no name)")))
    if isinstance(judgement, Refused):
        for each in judgement.findings:
            yield Said(*about, "error", each.rule.value, each.field, told(each))
    for each in judgement.warnings:
        if each.rule is Rule.PARENT_NOT_FOUND:
            text = f"{each.field} names the Queue {each.words['parent']}, which is in none of the files"
            yield Said(*about, "note", each.rule.value, each.field, text)
        else:
            yield Said(*about, "warning", each.rule.value, each.field, told(each))
