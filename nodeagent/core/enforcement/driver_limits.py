"""Which memory limits the driver is to be given for control groups of pods, and whose caps they hold. Pure: no I/O.

A pod's cap on a card is set on its own group and on each group directly below it, as its containers have: whichever
group of its pod a process moves to has the limit, or gets it within a look. What the driver answers is kept, and read
again now and then: a cap counts as held only by what was read back.

Two backends of the driver differ. With the kernel's controller ``dmem`` a limit of the pod's group bounds all groups
below together. Without it the nearest limited group above a process counts, so containers with a limit each may have
the cap once each: then a cap counts as held while at most one of them has memory of the card.
Source: NVIDIA, MPS v3 Memory Partitioning; NVML API reference of r615.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from nodeagent.core.enforcement.overuse import MIB, Key

#: ``NVML_DEVICE_MEMORY_LIMIT_MAX``: there is none.
NO_LIMIT: Final = (1 << 64) - 1
#: A driver may round a limit up to its largest page.
_ROUNDING_BYTES: Final = 2 * MIB
#: Looks after which an answer is asked for again, also one that was a refusal.
RECHECK_LOOKS: Final = 10
#: Groups and cards that the driver is asked about in one look.
MOST_ASKS: Final = 256
#: A group by its path, and a card by its UUID.
Place = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Group:
    """A control group of a pod. ``is_pod``: that of the pod itself.

    Of that one, ``nests``: its limit bounds the groups below; ``has_more``: there are more below than were listed.
    """

    pod_uid: str
    path: str
    is_pod: bool = False
    nests: bool = False
    has_more: bool = False


@dataclass(frozen=True, slots=True)
class Ask:
    """Read a group's limit of a card, and set it where it is above ``cap_mib``.

    ``is_forced``: also where it is below, since it is what an earlier cap of the pod was.
    """

    path: str
    card: str
    cap_mib: int
    is_forced: bool = False

    @property
    def place(self) -> Place:
        """Where."""
        return self.path, self.card

    def needs_set(self, hard_bytes: int) -> bool:
        """Whether a limit that was read has to be replaced. One below the cap is somebody's stricter one, and stays."""
        return not is_within(hard_bytes, self.cap_mib) or (self.is_forced and hard_bytes < self.cap_mib * MIB)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the driver said last of a place, in the look of number ``look``, where ``cap_mib`` was wanted.

    ``hard_bytes``: the limit read back, None where ``problem`` says why it is not known or was not set. ``is_set``: it
    was set by us. ``is_gone``: the group was removed meanwhile.
    """

    look: int
    cap_mib: int
    hard_bytes: int | None = None
    used_bytes: int = 0
    problem: str = ""
    is_set: bool = False
    is_gone: bool = False

    @property
    def holds(self) -> bool:
        """Whether the wanted cap is in place there."""
        return self.hard_bytes is not None and is_within(self.hard_bytes, self.cap_mib)


def is_within(hard_bytes: int, cap_mib: int) -> bool:
    """Whether a limit lets no more through than the cap."""
    return hard_bytes <= cap_mib * MIB + _ROUNDING_BYTES


def due(
    groups: Iterable[Group],
    caps: Mapping[Key, int],
    cards: Collection[str],
    known: Mapping[Place, Answer],
    *,
    look: int,
) -> tuple[Ask, ...]:
    """Return what the driver is to be asked in this look: what is new first, then what was asked longest ago.

    ``cards``: whole cards that answer; MIG slices have no limits.
    """
    found: list[tuple[int, Ask]] = []
    for group, card, cap_mib in _wanted(groups, caps, cards):
        answer = known.get((group.path, card))
        if answer is None or answer.cap_mib != cap_mib:
            is_forced = answer is not None and answer.is_set
            found.append((-1, Ask(group.path, card, cap_mib, is_forced)))
        elif look - answer.look >= RECHECK_LOOKS:
            found.append((answer.look, Ask(group.path, card, cap_mib)))
    found.sort(key=lambda each: each[0])
    return tuple(ask for _, ask in found[:MOST_ASKS])


def next_due(known: Mapping[Place, Answer], asked: Sequence[Ask], look: int) -> int:
    """Return the look in which the driver is to be asked next, where groups, caps and cards stay as they are."""
    if len(asked) == MOST_ASKS:
        return look + 1
    return min((answer.look for answer in known.values()), default=look) + RECHECK_LOOKS


def remembered(
    groups: Iterable[Group], caps: Mapping[Key, int], cards: Collection[str], known: Mapping[Place, Answer]
) -> dict[Place, Answer]:
    """Forget answers about groups that are not there any more, and about cards that do not answer or have no cap there.

    A card that comes back may have lost its limits.
    """
    there = {(group.path, card) for group, card, _ in _wanted(groups, caps, cards)}
    return {place: answer for place, answer in known.items() if place in there}


def held(
    groups: Iterable[Group], caps: Mapping[Key, int], cards: Collection[str], known: Mapping[Place, Answer]
) -> frozenset[Key]:
    """Return whose caps the driver holds, by what was read back last."""
    of: defaultdict[Key, list[tuple[Group, Answer | None]]] = defaultdict(list)
    for group, card, cap_mib in _wanted(groups, caps, cards):
        answer = known.get((group.path, card))
        of[group.pod_uid, card].append((group, answer if answer is None or answer.cap_mib == cap_mib else None))
    return frozenset(key for key, found in of.items() if _is_held(found))


def used_bytes(key: Key, groups: Iterable[Group], readings: Mapping[Place, int]) -> int | None:
    """Return a pod's use of a card by what the driver counts for its groups; None where one of them was not read.

    ``readings``: bytes by place. The group of the pod counts alone where it has what is below it.
    """
    pod, card = key
    own = [group for group in groups if group.pod_uid == pod]
    counted = [group for group in own if group.is_pod and group.nests] or [group for group in own if not group.is_pod]
    found = [readings.get((group.path, card)) for group in counted]
    return None if not found or None in found else sum(each for each in found if each is not None)


def _wanted(
    groups: Iterable[Group], caps: Mapping[Key, int], cards: Collection[str]
) -> Iterator[tuple[Group, str, int]]:
    of_pod: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
    for (pod, device), cap_mib in caps.items():
        if device in cards:
            of_pod[pod].append((device, cap_mib))
    for group in groups:
        for card, cap_mib in of_pod.get(group.pod_uid, ()):
            yield group, card, cap_mib


def _is_held(found: Sequence[tuple[Group, Answer | None]]) -> bool:
    own = [(group, answer) for group, answer in found if group.is_pod]
    below = [answer for group, answer in found if not group.is_pod and not (answer is not None and answer.is_gone)]
    known = [answer for answer in below if answer is not None and answer.holds]
    if not known or len(known) < len(below):
        return False
    if any(group.nests and answer is not None and answer.holds for group, answer in own):
        return True
    return not any(group.has_more for group, _ in own) and sum(answer.used_bytes > 0 for answer in known) <= 1
