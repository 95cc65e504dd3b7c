"""What a simulated node is made of, and the short form in which people write it: ``4x8x80GiB``.

Grammar: ``NODES x CARDS x MEMORY``, as in four nodes of eight cards of 80 GiB each. Cards of one node may differ:
``1x2x24GiB+2x80GiB``. A MIG profile in the place of memory makes slices: ``1x2x80GiB+7x1g.10gb`` is a node with two
cards and seven slices of another one. ``NODES x 0`` is a node without GPUs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from wire import names, quantity

ALLOWED: Final = (
    "NODESxGPUSxMEMORY as in 4x8x80GiB, with GPUs that differ 1x2x24GiB+2x80GiB, with MIG slices 1x7x1g.10gb, "
    "without GPUs 2x0"
)
MOST_NODES: Final = 100_000
MOST_CARDS: Final = 64
MOST_CARD_MIB: Final = 2**24
_MIB_PER_GB: Final = 1024

_NODES: Final = re.compile(r"(?P<nodes>[0-9]{1,18})x(?P<cards>.+)")
_PROFILE: Final = re.compile(r"[1-7]g\.(?P<gb>[1-9][0-9]{0,2})gb")
_SLICES: Final = re.compile(rf"(?P<count>[1-9][0-9]?)x(?P<profile>{_PROFILE.pattern})")
_CARDS: Final = re.compile(r"(?P<count>[0-9]{1,3})x(?P<memory>[0-9]+(?:Mi|Gi|Ti|M|G|T)B?)")


class NodeShape(msgspec.Struct, frozen=True, kw_only=True):
    """One node. ``cards_mib`` is the memory of each card by index; the rest is what kubelet reports as allocatable.

    ``slices``: MIG profiles (``1g.10gb``) of further cards that are cut, one a slice. ``is_single``: all of them are of
    one profile, and NVIDIA's plugin calls them ``nvidia.com/gpu`` (its strategy ``single``); such a node has no cards.
    """

    name: str
    cards_mib: tuple[int, ...] = ()
    slices: tuple[str, ...] = ()
    is_single: bool = False
    cpu_milli: int = 96_000
    mem_mib: int = 1_048_576
    ephemeral_mib: int = 1_048_576
    pods: int = 110
    labels: dict[str, str] = {}
    #: Amounts of further resources, in whole numbers.
    others: dict[str, int] = {}
    #: Whether only pods that tolerate simulated nodes come here.
    tainted: bool = False

    def resource_of(self, profile: str) -> str:
        """By which name slices of a profile are handed out."""
        return names.GPU_RESOURCE if self.is_single else names.MIG_RESOURCE_PREFIX + profile

    def devices(self) -> dict[str, int]:
        """How many devices there are, by the name under which they are handed out."""
        counted = {names.GPU_RESOURCE: len(self.cards_mib)} if self.cards_mib else {}
        for profile in self.slices:
            counted[self.resource_of(profile)] = counted.get(self.resource_of(profile), 0) + 1
        return counted


def slice_mib(profile: str) -> int:
    """Memory of a slice: what its name says in GiB. Real ones have somewhat less, as cards have."""
    found = _PROFILE.fullmatch(profile)
    if found is None:
        raise ValueError(f"{profile!r} is no MIG profile such as 1g.10gb")
    return int(found["gb"]) * _MIB_PER_GB


class MalformedShape(ValueError):
    """Raised when a text is not a shape of nodes; the message names the text and what is allowed."""

    def __init__(self, text: str, why: str) -> None:
        super().__init__(f"nodes {text!r}: {why}; allowed: {ALLOWED}")


def parse(texts: Sequence[str]) -> tuple[NodeShape, ...]:
    """Read groups of nodes, named ``node-0``, ``node-1``... over all of them. Raises MalformedShape."""
    shapes: list[NodeShape] = []
    for text in texts:
        count, cards_mib, slices = _parse_group(text)
        if len(shapes) + count > MOST_NODES:
            raise MalformedShape(text, f"more than {MOST_NODES} nodes in all")
        shapes += [NodeShape(name=f"node-{len(shapes) + i}", cards_mib=cards_mib, slices=slices) for i in range(count)]
    return tuple(shapes)


def _parse_group(text: str) -> tuple[int, tuple[int, ...], tuple[str, ...]]:
    match = _NODES.fullmatch(text)
    if match is None:
        raise MalformedShape(text, "not a number of nodes, an x and GPUs")
    count = int(match["nodes"])
    if count == 0:
        raise MalformedShape(text, "no nodes")
    if match["cards"] == "0":
        return count, (), ()
    cards_mib: list[int] = []
    slices: list[str] = []
    for part in match["cards"].split("+"):
        cut = _SLICES.fullmatch(part)
        if cut is None:
            cards_mib += _parse_cards(text, part)
        else:
            slices += [cut["profile"]] * int(cut["count"])
    if len(cards_mib) + len(slices) > MOST_CARDS:
        raise MalformedShape(text, f"more than {MOST_CARDS} GPUs in a node")
    return count, tuple(cards_mib), tuple(slices)


def _parse_cards(text: str, part: str) -> tuple[int, ...]:
    match = _CARDS.fullmatch(part)
    if match is None:
        raise MalformedShape(text, f"{part!r} is not a number of GPUs, an x and a memory as in 80GiB or 24G")
    try:
        mem_mib = quantity.mib_down(match["memory"].removesuffix("B"))
    except quantity.MalformedQuantity as error:
        raise MalformedShape(text, str(error)) from error
    if not 0 < mem_mib <= MOST_CARD_MIB:
        raise MalformedShape(text, f"a GPU of {match['memory']} is not between 1 MiB and {MOST_CARD_MIB} MiB")
    return (mem_mib,) * int(match["count"])
