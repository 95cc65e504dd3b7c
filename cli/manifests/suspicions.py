"""What admission would say of Queues and PodGroups in manifests; the other queues are those of the same files.

What is legal in a manifest and surely not meant: the traps that cost people days (docs/translate.md lists them).

Each check is a pure function from a pod as written in a file, and what Moorage makes of it, to findings. A finding
is a warning where the API server takes the pod, and admission too. Thresholds are of sizes that no card has had, or
that say another unit was meant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from admission.objects.findings import Finding, Judgement, Refused, Rule, read
from admission.objects.messages import told
from admission.objects.podgroup import MOST_SUB_GROUPS, judge_group, sub_groups, too_many
from admission.objects.queue import Others, judge_written
from gpu.device_plugin import amounts, containers
from gpu.dialects import aliyun, hami, koordinator, volcano, volcano_share
from gpu.dialects.nvfractions import is_asked, is_written
from gpu.dialects.replicas import PREFIX, is_vendors
from gpu.manifests import KAI_KEYS, ignored_keys
from gpu.request import MemoryAsk
from gpu.translation import Translation, shown
from runtime.manifests import FoundPod, Placed
from wire import names
from wire.core import Container, Pod
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


Level = Literal["error", "warning", "note"]


class Suspicion(msgspec.Struct, frozen=True):
    """One finding. ``code`` is stable, for programs; ``field`` is where, ``text`` goes on from it: what and why."""

    code: str
    field: str
    text: str
    level: Level = "warning"


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
    for ignored in ignored_keys(pod):
        yield Suspicion(ignored.code, ignored.key, ignored.text)


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


def _without_limit(found: FoundPod, pod: Pod, translation: Translation) -> Iterator[Suspicion]:
    """Extended resources can't be overcommitted, so the API server wants a limit."""
    for ref, container in containers(pod.spec):
        for name in _only_requested(container):
            field = f"{name} of container {ref.name}"
            yield Suspicion("no-limits", field, "is in requests only; the API server requires it in limits", "error")


def _only_requested(container: Container) -> list[str]:
    limits = container.resources.limits or {}
    return [name for name in amounts(container) if "/" in name and name not in limits]


def _unread(found: FoundPod, pod: Pod, translation: Translation) -> Iterator[Suspicion]:
    """Resources that only a setting makes known (I1, N3): without it the pod asks for what no node of ours has."""
    taken_out = {edit.resource for edit in translation.edits}
    for ref, container in containers(pod.spec):
        for name in amounts(container):
            is_foreign = name.startswith(PREFIX) and "gpu" in name and not is_vendors(name)
            if is_foreign and name not in taken_out:
                text = "is not read; if it is a plugin's name for shares of GPUs, say so in the settings of replicas"
                yield Suspicion("unread", f"{name} of container {ref.name}", text)


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
    _shown_devices,
    _unlimited,
    _whole_for_hami,
    _without_limit,
    _unread,
    _gone_type,
    _memory_in_tag,
    _own_node,
)


_KINDS: Final = {(f"{each.group}/{each.version}", each.kind): each.type for each in (QUEUE, POD_GROUP)}


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
    for placed, _, one in found:
        yield from _said(placed, _judged(one, queues))


def count(objects: Sequence[Placed]) -> dict[str, int]:
    """Return how many objects of each kind are judged, kinds that are there only."""
    kinds = [kind.__name__ for each in objects if (kind := _kind(each.item)) is not None]
    return {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}


def _kind(item: Mapping[str, Any]) -> type[msgspec.Struct] | None:
    version, kind = item.get("apiVersion"), item.get("kind")
    return _KINDS.get((version, kind)) if isinstance(version, str) and isinstance(kind, str) else None


def _read(item: Mapping[str, Any], kind: type[msgspec.Struct]) -> msgspec.Struct:
    """The name and spec: other fields of a manifest are not judged."""
    if kind is PodGroup and (number := sub_groups(item)) > MOST_SUB_GROUPS:
        return too_many(number)
    metadata = item.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    return read({"metadata": {} if name is None else {"name": name}, "spec": item.get("spec")}, kind)


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
