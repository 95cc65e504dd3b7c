"""Pods that mount claims, and what is decided on them."""

from __future__ import annotations

from typing import Any

from scheduler.core.cluster import Cluster
from scheduler.core.model.plan import Bind, Explain, Plan
from scheduler.core.model.verdict import Code
from tests.scheduler.core.objects import Fed, claim, pod, volume
from wire.core import Pod

DISK = "disk.csi.example"


def mounting(name: str, *claims: str, ephemeral: str = "", **asked: Any) -> Pod:
    mounted: list[dict[str, Any]] = [
        {"name": f"v{i}", "persistentVolumeClaim": {"claimName": claimed}} for i, claimed in enumerate(claims)
    ]
    if ephemeral:
        mounted.append({"name": ephemeral, "ephemeral": {"volumeClaimTemplate": {}}})
    return pod(name, gpus=1, spec={"volumes": mounted, **asked.pop("spec", {})}, **asked)


def places(plan: Plan) -> dict[str, str]:
    return {entry.placement.name: entry.placement.node for entry in plan.entries if isinstance(entry, Bind)}


def told(made: Cluster, uid: str = "uid-p") -> tuple[Code, str]:
    (verdict,) = (e.verdict for e in made.decide(0).entries if isinstance(e, Explain) and uid in e.pods)
    return verdict.code, verdict.detail


def reasons(made: Cluster, uid: str = "uid-p") -> dict[str, int]:
    (verdict,) = (e.verdict for e in made.decide(0).entries if isinstance(e, Explain) and uid in e.pods)
    return {reason.kind: reason.nodes for reason in verdict.node_reasons}


def disks(count: int, driver: str = DISK) -> list[Fed]:
    made: list[Fed] = []
    for i in range(count):
        made += [claim(f"d{i}", f"pv{i}"), volume(f"pv{i}", of=f"d{i}", csi=(driver, f"h{i}"))]
    return made
