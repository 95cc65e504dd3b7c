"""Kueue's annotations on templates of pods: where their pods are to be placed, and in which slices.

Kueue reads them for each template of a workload, which it calls a pod set, for all replicas of it, and names a level
alone: the Topology is that of the flavor that it admits the workload to. Here the constraint of a template is that of
the part of its pods, on the Topology that has the level. A level in KAI's annotations wins, and a Topology that these
name counts. Where Kueue has placed a template itself, its node selectors are followed and nothing is asked for beside.
Source: Kueue's API `kueue.x-k8s.io/v1beta2`, KEP-2724.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from podgrouper.core import fields
from podgrouper.core.answers import Json, Refused, Shape
from podgrouper.core.fields import bounded
from podgrouper.core.generic import topology_of
from podgrouper.core.rule_input import Case
from podgrouper.core.rules import jobset, kubeflow, ray
from wire import gangs, names
from wire.crds.podgroup import SubGroup, TopologyConstraint

_LWS: Final = "spec.leaderWorkerTemplate"


class PodSet(msgspec.Struct, frozen=True):
    """A template at ``place`` in ``owner``. ``part``: the sub-group of its pods, where the PodGroup has one for them.

    ``place`` is "" where a pod stands for itself.
    """

    part: str
    owner: Json
    place: str
    template: Json


def pod_sets(case: Case) -> list[PodSet]:
    """Return the templates of a workload; the pod itself where nothing stands above it.

    Of a JobSet these are those of the pod's PodGroup: it has several where Jobs depend on others.
    """
    if case.top is case.pod:
        return [PodSet("", case.pod, "", case.pod)]
    return list(_POD_SETS_BY_KIND.get(fields.text(case.top, "kind"), _single)(case))


def _single(case: Case) -> Iterator[PodSet]:
    yield _at("", case.top, "spec.template")


def _kubeflow(case: Case) -> Iterator[PodSet]:
    field = f"spec.{case.kind.replicas}"
    for role in fields.mapping(case.top, field) if case.kind.replicas else ():
        yield _at(str(role).lower(), case.top, f"{field}.{role}.template")


def _jobset(case: Case) -> Iterator[PodSet]:
    for place, job in jobset.made_together(case):
        template = _object(fields.at(job, "template.spec.template"))
        yield PodSet(fields.text(job, "name"), case.top, f"{place}{_TEMPLATE}", template)


def _ray(case: Case) -> Iterator[PodSet]:
    cluster = ray.cluster_of(case)
    spec = ray.spec_of(cluster)
    yield _at(ray.HEAD, cluster, f"{spec}.headGroupSpec.template")
    for number, group in ray.worker_groups(cluster):
        place, template = f"{spec}.workerGroupSpecs[{number}].template", _object(group.get("template"))
        yield PodSet(ray.part_name(number, group), cluster, place, template)


def _lws(case: Case) -> Iterator[PodSet]:
    if fields.at(case.top, f"{_LWS}.leaderTemplate") is None:
        yield _at("", case.top, f"{_LWS}.workerTemplate")
        return
    yield _at("leader", case.top, f"{_LWS}.leaderTemplate")
    yield _at("workers", case.top, f"{_LWS}.workerTemplate")


def _at(part: str, owner: Json, place: str) -> PodSet:
    return PodSet(part, owner, place, _object(fields.at(owner, place)))


def _object(value: object) -> Json:
    """A template. What stands there and is none says nothing: kinds that nobody knows may have other fields."""
    return value if isinstance(value, Mapping) else {}


_POD_SETS_BY_KIND: Final[Mapping[str, Callable[[Case], Iterator[PodSet]]]] = {
    **dict.fromkeys(("TFJob", "PyTorchJob", "XGBoostJob", "JAXJob", "PaddleJob", "MPIJob"), _kubeflow),
    "JobSet": _jobset,
    **dict.fromkeys(ray.CLUSTER_SPECS, _ray),
    "LeaderWorkerSet": _lws,
}


READ: Final = (names.KUEUE_SLICE_REQUIRED, names.KUEUE_SLICE_SIZE)
#: Fields of a Job's spec that are read for slices.
OF_JOBS: Final = ("parallelism", "completions", "completionMode")
_PODS, _COMPLETIONS, _MODE = OF_JOBS
_INDEXED: Final = "Indexed"
#: The parts of a Job are named after it.
_SLICE: Final = "slice"
_PARALLELISM: Final = "template.spec.parallelism"
#: Where a replicated Job has the template of its pods.
_TEMPLATE: Final = ".template.spec.template"
#: A template that asks for slices, and the constraint of each.
Slices: TypeAlias = tuple[PodSet, TopologyConstraint]


def sliced(case: Case, shape: Shape, asked: Sequence[Slices]) -> Shape:
    """Return a shape whose parts are slices of templates' pods, each under its constraint. Raises Refused.

    A template asks for slices by `podset-slice-required-topology`, with `podset-slice-size`. Each slice is a part of
    the PodGroup that has to be in one domain of the level. Where a PyTorchJob asks for KAI's segments, these stand.
    Other kinds, and slices of other sizes, are refused. Source: KEP-2724, "Two-level Topology Aware scheduling" and
    "PodSet Slice size validation".
    """
    api_group = fields.text(case.top, "apiVersion").partition("/")[0]
    rule = _RULES_BY_KIND.get((api_group, fields.text(case.top, "kind")))
    return shape if not asked else (rule or _of_others)(case, shape, asked)


def _of_others(_: Case, __: Shape, asked: Sequence[Slices]) -> Shape:
    raise _not_carried_out(asked[0])


def _not_carried_out(asked: Slices) -> Refused:
    podset, constraint = asked
    allowed = f"in a {' or '.join(kind for _, kind in _RULES_BY_KIND)}, without another scheduler's gang"
    field, level = field_of(podset, names.KUEUE_SLICE_REQUIRED), constraint.required_topology_level
    return fields.not_carried_out(podset.owner, field, level, allowed)


def field_of(podset: PodSet, name: str) -> str:
    """Where an annotation of a template stands."""
    return f"{podset.place}.metadata.annotations[{name}]".lstrip(".")


def _of_jobs(case: Case, shape: Shape, asked: Sequence[Slices]) -> Shape:
    """A slice is the pods of one Job. A JobSet may have thousands of templates, so all are looked at together."""
    parents = {part.parent for part in shape.parts}
    jobs = dict(jobset.made_together(case))
    below: dict[str | None, TopologyConstraint] = {}
    for podset, constraint in asked:
        if podset.part not in parents:
            raise _not_carried_out((podset, constraint))
        place, size = podset.place.removesuffix(_TEMPLATE), _size(podset)
        field = f"{place}.{_PARALLELISM}"
        pods = fields.checked_count(podset.owner, field, fields.at(jobs[place], _PARALLELISM), 1)
        if size not in {None, pods}:
            field = field_of(podset, names.KUEUE_SLICE_SIZE)
            raise fields.not_carried_out(podset.owner, field, str(size), f"{pods}, the Job's parallelism")
        below[podset.part] = constraint
    parts = tuple(
        msgspec.structs.replace(part, topology_constraint=part.topology_constraint or below.get(part.parent))
        for part in shape.parts
    )
    return msgspec.structs.replace(shape, parts=parts)


def _of_roles(case: Case, shape: Shape, asked: Sequence[Slices]) -> Shape:
    for podset, constraint in asked:
        shape = _of_replicas(case, shape, podset, constraint)
    return shape


def _of_replicas(case: Case, shape: Shape, podset: PodSet, constraint: TopologyConstraint) -> Shape:
    """A slice is a fixed number of pods, by their index. Pods that segments divide already stay as they are."""
    if any(part.parent == podset.part for part in shape.parts):
        return shape
    part = next((each for each in shape.parts if each.name == podset.part), None)
    replicas = {role.lower(): number for role, number in kubeflow.replicas(case).items()}.get(podset.part)
    if part is None or replicas is None:
        raise _not_carried_out((podset, constraint))
    size = _divisor(podset, replicas)
    bounded(case.top, shape.parts, replicas // size)
    least = part.min_member or 0
    parent = msgspec.structs.replace(part, min_member=None, min_sub_group=-(-least // size))
    parts = [parent if each is part else each for each in shape.parts]
    for number in range(replicas // size):
        # Whole ones first, then the rest of the minimum; what is elastic has minimum 0.
        minimum = max(0, min(size, least - number * size))
        name = _name(part.name, number)
        parts.append(SubGroup(name=name, parent=part.name, min_member=minimum, topology_constraint=constraint))
    is_its_own = shape.part == podset.part
    name = (
        _name(podset.part, fields.index(case.pod, gangs.KUBEFLOW_REPLICA_INDEX) // size) if is_its_own else shape.part
    )
    # All parts start together, which is the minimum that was told by pods.
    return msgspec.structs.replace(shape, minimum=None, parts=tuple(parts), part=name)


def _of_indexes(case: Case, shape: Shape, asked: Sequence[Slices]) -> Shape:
    """A slice is a fixed number of the pods of an Indexed Job, by their index; all of them start together."""
    job, (podset, constraint) = case.top, asked[0]
    if shape.name:
        raise _not_carried_out(asked[0])
    if (mode := fields.text(job, f"spec.{_MODE}")) != _INDEXED:
        raise fields.malformed(job, f"spec.{_MODE}", mode or None, f"{_INDEXED}, with slices")
    pods = fields.count(job, f"spec.{_PODS}", 1) or 0
    if (completions := fields.count(job, f"spec.{_COMPLETIONS}", pods)) != pods:
        raise fields.not_carried_out(job, f"spec.{_COMPLETIONS}", str(completions), f"{pods}, the parallelism")
    if fields.annotated_count(job, names.BATCH_MIN_MEMBER) != pods:
        written = fields.annotations_of(job).get(names.BATCH_MIN_MEMBER)
        allowed = f"{pods}, the parallelism: slices start together"
        raise fields.malformed(job, f"metadata.annotations[{names.BATCH_MIN_MEMBER}]", written, allowed)
    size = _divisor(podset, pods)
    bounded(job, (), pods // size)
    slices = (
        SubGroup(name=_name(_SLICE, number), min_member=size, topology_constraint=constraint)
        for number in range(pods // size)
    )
    part = _name(_SLICE, fields.index(case.pod, gangs.JOB_COMPLETION_INDEX) // size)
    return msgspec.structs.replace(shape, minimum=None, parts=tuple(slices), part=part)


def _divisor(podset: PodSet, pods: int) -> int:
    """`podset-slice-size`. Raises Refused for one that does not divide the number of pods."""
    size = _size(podset)
    if size is None or pods % size:
        raise fields.malformed(podset.owner, field_of(podset, names.KUEUE_SLICE_SIZE), size, f"a divisor of {pods}")
    return size


def _name(part: str, number: int) -> str:
    return f"{part}-{number}"


def _size(podset: PodSet) -> int | None:
    """`podset-slice-size`. Raises Refused for what is no number above 0."""
    written = fields.annotations_of(podset.template).get(names.KUEUE_SLICE_SIZE)
    if written is None:
        return None
    return fields.read_count(podset.owner, field_of(podset, names.KUEUE_SLICE_SIZE), written)


_Rule: TypeAlias = Callable[[Case, Shape, Sequence[Slices]], Shape]
#: By API group and kind.
_RULES_BY_KIND: Final[Mapping[tuple[str, str], _Rule]] = {
    ("jobset.x-k8s.io", "JobSet"): _of_jobs,
    ("kubeflow.org", "PyTorchJob"): _of_roles,
    ("batch", "Job"): _of_indexes,
}


#: As long as the label of a level may be.
_LONGEST: Final = 316
_KINDS: Final = (names.KUEUE_REQUIRED, names.KUEUE_PREFERRED, names.KUEUE_UNCONSTRAINED)
_READ: Final = frozenset({*_KINDS, *READ, names.KUEUE_SLICE_CONSTRAINTS, names.KUEUE_PODSET_GROUP})
#: The templates of a workload, each with what it asks for.
_Asked = Sequence[tuple[PodSet, TopologyConstraint | None]]


def placed(case: Case, shape: Shape) -> Shape:
    """Return a shape with what templates ask for in Kueue's annotations. Raises Refused.

    A template without a part of its own can ask only for what all templates of the workload ask for. What the PodGroup
    of another scheduler asks for stands.
    """
    if shape.topology is not None:
        return shape
    written = topology_of(case.top)
    if written is not None and (written.required_topology_level or written.preferred_topology_level):
        return shape
    if fields.labels_of(case.pod).get(names.KUEUE_MANAGED) == "true":
        return shape
    topology = (written.topology if written is not None else "") or names.ANY_TOPOLOGY
    podsets = pod_sets(case)
    asked = [(podset, _constraint(podset, topology)) for podset in podsets]
    shape = sliced(case, shape, list(_slices(podsets, topology)))
    by_part = {podset.part: constraint for podset, constraint in asked if constraint is not None}
    if not by_part:
        return shape
    _check_groups(case.top, asked)
    if _is_one(asked) or not by_part.keys() <= {part.name for part in shape.parts}:
        return msgspec.structs.replace(shape, topology=_common(case.top, asked))
    return msgspec.structs.replace(shape, parts=tuple(_with(shape.parts, by_part)))


def as_read(spec: Json) -> dict[str, Any]:
    """Return what of the spec of an owner with a template is read here; nothing if the template asks for nothing."""
    template = fields.at(spec, "template")
    if not isinstance(template, Mapping):
        return {}
    annotations = {name: text for name, text in fields.annotations_of(template).items() if name in _READ}
    if not annotations:
        return {}
    gates = [{"name": names.KUEUE_TOPOLOGY_GATE}] if _is_placed_by_kueue(template) else []
    of_slices = OF_JOBS if names.KUEUE_SLICE_REQUIRED in annotations else ()
    kept = {name: spec[name] for name in of_slices if name in spec}
    return {**kept, "template": {"metadata": {"annotations": annotations}, "spec": {"schedulingGates": gates}}}


def _slices(podsets: Sequence[PodSet], topology: str) -> Iterator[Slices]:
    """Yield the templates that ask for slices. Raises Refused."""
    for podset in podsets:
        level = fields.annotations_of(podset.template).get(names.KUEUE_SLICE_REQUIRED, "")
        if not level or _is_placed_by_kueue(podset.template):
            continue
        _check_level(podset, names.KUEUE_SLICE_REQUIRED, level)
        if _group(podset):
            field = field_of(podset, names.KUEUE_SLICE_REQUIRED)
            raise fields.not_carried_out(podset.owner, field, level, f"without {names.KUEUE_PODSET_GROUP}")
        yield podset, TopologyConstraint(topology=topology, required_topology_level=level)


def _with(parts: Sequence[SubGroup], by_part: Mapping[str, TopologyConstraint]) -> Iterator[SubGroup]:
    for part in parts:
        constraint = part.topology_constraint or by_part.get(part.name)
        yield msgspec.structs.replace(part, topology_constraint=constraint)


def _check_groups(top: Json, asked: _Asked) -> None:
    """Refuse a group of some of the templates: a PodGroup has no part for them together."""
    groups = {_group(podset) for podset, _ in asked}
    if len(groups) > 1:
        said, allowed = ", ".join(sorted(groups - {""})), "the same in all templates"
        raise fields.not_carried_out(top, f"annotation {names.KUEUE_PODSET_GROUP}", said, allowed)


def _is_one(asked: _Asked) -> bool:
    """Whether all templates have to be in one domain together: there is one, or one group of them all."""
    return len(asked) == 1 or bool(_group(asked[0][0]))


def _common(top: Json, asked: _Asked) -> TopologyConstraint | None:
    """Return what all templates ask for. Raises Refused if they don't ask for the same."""
    first, constraint = asked[0]
    for podset, other in asked:
        if other != constraint:
            said = f"{_said(other)} for {podset.part}, {_said(constraint)} for {first.part}"
            raise fields.not_carried_out(top, "topology in Kueue's annotations", said, "the same in all templates")
    return constraint


def _said(constraint: TopologyConstraint | None) -> str:
    if constraint is None:
        return "none"
    required = constraint.required_topology_level
    return f"required {required}" if required else f"preferred {constraint.preferred_topology_level}"


def _constraint(podset: PodSet, topology: str) -> TopologyConstraint | None:
    """Return what one template asks for. Raises Refused for more than one of the annotations, and slices in slices."""
    annotations = fields.annotations_of(podset.template)
    found = [name for name in _KINDS if annotations.get(name)]
    if _is_placed_by_kueue(podset.template):
        return None
    if constraints := annotations.get(names.KUEUE_SLICE_CONSTRAINTS):
        field = field_of(podset, names.KUEUE_SLICE_CONSTRAINTS)
        raise fields.not_carried_out(podset.owner, field, constraints, "none")
    if not found:
        return None
    if len(found) > 1:
        field = field_of(podset, found[0])
        raise fields.malformed(podset.owner, field, annotations[found[0]], f"without {found[1]}")
    name, level = found[0], annotations[found[0]]
    if name == names.KUEUE_UNCONSTRAINED:
        return None
    _check_level(podset, name, level)
    if name == names.KUEUE_REQUIRED:
        return TopologyConstraint(topology=topology, required_topology_level=level)
    return TopologyConstraint(topology=topology, preferred_topology_level=level)


def _check_level(podset: PodSet, name: str, level: str) -> None:
    if len(level) > _LONGEST:
        field = field_of(podset, name)
        raise fields.malformed(podset.owner, field, level, "the label of a level of a Topology")


def _is_placed_by_kueue(template: Json) -> bool:
    """Whether Kueue has chosen domains: it puts this gate into the template when it admits the workload."""
    gates = fields.at(template, "spec.schedulingGates")
    listed = gates if isinstance(gates, list) else []
    return any(fields.at(gate, "name") == names.KUEUE_TOPOLOGY_GATE for gate in listed)


def _group(podset: PodSet) -> str:
    return fields.annotations_of(podset.template).get(names.KUEUE_PODSET_GROUP, "")
