"""A story: nodes, pods that run, one that is to be placed, and where it has to go or why it has to wait."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.e2e.bare import Bare, Object, node, reasons, settled

NAMESPACE: Final = "story"
OTHER: Final = "story-of-others"
NAMESPACES: Final[Mapping[str, Mapping[str, str]]] = {NAMESPACE: {"team": "ours"}, OTHER: {"team": "theirs"}}
ZONE: Final = "zone"
#: The pod that is to be placed.
NEW: Final = "new"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_SETTLED_WITHIN_S: Final = 90.0


@dataclass(frozen=True, slots=True)
class Change:
    """What happens while the pod waits: one object is made, patched or deleted. ``kind``: node or pod."""

    kind: str
    verb: str
    name: str = ""
    body: Object = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Story:
    """``goes``: nodes of which the pod gets one. ``says``: why it waits, in kube-scheduler's words after a number.

    With ``then`` it waits first, and goes after the change.
    """

    title: str
    nodes: Sequence[Object]
    pod: Object
    goes: Sequence[str] = ()
    says: str = ""
    running: Sequence[Object] = ()
    then: Change | None = None

    @property
    def is_merged(self) -> bool:
        """Whether the API server makes another selector of a term: plug-ins don't look at such keys."""
        return "atchLabelKeys" in json.dumps(self.pod["spec"].get("affinity"))

    async def told_to(self, cluster: Bare, scheduler: str) -> None:
        """Play it for one scheduler. Raises AssertionError for what does not come about."""
        await cluster.nodes(self.nodes)
        await cluster.seen()
        await cluster.pods(self.running)
        await cluster.pod({**self.pod, "spec": {**self.pod["spec"], "schedulerName": scheduler}})
        if self.says:
            await self._waits(cluster)
        if self.then is not None:
            await _carry_out(cluster, self.then)
        if self.goes:
            await self._goes(cluster)

    async def _waits(self, cluster: Bare) -> None:
        count, words = self.says.split(" ", 1)
        last = ("", "")

        async def says() -> bool | None:
            nonlocal last
            last = await cluster.verdict(NAMESPACE, NEW)
            return reasons(last[1]).get(words) == int(count) or None

        assert await settled(says, within_s=_SETTLED_WITHIN_S), f"it has to say {self.says!r}: {last}"

    async def _goes(self, cluster: Bare) -> None:
        last = ("", "")

        async def is_bound() -> bool | None:
            nonlocal last
            last = await cluster.verdict(NAMESPACE, NEW)
            return bool(last[0]) or None

        assert await settled(is_bound, within_s=_SETTLED_WITHIN_S), f"it has to go to one of {self.goes}: {last}"
        assert last[0] in self.goes


async def _carry_out(cluster: Bare, change: Change) -> None:
    match change.kind, change.verb:
        case "node", "make":
            await cluster.nodes([change.body])
        case "node", "patch":
            await cluster.core.patch_node(change.name, change.body)
        case "pod", "make":
            await cluster.pod(change.body)
        case "pod", "patch":
            await cluster.core.patch_namespaced_pod(change.name, NAMESPACE, change.body)
        case "pod", "end":
            await cluster.end(NAMESPACE, change.name, grace_s=0)
        case _:
            raise ValueError(f"nothing is known of {change}")


def nodes(names: str, **labels: str) -> list[Object]:
    """Alike nodes. ``zone="z1 z2"``: one value each; ``-``: without the label."""
    named = names.split()
    made = []
    for number, name in enumerate(named):
        values = {key: value.split() for key, value in labels.items()}
        each = {key: value[number] if len(value) > 1 else value[0] for key, value in values.items()}
        made.append(node(name, labels={key: value for key, value in each.items() if value != "-"}))
    return made


def pod(name: str = NEW, *, on: str = "", namespace: str = NAMESPACE, **parts: Any) -> Object:
    """A pod. ``on``: it runs there. ``labels``, ``asks`` (requests) and ``ports`` aside, parts go into its spec."""
    labels, asks, ports = parts.pop("labels", {}), parts.pop("asks", {}), parts.pop("ports", [])
    whole = {key: amount for key, amount in asks.items() if "/" in key}
    container = {"name": "main", "image": "app", "resources": {"requests": asks, "limits": whole}, "ports": ports}
    bound = {"nodeName": on} if on else {}
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0, **bound, **parts},
    }


def pods(places: str, **parts: Any) -> list[Object]:
    """Alike pods that run, one on each node that is named, as often as it is named."""
    return [pod(f"running-{number}", on=place, **parts) for number, place in enumerate(places.split())]


def port(number: int, protocol: str = "TCP", address: str = "") -> Object:
    """A port of the host."""
    at = {"hostIP": address} if address else {}
    return {"containerPort": number, "hostPort": number, "protocol": protocol, **at}


def matching(key: str, operator: str, *values: str) -> Object:
    """A selector of one expression."""
    return {"matchExpressions": [expression(key, operator, *values)]}


def expression(key: str, operator: str, *values: str) -> Object:
    """An expression, of nodes or of pods."""
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def near(*terms: Object) -> Object:
    """Required affinity to pods."""
    return {"podAffinity": {_REQUIRED: list(terms)}}


def apart(*terms: Object) -> Object:
    """Required anti-affinity to pods."""
    return {"podAntiAffinity": {_REQUIRED: list(terms)}}


def on_nodes(*terms: Object) -> Object:
    """Required affinity to nodes."""
    return {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": list(terms)}}}


def term(selector: Object, key: str = ZONE, **others: Any) -> Object:
    """A term on pods."""
    return {"labelSelector": selector, "topologyKey": key, **others}


def spread(key: str, skew: int, selector: Object | None = None, **others: Any) -> Object:
    """A spread constraint that has to hold, over pods with ``app: a``."""
    return {
        "topologyKey": key,
        "maxSkew": skew,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "a"}} if selector is None else selector,
        **others,
    }
