"""ResourceClaims, ResourceSlices and DeviceClasses as the API has them, and records made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from scheduler.core.convert.devices import device_class_record, slice_record, taint_rule_record
from scheduler.core.convert.resource_claims import resource_claim_record
from scheduler.core.model.device_requests import DeviceNeed
from scheduler.core.model.devices import DeviceClassRecord, SliceRecord, TaintRuleRecord
from scheduler.core.model.pod_class import Demand
from scheduler.core.model.records import NodeRecord
from wire.resource import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice

DRIVER = "gpu.example.com"


def node(name: str, **labels: str) -> NodeRecord:
    return NodeRecord(
        name=name,
        uid=f"{name}-uid",
        labels=labels,
        taints=(),
        is_ready=True,
        is_cordoned=False,
        capacity=Demand(),
        pods=110,
    )


def selectors(*expressions: str) -> list[dict[str, Any]]:
    return [{"cel": {"expression": each}} for each in expressions]


def ask(
    name: str = "r", *, count: int | None = 1, cls: str = "gpu", cel: Sequence[str] = (), **more: Any
) -> dict[str, Any]:
    """A request for exactly so many devices, or (None) for all."""
    mode = {"allocationMode": "All"} if count is None else {"allocationMode": "ExactCount", "count": count}
    return {"name": name, "exactly": {"deviceClassName": cls, "selectors": selectors(*cel), **mode, **more}}


def ways(name: str, *asks: dict[str, Any]) -> dict[str, Any]:
    """A request that any of these satisfies, the first that can."""
    listed = [{"name": each["name"], **each["exactly"]} for each in asks]
    return {"name": name, "firstAvailable": listed}


def claim(
    *requests: dict[str, Any], rules: Sequence[dict[str, Any]] = (), name: str = "c", **more: Any
) -> ResourceClaim:
    devices = {"requests": list(requests), "constraints": list(rules), "config": more.pop("config", None)}
    written = {
        "metadata": {"name": name, "namespace": "ns", "uid": f"{name}-uid", **more.pop("metadata", {})},
        "spec": {"devices": devices},
        **more,
    }
    return msgspec.convert(written, ResourceClaim)


def need(*requests: dict[str, Any], rules: Sequence[dict[str, Any]] = ()) -> DeviceNeed:
    """What a claim asks; one that can't be read fails the test."""
    record = resource_claim_record(claim(*requests, rules=rules))
    assert record.need is not None, record.unsupported
    return record.need


def device(name: str, *, attributes: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """A device with attributes by name; text is a string, and ``v1.2.3`` a version."""
    written = {key: _attribute(value) for key, value in (attributes or {}).items()}
    return {"name": name, "attributes": written, **more}


def _attribute(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"bool": value}
    if isinstance(value, int):
        return {"int": value}
    return {"version": value[1:]} if value.startswith("v") and value[1:2].isdigit() else {"string": value}


def written_slice(
    name: str, *devices: dict[str, Any], pool: str = "", generation: int = 1, count: int = 1, **more: Any
) -> ResourceSlice:
    """A slice of a node (``nodeName``, its name by default), or as ``more`` says."""
    if not more.keys() & {"nodeName", "allNodes", "nodeSelector", "perDeviceNodeSelection", "sharedCounters"}:
        more["nodeName"] = name
    spec = {
        "driver": more.pop("driver", DRIVER),
        "pool": {"name": pool or name, "generation": generation, "resourceSliceCount": count},
        "devices": list(devices),
        **more,
    }
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, ResourceSlice)


def devices(name: str, *listed: dict[str, Any], **more: Any) -> SliceRecord:
    return slice_record(written_slice(name, *listed, **more))


def device_class(name: str = "gpu", *expressions: str, config: Sequence[dict[str, Any]] = ()) -> DeviceClassRecord:
    spec = {"selectors": selectors(*expressions), "config": list(config)}
    return device_class_record(msgspec.convert({"metadata": {"name": name}, "spec": spec}, DeviceClass))


def taint_rule(name: str, key: str = "ill", *, effect: str = "NoSchedule", **selector: str) -> TaintRuleRecord:
    """A rule that taints what ``driver``, ``pool`` and ``device`` select."""
    spec = {"deviceSelector": selector, "taint": {"key": key, "effect": effect}}
    return taint_rule_record(msgspec.convert({"metadata": {"name": name}, "spec": spec}, DeviceTaintRule))
