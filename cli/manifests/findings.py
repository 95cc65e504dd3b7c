"""``moorage lint``: requests that admission refuses, pods that no node could take, and likely mistakes.

docs/translate.md lists the findings. A pod is judged as admission would store it, by the functions that the scheduler
calls, against empty nodes; a finding adds what to do about it. Claims, PodGroups and adopting namespaces among the
manifests are read as the scheduler would read them.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final, TypeVar

import msgspec

from admission import raw_pod
from admission.mutate import mutated
from admission.settings import ORIGINS, Choices, names_gpus
from admission.settings import Settings as AdmissionSettings
from admission.validate import judge_new
from cli.manifests.lint_checks import (
    BY_CLUSTER,
    Level,
    Said,
    Suspicion,
    count,
    missing,
    said,
    said_of_keys,
    said_of_objects,
    suspicions,
)
from gpu import messages, translation
from gpu.dialects import nvfractions
from gpu.dialects.settings import DialectSettings
from gpu.manifests import MALFORMED, templates
from gpu.translate.asked import KAI
from gpu.translation import Refusal, Translation, shown
from podgrouper.core import answers, fields, generic, kinds
from podgrouper.core.answers import Code as GangCode
from podgrouper.core.answers import Group, Nothing, Why
from podgrouper.core.answers import Refusal as GangRefusal
from podgrouper.core.files import Gangs
from podgrouper.core.owner_chain import Read
from podgrouper.core.rule_input import Case, Top
from podgrouper.core.rules import kubeflow
from runtime import manifests
from runtime.manifests import FoundPod, Placed, understood
from runtime.output import Progress, write
from runtime.text import line
from scheduler.conditions.messages import told
from scheduler.core.convert import constraints, owners, volumes
from scheduler.core.convert.pod_groups import pod_group_record
from scheduler.core.convert.pods import pod_record, without_group
from scheduler.core.model.records import ClaimUse, PodGroupRecord
from scheduler.core.model.settings import Settings
from scheduler.core.model.verdict import Code
from simulator.apiserver.pods import refusal_of_template
from wire import gangs, names
from wire.core import ObjectMeta, OwnerReference, Pod
from wire.crds.podgroup import PodGroup

#: Namespace and name.
Key = tuple[str, str]
_Type = TypeVar("_Type")
_DEFAULT_NAMESPACE: Final = "default"
#: API groups of controllers that make pods of a template as it is written, beside those of gangs but for these.
_COPIED: Final = frozenset({"", "batch"})
_VOLCANO_JOB: Final = ("batch.volcano.sh", "Job")
_FILLED: Final = frozenset({"trainer.kubeflow.org", "workload.codeflare.dev"})


#: Those of KAI's chart and ours, and of Kubernetes.
_PRIORITY_CLASSES: Final = frozenset({
    *names.PRIORITY_CLASSES, names.RESERVATION_PRIORITY_CLASS, "system-cluster-critical", "system-node-critical",
})  # fmt: skip


class Beside(msgspec.Struct):
    """The objects of all files by their names; None for one that can't be read.

    ``adopting``: namespaces that adopt pods of other schedulers. ``gangs``: those in the words of other schedulers.
    ``queues``, ``priority_classes``: with those that every installation has.
    """

    claims: set[Key] = set()
    groups: dict[Key, PodGroupRecord | None] = {}
    gangs: Gangs = msgspec.field(default_factory=Gangs)
    adopting: set[str] = set()
    queues: set[str] = msgspec.field(default_factory=lambda: {names.DEFAULT_QUEUE})
    priority_classes: set[str] = msgspec.field(default_factory=lambda: set(_PRIORITY_CLASSES))


class _Admitted(msgspec.Struct, frozen=True):
    """A pod as admission stores it. ``refusal``: why it is refused; the API server's is a field and why."""

    stored: Pod
    refusal: Refusal | str | tuple[str, str] | None = None


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
            found.claims.add(key)
        case "PodGroup" if _is_of_kai(raw):
            group = _read(raw, PodGroup)
            found.groups[key] = None if group is None else pod_group_record(group)
        case "Namespace" if (meta.labels or {}).get(names.ADOPT) == "true":
            found.adopting.add(meta.name)
        case "Queue" if _is_of_kai(raw):
            found.queues.add(meta.name)
        case "PriorityClass":
            found.priority_classes.add(meta.name)
        case _:
            pass


def _is_of_kai(raw: Mapping[str, Any]) -> bool:
    return str(raw.get("apiVersion")).startswith(f"{names.SCHEDULING_GROUP}/")


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
_MOST_NAMED: Final = 8
_OTHERWISE: Final = "take it out, or leave the pod to another scheduler"
_GROUP: Final = f"create a PodGroup with minMember and name it in annotation {names.POD_GROUP_NAME}"
#: Dialects that Moorage reads only in pods that name it as their scheduler: without that a pod runs without its share.
_OWN: Final = frozenset({KAI, nvfractions.NAME})
_ELSEWHERE: Final = frozenset({"", *ORIGINS})


def obstacles(
    found: FoundPod, pod: Pod, translation: Translation, *, beside: Beside, stored: Pod
) -> Iterator[Suspicion]:
    """Why a pod is not placed: what the scheduler says of the pod alone, as it is ``stored``, and what files lack."""
    is_ours = _is_ours(found, pod, beside, is_gpu_pod=bool(translation.request.containers))
    is_shared = translation.request.is_shared
    if is_shared and not is_ours and translation.dialect in _OWN and pod.spec.scheduler_name in _ELSEWHERE:
        text = (
            f"is not {names.SCHEDULER_NAME}, so nobody gives the pod its share: write it, or have the namespace adopt "
            f"such pods (label {names.ADOPT}=true)"
        )
        yield Suspicion("no-scheduler", "spec.schedulerName", text)
    if is_ours or is_shared:
        yield from _never_placed(stored, found, beside)
        yield from _of_group(found, pod, beside)
        yield from _of_sets(found, pod)
        yield from _of_preferences(found, pod)
        yield from _of_names(found, beside)
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


def _admitted(
    found: FoundPod, pod: Pod, translation: Translation, *, beside: Beside, dialects: DialectSettings
) -> _Admitted:
    """Ask the webhooks and the API server about a pod: the webhooks about one that is ours, or asks for a share."""
    raw: dict[str, Any] = {**found.raw, "metadata": found.raw.get("metadata") or {}, "spec": found.raw["spec"]}
    is_judged = _is_ours(found, pod, beside, is_gpu_pod=bool(translation.request.containers))
    if is_judged or translation.request.is_shared:
        raw = {**raw, "metadata": _owned(found, pod), "spec": {**raw["spec"], "schedulerName": names.SCHEDULER_NAME}}
        choices, settings = Choices(dialects=dialects), AdmissionSettings()
        rng = random.Random(found.place)  # noqa: S311 - it names ConfigMaps that nobody makes
        made = mutated(raw, choices=choices, settings=settings, rng=rng)
        if isinstance(made, Refusal):
            return _Admitted(pod, made)
        raw = made.pod
        may_be_critical = found.namespace in settings.critical_namespaces
        refusal = judge_new(raw, choices=choices, may_be_critical=may_be_critical) if is_judged else None
        if refusal is not None:
            return _Admitted(pod, refusal)
    stored = msgspec.convert({**raw, "spec": {**raw["spec"], "nodeName": ""}}, Pod)
    return _Admitted(stored, refusal_of_template(raw) if _is_copied(found.owner) else None)


def _is_copied(owner: Mapping[str, Any]) -> bool:
    """Whether the API server gets a template as it is written; other controllers fill in what it lacks.

    A Deployment without selector is a patch of one.
    """
    group, kind = str(owner.get("apiVersion") or "").rpartition("/")[0], str(owner.get("kind") or "Pod")
    spec = owner.get("spec")
    if group == "apps":
        return isinstance(spec, Mapping) and spec.get("selector") is not None
    return group in _COPIED or (kind in gangs.KINDS.get(group, ()) and group not in _FILLED)


def _owned(found: FoundPod, pod: Pod) -> dict[str, Any]:
    """The metadata of a pod as its controller makes it, with the reference to its owner."""
    metadata: dict[str, Any] = dict(found.raw.get("metadata") or {})
    if found.owner:
        version, kind = found.owner.get("apiVersion"), found.owner.get("kind")
        owner = OwnerReference(api_version=str(version or ""), kind=str(kind or ""), name=found.name)
        owners = [*(pod.metadata.owner_references or ()), owner]
        metadata["ownerReferences"] = msgspec.to_builtins(owners)
    return metadata


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
        yield from _of_foreign_gang(gang)
    elif found.owner:
        yield from _of_workload(found, pod, beside)
    else:
        yield from _alone(pod, is_grouped=True)


def _alone(pod: Pod, *, is_grouped: bool) -> Iterator[Suspicion]:
    """A pod that waits for a PodGroup which nobody makes. ``is_grouped``: the podgrouper looks at it."""
    why = without_group(pod, workloads_are_grouped=is_grouped)
    if why is None or why.code is Code.NOT_GROUPED:
        return
    advice = "" if why.code is Code.NO_POD_GROUP else f": {_GROUP}"
    yield Suspicion("no-pod-group", names.POD_GROUP_NAME, f"is not set. {told(why).message}{advice}")


def _foreign_gang(pod: Pod, found: FoundPod, beside: Beside) -> Group | GangRefusal | None:
    """The gang that a pod asks for in the words of another scheduler, as the podgrouper makes it."""
    if not owners.is_translated(pod) or owners.gang_kind(pod):
        return None
    return beside.gangs.answer(found.raw, found.namespace, owner=found.owner or None)


def _of_foreign_gang(answer: Group | GangRefusal) -> Iterator[Suspicion]:
    if isinstance(answer, Group):
        return
    if answer.code is GangCode.NOT_FOUND:
        text = f"is not set. {answers.told(answer)} in these files: the pod waits unless the cluster has it"
        yield Suspicion("pod-group-missing", names.POD_GROUP_NAME, text)
    else:
        yield Suspicion("no-pod-group", names.POD_GROUP_NAME, f"is not set. {answers.told(answer)}: {_GROUP}")


def _of_workload(found: FoundPod, pod: Pod, beside: Beside) -> Iterator[Suspicion]:
    """A workload that the podgrouper makes no PodGroup of: by what it says, or as it is skipped."""
    is_named = (pod.metadata.annotations or {}).get(names.POD_GROUP_NAME)
    if is_named or _is_skipped_kind(found.owner) or _is_in_order(found.owner):
        return
    answer = beside.gangs.grouped(found.raw, found.namespace, owner=found.owner)
    if isinstance(answer, GangRefusal):
        # What the controller adds to pods is not in the files, nor are other objects of the cluster.
        is_of_files = answer.code not in {GangCode.NOT_READ, GangCode.NOT_FOUND}
        has_no_pods = answer.field.endswith(".replicas") and answer.value == "0"
        if (
            is_of_files
            and not has_no_pods
            and not answer.field.startswith(("metadata.labels[", "metadata.ownerReferences"))
        ):
            text = f"is not set, and no PodGroup is made: {answers.told(answer)}. The pods wait"
            yield Suspicion("not-grouped", names.POD_GROUP_NAME, text)
    elif answer == Nothing(Why.SKIPPED):
        yield from _alone(pod, is_grouped=False)


def _is_skipped_kind(owner: Mapping[str, Any]) -> bool:
    """Whether what stands below an object is grouped, which is not in the files."""
    rows = kinds.kind_of(str(owner.get("apiVersion")), str(owner.get("kind")))
    return any(row.top is Top.SKIP for row in rows if row.kind != "CronJob")


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
    if group is None:
        return
    if group.unsupported:
        text = f"asks for {group.unsupported}, which is not supported yet, so its pods are never placed: take it out"
        yield Suspicion("unsupported", field, text)
    part, parts = (pod.metadata.labels or {}).get(names.SUBGROUP_LABEL), group.tree.numbers()
    if part and parts and part not in parts:
        text = f"is {translation.shown(part)!r}, and PodGroup {name} counts pods in {', '.join([*parts][:_MOST_NAMED])}"
        yield Suspicion("sub-group-missing", f"label {names.SUBGROUP_LABEL}", text)


def _of_names(found: FoundPod, beside: Beside) -> Iterator[Suspicion]:
    """A queue and a priority class that are in none of the files."""
    queue, priority = generic.queue_said(found.owner, found.raw), generic.priority_said(found.owner, found.raw)
    return _names_missing(queue, priority, beside)


def _names_missing(queue: str, priority: str, beside: Beside) -> Iterator[Suspicion]:
    for code, kind, name, known in (
        ("queue-missing", "Queue", queue, beside.queues),
        ("priority-class-missing", "PriorityClass", priority, beside.priority_classes),
    ):
        if name and name not in known:
            yield missing(code, kind, name, known)


def _said_of_others(objects: Sequence[Placed], beside: Beside) -> Iterator[Said]:
    """Objects without version or kind, PodGroups with a queue or a class in none of the files."""
    for placed in objects:
        if lacks := [name for name in ("apiVersion", "kind") if not placed.item.get(name)]:
            level: Level = "note" if len(lacks) > 1 else "error"
            yield said(placed, Suspicion("malformed", " and ".join(lacks), "not set: nothing reads this object", level))
        if placed.item.get("kind") == "PodGroup" and _is_of_kai(placed.item):
            queue, priority = (fields.text(placed.item, f"spec.{name}") for name in ("queue", "priorityClassName"))
            for each in _names_missing(queue, priority, beside):
                yield said(placed, each)
        if (unmet := _unmet_minimum(placed.item, beside)) is not None:
            yield said(placed, unmet)


def _unmet_minimum(job: Mapping[str, Any], beside: Beside) -> Suspicion | None:
    """A job of Kubeflow or Volcano whose minimum is above its pods: those count (podgrouper/rules)."""
    group, kind = str(job.get("apiVersion")).rpartition("/")[0], str(job.get("kind"))
    rows = [row for row in kinds.kind_of(str(job.get("apiVersion")), kind) if row.replicas]
    if (not rows and (group, kind) != _VOLCANO_JOB) or not _has_pods_of_ours(job, beside):
        return None
    path = kubeflow.MIN_AVAILABLE if rows else "spec.minAvailable"
    try:
        if rows:
            most = sum(kubeflow.replicas(Case(pod={}, top=job, chain=(), kind=rows[0], read=Read({}))).values())
        else:
            tasks = enumerate(fields.mappings(job, "spec.tasks"))
            counts = (
                fields.checked_count(job, f"spec.tasks[{at}].replicas", one.get("replicas"), 1) for at, one in tasks
            )
            most = sum(number or 0 for number in counts)
        least = fields.count(job, path)
    except answers.Refused:
        return None
    if least is None or least <= most:
        return None
    return Suspicion(
        "min-available", path, f"is {least}, and the job has {most} pods: it starts with {most}", "warning"
    )


def _has_pods_of_ours(job: Mapping[str, Any], beside: Beside) -> bool:
    """Whether a job, a template of it, or its namespace says that Moorage schedules the pods."""
    namespace = str(fields.at(job, "metadata.namespace") or _DEFAULT_NAMESPACE)
    specs = [job.get("spec"), *(raw.get("spec") for _, raw in templates(job))]
    return namespace in beside.adopting or any(
        fields.at(each, "schedulerName") == names.SCHEDULER_NAME for each in specs
    )


def _of_sets(found: FoundPod, pod: Pod) -> Iterator[Suspicion]:
    """A minimum of a Deployment, or of a StatefulSet that makes one pod after the other."""
    if pod.spec.scheduler_name != names.SCHEDULER_NAME:
        return
    least = translation.shown(found.owner_annotations.get(names.BATCH_MIN_MEMBER, ""))
    if _is_in_order(found.owner):
        yield Suspicion("in-order", names.BATCH_MIN_MEMBER, f'is "{least}"; allowed: {gangs.IN_ORDER}', "error")
    is_deployment = (found.owner.get("apiVersion"), found.owner.get("kind")) == ("apps/v1", "Deployment")
    if is_deployment and gangs.waits_for_itself(found.owner_annotations, None):
        text = f'is "{least}" and has no effect: pods of a Deployment start one by one; use a StatefulSet or a Job'
        yield Suspicion("one-by-one", names.BATCH_MIN_MEMBER, text)


def _is_in_order(owner: Mapping[str, Any]) -> bool:
    """Whether a StatefulSet asks for pods that start together and makes one after the other."""
    is_set = (owner.get("apiVersion"), owner.get("kind")) == ("apps/v1", "StatefulSet")
    return is_set and gangs.waits_for_itself(fields.annotations_of(owner), fields.at(owner, "spec.podManagementPolicy"))


def _of_preferences(found: FoundPod, pod: Pod) -> Iterator[Suspicion]:
    """Preferred topology that the pod or its owner writes in KAI's annotations, which is for PodGroups to have."""
    written = {**found.owner_annotations, **(pod.metadata.annotations or {})}
    for name in owners.preferences(written):
        text = "takes effect in a PodGroup only, where moorage-podgrouper writes it: without one it is not looked at"
        yield Suspicion("ignored", f"annotation {name}", text, "note")


def _of_claim(found: FoundPod, claim: ClaimUse, beside: Beside) -> Iterator[Suspicion]:
    # What has no namespace is no pod's: the claims of its pods are in namespaces of their own.
    if not claim.is_own and found.namespace and (found.namespace, claim.name) not in beside.claims:
        field = f"PersistentVolumeClaim {found.namespace}/{claim.name}"
        text = "is in none of these files: the pod waits unless the cluster has it"
        yield Suspicion("claim-missing", field, text, "note")


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One finding. An error is refused in a cluster; a note is a text whose meaning differs from what it suggests."""

    level: Level
    code: str
    file: str
    document: int
    path: str
    kind: str
    namespace: str
    name: str
    field: str
    text: str


def run(
    files: Sequence[str],
    *,
    output: str,
    strict: bool,
    settings: DialectSettings,
    progress: Progress | None = None,
) -> int:
    """Print findings; return 1 if there is an error, else 0. Raises BadInput.

    ``strict``: 1 if there is any finding, but for those that a cluster decides (BY_CLUSTER).
    """
    progress = progress or Progress()
    read = manifests.read_all(files, progress)
    pods, around = read.pods, beside(read.objects)
    findings: list[Finding] = []
    for judged, found in enumerate(pods):
        progress.tick(lambda: f"{judged} of {len(pods)} pods judged")  # noqa: B023 - called at once
        findings += _findings(found, settings, around)
    about = (said_of_objects(read.placed), said_of_keys(read.placed), _said_of_others(read.placed, around))
    findings += map(_of_object, chain.from_iterable(about))
    if output == "text":
        _show(findings, _summary(len(pods), count(read.placed), findings))
    else:
        write(findings, output)
    is_strict = {each.code for each in findings} - BY_CLUSTER if strict else ()
    return 1 if is_strict or any(finding.level == "error" for finding in findings) else 0


def _findings(found: FoundPod, settings: DialectSettings, around: Beside) -> Iterator[Finding]:
    if found.pod is None:
        yield _finding(found, "error", code="malformed", text=f"{MALFORMED}: {found.malformed}")
        return
    too_large = excess(found, found.pod, beside=around, dialects=settings)
    if too_large is not None:
        yield _refused(found, too_large)
        return
    made = understood(found.pod, settings)
    if isinstance(made, Refusal):
        yield _refused(found, made)
        return
    admitted = _admitted(found, found.pod, made, beside=around, dialects=settings)
    if admitted.refusal is not None:
        yield _refused(found, admitted.refusal)
        return
    known = set()
    waiting = obstacles(found, found.pod, made, beside=around, stored=admitted.stored)
    for suspicion in chain(suspicions(found, found.pod, made), waiting):
        known.add(suspicion.field)
        text = f"{suspicion.field} {suspicion.text}"
        yield _finding(found, suspicion.level, code=suspicion.code, field=suspicion.field, text=text)
    for note in made.notes:
        if note.field not in known:
            yield _finding(found, "note", code=note.code.value, field=note.field, text=messages.note_text(note))


def _refused(found: FoundPod, refusal: Refusal | str | tuple[str, str]) -> Finding:
    """A pod that the webhooks refuse, or the API server."""
    if isinstance(refusal, Refusal):
        told_of = translation.told(refusal)
        return _finding(found, "error", code=refusal.code.value, field=refusal.field, text=told_of)
    if isinstance(refusal, str):
        return _finding(found, "error", code="refused", text=refusal)
    field, why = refusal
    return _finding(found, "error", code="malformed", field=field, text=f"{MALFORMED}: {field}: {why}")


def _finding(found: FoundPod, level: Level, *, code: str, text: str, field: str = "") -> Finding:
    return Finding(
        level=level,
        code=code,
        file=found.file,
        document=found.document,
        path=found.path,
        kind=found.kind,
        namespace=found.namespace,
        name=found.name,
        field=field,
        text=text,
    )


def _of_object(said: Said) -> Finding:
    placed = said.placed
    return Finding(
        level=said.level,
        code=said.code,
        file=placed.file,
        document=placed.document,
        path="",
        kind=shown(str(placed.item.get("kind") or "object")),
        namespace=said.namespace,
        name=said.name,
        field=said.field,
        text=said.text,
    )


def _show(findings: Sequence[Finding], summary: str) -> None:
    """One line a finding, as compilers write them, and the sum. On a terminal a table."""
    rows = [(line(_place(one)), one.level, line(f"{one.text} [{one.code}]")) for one in findings]
    if sys.stdout.isatty():
        from ui import outcomes  # rich is for terminals

        outcomes.show_findings(rows, summary)
        return
    sys.stdout.writelines(f"{place}: {level}: {text}\n" for place, level, text in rows)
    sys.stdout.write(f"{summary}\n")


def _place(finding: Finding) -> str:
    template = f" {finding.path}" if finding.path else ""
    name = f"{finding.namespace}/{finding.name}" if finding.namespace else finding.name
    return f"{finding.file} document {finding.document}: {finding.kind} {name}{template}"


def _summary(pods: int, objects: Mapping[str, int], findings: Sequence[Finding]) -> str:
    """``1 pod, 2 Queues: 0 errors, ...``."""
    judged = [_counted(pods, "pod"), *(_counted(number, kind) for kind, number in objects.items())]
    counts = (_counted(sum(each.level == level for each in findings), level) for level in ("error", "warning", "note"))
    return f"{', '.join(judged)}: {', '.join(counts)}"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
