"""What the scheduler would never place, even on empty nodes: judged by the functions that the scheduler calls.

A pod is judged as admission would store it. Nothing is decided here; what is added to a verdict is what to do about it.

What manifests say beside pods, as far as the scheduler would look at it: claims, PodGroups, who adopts.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

import msgspec

from admission import raw_pod
from admission.adoption import ORIGINS, names_gpus
from admission.mutate import mutated
from admission.settings import Choices
from admission.settings import Settings as AdmissionSettings
from cli.manifests.suspicions import Suspicion
from gpu.dialects import nvfractions
from gpu.dialects.settings import DialectSettings
from gpu.translate.asked import KAI
from gpu.translation import Refusal, Translation
from podgrouper.core import answers
from podgrouper.core.answers import Code as GangCode
from podgrouper.core.answers import Group
from podgrouper.core.answers import Refusal as GangRefusal
from podgrouper.core.files import Gangs
from runtime.manifests import FoundPod
from scheduler.conditions.messages import told
from scheduler.core.convert import constraints, gang_kinds, owners, volumes
from scheduler.core.convert.pod_groups import pod_group_record
from scheduler.core.convert.pods import pod_record, without_group
from scheduler.core.convert.volumes import ClaimRecord
from scheduler.core.model.records import ClaimUse, PodGroupRecord
from scheduler.core.model.settings import Settings
from scheduler.core.model.verdict import Code, Verdict
from wire import names
from wire.core import Job, ObjectMeta, OwnerReference, Pod
from wire.crds.podgroup import PodGroup
from wire.storage import PersistentVolumeClaim, StorageClass

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


_OPERATORS: Final = "the operators of a selector are In, NotIn, Exists and DoesNotExist"
#: What the scheduler calls a constraint -> what to do about it.
ADVICE: Final[Mapping[str, str]] = {
    "affinity.podAffinity with a selector that can't be read": _OPERATORS,
    "affinity.podAntiAffinity with a selector that can't be read": _OPERATORS,
    "topologySpreadConstraints that can't be read": f"set whenUnsatisfiable: DoNotSchedule; {_OPERATORS}",
    "resourceClaims": "name a ResourceClaim or a template, or ask for GPUs in resources.limits",
}
_OTHERWISE: Final = "take it out, or leave the pod to another scheduler"
_GROUP: Final = f"create a PodGroup with minMember and name it in annotation {names.POD_GROUP_NAME}"
#: Dialects in which nothing but the scheduler's name says who reads the words: without it a pod runs without its share.
_OWN: Final = frozenset({KAI, nvfractions.NAME})
_ELSEWHERE: Final = frozenset({"", *ORIGINS})


def obstacles(
    found: FoundPod, pod: Pod, translation: Translation, *, beside: Beside, dialects: DialectSettings
) -> Iterator[Suspicion]:
    """Why a pod is not placed: what the scheduler says of the pod alone, and what the files lack."""
    is_ours = _is_ours(found, pod, beside, is_gpu_pod=bool(translation.request.containers))
    is_shared = translation.request.is_shared
    if is_shared and not is_ours and translation.dialect in _OWN and pod.spec.scheduler_name in _ELSEWHERE:
        text = (
            f"is not {names.SCHEDULER_NAME}, so nobody gives the pod its share: write it, or have the namespace adopt "
            f"such pods (label {names.ADOPT}=true)"
        )
        yield Suspicion("no-scheduler", "spec.schedulerName", text)
    if is_ours or is_shared:
        yield from _never_placed(_stored(found, pod, dialects), found, beside)
        yield from _of_group(found, pod, beside)
        yield from _of_preferences(found, pod)
        for claim in volumes.claims_of(pod):
            yield from _of_claim(found, claim, beside)


def excess(found: FoundPod, pod: Pod, *, beside: Beside, dialects: DialectSettings) -> Refusal | None:
    """Which of admission's bounds a pod exceeds; None of a pod that admission lets through unread."""
    raw = {**found.raw, "metadata": found.raw.get("metadata") or {}, "spec": found.raw.get("spec") or {}}
    exceeded = raw_pod.excess(raw, AdmissionSettings().bounds)
    if exceeded is None or not _is_ours(found, pod, beside, is_gpu_pod=names_gpus(raw, dialects)):
        return None
    return exceeded


def _is_ours(found: FoundPod, pod: Pod, beside: Beside, *, is_gpu_pod: bool) -> bool:
    """Whether a pod names our scheduler, or its namespace adopts it."""
    is_adopted = found.namespace in beside.adopting and pod.spec.scheduler_name in _ELSEWHERE
    return pod.spec.scheduler_name == names.SCHEDULER_NAME or (is_adopted and is_gpu_pod)


def _stored(found: FoundPod, pod: Pod, dialects: DialectSettings) -> Pod:
    """The pod as admission would store it, under the name of its owner."""
    metadata = pod.metadata
    if found.owner:
        version, kind = found.owner.get("apiVersion"), found.owner.get("kind")
        owner = OwnerReference(api_version=str(version or ""), kind=str(kind or ""), name=found.name)
        metadata = msgspec.structs.replace(metadata, owner_references=[*(metadata.owner_references or ()), owner])
    spec = msgspec.structs.replace(pod.spec, scheduler_name=names.SCHEDULER_NAME, node_name="")
    ours = msgspec.structs.replace(pod, metadata=metadata, spec=spec)
    raw: dict[str, Any] = msgspec.to_builtins(ours)
    rng = random.Random(found.place)  # noqa: S311 - it names ConfigMaps that nobody makes
    made = mutated(raw, choices=Choices(dialects=dialects), settings=AdmissionSettings(), rng=rng)
    return ours if isinstance(made, Refusal) else msgspec.convert(made.pod, Pod)


def _never_placed(pod: Pod, found: FoundPod, beside: Beside) -> Iterator[Suspicion]:
    record = pod_record(pod, Settings())
    if record is None:
        return
    if record.blocker is not None and record.blocker.code is Code.INVALID_REQUEST:
        yield Suspicion("unreadable", "spec", f"can't be read by the scheduler: {record.blocker.detail}")
    for name in constraints.each_unsupported(pod):
        text = f"is not supported yet, so the pod is never placed: {ADVICE.get(name, _OTHERWISE)}"
        yield Suspicion("unsupported", name, text)
    if limit := constraints.excessive(record.cls):
        yield Suspicion("unsupported", "spec", f"has {limit}, so the pod is never placed: say it with fewer")
    if (gang := _foreign_gang(pod, found, beside)) is not None:
        yield _of_foreign_gang(gang)
    elif why := without_group(pod) or _by_its_job(found, pod):
        text = f"is not set. {told(why).message}"
        advice = "" if why.code is Code.NO_POD_GROUP else f": {_GROUP}"
        yield Suspicion("no-pod-group", names.POD_GROUP_NAME, f"{text}{advice}")


def _foreign_gang(pod: Pod, found: FoundPod, beside: Beside) -> Group | GangRefusal | None:
    """The gang that a pod asks for in the words of another scheduler, as the grouping of workloads makes it."""
    if not gang_kinds.is_translated(pod) or gang_kinds.gang_kind(pod):
        return None
    return beside.gangs.answer(found.raw, found.namespace, owner=found.owner or None)


def _of_foreign_gang(answer: Group | GangRefusal) -> Suspicion:
    if isinstance(answer, Group):
        name = answer.pod_group.metadata.name
        text = f"is not set. Grouping of workloads names PodGroup {name}; where it is turned off, {_GROUP}"
        return Suspicion("no-pod-group", names.POD_GROUP_NAME, text, "note")
    if answer.code is GangCode.NOT_FOUND:
        text = f"is not set. {answers.told(answer)} in these files: the pod waits unless the cluster has it"
        return Suspicion("pod-group-missing", names.POD_GROUP_NAME, text)
    return Suspicion("no-pod-group", names.POD_GROUP_NAME, f"is not set. {answers.told(answer)}: {_GROUP}")


def _made_by_cron_job(found: FoundPod) -> Mapping[str, Any] | None:
    """The Job that a CronJob makes; None if its template can't be read."""
    from simulator.controllers import jobs  # noqa: PLC0415 - it loads what talks to clusters, and few files have a CronJob
    from simulator.controllers.pods import Malformed  # noqa: PLC0415

    try:
        return jobs.job_of_cron_job(found.owner, name=found.name)
    except Malformed:
        return None


def _by_its_job(found: FoundPod, pod: Pod) -> Verdict | None:
    """What the Job says that is there or that a CronJob makes."""
    if (pod.metadata.annotations or {}).get(names.POD_GROUP_NAME):
        return None
    kind = found.owner.get("kind")
    if kind not in {"Job", "CronJob"} or not str(found.owner.get("apiVersion")).startswith("batch/"):
        return None
    job = _made_by_cron_job(found) if kind == "CronJob" else found.owner
    if job is None:
        return None
    try:
        meta = msgspec.convert(job.get("metadata") or {}, ObjectMeta)
    except msgspec.ValidationError:
        return None
    return owners.job_record(Job(metadata=msgspec.structs.replace(meta, name=found.name))).verdict


def _of_group(found: FoundPod, pod: Pod, beside: Beside) -> Iterator[Suspicion]:
    name = (pod.metadata.annotations or {}).get(names.POD_GROUP_NAME)
    if not name:
        return
    key = (found.namespace, name)
    field = f"PodGroup {found.namespace}/{name}"
    if key not in beside.groups:
        text = f"is in none of these files: the pod waits unless the cluster has it. Create it ({names.POD_GROUP_NAME})"
        yield Suspicion("pod-group-missing", field, text)
        return
    group = beside.groups[key]
    if group is not None and group.unsupported:
        text = f"asks for {group.unsupported}, which is not supported yet, so its pods are never placed: take it out"
        yield Suspicion("unsupported", field, text)


def _of_preferences(found: FoundPod, pod: Pod) -> Iterator[Suspicion]:
    """Preferred topology that the pod or its owner writes in KAI's annotations, which is for PodGroups to have."""
    written = {**found.owner_annotations, **(pod.metadata.annotations or {})}
    for name in gang_kinds.preferences(written):
        text = "takes effect in a PodGroup only, where moorage-workloads writes it: without one it is not looked at"
        yield Suspicion("ignored", f"annotation {name}", text, "note")


def _of_claim(found: FoundPod, claim: ClaimUse, beside: Beside) -> Iterator[Suspicion]:
    known = None if claim.is_own else beside.claims.get((found.namespace, claim.name))
    if known is not None and known.is_bound:
        return
    field = "a generic ephemeral volume" if claim.is_own else f"PersistentVolumeClaim {found.namespace}/{claim.name}"
    if known is not None and known.storage_class in beside.late:
        text = (
            f"waits for its first pod (StorageClass {known.storage_class}), and no volume is chosen for it yet, so the "
            "pod is never placed: bind it first, or use a class with volumeBindingMode: Immediate"
        )
        yield Suspicion("claim", field, text)
        return
    text = (
        "has to be bound before the pod is placed, which these files can't say: use a StorageClass with "
        "volumeBindingMode: Immediate, or bind it first"
    )
    yield Suspicion("claim", field, text, "note")
