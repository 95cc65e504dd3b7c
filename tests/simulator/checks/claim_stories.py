"""Claims, slices and pods with claims for the checker's tests, in the order in which they are stored."""

from __future__ import annotations

from typing import Any, Self

from simulator.checks.claims import Claims
from simulator.checks.violations import Findings
from tests.simulator.made_up import pod

DRIVER = "gpu.example.com"


class ClaimStory:
    """Tells what judges claims a story; each object gets the next resourceVersion."""

    def __init__(self) -> None:
        self.findings = Findings()
        self.claims = Claims(self.findings)
        self.now_s = 0.0
        self._version = 0

    def stores(self, kind: str, raw: dict[str, Any], *, is_gone: bool = False) -> Self:
        self._version += 1
        raw["metadata"]["resourceVersion"] = str(self._version)
        assert self.claims.wants(kind)
        self.claims.stored(kind, raw, self.now_s, is_gone=is_gone)
        return self

    def after(self, seconds: float) -> Self:
        self.now_s += seconds
        return self

    def counts(self, node: str, most: int, **draws: int) -> Self:
        """A pool with a counter, of which each device takes some."""
        pool = {"name": node, "generation": 1, "resourceSliceCount": 2}
        spec: dict[str, Any] = {"driver": DRIVER, "nodeName": node, "pool": pool}
        sets = [{"name": "gpu", "counters": {"slices": {"value": str(most)}}}]
        self.stores("resourceslices", {"metadata": {"name": f"{node}-c"}, "spec": {**spec, "sharedCounters": sets}})
        devices = [
            {"name": name, "consumesCounters": [{"counterSet": "gpu", "counters": {"slices": {"value": str(taken)}}}]}
            for name, taken in draws.items()
        ]
        return self.stores("resourceslices", {"metadata": {"name": f"{node}-d"}, "spec": {**spec, "devices": devices}})

    def offers(
        self, node: str, *devices: str, parts_gib: int = 0, generation: int = 1, count: int = 1, uuid: str = ""
    ) -> Self:
        """A slice of a node; with ``parts_gib`` its devices are shared. ``uuid``: of all of them."""
        shared = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": f"{parts_gib}Gi"}}}
        known = {"attributes": {"uuid": {"string": uuid}}} if uuid else {}
        spec = {
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": generation, "resourceSliceCount": count},
            "devices": [{"name": name, **known, **(shared if parts_gib else {})} for name in devices],
        }
        return self.stores("resourceslices", {"metadata": {"name": f"{node}-{generation}"}, "spec": spec})

    def claim(
        self,
        name: str,
        *devices: str,
        by: str = "",
        node: str = "node-0",
        part_gib: int = 0,
        owner: str = "",
        count: int = 1,
        is_gone: bool = False,
        awaits: str = "",
        reports: str = "",
        **meta: Any,
    ) -> Self:
        """A claim with these devices of a node, reserved for the pods ``by``; conditions that they have to report."""
        exactly = {"deviceClassName": "any", "allocationMode": "ExactCount", "count": count}
        owners = [{"kind": "Pod", "name": owner, "uid": f"uid-{owner}"}] if owner else []
        metadata = {"namespace": "team", "name": name, "uid": f"uid-{name}", "ownerReferences": owners, **meta}
        spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
        status: dict[str, Any] = {"reservedFor": [{"name": user, "uid": f"uid-{user}"} for user in by.split()]}
        if devices:
            part = {"consumedCapacity": {"memory": f"{part_gib}Gi"}} if part_gib else {}
            ids = [{"driver": DRIVER, "pool": node, "device": device} for device in devices]
            results = [{"request": "r", **each, "bindingConditions": awaits.split(), **part} for each in ids]
            conditions = [{"type": each, "status": "True"} for each in reports.split()]
            status["devices"] = [{**each, "conditions": conditions} for each in ids]
            term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
            status["allocation"] = {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": [term]}}
        return self.stores("resourceclaims", {"metadata": metadata, "spec": spec, "status": status}, is_gone=is_gone)

    def volume_claim(self, name: str, volume: str = "") -> Self:
        meta = {"namespace": "team", "name": name, "uid": f"uid-{name}"}
        return self.stores("persistentvolumeclaims", {"metadata": meta, "spec": {"volumeName": volume}})

    def gang(self, name: str, minimum: int, *, is_gone: bool = False) -> Self:
        raw = {"metadata": {"namespace": "team", "name": name, "uid": name}, "spec": {"minMember": minimum}}
        return self.stores("podgroups", raw, is_gone=is_gone)

    def waits(self, name: str, *claims: str, **more: Any) -> Self:
        return self.stores("pods", claiming(name, *claims, node="", **more))

    def binds(self, name: str, *claims: str, node: str = "node-0", **more: Any) -> Self:
        return self.stores("pods", claiming(name, *claims, node=node, **more))

    def goes(self, name: str, *claims: str, **more: Any) -> Self:
        return self.stores("pods", claiming(name, *claims, **more), is_gone=True)

    def rests(self) -> Self:
        self.claims.judge_rest(self.now_s)
        return self

    @property
    def broken(self) -> list[str]:
        """What was found, as ``invariant: text``."""
        return [f"{each.invariant}: {each.text}" for each in self.findings.found.values()]


def claiming(name: str, *claims: str, group: str = "", volumes: str = "", **more: Any) -> dict[str, Any]:
    """A pod with these claims, as a member of a gang if it names one."""
    annotations = {"pod-group-name": group} if group else {}
    raw = pod(name, annotations=annotations, **more)
    raw["spec"]["resourceClaims"] = [{"name": each, "resourceClaimName": each} for each in claims]
    raw["spec"]["volumes"] = [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in volumes.split()]
    return raw
