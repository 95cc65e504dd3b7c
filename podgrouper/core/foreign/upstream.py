"""PodGroup of Kubernetes (scheduling.k8s.io/v1alpha2, as Kubernetes 1.36 serves it with the gate GenericWorkload)."""

from __future__ import annotations

from typing import Final

from podgrouper.core import fields
from podgrouper.core.answers import Json, Shape
from podgrouper.core.rule_input import Case
from wire import names
from wire.crds.podgroup import TopologyConstraint

_POLICY: Final = "spec.schedulingPolicy"
_MIN_COUNT: Final = f"{_POLICY}.gang.minCount"
_CONSTRAINTS: Final = "spec.schedulingConstraints"
_TOPOLOGY: Final = f"{_CONSTRAINTS}.topology"


def shape(group: Json, _: Case) -> Shape:
    """`schedulingPolicy.gang.minCount`, or 1 with `basic`; its priority class and topology constraint.

    Its `resourceClaims` are not read: each of its pods names those that it uses, and the scheduler allocates these.
    """
    _refuse_what_has_no_counterpart(group)
    priority = fields.text(group, "spec.priorityClassName")
    return Shape(minimum=_minimum(group), priority=priority, topology=_topology(group))


def _minimum(group: Json) -> int:
    policy = fields.mapping(group, _POLICY)
    if policy.get("gang") is None and policy.get("basic") is not None:
        return 1
    minimum = fields.count(group, _MIN_COUNT)
    if not minimum:
        raise fields.malformed(group, _MIN_COUNT, minimum, "a number above 0, or schedulingPolicy.basic")
    return minimum


def _topology(group: Json) -> TopologyConstraint | None:
    """The label that has to have one value on all nodes of the group: a level without a Topology. One is allowed."""
    if others := fields.mapping(group, _CONSTRAINTS).keys() - {"topology"}:
        raise fields.not_carried_out(group, _CONSTRAINTS, ", ".join(sorted(map(str, others))), "topology")
    asked = fields.mappings(group, _TOPOLOGY)
    if len(asked) > 1:
        raise fields.not_carried_out(group, _TOPOLOGY, f"{len(asked)} constraints", "1")
    keys = [fields.text(each, "key") for each in asked]
    if not all(keys):
        raise fields.malformed(group, f"{_TOPOLOGY}[0].key", "", "the key of a label of nodes")
    return TopologyConstraint(topology=names.LABEL_ALONE, required_topology_level=keys[0]) if keys else None


def _refuse_what_has_no_counterpart(group: Json) -> None:
    mode = fields.at(group, "spec.disruptionMode")
    if mode is not None and mode != "Pod":
        raise fields.not_carried_out(group, "spec.disruptionMode", str(mode), "Pod")
