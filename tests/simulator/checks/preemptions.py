"""Records of nominations for the checker's tests, made without the product's code."""

from __future__ import annotations

import json
from typing import Any

from simulator.checks.checker import NODES, NOMINATIONS
from tests.simulator.made_up import NODE, Story, node, pod, version

Nomination = dict[str, Any]


def nomination(
    nominees: str, victims: str, *, id_: str = "", at: str = NODE, devices: Any = (), action: str = "consolidation"
) -> Nomination:
    """Room for some pods by the going of others, all on one node; names are separated by spaces."""
    return {
        "id": id_ or f"for {nominees}",
        "action": action,
        "namespace": "team",
        "places": [[f"=uid-{name}", at, *([list(devices)] if devices else [])] for name in nominees.split()],
        "victims": [[f"=uid-{name}", "team", name, NODE, f"=owner-{name}"] for name in victims.split()],
    }


def record(*nominations: Nomination, at: int = 0, text: str | None = None) -> dict[str, Any]:
    """A version of the ConfigMap."""
    data = {"nominations": json.dumps({"nominations": list(nominations), "evicted": {}}) if text is None else text}
    raw = {"metadata": {"namespace": "kai-scheduler", "name": "moorage-nominations", "uid": "uid-room"}, "data": data}
    return version(raw, at) if at else raw


def holding(name: str, gpus: int = 1, **more: Any) -> dict[str, Any]:
    """A pod that asks for whole GPUs, bound unless it says otherwise."""
    limits = {"limits": {"nvidia.com/gpu": str(gpus)}}
    return pod(name, containers=[{"name": "main", "resources": limits}], **more)


class PreemptionStory(Story):
    """A node of two GPUs, both in use by ``v`` and ``w``; ``h``, ``g`` and ``x`` wait for one each."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.number = 10
        self.sees(node(gpus=2), kind=NODES)
        for name in "vw":
            self.sees(holding(name))
        for name in "hgx":
            self.sees(holding(name, node=""))

    def _next(self) -> int:
        self.number += 1
        return self.number

    def records(self, *nominations: Nomination, at: int = 0) -> PreemptionStory:
        """The record is written, and seen at once."""
        self.sees(record(*nominations, at=at or self._next()), kind=NOMINATIONS)
        return self

    def evicts(self, name: str, code: int = 201) -> PreemptionStory:
        self.writes("create", "pods", name, subresource="eviction", code=code, version=self._next())
        return self

    def goes(self, name: str, **more: Any) -> PreemptionStory:
        """It is gone, or (a pod that waits) was deleted."""
        self.sees(version(holding(name, **more), self._next()), event="DELETED")
        return self

    def binds(self, name: str, **more: Any) -> PreemptionStory:
        self.sees(version(holding(name, **more), self._next()))
        return self

    def later(self, seconds: float) -> PreemptionStory:
        self.after(seconds)
        return self
