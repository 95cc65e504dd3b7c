"""PodGroup, ``scheduling.run.ai/v2alpha2`` (kai-contract, section 2.2 and erratum 2)."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field

from wire.core import ObjectMeta, WireStruct
from wire.crds.definition import Definition, Int32, ResourceList, Time
from wire.names import SCHEDULING_GROUP

PREEMPTIBLE = "preemptible"
NON_PREEMPTIBLE = "non-preemptible"

#: The one type of ``status.schedulingConditions``.
UNSCHEDULABLE_ON_NODE_POOL = "UnschedulableOnNodePool"
#: What events and conditions call the node pool of objects without its label.
DEFAULT_NODE_POOL = "default"

_NOT_NEGATIVE = {"minimum": 0}
SUBGROUP_NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"


class TopologyConstraint(WireStruct, frozen=True, gc=False):
    """Within which domain of a topology the pods have to run, or had better run."""

    topology: Annotated[str, Meta(description="Name of the Topology.")] = ""
    required_topology_level: Annotated[str, Meta(description="Level, one domain of which has to hold all pods.")] = ""
    preferred_topology_level: Annotated[
        str, Meta(description="Level, one domain of which holds all pods if possible.")
    ] = ""


class SubGroup(WireStruct, frozen=True, gc=False):
    """A part of a pod group with a minimum of its own; sub-groups form a tree."""

    name: Annotated[str, Meta(extra_json_schema={"minLength": 1, "pattern": SUBGROUP_NAME})]
    parent: Annotated[
        str | None,
        Meta(description="Name of the sub-group above.", extra_json_schema={"pattern": SUBGROUP_NAME}),
    ] = None
    min_member: Annotated[
        Int32 | None,
        Meta(description="Pods needed to start; not with minSubGroup.", extra_json_schema=_NOT_NEGATIVE),
    ] = None
    min_sub_group: Annotated[
        Int32 | None,
        Meta(description="Direct sub-groups needed to start; not with minMember.", extra_json_schema=_NOT_NEGATIVE),
    ] = None
    topology_constraint: TopologyConstraint | None = None


class PodGroupSpec(WireStruct, frozen=True, gc=False):
    """What has to run together, for whom and how important."""

    min_member: Annotated[
        Int32 | None,
        Meta(description="Pods needed to start; not with minSubGroup.", extra_json_schema=_NOT_NEGATIVE),
    ] = None
    min_sub_group: Annotated[
        Int32 | None,
        Meta(description="Direct sub-groups needed to start; not with minMember.", extra_json_schema=_NOT_NEGATIVE),
    ] = None
    queue: Annotated[str, Meta(description="Queue that is charged.")] = ""
    priority_class_name: str = ""
    preemptibility: Annotated[
        str | None,
        Meta(
            description="Whether it may be preempted; if absent, when its priority is below 100.",
            extra_json_schema={"enum": [PREEMPTIBLE, NON_PREEMPTIBLE]},
        ),
    ] = None
    mark_unschedulable: Annotated[
        bool | None, Meta(description="Whether its pods are marked when they can't be placed; true if absent.")
    ] = None
    scheduling_backoff: Annotated[
        Int32 | None, Meta(description="Cycles tried before it is set aside: 1, or -1 (default) for never.")
    ] = None
    preemption_delay: Annotated[
        str | None, Meta(description="Duration that it waits before it may preempt others.")
    ] = None
    staleness_grace_period: Annotated[
        str | None,
        Meta(description="Duration that it may run below its minimum before it is evicted; negative: for ever."),
    ] = None
    topology_constraint: TopologyConstraint | None = None
    sub_groups: list[SubGroup] | None = None


class ResourcesStatus(WireStruct, frozen=True, gc=False):
    """Sums over the pods of the group."""

    allocated: ResourceList | None = None
    allocated_non_preemptible: ResourceList | None = None
    requested: ResourceList | None = None


class QueueDetails(WireStruct, frozen=True, gc=False):
    """The queue's numbers when it refused the group."""

    name: str = ""
    queue_requested_resources: ResourceList | None = None
    queue_deserved_resources: ResourceList | None = None
    queue_allocated_resources: ResourceList | None = None
    queue_allocated_non_preemptible_resources: ResourceList | None = None
    queue_resource_limits: ResourceList | None = None
    pod_group_requested_resources: ResourceList | None = None
    pod_group_requested_non_preemptible_resources: ResourceList | None = None


class ReasonDetails(WireStruct, frozen=True, gc=False):
    """Numbers behind a reason, for programs."""

    queue_details: QueueDetails | None = None


class SchedulingReason(WireStruct, frozen=True, gc=False):
    """One reason why the group waits."""

    reason: str = ""
    message: str = ""
    details: ReasonDetails | None = None


class SchedulingCondition(WireStruct, frozen=True, gc=False):
    """Why the group can't be placed in one node pool."""

    type: str = ""
    node_pool: str = ""
    reason: Annotated[str, Meta(description="Superseded by ``reasons``.")] = ""
    message: Annotated[str, Meta(description="Superseded by ``reasons``.")] = ""
    reasons: list[SchedulingReason] | None = None
    status: str = ""
    transition_id: str = field(default="", name="transitionID")
    last_transition_time: Time | None = None


class PodGroupCondition(WireStruct, frozen=True, gc=False):
    """One condition of a group: not metav1.Condition, it has ``transitionID`` and needs nothing."""

    type: str = ""
    status: str = ""
    transition_id: str = field(default="", name="transitionID")
    last_transition_time: Time | None = None
    reason: str = ""
    message: str = ""


class PodGroupStatus(WireStruct, frozen=True, gc=False):
    """What is observed of a group."""

    resources_status: ResourcesStatus | None = None
    scheduling_conditions: list[SchedulingCondition] | None = None
    conditions: list[PodGroupCondition] | None = None


class PodGroup(WireStruct, frozen=True, gc=False):
    """Pods that start together or not at all; they name it by annotation."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()


DEFINITION = Definition(
    group=SCHEDULING_GROUP,
    version="v2alpha2",
    kind="PodGroup",
    plural="podgroups",
    short_names=("pg",),
    namespaced=True,
    has_status=True,
    type=PodGroup,
)
