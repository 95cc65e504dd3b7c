"""Queue, ``scheduling.run.ai/v2`` (kai-contract, section 2.1 and erratum 2)."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Annotated

from msgspec import Meta

from wire.core import ObjectMeta, WireStruct
from wire.crds.definition import Column, Definition, ResourceList, Time
from wire.names import SCHEDULING_GROUP

#: What ``spec.priority`` means when it is absent.
DEFAULT_PRIORITY = 100
#: ``quota`` and ``limit`` of this value: as much as there is.
UNLIMITED = -1.0
#: Whole units that amounts are counted in, per unit on the wire: millicores, bytes per megabyte, nano of a device.
UNITS = {"cpu": 1, "memory": 10**6, "gpu": 10**9}
#: Weights are counted in millionths.
WEIGHT_UNITS = 10**6
#: Amounts and weights of this many units and more have no meaning: sums of them are to stay within 63 bits.
TOO_MANY_UNITS = 1 << 60


def counted(value: float, units: int) -> int | None:
    """An amount or a weight in whole ``units``, cut to a whole number; None if it has no meaning.

    It is read as the shortest decimal that prints as the same float: a tenth of a GPU is a tenth exactly.
    """
    if not math.isfinite(value) or value < 0:
        return None
    exact = Fraction(repr(value)) * units
    return math.floor(exact) if exact <= TOO_MANY_UNITS - 1 else None


class QueueResource(WireStruct, frozen=True, gc=False):
    """One resource of a queue. Floats only here, because the wire has them; absent means 0."""

    quota: Annotated[float | None, Meta(description="Guaranteed amount; -1 is unlimited, 0 guarantees nothing.")] = None
    over_quota_weight: Annotated[
        float | None, Meta(description="Share of what is left above all quotas; 0 never gets any.")
    ] = None
    limit: Annotated[float | None, Meta(description="Most that may be in use; -1 is unlimited, 0 allows nothing.")] = (
        None
    )


class QueueResources(WireStruct, frozen=True, gc=False):
    """What a queue may use."""

    cpu: Annotated[QueueResource | None, Meta(description="In thousandths of a core.")] = None
    memory: Annotated[QueueResource | None, Meta(description="In megabytes of 10^6 bytes.")] = None
    gpu: Annotated[QueueResource | None, Meta(description="In devices; parts of a device may be given.")] = None


class QueueSpec(WireStruct, frozen=True, gc=False):
    """What an administrator says of a queue."""

    display_name: Annotated[str, Meta(description="Name for people.")] = ""
    parent_queue: Annotated[str, Meta(description="Name of the parent; empty at the top.")] = ""
    resources: Annotated[QueueResources | None, Meta(description="Quota, weight and limit by resource.")] = None
    priority: Annotated[int | None, Meta(description="Higher is served first and reclaimed last; 100 if absent.")] = (
        None
    )
    preempt_min_runtime: Annotated[
        str | None, Meta(description="Duration that a pod group of this queue runs before it may be preempted.")
    ] = None
    reclaim_min_runtime: Annotated[
        str | None, Meta(description="Duration that a pod group of this queue runs before it may be reclaimed.")
    ] = None


class QueueCondition(WireStruct, frozen=True, gc=False):
    """One condition of a queue: not metav1.Condition, it has ``lastProbeTime`` and needs type and status only."""

    type: str
    status: str
    last_probe_time: Time | None = None
    last_transition_time: Time | None = None
    reason: str = ""
    message: str = ""


class QueueStatus(WireStruct, frozen=True, gc=False):
    """What is observed of a queue and of all queues below it."""

    child_queues: Annotated[list[str] | None, Meta(description="Names of the queues whose parent is this one.")] = None
    allocated: Annotated[ResourceList | None, Meta(description="In use by placed pods.")] = None
    allocated_non_preemptible: Annotated[
        ResourceList | None, Meta(description="Of ``allocated``, what can't be taken back.")
    ] = None
    requested: Annotated[ResourceList | None, Meta(description="Asked by placed and waiting pods.")] = None
    conditions: list[QueueCondition] | None = None


class Queue(WireStruct, frozen=True, gc=False):
    """A share of the cluster; queues form a tree."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: QueueSpec = QueueSpec()
    status: QueueStatus = QueueStatus()


DEFINITION = Definition(
    group=SCHEDULING_GROUP,
    version="v2",
    kind="Queue",
    plural="queues",
    namespaced=False,
    has_status=True,
    type=Queue,
    columns=(
        Column(name="Priority", json_path=".spec.priority"),
        Column(name="Parent", json_path=".spec.parentQueue"),
        Column(name="Children", json_path=".status.childQueues"),
        Column(name="DisplayName", json_path=".spec.displayName"),
    ),
)
