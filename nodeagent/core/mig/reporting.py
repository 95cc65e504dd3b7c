"""MIG slices and attempts, as a GpuNode has them and as the agent's steps do."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nodeagent.core.mig.card import Ask, Present, Seen, Spot
from nodeagent.core.mig.steps import Outcome, State
from wire.crds.gpunode import CardStatus, CarvingStatus, MigLayout, MigProfile, SliceStatus


@dataclass(frozen=True, slots=True)
class CardReport:
    """What the status of a GpuNode says of the slices of a GPU. ``layout`` None: nothing is known of them."""

    profiles: tuple[MigProfile, ...] = ()
    layout: tuple[SliceStatus, ...] | None = None
    carving: CarvingStatus | None = None

    def with_outcome(self, outcome: Outcome | None) -> CardReport:
        """Return it with what became of an attempt since."""
        return replace(self, carving=self.carving if outcome is None else _told(outcome))


def ask_of(wanted: MigLayout) -> Ask:
    """Read a layout that a GpuNode asks for."""
    return Ask(wanted.attempt, tuple(Spot(each.start, each.profile) for each in wanted.layout))


def outcome_of(told: CarvingStatus) -> Outcome:
    """Read what was reported. A state that is not known is of an attempt that has not ended."""
    state = next((each for each in State if each.value == told.state), State.UNDER_WAY)
    return Outcome(told.attempt, state, told.why)


def report(seen: Seen, outcome: Outcome | None) -> CardReport:
    """Report a look. The same is always reported in the same order."""
    profiles = (
        MigProfile(
            name=name,
            size=max((place.size for place in profile.places), default=0),
            starts=[place.start for place in profile.places],
            most=profile.most,
        )
        for name, profile in sorted(seen.profiles.items())
    )
    layout = (_slice(each, seen) for each in sorted(seen.present, key=lambda each: each.spot))
    return CardReport(tuple(profiles), tuple(layout), None if outcome is None else _told(outcome))


def reported(card: CardStatus) -> CardReport:
    """Read what the status of a GpuNode says."""
    layout = None if card.layout is None else tuple(card.layout)
    return CardReport(tuple(card.profiles or ()), layout, card.carving)


def _slice(present: Present, seen: Seen) -> SliceStatus:
    return SliceStatus(
        profile=present.spot.profile,
        start=present.spot.start,
        size=present.size,
        uuid=present.uuids[0] if present.is_slice else "",
        in_use=bool(seen.user_of(present)),
    )


def _told(outcome: Outcome) -> CarvingStatus:
    return CarvingStatus(attempt=outcome.attempt, state=outcome.state.value, why=outcome.why)
