"""Devices as records: slices, classes, selectors and DeviceTaintRules; wire objects in, slim records out.

What most devices have in common is kept once: 80,000 devices differ in a few attributes only. Binding conditions are
what devices of a claim have to report before pods are bound with them (KEP-5007).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from scheduler.core.convert import constraints
from scheduler.core.model.devices import (
    Awaited,
    Capacity,
    DeviceClassRecord,
    DeviceKind,
    DevicePlace,
    DeviceRecord,
    DeviceTaint,
    Draws,
    Policy,
    SliceRecord,
    TaintRuleRecord,
    Value,
)
from wire.core import NodeSelector
from wire.quantity import MalformedQuantity, parse_nano
from wire.resource import (
    Counter,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceClass,
    DeviceRequestAllocationResult,
    DeviceSelector,
    DeviceTaintRule,
    DeviceTaintSelector,
    ResourceClaimStatus,
    ResourceSlice,
    Written,
)

#: Kubernetes' own limit (resource/v1), of conditions that have to be true and of those that tell a failure.
MOST_CONDITIONS: Final = 4
#: Conditions of one device that are read: its driver may write others.
_MOST_READ: Final = 64
_TRUE: Final = "True"


def awaited(conditions: Sequence[str] | None, failures: Sequence[str] | None) -> Awaited | None:
    """What is waited for; nothing where no condition has to be true, as kube-scheduler has it."""
    return Awaited(tuple(conditions), tuple(failures or ())) if conditions else None


def progress(status: ResourceClaimStatus) -> tuple[tuple[str, ...], str]:
    """Conditions that are not true yet, each with its device; and the failure that a device reports, "" for none."""
    results = (status.allocation.devices.results if status.allocation is not None else None) or ()
    waiting = [each for each in results if each.binding_conditions]
    if not waiting:
        return (), ""
    reported = {
        (each.driver, each.pool, each.device, each.share_id or ""): {
            found.type for found in (each.conditions or ())[:_MOST_READ] if found.status == _TRUE
        }
        for each in status.devices or ()
    }
    pending: list[str] = []
    for result in waiting:
        true = reported.get((result.driver, result.pool, result.device, result.share_id or ""), set[str]())
        failed = next((each for each in result.binding_failure_conditions or () if each in true), "")
        if failed:
            return (), _told(result, failed)
        pending += [_told(result, each) for each in result.binding_conditions or () if each not in true]
    return tuple(pending), ""


def _told(result: DeviceRequestAllocationResult, condition: str) -> str:
    return f"{condition} of device {result.driver}/{result.pool}/{result.device}"


#: Kubernetes' own limits (resource/v1): selectors of a class or a request, and characters of an expression.
MOST_SELECTORS = 32
LONGEST_EXPRESSION = 10 * 1024


def device_class_record(written: DeviceClass) -> DeviceClassRecord:
    """Read a class. One with a selector that can't be read serves nobody, and says which."""
    selectors, wrong = read_selectors(written.spec.selectors)
    configs = ((each.opaque.driver, each.opaque.parameters) for each in written.spec.config or () if each.opaque)
    return DeviceClassRecord(
        name=written.metadata.name,
        created=written.metadata.creation_timestamp or "",
        selectors=selectors,
        configs=tuple((driver, msgspec.json.encode(parameters).decode()) for driver, parameters in configs),
        extended_resource=written.spec.extended_resource_name or "",
        wrong=f"spec.{wrong}" if wrong else "",
    )


def read_selectors(written: Iterable[DeviceSelector] | None) -> tuple[tuple[str, ...], str]:
    """The expressions, and the field that can't be read ("" if all can)."""
    listed = tuple(written or ())
    if len(listed) > MOST_SELECTORS:
        return (), f"selectors: {len(listed)}, at most {MOST_SELECTORS} are read"
    for number, selector in enumerate(listed):
        if selector.cel is None:
            return (), f"selectors[{number}].cel"
        if len(selector.cel.expression.encode()) > LONGEST_EXPRESSION:
            return (), f"selectors[{number}].cel.expression: longer than {LONGEST_EXPRESSION} bytes"
    return tuple(selector.cel.expression for selector in listed if selector.cel is not None), ""


def taint_rule_record(written: DeviceTaintRule) -> TaintRuleRecord:
    """Read a rule. One without a selector selects all devices: kube-scheduler 1.36 takes it so.

    The comment of its API says that such a rule selects none, and the controller that evicts pods goes by that.
    """
    selector, taint = written.spec.device_selector or DeviceTaintSelector(), written.spec.taint
    return TaintRuleRecord(
        name=written.metadata.name,
        taint=DeviceTaint(taint.key, taint.value, taint.effect),
        driver=selector.driver,
        pool=selector.pool,
        device=selector.device,
    )


def slice_record(written: ResourceSlice) -> SliceRecord:
    """Read a slice. ``wrong`` names what keeps all of its pool from being used."""
    spec, wrong = written.spec, ""
    place = _place(spec.node_name, is_everywhere=bool(spec.all_nodes), selector=spec.node_selector)
    counters: Draws = ()
    try:
        counters = tuple((each.name, _counters(each.counters)) for each in spec.shared_counters or ())
    except MalformedQuantity as error:
        wrong = f"spec.sharedCounters: {error}"
    if any(len(selector.node_selector_terms or ()) > 1 for selector in _selectors(written)):
        wrong = "nodeSelector: has several terms"
    if not 0 <= spec.pool.resource_slice_count <= 1 << 31:
        wrong = f"spec.pool.resourceSliceCount: {spec.pool.resource_slice_count}"
    return SliceRecord(
        name=written.metadata.name,
        driver=spec.driver,
        pool=spec.pool.name,
        generation=spec.pool.generation,
        slices=spec.pool.resource_slice_count,
        place=place,
        devices=tuple(
            _device(each, spec.driver, of_device=bool(spec.per_device_node_selection)) for each in spec.devices or ()
        ),
        counters=counters,
        wrong=wrong,
    )


def _selectors(written: ResourceSlice) -> Iterable[NodeSelector]:
    for selector in (written.spec.node_selector, *(device.node_selector for device in written.spec.devices or ())):
        if selector is not None:
            yield selector


def _device(device: Device, driver: str, *, of_device: bool) -> DeviceRecord:
    capacity: tuple[tuple[str, Capacity], ...] = ()
    draws: Draws = ()
    unsupported = next(iter(_unsupported(device)), "")
    try:
        capacity = tuple(sorted((name, _capacity(each)) for name, each in (device.capacity or {}).items()))
        draws = tuple((each.counter_set, _counters(each.counters)) for each in device.consumes_counters or ())
    except MalformedQuantity as error:
        unsupported = str(error)
    return DeviceRecord(
        name=device.name,
        kind=DeviceKind(
            driver=driver,
            attributes=tuple(_attribute(name, each) for name, each in sorted((device.attributes or {}).items())),
            capacity=capacity,
            is_shared=bool(device.allow_multiple_allocations),
        ),
        taints=tuple(DeviceTaint(each.key, each.value, each.effect) for each in device.taints or ()),
        draws=draws,
        place=_place(device.node_name, is_everywhere=bool(device.all_nodes), selector=device.node_selector)
        if of_device
        else None,
        awaited=awaited(device.binding_conditions, device.binding_failure_conditions),
        binds_to_node=bool(device.binds_to_node),
        unsupported=unsupported,
    )


def _unsupported(device: Device) -> Iterable[str]:
    if device.node_allocatable_resource_mappings:
        yield "nodeAllocatableResourceMappings"
    for conditions in (device.binding_conditions, device.binding_failure_conditions):
        if len(conditions or ()) > MOST_CONDITIONS:
            yield f"more than {MOST_CONDITIONS} binding conditions"


def _place(node: str | None, *, is_everywhere: bool, selector: NodeSelector | None) -> DevicePlace | None:
    """As kube-scheduler reads them: the name before all nodes, and that before the selector."""
    if node:
        return DevicePlace(node=node)
    if is_everywhere:
        return DevicePlace(is_everywhere=True)
    return None if selector is None else DevicePlace(terms=constraints.terms(selector))


def _attribute(name: str, written: DeviceAttribute) -> tuple[str, Value]:
    if written.integer is not None:
        return _kept(name, "int", written.integer)
    if written.boolean is not None:
        return _kept(name, "bool", written.boolean)
    if written.string is not None:
        return _kept(name, "string", written.string)
    return _kept(name, "version", written.version) if written.version is not None else _kept(name, "", "")


@lru_cache(maxsize=16384)
def _kept(name: str, kind: str, value: int | bool | str) -> tuple[str, Value]:
    return name, Value(kind, value)


def _counters(written: Mapping[str, Counter] | None) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((name, parse_nano(each.value)) for name, each in (written or {}).items()))


def _capacity(written: DeviceCapacity) -> Capacity:
    policy = written.request_policy
    if policy is None:
        return _plain(written.value)
    span = policy.valid_range
    return Capacity(
        parse_nano(written.value),
        Policy(
            default_nano=_nano(policy.default),
            values_nano=tuple(map(parse_nano, policy.valid_values or ())),
            least_nano=None if span is None else _nano(span.min),
            most_nano=None if span is None else _nano(span.max),
            step_nano=None if span is None else _nano(span.step),
        ),
    )


@lru_cache(maxsize=4096)
def _plain(value: Written) -> Capacity:
    return Capacity(parse_nano(value))


def _nano(value: Written | None) -> int | None:
    return None if value is None else parse_nano(value)
