"""ResourceClaims, slices of devices and device classes (resource.k8s.io/v1), in part: the fields that decisions read.

Opaque parameters of drivers are kept as they are: they are copied from a class or a claim into an allocation.
"""

from __future__ import annotations

from typing import Any

import msgspec

from wire.core import Condition, NodeSelector, ObjectMeta, WireStruct

#: A quantity, as it is written.
Written = str | int | float


class OpaqueDeviceConfiguration(WireStruct, frozen=True, gc=False):
    driver: str = ""
    parameters: Any = None


class DeviceClaimConfiguration(WireStruct, frozen=True, gc=False):
    requests: list[str] | None = None
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClassConfiguration(WireStruct, frozen=True, gc=False):
    opaque: OpaqueDeviceConfiguration | None = None


class CELDeviceSelector(WireStruct, frozen=True, gc=False):
    expression: str = ""


class DeviceSelector(WireStruct, frozen=True, gc=False):
    cel: CELDeviceSelector | None = None


class DeviceToleration(WireStruct, frozen=True, gc=False):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class CapacityRequirements(WireStruct, frozen=True, gc=False):
    requests: dict[str, Written] | None = None


class ExactDeviceRequest(WireStruct, frozen=True, gc=False):
    device_class_name: str = ""
    selectors: list[DeviceSelector] | None = None
    allocation_mode: str = ""
    count: int = 0
    admin_access: bool | None = None
    tolerations: list[DeviceToleration] | None = None
    capacity: CapacityRequirements | None = None


class DeviceSubRequest(WireStruct, frozen=True, gc=False):
    name: str = ""
    device_class_name: str = ""
    selectors: list[DeviceSelector] | None = None
    allocation_mode: str = ""
    count: int = 0
    tolerations: list[DeviceToleration] | None = None
    capacity: CapacityRequirements | None = None


class DeviceRequest(WireStruct, frozen=True, gc=False):
    name: str = ""
    exactly: ExactDeviceRequest | None = None
    first_available: list[DeviceSubRequest] | None = None


class DeviceConstraint(WireStruct, frozen=True, gc=False):
    requests: list[str] | None = None
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceClaim(WireStruct, frozen=True, gc=False):
    requests: list[DeviceRequest] | None = None
    constraints: list[DeviceConstraint] | None = None
    config: list[DeviceClaimConfiguration] | None = None


class ResourceClaimSpec(WireStruct, frozen=True, gc=False):
    devices: DeviceClaim = DeviceClaim()


class DeviceRequestAllocationResult(WireStruct, frozen=True, gc=False):
    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    tolerations: list[DeviceToleration] | None = None
    binding_conditions: list[str] | None = None
    binding_failure_conditions: list[str] | None = None
    share_id: str | None = msgspec.field(default=None, name="shareID")
    consumed_capacity: dict[str, Written] | None = None


class DeviceAllocationConfiguration(WireStruct, frozen=True, gc=False):
    source: str = ""
    requests: list[str] | None = None
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceAllocationResult(WireStruct, frozen=True, gc=False):
    results: list[DeviceRequestAllocationResult] | None = None
    config: list[DeviceAllocationConfiguration] | None = None


class AllocationResult(WireStruct, frozen=True, gc=False):
    devices: DeviceAllocationResult = DeviceAllocationResult()
    node_selector: NodeSelector | None = None
    allocation_timestamp: str | None = None


class ResourceClaimConsumerReference(WireStruct, frozen=True, gc=False):
    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class AllocatedDeviceStatus(WireStruct, frozen=True, gc=False):
    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str | None = msgspec.field(default=None, name="shareID")
    conditions: list[Condition] | None = None


class ResourceClaimStatus(WireStruct, frozen=True, gc=False):
    allocation: AllocationResult | None = None
    reserved_for: list[ResourceClaimConsumerReference] | None = None
    devices: list[AllocatedDeviceStatus] | None = None


class ResourceClaim(WireStruct, frozen=True, gc=False):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()


class ResourceClaimTemplateSpec(WireStruct, frozen=True, gc=False):
    spec: ResourceClaimSpec = ResourceClaimSpec()


class ResourceClaimTemplate(WireStruct, frozen=True, gc=False):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimTemplateSpec = ResourceClaimTemplateSpec()


class DeviceClassSpec(WireStruct, frozen=True, gc=False):
    selectors: list[DeviceSelector] | None = None
    config: list[DeviceClassConfiguration] | None = None
    extended_resource_name: str | None = None


class DeviceClass(WireStruct, frozen=True, gc=False):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceClassSpec = DeviceClassSpec()


class ResourcePool(WireStruct, frozen=True, gc=False):
    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class Counter(WireStruct, frozen=True, gc=False):
    value: Written = 0


class CounterSet(WireStruct, frozen=True, gc=False):
    name: str = ""
    counters: dict[str, Counter] | None = None


class DeviceCounterConsumption(WireStruct, frozen=True, gc=False):
    counter_set: str = ""
    counters: dict[str, Counter] | None = None


class CapacityRequestPolicyRange(WireStruct, frozen=True, gc=False):
    min: Written | None = None
    max: Written | None = None
    step: Written | None = None


class CapacityRequestPolicy(WireStruct, frozen=True, gc=False):
    default: Written | None = None
    valid_values: list[Written] | None = None
    valid_range: CapacityRequestPolicyRange | None = None


class DeviceCapacity(WireStruct, frozen=True, gc=False):
    value: Written = 0
    request_policy: CapacityRequestPolicy | None = None


class DeviceAttribute(WireStruct, frozen=True, gc=False):
    """One of these is set. Lists (alpha in 1.36) are not read: the attribute is there and has no value."""

    integer: int | None = msgspec.field(default=None, name="int")
    boolean: bool | None = msgspec.field(default=None, name="bool")
    string: str | None = None
    version: str | None = None


class DeviceTaint(WireStruct, frozen=True, gc=False):
    key: str = ""
    value: str = ""
    effect: str = ""


class DeviceTaintSelector(WireStruct, frozen=True, gc=False):
    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class DeviceTaintRuleSpec(WireStruct, frozen=True, gc=False):
    device_selector: DeviceTaintSelector | None = None
    taint: DeviceTaint = DeviceTaint()


class DeviceTaintRule(WireStruct, frozen=True, gc=False):
    """resource.k8s.io/v1beta2; the other kinds here are v1."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceTaintRuleSpec = DeviceTaintRuleSpec()


class Device(WireStruct, frozen=True, gc=False):
    name: str = ""
    attributes: dict[str, DeviceAttribute] | None = None
    capacity: dict[str, DeviceCapacity] | None = None
    consumes_counters: list[DeviceCounterConsumption] | None = None
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: list[DeviceTaint] | None = None
    binds_to_node: bool | None = None
    binding_conditions: list[str] | None = None
    binding_failure_conditions: list[str] | None = None
    allow_multiple_allocations: bool | None = None
    node_allocatable_resource_mappings: dict[str, Any] | None = None


class ResourceSliceSpec(WireStruct, frozen=True, gc=False):
    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    devices: list[Device] | None = None
    per_device_node_selection: bool | None = None
    shared_counters: list[CounterSet] | None = None


class ResourceSlice(WireStruct, frozen=True, gc=False):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceSliceSpec = ResourceSliceSpec()
