"""What becomes of the resources that other systems have left in a node's status: judged on the node and its pods."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

import msgspec

from cli.checks.finding import some_of
from cli.checks.foreign import Offer, foreign_offers
from cli.checks.reader import Raw
from wire import names

_ENDED: Final = frozenset({names.SUCCEEDED, names.FAILED})


class Verdict(msgspec.Struct, frozen=True):
    """Of one resource of a node. ``stays`` says why it is not removed, and is "" where it can be."""

    offer: Offer
    stays: str = ""


def judge(node: Raw, pods: Sequence[Raw], *, also: Collection[str] = ()) -> list[Verdict]:
    """Judge all foreign resources of a node; ``pods`` are those that are bound to it."""
    return [Verdict(offer, _why_it_stays(offer, pods)) for offer in foreign_offers(node, also=also)]


def removal(node: Raw, offers: Sequence[Offer]) -> list[dict[str, Any]]:
    """Return a JSON patch of a node's status that removes them if it is the same node still, and they are as read."""
    patch: list[dict[str, Any]] = [{"op": "test", "path": "/metadata/uid", "value": node["metadata"]["uid"]}]
    for offer in offers:
        for part, amount in (("capacity", offer.capacity), ("allocatable", offer.allocatable)):
            if amount is not None:
                path = f"/status/{part}/{_escaped(offer.resource)}"
                patch += [{"op": "test", "path": path, "value": amount}, {"op": "remove", "path": path}]
    return patch


def _why_it_stays(offer: Offer, pods: Sequence[Raw]) -> str:
    if not offer.is_left_over:
        return f"it is offered (capacity {offer.capacity or 0}, allocatable {offer.allocatable or 0})"
    askers = sorted(_name(pod) for pod in pods if offer.resource in set(_asked(pod)))
    return f"asked for by {some_of(askers)}" if askers else ""


def _asked(pod: Raw) -> Iterator[str]:
    """Names of all resources that a pod asks for that has not ended."""
    if (pod.get("status") or {}).get("phase") in _ENDED:
        return
    spec = pod["spec"]
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        resources = container.get("resources") or {}
        yield from resources.get("limits") or ()
        yield from resources.get("requests") or ()


def _name(pod: Raw) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _escaped(key: str) -> str:
    """Return a key as JSON pointers write it (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")
