"""What nodes have and containers ask: amounts, also of pods that are being resized, and features (KEP-5328).

Memory is in whole MiB (docs/design/rules.md).
"""

from __future__ import annotations

import random
from typing import Any, Final

from wire import names

_CPU: Final = ("100m", "500m", "0.5", "1", "1500m", "2")
_MEMORY: Final = ("256Mi", "1Gi", "1073741824", "2Gi")
_EXTENDED: Final = "example.com/fpga"
_AMOUNTS_ALWAYS: Final = {"restartPolicy": "Always"}

Spec = dict[str, Any]


def allocatable(r: random.Random) -> dict[str, str]:
    """What a node has; not every node has every resource."""
    has = {
        "cpu": r.choice(("2", "3500m", "4", "8")),
        "memory": r.choice(("3Gi", "8Gi", "16Gi")),
        "pods": r.choice(("2", "5", "10", "10")),
        "ephemeral-storage": r.choice(("1Gi", "10Gi")),
    }
    if r.random() < 0.8:
        has[_EXTENDED] = r.choice(("0", "1", "3", "4"))
    if r.random() < 0.8:
        has[names.GPU_RESOURCE] = r.choice(("1", "4", "8"))
    if r.random() < 0.5:
        has["hugepages-2Mi"] = r.choice(("4Mi", "64Mi"))
    return has


def nothing() -> Spec:
    """A container that asks nothing."""
    return {"containers": [{"name": "c0", "image": "i", "resources": {"requests": {}, "limits": {}}}]}


def containers(r: random.Random) -> Spec:
    """Containers, init containers, sidecars, overhead and what a pod asks as a whole."""
    spec: Spec = {"containers": [_container(r, f"c{i}") for i in range(r.choice((1, 1, 1, 2)))]}
    if r.random() < 0.25:
        spec["initContainers"] = [
            {**_container(r, f"i{i}"), **(_AMOUNTS_ALWAYS if r.random() < 0.5 else {})} for i in range(r.randint(1, 2))
        ]
    if r.random() < 0.1:
        spec["overhead"] = {"cpu": "250m", **({"memory": "128Mi"} if r.random() < 0.5 else {})}
    if r.random() < 0.1:
        spec["resources"] = {"requests": {"cpu": r.choice(("2", "3")), "memory": r.choice(("2Gi", "4Gi"))}}
    return spec


def _container(r: random.Random, name: str) -> Spec:
    asked: dict[str, str] = {}
    if r.random() < 0.6:
        asked["cpu"] = r.choice(_CPU)
    if r.random() < 0.5:
        asked["memory"] = r.choice(_MEMORY)
    if r.random() < 0.15:
        asked["ephemeral-storage"] = r.choice(("512Mi", "512Mi", "2Gi"))
    whole = {}
    if r.random() < 0.07:
        whole[_EXTENDED] = r.choice(("1", "2"))
    if r.random() < 0.1:
        whole[names.GPU_RESOURCE] = r.choice(("1", "2"))
    if r.random() < 0.05:
        whole["hugepages-2Mi"] = r.choice(("2Mi", "16Mi"))
    return {"name": name, "image": "i", "resources": {"requests": {**asked, **whole}, "limits": whole}}


def asked(spec: Spec) -> set[str]:
    """Names of what a pod asks."""
    every = [*spec["containers"], *spec.get("initContainers", ())]
    found = {f"amount {name}" for each in every for name in each["resources"]["requests"]}
    found.add("amount pods")
    found |= {"sidecar" for each in spec.get("initContainers", ()) if "restartPolicy" in each}
    found |= {"init container" for each in spec.get("initContainers", ()) if "restartPolicy" not in each}
    return found | ({"overhead"} & {*spec}) | ({"pod-level resources"} if "resources" in spec else set())


def running_status(r: random.Random, spec: Spec) -> Spec:
    """The status of a pod that runs; now and then it is being resized, or its resize is infeasible."""
    status: Spec = {"phase": r.choice(("Running", "Pending"))}
    if r.random() < 0.15:
        status["containerStatuses"] = [_resized(r, each) for each in spec["containers"]]
        status["initContainerStatuses"] = [_resized(r, each) for each in spec.get("initContainers", ())]
    if "resources" in spec and r.random() < 0.3:
        in_force, allocated = (
            {"cpu": r.choice(("1", "2", "3", "4")), "memory": r.choice(("1Gi", "2Gi", "4Gi", "6Gi"))} for _ in range(2)
        )
        status["resources"], status["allocatedResources"] = {"requests": in_force}, allocated
    if r.random() < 0.05:
        status["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]
    return status


def resizes(pod: Spec) -> set[str]:
    """Names of the resizes of a pod that runs."""
    status = pod["status"]
    is_infeasible = "conditions" in status and "containerStatuses" in status
    found = {"resize": "containerStatuses" in status, "resize of pod": "resources" in status}
    found |= {"resize, infeasible": is_infeasible, "resize of sidecar": bool(status.get("initContainerStatuses"))}
    return {name for name, is_there in found.items() if is_there}


def _resized(r: random.Random, container: Spec) -> Spec:
    """A status; kubelet names all that the container asks in it, of which CPU and memory may be others."""
    asked = container["resources"]["requests"]
    allocated, actual = ({**asked, "cpu": r.choice(_CPU), "memory": r.choice(_MEMORY)} for _ in range(2))
    return {
        "name": container["name"],
        "image": "i",
        "imageID": "",
        "ready": True,
        "restartCount": 0,
        "allocatedResources": allocated,
        "resources": {"requests": actual},
    }


_RESTART_ALL: Final = "RestartAllContainersOnContainerExits"
_FEATURES: Final = (_RESTART_ALL, "UserNamespacesHostNetworkSupport", "ExtendWebSocketsToKubelet", "Unheard")


def node_features(r: random.Random) -> list[str]:
    """What a node declares, features that no pod needs among them; in order, else the API server refuses the node."""
    return sorted(feature for feature in _FEATURES if r.random() < 0.6)


def features(r: random.Random, spec: Spec) -> set[str]:
    """Restart rules, and users of its own in the network of the host; now and then what looks like them."""
    drawn: set[str] = set()
    if r.random() < 0.6:
        action = r.choice(("RestartAllContainers", "RestartAllContainers", "Restart"))
        container = r.choice([*spec["containers"], *spec.get("initContainers", ())])
        container["restartPolicyRules"] = [
            {"action": action, "exitCodes": {"operator": "In", "values": [1]}},
        ]
        drawn |= {"features, restart rules"} if action != "Restart" else set()
    if r.random() < 0.6:
        spec["hostNetwork"], spec["hostUsers"] = r.random() < 0.8, r.random() < 0.2
        is_needed = spec["hostNetwork"] and not spec["hostUsers"]
        drawn |= {"features, users of its own"} if is_needed else set()
    return drawn
