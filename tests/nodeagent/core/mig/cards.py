"""GPUs as tests of partitioning see them: of the profiles of an H100, with a few slices."""

from __future__ import annotations

from collections.abc import Iterable

from gpu.mig import Place, Profile
from nodeagent.core.mig_partitioning import CLEAR_NS, Ask, Present, Seen, Spot, Step, step

SECOND_NS = 1_000_000_000
PROFILES = {
    "1g.10gb": Profile(tuple(Place(at, 1) for at in range(7)), 7),
    "2g.20gb": Profile(tuple(Place(at, 2) for at in (0, 2, 4)), 3),
    "3g.40gb": Profile(tuple(Place(at, 4) for at in (0, 4)), 2),
    "7g.80gb": Profile((Place(0, 8),), 1),
}


def spot(text: str) -> Spot:
    """``1g@0`` is the slice of the profile that begins so, at 0."""
    profile, _, start = text.partition("@")
    return Spot(int(start), next(name for name in PROFILES if name.startswith(profile)))


def ask(*spots: str, attempt: str = "a") -> Ask:
    return Ask(attempt, tuple(spot(each) for each in spots))


def present(
    text: str, *, uuids: Iterable[str] | None = None, is_whole: bool = True, has_process: bool = False
) -> Present:
    at = spot(text)
    size = next(place.size for place in PROFILES[at.profile].places if place.start == at.start)
    names = (f"MIG-{text}",) if uuids is None else tuple(uuids)
    return Present(spot=at, size=size, uuids=names, is_whole=is_whole, has_process=has_process)


def seen(
    *there: Present | str,
    at_s: float = 100.0,
    given: Iterable[str] = (),
    offered: Iterable[str] = (),
    booked: Iterable[str] = (),
    kubelet_since_s: float = 0.0,
) -> Seen:
    return Seen(
        at_ns=int(at_s * SECOND_NS),
        present=tuple(present(each) if isinstance(each, str) else each for each in there),
        profiles=PROFILES,
        given=frozenset(given),
        offered=frozenset(offered),
        booked=frozenset(booked),
        kubelet_since_ns=int(kubelet_since_s * SECOND_NS),
    )


def began(there: Iterable[Present | str], *spots: str, at_s: float = 100.0) -> Step:
    """The first step of an attempt at a GPU of which nobody uses a slice."""
    return step(None, ask(*spots), seen(*there, at_s=at_s), int(at_s * SECOND_NS))


CLEAR_S = CLEAR_NS / SECOND_NS
