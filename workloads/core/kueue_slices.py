"""Kueue's slices of a template's pods: `podset-slice-required-topology`, with `podset-slice-size`.

Each slice is a part of the PodGroup that has to be in one domain of the level. In a JobSet a slice is the pods of one
Job, which are a part anyway. In a PyTorchJob and an Indexed Job a slice is a fixed number of pods, by their index, as
KAI's segments are; where a PyTorchJob asks for segments, these stand. Other kinds, and slices of other sizes, are
refused. Source: Kueue's KEP-2724, "Two-level Topology Aware scheduling" and "PodSet Slice size validation".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeAlias

import msgspec

from wire import gangs, names
from wire.crds.podgroup import SubGroup, TopologyConstraint
from workloads.core import fields
from workloads.core.case import Case
from workloads.core.parts import bounded
from workloads.core.podsets import PodSet
from workloads.core.rules import kubeflow
from workloads.core.values import Shape

READ: Final = (names.KUEUE_SLICE_REQUIRED, names.KUEUE_SLICE_SIZE)
#: Fields of a Job's spec that are read for slices.
OF_JOBS: Final = ("parallelism", "completions", "completionMode")
_PODS, _COMPLETIONS, _MODE = OF_JOBS
_INDEXED: Final = "Indexed"
#: The parts of a Job are named after it.
_SLICE: Final = "slice"
_PARALLELISM: Final = "template.spec.parallelism"


def sliced(case: Case, shape: Shape, podset: PodSet, constraint: TopologyConstraint) -> Shape:
    """Return a shape whose parts are slices of a template's pods, each under the constraint. Raises Refused."""
    api_group = fields.text(case.top, "apiVersion").partition("/")[0]
    rule = _BY_KIND.get((api_group, fields.text(case.top, "kind")))
    made = None if rule is None else rule(case, shape, podset, constraint)
    if made is None:
        field, level = field_of(podset, names.KUEUE_SLICE_REQUIRED), constraint.required_topology_level
        allowed = f"in a {' or '.join(kind for _, kind in _BY_KIND)}, without another scheduler's gang"
        raise fields.not_carried_out(podset.owner, field, level, allowed)
    return made


def field_of(podset: PodSet, name: str) -> str:
    """Where an annotation of a template stands."""
    return f"{podset.place}.metadata.annotations[{name}]".lstrip(".")


def _of_jobs(_: Case, shape: Shape, podset: PodSet, constraint: TopologyConstraint) -> Shape | None:
    """A slice is the pods of one Job; None where they are no part."""
    if not _has_parts(shape, podset):
        return None
    place, size = podset.place.removesuffix(".template.spec.template"), _size(podset)
    job = next(
        each
        for each in fields.mappings(podset.owner, "spec.replicatedJobs")
        if fields.text(each, "name") == podset.part
    )
    pods = fields.checked_count(podset.owner, f"{place}.{_PARALLELISM}", fields.at(job, _PARALLELISM), 1)
    if size not in {None, pods}:
        field = field_of(podset, names.KUEUE_SLICE_SIZE)
        raise fields.not_carried_out(podset.owner, field, str(size), f"{pods}, the Job's parallelism")
    return msgspec.structs.replace(shape, parts=tuple(_with(shape.parts, podset.part, constraint)))


def _of_replicas(case: Case, shape: Shape, podset: PodSet, constraint: TopologyConstraint) -> Shape | None:
    """A slice is a fixed number of pods, by their index; None where the template has no part."""
    if _has_parts(shape, podset):
        return shape
    part = next((each for each in shape.parts if each.name == podset.part), None)
    replicas = {role.lower(): number for role, number in kubeflow.replicas(case).items()}.get(podset.part)
    if part is None or replicas is None:
        return None
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


def _of_indexes(case: Case, shape: Shape, podset: PodSet, constraint: TopologyConstraint) -> Shape | None:
    """A slice is a fixed number of the pods of an Indexed Job, by their index; all of them start together."""
    job = case.top
    if shape.name:
        return None
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


def _has_parts(shape: Shape, podset: PodSet) -> bool:
    """Whether the pods of a template are divided already: by Jobs, or by KAI's segments."""
    return any(part.parent == podset.part for part in shape.parts)


def _with(parts: tuple[SubGroup, ...], parent: str, constraint: TopologyConstraint) -> Iterator[SubGroup]:
    for part in parts:
        is_below = part.parent == parent
        asked = part.topology_constraint or constraint
        yield msgspec.structs.replace(part, topology_constraint=asked) if is_below else part


def _name(part: str, number: int) -> str:
    return f"{part}-{number}"


def _size(podset: PodSet) -> int | None:
    """`podset-slice-size`. Raises Refused for what is no number above 0."""
    written = fields.annotations_of(podset.template).get(names.KUEUE_SLICE_SIZE)
    if written is None:
        return None
    return fields.read_count(podset.owner, field_of(podset, names.KUEUE_SLICE_SIZE), written)


_Rule: TypeAlias = Callable[[Case, Shape, PodSet, TopologyConstraint], Shape | None]
#: By API group and kind.
_BY_KIND: Final[Mapping[tuple[str, str], _Rule]] = {
    ("jobset.x-k8s.io", "JobSet"): _of_jobs,
    ("kubeflow.org", "PyTorchJob"): _of_replicas,
    ("batch", "Job"): _of_indexes,
}
