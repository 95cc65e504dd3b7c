"""What a node says of its GPUs: names of the device plugin's resources, their memory, and whether each counts once.

The scheduler places by it, and the binder charges tenants that KAI bound (they carry no grant). Both must come to the
same, so it is read in one place, before any device of the node is known.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from wire import names

#: MiB, or a part of the card in per cent with two decimals at most.
_WRITTEN: Final = re.compile(r"([0-9]{1,8})|([0-9]{1,2})(?:\.([0-9]{1,2}))?%", re.ASCII)
ALLOWED: Final = "MiB as in 450, or per cent as in 3% or 2.5%"
_PARTS: Final = 10_000


def is_readable(written: str) -> bool:
    """Whether an annotation says a reserve."""
    return _WRITTEN.fullmatch(written) is not None


def usable_mib(card_mib: int, written: str) -> int:
    """What tenants can have of a card, at least 1 MiB; all of it without a reserve that can be read. 0 stays 0.

    Memory that a driver needs for itself nobody gets: an administrator says it in an annotation of the node. The binder
    copies it onto the reservation of each device that it opens, so that all who read either count the same memory, also
    when the node says something else later.
    """
    found = _WRITTEN.fullmatch(written)
    if found is None or card_mib <= 0:
        return card_mib
    mib, percent, rest = found.groups()
    if mib:
        return max(1, card_mib - int(mib))
    parts = int(percent) * 100 + int((rest or "").ljust(2, "0"))
    return max(1, card_mib * (_PARTS - parts) // _PARTS)


#: Resources of MIG slices as the device plugin names them: ``mig-1g.5gb``, ``mig-1c.3g.20gb``, ``mig-1g.10gb.me``. A
#: regular expression in the common tongue of Python and CEL.
MIG_RESOURCE: Final = re.escape(names.MIG_RESOURCE_PREFIX) + r"([1-9]c\.)?[1-9]g\.[1-9][0-9]*gb([.-][a-z]+)*"
#: How GPU discovery ends the product's name where all slices of a node are of one profile and called GPUs.
_SINGLE: Final = re.compile(r".*-MIG-(?P<profile>[1-9]g\.[1-9][0-9]*gb([.+-][a-z]+)*)", re.ASCII)


def is_device_resource(name: str) -> bool:
    """Whether the vendor's plugin hands out devices under this name.

    That is ``nvidia.com/gpu``, or a MIG profile's own resource. The name goes into the pods that we make and comes from
    objects that others wrote, so it is checked where it comes in (docs/design/slices.md).
    """
    return name == names.GPU_RESOURCE or re.fullmatch(MIG_RESOURCE, name, re.ASCII) is not None


def slice_resource(profile: str) -> str:
    """The resource of a profile's slices, where the plugin names them apart (its strategy ``mixed``)."""
    return names.MIG_RESOURCE_PREFIX + profile.replace("+", ".")


def single_profile(product: str) -> str:
    """The profile of all slices of a node, as its product label says where they are called GPUs; "" for cards."""
    found = _SINGLE.fullmatch(product)
    return found["profile"].replace("+", ".") if found else ""


#: A memory label above this many MiB (16 TiB) was written in bytes (kai-contract 1.2).
_ABSURD_MIB: Final = 2**24
_BYTES_PER_MIB: Final = 2**20


def cards_mib(labels: Mapping[str, str], annotations: Mapping[str, str]) -> tuple[int, int]:
    """Memory of the smallest and the largest card in MiB: our annotation if it is readable, else NVIDIA's label.

    Both are 0 where neither says it. What is reserved of each card counts as not there; slices of MIG have none.
    """
    smallest, largest = _whole_cards_mib(labels, annotations)
    reserve = "" if labels.get(names.NODE_MIG_STRATEGY) == "single" else annotations.get(names.GPU_MEMORY_RESERVE, "")
    return usable_mib(smallest, reserve), usable_mib(largest, reserve)


def _whole_cards_mib(labels: Mapping[str, str], annotations: Mapping[str, str]) -> tuple[int, int]:
    listed = annotations.get(names.NODE_CARDS, "").split(",")
    cards = [integer(card.strip()) for card in listed]
    if all(0 < card <= _ABSURD_MIB for card in cards):
        return min(cards), max(cards)
    labelled = integer(labels.get(names.NODE_GPU_MEMORY, ""))
    card = labelled // _BYTES_PER_MIB if labelled > _ABSURD_MIB else labelled
    return (card, card) if 0 < card <= _ABSURD_MIB else (0, 0)


def integer(text: str) -> int:
    """A decimal integer as people write it in labels; anything else is 0."""
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 19):
        return 0
    return int(text)


#: What HAMi's plugin writes of each card begins with its UUID, in all of its formats.
_UUID: Final = "GPU-"
_STRATEGIES: Final = frozenset({"time-slicing", "mps"})


def multiplied(labels: Mapping[str, str], annotations: Mapping[str, str], offered: int) -> str:
    """Say what tells that ``offered`` of ``nvidia.com/gpu`` are more than the node's cards; "" if nothing does.

    A number of cards decides, where one is known: labels of replicas stay behind where nobody renews them, and so does
    HAMi's annotation. Slices of MIG are not meant here.

    Where a plugin offers each GPU several times, as NVIDIA's with replicas and HAMi's do, two of kubelet's devices may
    be one card. A reservation would hold a part of a card that kubelet gives to others as well, pods of whole GPUs
    among them, and no book could tell. So nobody shares there.
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
