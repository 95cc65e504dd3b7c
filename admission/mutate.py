"""What the mutating webhook makes of a new pod: a pure function from pod to pod, answered as a JSON patch.

The result does not depend on an earlier admission of the same pod: its changes are taken out and made again. That
serves copied specs, backups, and a second call for the same pod (``reinvocationPolicy: IfNeeded``). The API server
sends neither the final name nor the UID of a new pod, so the prefix of KAI's ConfigMaps is new at each call.
"""

from __future__ import annotations

import random
import re
import string
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from admission import handover, protected
from admission.handover import with_env_first
from admission.raw_pod import Raw, rewritten
from admission.settings import Choices, HandOver, Settings
from gpu import bound_pod, limits, record
from gpu.bound_pod import is_servable
from gpu.container_devices import container_suffix
from gpu.request import ContainerRef, GpuRequest, SharedAsk
from gpu.translate import combine
from gpu.translate.asked import needs_record
from gpu.translation import EnvEdit, Note, Refusal, ResourceEdit, Translation
from wire import gangs, names
from wire.core import Pod


def claimable(pod: Raw, translation: Translation, *, is_on: bool) -> Raw:
    """Let the containers of a share that a ResourceClaim can give request the extended resource for it, and no others.

    Kubelet gives a container the devices of a claim that no field of its spec names only for an extended resource that
    it requests. No node has this one, and kubelet ignores it where the pod's status does not map it to a claim. So the
    pod can still be bound to a node with a device plugin: the scheduler decides (docs/design/claims.md, Shares).
    """
    requests = (translation.request, *translation.alternatives)
    keys = [sorted(ref.key for ref in request.devices()) for request in requests]
    is_wanted = is_on and not translation.cards.uuids and not translation.cards.not_uuids
    targets = keys[0] if is_wanted and all(map(is_servable, requests)) and all(each == keys[0] for each in keys) else ()
    return _asking(pod, targets)


def _asking(pod: Raw, targets: Collection[str]) -> Raw:
    def change(ref: ContainerRef, container: Raw) -> Raw:
        if ref.key in targets:
            return _with_resource(container)
        return _without_resource(container)

    return rewritten(pod, change)


def _with_resource(container: Raw) -> Raw:
    resources: dict[str, Any] = dict(container.get("resources") or {})
    # Limits and requests of extended resources are equal. Requests are written out: kubelet reads those.
    for field in ("limits", "requests"):
        resources[field] = {**(resources.get(field) or {}), names.GPU_SHARE_RESOURCE: "1"}
    return {**container, "resources": resources}


def _without_resource(container: Raw) -> Raw:
    resources: dict[str, Any] = dict(container.get("resources") or {})
    fields = [field for field in ("limits", "requests") if names.GPU_SHARE_RESOURCE in (resources.get(field) or {})]
    for field in fields:
        resources[field] = {key: value for key, value in resources[field].items() if key != names.GPU_SHARE_RESOURCE}
    return {**container, "resources": resources} if fields else container


def translated(pod: Raw, translation: Translation) -> Raw:
    """Return the pod with a translation's resources, variables and record, before anything is handed over.

    A pod that has them already stays the same (docs/design/dialects.md).
    """
    resources: dict[str, list[ResourceEdit]] = {}
    variables: dict[str, list[EnvEdit]] = {}
    for edit in translation.edits:
        resources.setdefault(edit.container.key, []).append(edit)
    for variable in translation.env:
        variables.setdefault(variable.container.key, []).append(variable)

    def change(ref: ContainerRef, container: Raw) -> Raw:
        changed = _with_resources(container, resources.get(ref.key, ()))
        return _with_variables(changed, variables.get(ref.key, ()))

    return _recorded(rewritten(pod, change) if translation.edits or translation.env else pod, translation)


def _with_resources(container: Raw, edits: Sequence[ResourceEdit]) -> Raw:
    """Set or take out counts. Limits and requests of extended resources are equal, so both are written."""
    if not edits:
        return container
    #: The last edit of a resource counts.
    counts = {edit.resource: edit.count for edit in edits}
    said = {name: str(count) for name, count in counts.items() if count is not None}
    resources: dict[str, Any] = dict(container.get("resources") or {})
    for field in ("limits", "requests"):
        amounts = {name: amount for name, amount in (resources.pop(field, None) or {}).items() if name not in counts}
        if amounts := {**amounts, **said}:
            resources[field] = amounts
    return {**container, "resources": resources}


def _with_variables(container: Raw, edits: Sequence[EnvEdit]) -> Raw:
    """Set variables. A value of the user's own loses: what is set says what the container really gets (C1, H15)."""
    entries = [{"name": edit.name, "value": edit.value} for edit in edits]
    return with_env_first(container, entries) if entries else container


def _recorded(pod: Raw, translation: Translation) -> Raw:
    """Write the record where the pod itself does not tell, or replace the one that it brought along."""
    annotations = pod["metadata"].get("annotations") or {}
    if not needs_record(translation) and names.GPU_RECORD not in annotations:
        return pod
    annotations = {**annotations, names.GPU_RECORD: record.render(translation)}
    return {**pod, "metadata": {**pod["metadata"], "annotations": annotations}}


def grouped(pod: Raw) -> Raw:
    """Return the pod with the name of its PodGroup; as it is where that can't be told, or somebody has said another.

    ``moorage podgrouper`` makes the PodGroup when it sees the pod, and has one write less for a pod that names it. A
    pod without an owner is never given the annotation: KAI's pod-grouper would leave it alone for ever (kai-contract,
    erratum 10). docs/grouping.md has the rules.
    """
    meta: Mapping[str, Any] = pod["metadata"]
    annotations = meta.get("annotations") or {}
    if names.POD_GROUP_NAME in annotations or annotations.get(names.SKIP_POD_GROUPER) == "true":
        return pod
    owners, labels = meta.get("ownerReferences") or (), meta.get("labels") or {}
    name = gangs.told_group(owners, labels, annotations, pod.get("spec") or {})
    if not name:
        return pod
    return {**pod, "metadata": {**meta, "annotations": {**annotations, names.POD_GROUP_NAME: name}}}


_RANDOM_LENGTH: Final = 7
_MARK: Final = "shared-gpu"
_ALPHABET: Final = string.ascii_lowercase + string.digits
_UNNAMED: Final = "pod"


def new_prefix(metadata: Mapping[str, Any], containers: Iterable[ContainerRef], rng: random.Random) -> str:
    """Return ``<base>-<7 random>-shared-gpu`` for a pod whose shares go to these containers, of which there is one.

    KAI takes the first owner's name or the pod's, cuts it and adds seven random characters (kai-contract 1.3 step 2). A
    pod made with generateName has no name yet when it is admitted (erratum 9), and an owner's name may be no DNS name:
    here the name is made one first.
    """
    longest = max(len(container_suffix(container)) for container in containers)
    tail = "".join(rng.choice(_ALPHABET) for _ in range(_RANDOM_LENGTH))
    return f"{_base(_source_name(metadata), longest)}-{tail}-{_MARK}"


def _source_name(metadata: Mapping[str, Any]) -> str:
    owners = metadata.get("ownerReferences") or [{}]
    candidates = (owners[0].get("name"), metadata.get("name"), metadata.get("generateName"))
    return next((name for name in candidates if name), "")


def _base(name: str, suffix_length: int) -> str:
    """Make a DNS name of any text, short enough for the volume's name, a label of 63 characters.

    The budget is KAI's, so a name that it leaves whole stays whole here: beside the base there are 13 characters of
    other suffixes, 10 of "shared-gpu", the container's suffix, and dashes.
    """
    budget = 63 - 13 - len(_MARK) - suffix_length - 1 - 5
    text = re.sub(r"[^a-z0-9.-]+", "-", name.lower())
    text = re.sub(r"[.-]*\.[.-]*", ".", text).strip(".-")
    return text[:budget].rstrip(".-") or _UNNAMED


class Mutated(msgspec.Struct, frozen=True):
    """The pod as it shall be stored, and what its author should know of how it was understood.

    ``lost_on``: the node that a pod with shares brings along, on which it gets none of them; else "".
    """

    pod: Raw
    notes: tuple[Note, ...] = ()
    lost_on: str = ""


def mutated(pod: Raw, *, choices: Choices, settings: Settings, rng: random.Random) -> Mutated | Refusal:
    """Return the pod as it shall be stored, or why it is refused. A pod of another scheduler is returned as it is.

    ``pod`` is the raw object, known to decode as wire.core.Pod; it is not changed. ``choices`` are its namespace's.
    """
    if pod["spec"].get("schedulerName") != settings.scheduler_name:
        return Mutated(pod)
    translation = combine.translate(msgspec.convert(pod, Pod), choices.dialects)
    if isinstance(translation, Refusal):
        return translation
    shared = shared_containers(translation.request)
    clean = translated(protected.stripped(handover.without_leftovers(pod)), translation)
    if settings.workloads_are_grouped:
        clean = grouped(clean)
    clean = claimable(clean, translation, is_on=settings.shares_by_claims)
    keys = {ref.key for ref in shared}
    if choices.dialects.driver_memory_caps:
        # On nodes with the hook a soft limit of a tenant's own would take memory from its neighbours.
        clean = handover.without_variables(clean, keys, limits.VARIABLES)
    reading = handover.by_origin(clean, bound_pod.env_names(translation))
    given = _handed_over(reading, shared, settings=settings, rng=rng) if shared else reading
    guarded = handover.guarded(given, shared=keys, guard=choices.guard, renamed=settings.gpu_resources)
    return Mutated(guarded, translation.notes, (pod["spec"].get("nodeName") or "") if shared else "")


def shared_containers(request: GpuRequest) -> list[ContainerRef]:
    """Return the containers that are given a part of a device, or of a slice."""
    return [asked.container for asked in request.containers if any(isinstance(ask, SharedAsk) for ask in asked.asks)]


def _handed_over(pod: Raw, shared: list[ContainerRef], *, settings: Settings, rng: random.Random) -> Raw:
    keys = {ref.key for ref in shared}
    if settings.hand_over is HandOver.CONFIG_MAPS:
        changed = handover.by_config_maps(pod, keys, new_prefix(pod["metadata"], shared, rng))
    else:
        changed = handover.by_annotations(pod, keys)
    spec: dict[str, Any] = changed["spec"]
    if settings.runtime_class and not spec.get("runtimeClassName"):
        spec = {**spec, "runtimeClassName": settings.runtime_class}
    return {**changed, "spec": spec}
