"""What a KAI that starts reads of pods, and what it would do by it (kai-contract 1.8, 1.10, 1.14, errata 8).

For the way back. It shares nothing with our own reading.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Object = dict[str, Any]

RESERVATIONS = "kai-resource-reservation"
PLAIN = "runai-gpu-group"


def groups(pod: Object) -> set[str]:
    """Groups by label: the plain one, or one for each device."""
    labels = pod["metadata"].get("labels") or {}
    return {value for key, value in labels.items() if key in {PLAIN, f"{PLAIN}/{value}"}}


def is_reservation(pod: Object) -> bool:
    return bool(pod["metadata"]["namespace"] == RESERVATIONS)


def deleted_at_its_start(pods: Sequence[Object]) -> list[str]:
    """Pods that the binder's first sync would delete: tenants without reservation, reservations without tenants."""
    deleted = []
    for group in sorted(set().union(*map(groups, pods))):
        members = [pod for pod in pods if group in groups(pod)]
        held = [pod for pod in members if is_reservation(pod)]
        tenants = [
            pod for pod in members if not is_reservation(pod) and pod["status"]["phase"] in {"Running", "Pending"}
        ]
        if not held:
            deleted += [pod["metadata"]["name"] for pod in tenants if pod["status"]["phase"] == "Running"]
        if not tenants:
            deleted += [pod["metadata"]["name"] for pod in held]
    return deleted


def device(pods: Sequence[Object], group: str) -> str:
    """The GPU that the binder would give to a further pod of a group: found by label, whatever its name is."""
    (held,) = [pod for pod in pods if is_reservation(pod) and (pod["metadata"].get("labels") or {}).get(PLAIN) == group]
    assert held["metadata"]["labels"]["app"] == RESERVATIONS
    assert not held["metadata"].get("deletionTimestamp")
    return str(held["metadata"]["annotations"]["run.ai/reserve_for_gpu_index"])


def needed_mib(pod: Object, card_mib: int) -> int:
    """What a pod takes of each of its GPUs, by its live annotations. A node's memory counts in whole hundreds."""
    annotations = pod["metadata"]["annotations"]
    memory = card_mib // 100 * 100
    portion = annotations.get("gpu-fraction")
    return int(float(portion) * memory) if portion else int(annotations["gpu-memory"])


def overbooked(pods: Sequence[Object], card_mib: int) -> list[str]:
    """Groups of which more is used than a GPU has."""
    tenants = [pod for pod in pods if not is_reservation(pod)]
    used = {group: 0 for pod in tenants for group in groups(pod)}
    for pod in tenants:
        for group in groups(pod):
            used[group] += needed_mib(pod, card_mib)
    return sorted(group for group, mib in used.items() if mib > card_mib // 100 * 100)
