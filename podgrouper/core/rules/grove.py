"""Grove: a PodGroup for each PodGang."""

from __future__ import annotations

from typing import Final

from podgrouper.core import fields, owner_chain
from podgrouper.core.answers import Code, Json, Refusal, Refused, Shape
from podgrouper.core.fields import bounded
from podgrouper.core.generic import topology_of
from podgrouper.core.rule_input import Case
from wire import gangs
from wire.crds.podgroup import SubGroup, TopologyConstraint

_GROUP: Final = "scheduler.grove.io"
_TOPOLOGY: Final = "grove.io/topology-name"


def shape(case: Case) -> Shape:
    """A PodGroup a PodGang (label `grove.io/podgang`): a part for each of its `podgroups` with `minReplicas`."""
    name = fields.labels_of(case.pod).get(gangs.GROVE_POD_GANG, "")
    if not name:
        raise fields.malformed(case.pod, f"metadata.labels[{gangs.GROVE_POD_GANG}]", None, "the name of a PodGang")
    gang = owner_chain.named(case.read, _GROUP, "PodGang", name, version="v1alpha1")
    if gang is None:
        raise Refused(Refusal(code=Code.NOT_FOUND, about=f"PodGang {name}"))
    groups = fields.mappings(gang, "spec.podgroups")
    configs = fields.mappings(gang, "spec.topologyConstraintGroupConfigs")
    bounded(case.top, (), len(groups) + len(configs))
    parent_of = {
        member: fields.text(config, "name") for config in configs for member in config.get("podGroupNames") or ()
    }
    parts = [_parent(gang, config) for config in configs]
    parts += [_part(gang, at, group, parent_of) for at, group in enumerate(groups)]
    return Shape(
        min_parts=sum(part.parent is None for part in parts),
        parts=tuple(parts),
        part=_part_of(case.pod, gang),
        owner=gang,
        priority=fields.text(gang, "spec.priorityClassName"),
    )


def _parent(gang: Json, config: Json) -> SubGroup:
    members = config.get("podGroupNames") or ()
    return SubGroup(
        name=fields.text(config, "name"), min_sub_group=len(members), topology_constraint=_constraint(gang, config)
    )


def _part(gang: Json, at: int, group: Json, parent_of: dict[str, str]) -> SubGroup:
    field = f"spec.podgroups[{at}].minReplicas"
    minimum = fields.checked_count(gang, field, group.get("minReplicas"))
    if not minimum:
        raise fields.malformed(gang, field, minimum, "a number above 0")
    name, namespace = fields.text(group, "name"), fields.text(gang, "metadata.namespace")
    for place, reference in enumerate(fields.mappings(group, "podReferences")):
        if fields.text(reference, "namespace") != namespace:
            place_of = f"spec.podgroups[{at}].podReferences[{place}].namespace"
            raise fields.malformed(gang, place_of, reference.get("namespace"), namespace)
    return SubGroup(
        name=name, parent=parent_of.get(name), min_member=minimum, topology_constraint=_constraint(gang, group)
    )


def _part_of(pod: Json, gang: Json) -> str:
    """Return the pod's part: that which references it, else that of its PodClique."""
    name = fields.text(pod, "metadata.name")
    for group in fields.mappings(gang, "spec.podgroups"):
        if any(fields.text(each, "name") == name for each in fields.mappings(group, "podReferences")):
            return fields.text(group, "name")
    return fields.labels_of(pod).get(gangs.GROVE_POD_CLIQUE, "")


def _constraint(gang: Json, of: Json) -> TopologyConstraint | None:
    packed = fields.mapping(of, "topologyConstraint.packConstraint")
    required, preferred = fields.text(packed, "required"), fields.text(packed, "preferred")
    if not (required or preferred):
        return None
    generic = topology_of(gang)
    topology = fields.annotations_of(gang).get(_TOPOLOGY) or (generic.topology if generic else "")
    return TopologyConstraint(topology=topology, required_topology_level=required, preferred_topology_level=preferred)
