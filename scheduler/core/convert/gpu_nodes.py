"""GpuNodes as the core knows them: GPUs in MIG mode, their slices and what is asked of them.

The agent on the node writes the status. What can't be is not cut (gpu/miglayout.py), and lists are bounded here.
"""

from __future__ import annotations

from typing import Final

from gpu.miglayout import MOST_MEMORY_SLICES, Place, Profile
from scheduler.core.model.mig_card import MigCard, MigLayoutAsked, MigNode, MigSlice
from wire.crds.gpunode import CardStatus, GpuNode, MigProfile

_WELL: Final = frozenset({"", "well"})
#: More than any GPU has.
_MOST_PROFILES: Final = 32


def mig_node(found: GpuNode) -> MigNode:
    """Read a GpuNode."""
    asked = (
        MigLayoutAsked(each.uuid, each.attempt, tuple((place.profile, place.start) for place in each.layout))
        for each in found.spec.mig or ()
    )
    return MigNode(
        name=found.metadata.name,
        rv=found.metadata.resource_version,
        cards=tuple(_card(each) for each in found.status.cards or () if each.mig),
        asked=tuple(asked),
    )


def _card(card: CardStatus) -> MigCard:
    is_well = card.health is None or card.health.state in _WELL
    layout = card.layout or ()
    slices = tuple(
        MigSlice(each.profile, each.start, each.size, each.in_use, bool(each.uuid))
        for each in layout[:MOST_MEMORY_SLICES]
    )
    carving = card.carving
    is_known = card.layout is not None and bool(card.profiles) and len(layout) <= MOST_MEMORY_SLICES
    found = MigCard(
        uuid=card.uuid,
        is_ready=is_well and is_known,
        profiles={each.name: _profile(each) for each in (card.profiles or ())[:_MOST_PROFILES]},
        slices=slices,
        attempt="" if carving is None else carving.attempt,
        state="" if carving is None else carving.state,
        why="" if carving is None else carving.why,
    )
    _ = found.kind  # made when it changes, and not all at once in the next look
    return found


def _profile(found: MigProfile) -> Profile:
    starts = sorted({*(found.starts or ())})[:MOST_MEMORY_SLICES]
    return Profile(tuple(Place(start, found.size) for start in starts), found.most)
