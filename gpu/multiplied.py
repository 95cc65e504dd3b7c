"""Whether a node's device plugin offers each of its GPUs several times, as NVIDIA's with replicas and HAMi's do.

There kubelet is no arbiter any more: two of its devices may be one card. A reservation would hold a part of a card that
kubelet gives to others as well, pods of whole GPUs among them, and no book could tell. So nobody shares there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from wire import names

#: What HAMi's plugin writes of each card begins with its UUID, in all of its formats.
_UUID: Final = "GPU-"
_STRATEGIES: Final = frozenset({"time-slicing", "mps"})


def multiplied(labels: Mapping[str, str], annotations: Mapping[str, str], offered: int) -> str:
    """Say what tells that ``offered`` of ``nvidia.com/gpu`` are more than the node's cards; "" if nothing does.

    A number of cards decides, where one is known: labels of replicas stay behind where nobody renews them, and so does
    HAMi's annotation. Slices of MIG are not meant here.
    """
    if not offered or labels.get(names.NODE_MIG_STRATEGY) == "single":
        return ""
    for name, cards in _cards(labels, annotations).items():
        if cards:
            return f"{offered} {names.GPU_RESOURCE} of {cards} by {name}" if offered > cards else ""
    return _by_replicas(labels)


def slices_are(labels: Mapping[str, str], resource: str) -> bool:
    """Whether the device plugin offers each MIG slice of a resource several times, as feature discovery labels it."""
    return _count(labels.get(f"{resource}.replicas", "")) > 1


def _cards(labels: Mapping[str, str], annotations: Mapping[str, str]) -> dict[str, int]:
    """How many cards the node has, by who says so; 0 where it can't be read."""
    return {
        f"label {names.NODE_GPU_COUNT}": _count(labels.get(names.NODE_GPU_COUNT, "")),
        f"annotation {names.HAMI_NODE_REGISTER}": annotations.get(names.HAMI_NODE_REGISTER, "").count(_UUID),
    }


def _by_replicas(labels: Mapping[str, str]) -> str:
    text = labels.get(names.NODE_GPU_REPLICAS, "")
    strategy = labels.get(names.NODE_GPU_SHARING, "")
    if _count(text) > 1:
        return f"label {names.NODE_GPU_REPLICAS}={text}"
    if strategy in _STRATEGIES and _count(text) != 1:
        return f"label {names.NODE_GPU_SHARING}={strategy}"
    return ""


def _count(text: str) -> int:
    """A decimal integer as feature discovery writes it; anything else is 0."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0
