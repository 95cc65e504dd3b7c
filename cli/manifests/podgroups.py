"""``moorage translate --podgroup``: the PodGroups that workloads would get, for clusters that group by hand."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import yaml

from podgrouper.core import answers, fields
from podgrouper.core.answers import Group, Nothing, Refusal
from podgrouper.core.files import Gangs, said_of
from runtime import manifests
from runtime.manifests import FoundPod
from runtime.output import Progress, write
from runtime.text import line
from scheduler.core.convert.pod_groups import pod_group_record
from simulator.controllers import registry, wrappers
from simulator.controllers.kubernetes import Expander
from simulator.controllers.pods import Malformed, child
from simulator.controllers.registry import Workload
from wire import names
from wire.crds.podgroup import PodGroup

_DEFAULT_NAMESPACE: Final = "default"


class Template(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a pod template has to say: the PodGroup, and the sub-group. Neither: its pods are of several PodGroups."""

    path: str
    pod_group: str = ""
    subgroup: str = ""


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One workload. ``refused``: why nothing can be told; ``note``: what the PodGroups don't do."""

    kind: str
    namespace: str
    name: str
    pod_groups: tuple[Any, ...] = ()
    templates: tuple[Template, ...] = ()
    note: str = ""
    refused: str = ""


def run(files: Sequence[str], *, output: str, progress: Progress | None = None) -> int:
    """Print the PodGroups; return 1 if a workload is refused. Raises BadInput."""
    progress = progress or Progress()
    found: list[Answer] = []

    def unwrapped(obj: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        try:
            return wrappers.inner(obj) or [obj]
        except Malformed as error:
            found.append(msgspec.structs.replace(_about(obj), refused=str(error)))
            return [obj]

    expander, read = Expander(), manifests.read_all(files, progress, unwrapped=unwrapped)
    for obj in read.objects:
        progress.tick(lambda: f"{len(found)} workloads translated")
        found.extend(_answers(obj, expander))
    found += _foreign(read)
    if output == "text":
        for answer in found:
            _show(answer)
    else:
        write(found, output)
    return 1 if any(answer.refused for answer in found) else 0


def _answers(obj: Mapping[str, Any], expander: Expander) -> Iterator[Answer]:
    meta = obj.get("metadata")
    if not registry.is_known(obj.get("apiVersion"), obj.get("kind")) or not isinstance(meta, Mapping):
        return
    about = _about(obj)
    if not (meta.get("name") or meta.get("generateName")):
        yield msgspec.structs.replace(about, refused="metadata.name is absent")
        return
    try:
        named = expander.named(obj)
        workload = registry.expand(named, about.namespace, expander.charge)
    except Malformed as error:
        yield msgspec.structs.replace(about, refused=str(error))
        return
    found = _answer(workload, msgspec.structs.replace(about, name=named["metadata"]["name"]))
    yield msgspec.structs.replace(found, note=found.note or _IN_ORDER) if _is_in_order(named) else found


def _about(obj: Mapping[str, Any]) -> Answer:
    meta = child(obj, "metadata")
    namespace = str(child(meta, "namespace") or _DEFAULT_NAMESPACE)
    return Answer(kind=str(obj.get("kind")), namespace=namespace, name=str(child(meta, "name") or ""))


#: Of a JobSet with startupPolicyOrder InOrder.
_IN_ORDER: Final = (
    "spec.startupPolicy.startupPolicyOrder is InOrder: a Job is made once those before it are ready, so the PodGroup "
    "starts with one Job, and pods of later Jobs start one by one; with dependsOn they start together"
)


def _is_in_order(obj: Mapping[str, Any]) -> bool:
    return obj["kind"] == "JobSet" and fields.text(obj, "spec.startupPolicy.startupPolicyOrder") == "InOrder"


def _answer(workload: Workload, about: Answer) -> Answer:
    groups = {each.metadata.name: _by_hand(each) for each in workload.pod_groups}
    places: dict[str, set[tuple[str, str]]] = {}
    for member in workload.members:
        if member.pod_group is not None:
            name = groups[member.pod_group.metadata.name].metadata.name
            places.setdefault(member.template, set()).add((name, member.part))
    # Pods of one template can be in one sub-group only.
    if any(len(found) > len({name for name, _ in found}) for found in places.values()):
        groups = {key: _without_parts(each) for key, each in groups.items()}
        places = {path: {(name, "") for name, _ in found} for path, found in places.items()}
    is_several = any(len(found) > 1 for found in places.values())
    why = "" if workload.is_refused else workload.why
    note = "pods of one template are of several PodGroups: a template can't name them" if is_several else why
    return msgspec.structs.replace(
        about,
        pod_groups=tuple(msgspec.to_builtins(each) for each in groups.values()),
        templates=tuple(_template(path, found) for path, found in places.items()),
        note=note,
        refused=workload.why if workload.is_refused else "",
    )


def _foreign(read: manifests.Found) -> list[Answer]:
    """Return an answer for each gang that pods ask for in the words of other schedulers, and each pod refused."""
    gangs = Gangs()
    for obj in read.objects:
        meta = obj.get("metadata")
        namespace = meta.get("namespace") if isinstance(meta, Mapping) else None
        gangs.note(obj, str(namespace or _DEFAULT_NAMESPACE))
    found: dict[tuple[str, ...], Answer] = {}
    for pod in read.pods:
        if registry.is_known(pod.owner.get("apiVersion"), pod.owner.get("kind")):
            continue
        answer = gangs.answer(pod.raw, pod.namespace, owner=pod.owner or None)
        about = Answer(kind=pod.kind, namespace=pod.namespace, name=pod.name)
        if answer is None and names.BATCH_MIN_MEMBER in _asked(pod):
            found[pod.place,] = _of_minimum(pod, about, gangs.grouped(pod.raw, pod.namespace, owner=pod.owner))
        elif isinstance(answer, Refusal):
            found[pod.place,] = msgspec.structs.replace(about, refused=answers.told(answer))
        elif answer is not None:
            name = answer.pod_group.metadata.name
            group = _by_hand(answer.pod_group)
            gang = msgspec.structs.replace(about, kind="gang", name=name, pod_groups=(msgspec.to_builtins(group),))
            known = found.get((pod.namespace, name), gang)
            template = Template(f"{pod.kind} {pod.name} {pod.path}".rstrip(), name, answer.part)
            found[pod.namespace, name] = msgspec.structs.replace(known, templates=(*known.templates, template))
    return list(found.values())


def _asked(pod: FoundPod) -> Mapping[str, Any]:
    """Annotations of what makes a pod: of a CronJob those of its Jobs."""
    return fields.annotations_of(fields.at(pod.owner, "spec.jobTemplate") or {}) or pod.owner_annotations


def _of_minimum(pod: FoundPod, about: Answer, answer: Group | Nothing | Refusal) -> Answer:
    """Return an answer for a workload of Kubernetes' own that states how many of its pods start together."""
    if not isinstance(answer, Group):
        told = answers.told(answer)
        return msgspec.structs.replace(about, **{"refused" if isinstance(answer, Refusal) else "note": told})
    group = _by_hand(answer.pod_group)
    if note := _SEVERAL.get(pod.kind):
        return msgspec.structs.replace(about, templates=(Template(pod.path),), note=note)
    made = (msgspec.to_builtins(group),)
    return msgspec.structs.replace(about, pod_groups=made, templates=(Template(pod.path, group.metadata.name),))


#: Of workloads that have several PodGroups, why no template names them.
_SEVERAL: Final = {
    "CronJob": "each of its Jobs has a PodGroup of its own: a template can't name them",
    "Deployment": "each of its pods has a PodGroup of its own, so they start one by one",
}


def _template(path: str, found: set[tuple[str, str]]) -> Template:
    return Template(path, *min(found)) if len(found) == 1 else Template(path)


def _by_hand(group: PodGroup) -> PodGroup:
    """Return a PodGroup as a person writes it: without the owner, whose UID is not known before it is created."""
    meta = group.metadata
    owner = (meta.owner_references or [])[0]
    ours = {names.TOP_OWNER_METADATA, names.FOREIGN_GANG}
    annotations = {key: text for key, text in (meta.annotations or {}).items() if key not in ours}
    # The name of a foreign gang has no UID in it.
    name = meta.name if said_of(group) else meta.name.replace(f"-{owner.uid}", "", 1)
    changed = msgspec.structs.replace(meta, name=name, annotations=annotations or None, owner_references=None)
    return msgspec.structs.replace(group, metadata=changed)


def _without_parts(group: PodGroup) -> PodGroup:
    """The same with the fewest pods that start it as its minimum."""
    least = pod_group_record(group).minimum
    spec = msgspec.structs.replace(group.spec, min_member=least, min_sub_group=None, sub_groups=None)
    return msgspec.structs.replace(group, spec=spec)


def _show(answer: Answer) -> None:
    """Print the PodGroups of a workload as YAML, with comments on what its templates have to say."""
    sys.stdout.write(f"---\n# {line(answer.kind)} {line(answer.namespace)}/{line(answer.name)}\n")
    for text in (answer.refused and f"refused: {answer.refused}", answer.note):
        if text:
            sys.stdout.write(f"# {line(text)}\n")
    for each in answer.templates:
        if each.pod_group:
            sys.stdout.write(f"# {line(each.path)}: annotation {names.POD_GROUP_NAME}: {line(each.pod_group)}\n")
        if each.subgroup:
            sys.stdout.write(f"# {line(each.path)}: label {names.SUBGROUP_LABEL}: {line(each.subgroup)}\n")
    for number, group in enumerate(answer.pod_groups):
        sys.stdout.write("---\n" if number else "")
        yaml.safe_dump(group, sys.stdout, sort_keys=False, width=120)
