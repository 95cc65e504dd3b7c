"""Which MIG slices a GPU has lost by a reboot, and are to be made again. Pure.

Instances do not outlive a reboot, and a GpuNode does. A GPU is looked at once for each boot of the machine: a slice
that somebody destroys later, by hand, stays destroyed. Slices are only made, beside those that were made before a
crash. So nothing that runs is touched, and each step can be taken again. A GPU with any other slice is left alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from nodeagent.core.mig.card import Ask, CardSlices, Spot, mistake
from nodeagent.core.mig.reporting import ask_of, outcome_of
from nodeagent.core.mig.steps import State, due
from wire.crds.gpunode import CardStatus, GpuNode


@dataclass(frozen=True, slots=True)
class Restored:
    """GPUs (UUIDs) that were looked at since this boot of the machine."""

    boot: str = ""
    cards: frozenset[str] = field(default_factory=frozenset)

    def at(self, boot: str) -> Restored:
        """Return what counts for a boot: nothing of an earlier one."""
        return self if boot == self.boot else Restored(boot)

    def after(self, card: str) -> Restored:
        """Add a GPU."""
        return Restored(self.boot, self.cards | {card})


def encoded(restored: Restored) -> bytes:
    """As JSON."""
    return msgspec.json.encode(restored)


def decoded(content: bytes) -> Restored:
    """Read it; nothing for what can't be read."""
    try:
        return msgspec.json.decode(content, type=Restored)
    except (msgspec.DecodeError, RecursionError):
        return Restored()


def lost(found: GpuNode, uuid: str, card: CardSlices) -> tuple[Spot, ...]:
    """Return the slices of a GPU that are to be made again, the lowest first.

    They are those of ``spec.mig`` where that was done. Where it was refused or has failed, they are those that the
    status shows. An attempt that has not ended is none of this: its steps make what it asks for.
    """
    asked = next((each for each in found.spec.mig or () if each.uuid == uuid), None)
    told = next((each for each in found.status.cards or () if each.uuid == uuid), None)
    if asked is None or told is None:
        return ()
    ask = ask_of(asked)
    last = None if told.carving is None else outcome_of(told.carving)
    if last is not None and last.attempt == ask.attempt and last.state is State.DONE:
        wanted = ask.layout
    elif due(ask, last) is not None and not mistake(ask, card.profiles):
        return ()
    else:
        wanted = _shown(told)
    if mistake(Ask("", wanted), card.profiles):
        return ()
    return _missing(wanted, card)


def _shown(told: CardStatus) -> tuple[Spot, ...]:
    """The slices of a status. One without a UUID is none that a layout can name."""
    return tuple(Spot(each.start, each.profile) for each in told.layout or () if each.uuid)


def _missing(wanted: Sequence[Spot], card: CardSlices) -> tuple[Spot, ...]:
    spots = frozenset(wanted)
    if any(each.spot not in spots or (each.uuids and not each.is_slice) for each in card.present):
        return ()
    return tuple(sorted(spots - {each.spot for each in card.present if each.is_slice}))
