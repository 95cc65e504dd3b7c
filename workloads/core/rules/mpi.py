"""MPIJob v2beta1: its launcher may come after its workers (kai-contract 3.2)."""

from __future__ import annotations

from typing import Final

from workloads.core import fields, walk
from workloads.core.case import Case
from workloads.core.rules import kubeflow
from workloads.core.values import Shape

_LAUNCHER: Final = "Launcher"


def shape(case: Case) -> Shape:
    """As other Kubeflow jobs; with `WaitForWorkersReady` the launcher counts once it exists."""
    found = kubeflow.replicas(case)
    least = fields.count(case.top, kubeflow.MIN_AVAILABLE)
    if least is not None:
        return Shape(minimum=least)
    total = sum(found.values())
    if fields.text(case.top, "spec.launcherCreationPolicy") == "WaitForWorkersReady" and not _has_launcher(case):
        total -= found[_LAUNCHER]
    return Shape(minimum=total)


def _has_launcher(case: Case) -> bool:
    """Whether the launcher's Job is there. A pod whose direct owner is a Job is the launcher itself."""
    if case.chain and fields.text(case.chain[0], "kind") == "Job":
        return True
    name = f"{fields.text(case.top, 'metadata.name')}-launcher"
    return walk.named(case.read, "batch", "Job", name) is not None
