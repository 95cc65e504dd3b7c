"""GPUs in MIG mode of a simulated node: which slices they have at first, and where their driver can make others.

The profiles are those of a card of 80 GB (NVIDIA Multi-Instance GPU User Guide, H100 80GB), without the ones with media
engines. A slice is written ``1g.10gb@3``: its profile, and its first memory slice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from gpu.mig import Place, Profile
from nodeagent.core.mig_partitioning import Spot

CARD_MIB: Final = 80 * 1024
PRODUCT: Final = "NVIDIA-H100-80GB-HBM3"


def _profile(size: int, *starts: int) -> Profile:
    return Profile(tuple(Place(start, size) for start in starts), len(starts))


PROFILES: Final[Mapping[str, Profile]] = {
    "1g.10gb": _profile(1, 0, 1, 2, 3, 4, 5, 6),
    "1g.20gb": _profile(2, 0, 2, 4, 6),
    "2g.20gb": _profile(2, 0, 2, 4),
    "3g.40gb": _profile(4, 0, 4),
    "4g.40gb": _profile(4, 0),
    "7g.80gb": _profile(8, 0),
}


class SlicedNode(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A node whose agent makes MIG slices. ``cards``: the slices of each GPU in MIG mode at first.

    ``is_idle``: programs have slices and never use them, so that the driver knows of none. ``keeps_uuids``: a slice
    that is made again has its UUID again. ``hears_s``: kubelet reads the plug-in's list up to so much later;
    ``tells_s``: the Node shows what it offers up to so much later.
    """

    node: str
    cards: tuple[tuple[str, ...], ...]
    is_idle: bool = False
    keeps_uuids: bool = True
    hears_s: float = 1.0
    tells_s: float = 10.0


def spot(text: str) -> Spot:
    """Read ``1g.10gb@3``. Raises ValueError for a slice that no card can have."""
    profile, at, start = text.partition("@")
    known = PROFILES.get(profile)
    if not at or known is None or start not in {str(place.start) for place in known.places}:
        raise ValueError(f"slice {text!r}: not a profile and a place, as in 1g.10gb@3; profiles: {', '.join(PROFILES)}")
    return Spot(int(start), profile)


def size(at: Spot) -> int:
    """Return how many memory slices a slice takes."""
    return PROFILES[at.profile].places[0].size
