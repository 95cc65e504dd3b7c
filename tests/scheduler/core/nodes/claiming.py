"""Pods with ResourceClaims, devices for them, and what is decided on them."""

from __future__ import annotations

from typing import Any

import msgspec

from scheduler.core.cluster import Cluster
from scheduler.core.decide.decide import Decision
from scheduler.core.model.plan import Plan, Prepare
from tests.scheduler.core.device_objects import DRIVER, ask, device, written_slice
from tests.scheduler.core.objects import next_rv, pod
from wire.core import Pod
from wire.resource import DeviceClass, ResourceClaim, ResourceSlice

GPU: DeviceClass = msgspec.convert({"metadata": {"name": "gpu"}, "spec": {}}, DeviceClass)


def offered(node: str, count: int = 1, **more: Any) -> ResourceSlice:
    """A slice with devices d0, d1, ... of a node."""
    return written_slice(node, *(device(f"d{number}") for number in range(count)), **more)


def claimed(
    name: str = "c",
    *requests: dict[str, Any],
    on: tuple[str, str] | None = None,
    by: tuple[str, ...] = (),
    rv: str = "",
    **meta: Any,
) -> ResourceClaim:
    """A claim for one device; allocated ``on`` a node's device, reserved ``by`` pods (UIDs)."""
    status: dict[str, Any] = {"reservedFor": [{"resource": "pods", "name": uid, "uid": uid} for uid in by]}
    if on is not None:
        field = {"key": "metadata.name", "operator": "In", "values": [on[0]]}
        result = {"request": "r", "driver": DRIVER, "pool": on[0], "device": on[1]}
        status["allocation"] = {
            "devices": {"results": [result]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
        }
    made = {
        "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": rv or next_rv(), **meta},
        "spec": {"devices": {"requests": list(requests) or [ask()]}},
        "status": status,
    }
    return msgspec.convert(made, ResourceClaim)


def claiming(name: str, *claims: str, template: str = "", **asked: Any) -> Pod:
    """A pod with claims by name; ``template``: one that is made from a template under this name, "-" not yet."""
    entries: list[dict[str, Any]] = [
        {"name": f"n{number}", "resourceClaimName": each} for number, each in enumerate(claims)
    ]
    if template:
        entries.append({"name": "own", "resourceClaimTemplateName": "t"})
    made = pod(name, spec={"resourceClaims": entries, **asked.pop("spec", {})}, **asked)
    if not template or template == "-":
        return made
    written = msgspec.to_builtins(made)
    written["status"]["resourceClaimStatuses"] = [{"name": "own", "resourceClaimName": template}]
    return msgspec.convert(written, Pod)


def chosen(plan: Plan | Decision) -> dict[str, tuple[str, dict[str, str]]]:
    """Node and device by claim, of each pod whose claims are to be written."""
    return {
        placement.name: (
            placement.node,
            {choice.claim: ",".join(each.device for each in choice.allocation.results) for choice in placement.claims},
        )
        for entry in plan.entries
        if isinstance(entry, Prepare)
        for placement in entry.placements
    }


def reserve(made: Cluster, plan: Plan) -> None:
    """Let a plan's claims be written and seen, as the shell does it."""
    for entry in plan.entries:
        for placement in entry.placements if isinstance(entry, Prepare) else ():
            for choice in placement.claims:
                key = (placement.namespace, choice.claim)
                known = made.claims.claims.get(key)
                assert known is not None
                made.claims.claims.put(
                    msgspec.structs.replace(
                        known,
                        allocation=choice.allocation,
                        reserved_for=(*known.reserved_for, placement.pod_uid),
                        resource_version=next_rv(),
                    )
                )
            made.claims.note_own(placement.pod_uid, placement.rv)
