"""BindRequest, ``scheduling.run.ai/v1alpha2`` (kai-contract, sections 2.3 and 5.1)."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field

from wire.core import ObjectMeta, WireStruct
from wire.crds.definition import Definition, Int32, Opaque, ResourceList
from wire.names import SCHEDULING_GROUP


class ReceivedGPU(WireStruct, frozen=True, gc=False):
    """How many devices, and what portion of each ("0.50": two decimals, for readers)."""

    count: int = 0
    portion: str = ""


class ResourceClaimAllocation(WireStruct, frozen=True, gc=False):
    """What was allocated for a resource claim of the pod, by the claim's name in the pod."""

    name: str = ""
    allocation: Opaque | None = None


class ContainerMapping(WireStruct, frozen=True, gc=False):
    """Which container's extended resource a request of the synthetic claim stands for."""

    container_name: str
    request_name: str
    resource_name: str


class ExtendedResourceClaimAllocation(WireStruct, frozen=True, gc=False):
    """Allocation of the claim that stands for extended resources."""

    allocation: Opaque | None = None
    device_requests: list[Opaque] | None = None
    container_mappings: list[ContainerMapping] | None = None


class NumaZone(WireStruct, frozen=True, gc=False):
    """What a pod is expected to get from one NUMA zone."""

    zone: str
    amount: ResourceList


class BindRequestSpec(WireStruct, frozen=True, gc=False):
    """Where a pod goes and what it gets there."""

    pod_name: str = ""
    selected_node: str = ""
    received_resource_type: Annotated[str, Meta(description="Regular, Fraction or MigInstance.")] = ""
    received_gpu: ReceivedGPU | None = field(default=None, name="receivedGPU")
    selected_gpu_groups: Annotated[list[str] | None, Meta(description="Shared devices, by group id.")] = field(
        default=None, name="selectedGPUGroups"
    )
    resource_claim_allocations: list[ResourceClaimAllocation] | None = None
    extended_resource_claim_allocation: ExtendedResourceClaimAllocation | None = None
    predicted_numa_zones: list[NumaZone] | None = field(default=None, name="predictedNUMAZones")
    backoff_limit: Annotated[Int32 | None, Meta(description="Tries before the request has failed.")] = None


class BindRequestStatus(WireStruct, frozen=True, gc=False):
    """How far the binding is."""

    phase: Annotated[str, Meta(description="Empty, Pending, Succeeded or Failed.")] = ""
    reason: str = ""
    failed_attempts: Int32 = 0


class BindRequest(WireStruct, frozen=True, gc=False):
    """The scheduler's order to the binder, one a pod and named like it."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: BindRequestSpec = BindRequestSpec()
    status: BindRequestStatus = BindRequestStatus()


DEFINITION = Definition(
    group=SCHEDULING_GROUP,
    version="v1alpha2",
    kind="BindRequest",
    plural="bindrequests",
    namespaced=True,
    has_status=True,
    type=BindRequest,
)
