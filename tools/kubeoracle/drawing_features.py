"""Features that nodes declare and pods need (KEP-5328)."""

from __future__ import annotations

import random
from typing import Any, Final

_RESTART_ALL: Final = "RestartAllContainersOnContainerExits"
_FEATURES: Final = (_RESTART_ALL, "UserNamespacesHostNetworkSupport", "ExtendWebSocketsToKubelet", "Unheard")

Spec = dict[str, Any]


def of_node(r: random.Random) -> list[str]:
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
