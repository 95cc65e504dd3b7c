"""Kueue's annotations that ask for a place, on templates of pods: `podset-required-topology` and the like.

Kueue reads them for each template of a workload, which it calls a pod set, and names a level alone: the Topology is
that of the flavor that it admits the workload to. Here the constraint of a template is that of the part of its pods,
on the Topology that has the level. A level in KAI's annotations wins, and a Topology that these name counts.

Where Kueue has placed a template itself, its node selectors are followed and nothing is asked for beside.
Source: Kueue's API `kueue.x-k8s.io/v1beta2`, KEP-2724.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from wire import names
from wire.crds.podgroup import SubGroup, TopologyConstraint
from workloads.core import fields, kueue_slices, podsets
from workloads.core.case import Case
from workloads.core.generic import topology_of
from workloads.core.podsets import PodSet
from workloads.core.values import Json, Shape

#: As long as the label of a level may be.
_LONGEST: Final = 316
_KINDS: Final = (names.KUEUE_REQUIRED, names.KUEUE_PREFERRED, names.KUEUE_UNCONSTRAINED)
_READ: Final = frozenset({*_KINDS, *kueue_slices.READ, names.KUEUE_SLICE_CONSTRAINTS, names.KUEUE_PODSET_GROUP})
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
    asked = [(podset, _constraint(podset, topology)) for podset in podsets.of(case)]
    shape = _sliced(case, shape, topology)
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
    of_slices = kueue_slices.OF_JOBS if names.KUEUE_SLICE_REQUIRED in annotations else ()
    kept = {name: spec[name] for name in of_slices if name in spec}
    return {**kept, "template": {"metadata": {"annotations": annotations}, "spec": {"schedulingGates": gates}}}


def _sliced(case: Case, shape: Shape, topology: str) -> Shape:
    """Return a shape with the slices that templates ask for. Raises Refused."""
    for podset in podsets.of(case):
        level = fields.annotations_of(podset.template).get(names.KUEUE_SLICE_REQUIRED, "")
        if not level or _is_placed_by_kueue(podset.template):
            continue
        _check_level(podset, names.KUEUE_SLICE_REQUIRED, level)
        if _group(podset):
            field = kueue_slices.field_of(podset, names.KUEUE_SLICE_REQUIRED)
            raise fields.not_carried_out(podset.owner, field, level, f"without {names.KUEUE_PODSET_GROUP}")
        constraint = TopologyConstraint(topology=topology, required_topology_level=level)
        shape = kueue_slices.sliced(case, shape, podset, constraint)
    return shape


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
        field = kueue_slices.field_of(podset, names.KUEUE_SLICE_CONSTRAINTS)
        raise fields.not_carried_out(podset.owner, field, constraints, "none")
    if not found:
        return None
    if len(found) > 1:
        field = kueue_slices.field_of(podset, found[0])
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
        field = kueue_slices.field_of(podset, name)
        raise fields.malformed(podset.owner, field, level, "the label of a level of a Topology")


def _is_placed_by_kueue(template: Json) -> bool:
    """Whether Kueue has chosen domains: it puts this gate into the template when it admits the workload."""
    gates = fields.at(template, "spec.schedulingGates")
    listed = gates if isinstance(gates, list) else []
    return any(fields.at(gate, "name") == names.KUEUE_TOPOLOGY_GATE for gate in listed)


def _group(podset: PodSet) -> str:
    return fields.annotations_of(podset.template).get(names.KUEUE_PODSET_GROUP, "")
