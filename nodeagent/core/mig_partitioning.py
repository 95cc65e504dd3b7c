"""MIG partitioning: the steps by which the MIG slices of a GPU become those that a GpuNode asks for.

Pure: a layout that is asked for, a look at the GPU and the time go in; one step comes out. After each step the GPU is
looked at again. An agent that ends between two steps forgets the attempt, and begins it again from the GPU as it is.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec
from typing_extensions import override

from gpu.mig import Place, Profile
from wire.crds.gpunode import CardStatus, GpuNode, MigLayout, MigProfile, PartitioningStatus, SliceStatus
from wire.units import SECOND_NS


@dataclass(frozen=True, slots=True, order=True)
class Spot:
    """A slice of a profile at its first memory slice."""

    start: int
    profile: str

    @override
    def __str__(self) -> str:
        return f"{self.profile} at {self.start}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """A GPU instance. ``uuids``: of its MIG devices; none where a GPU instance has no compute instance.

    ``is_whole``: its one compute instance has all of it. Only such a slice is one that a layout can name.
    ``has_process``: a process uses it, or the driver does not report whether one does.
    """

    spot: Spot
    size: int
    uuids: tuple[str, ...]
    is_whole: bool = True
    has_process: bool = False

    @property
    def is_slice(self) -> bool:
        """Whether a layout can name it: a GPU instance with one compute instance that has all of it."""
        return self.is_whole and len(self.uuids) == 1

    @property
    def place(self) -> Place:
        """Its memory slices."""
        return Place(self.spot.start, self.size)


class NotDone(Exception):
    """Raised by a driver that refuses to read, make or destroy slices; the text has its words."""


@dataclass(frozen=True, slots=True)
class CardSlices:
    """The slices of a GPU in MIG mode, and the profiles that its driver offers, by name."""

    present: tuple[Present, ...]
    profiles: Mapping[str, Profile]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One look at a GPU. Each part was asked at ``at_ns`` or later.

    ``given``: UUIDs that pods have, by kubelet's List. ``offered``: UUIDs that kubelet would give to a pod, by
    GetAllocatableResources. ``booked``: UUIDs that reservations name. ``kubelet_since_ns``: since when this kubelet is
    known to listen.
    """

    at_ns: int
    present: tuple[Present, ...]
    profiles: Mapping[str, Profile]
    given: frozenset[str]
    offered: frozenset[str]
    booked: frozenset[str]
    kubelet_since_ns: int

    @property
    def spots(self) -> frozenset[Spot]:
        """The slices that a layout can name."""
        return frozenset(each.spot for each in self.present if each.is_slice)

    def user_of(self, present: Present) -> str:
        """Say who uses a GPU instance; "" if nobody does. One that is cut otherwise than slices are is somebody's."""
        if present.uuids and not present.is_slice:
            return f"{present.spot} has other compute instances than one of its size"
        if present.has_process:
            return f"a process uses {present.spot}"
        for uuid in present.uuids:
            if uuid in self.given:
                return f"kubelet gave {present.spot} to a pod"
            if uuid in self.booked:
                return f"a reservation has {present.spot}"
        return ""


@dataclass(frozen=True, slots=True)
class Ask:
    """All slices that a GPU is to have. ``attempt`` is another for each decision."""

    attempt: str
    layout: tuple[Spot, ...]


def mistake(ask: Ask, profiles: Mapping[str, Profile]) -> str:
    """Say why the driver can't make a layout; "" if it can."""
    taken = 0
    for spot in ask.layout:
        profile = profiles.get(spot.profile)
        if profile is None:
            return f"the GPU has no profile {spot.profile}; it has {', '.join(sorted(profiles)) or 'none'}"
        place = next((each for each in profile.places if each.start == spot.start), None)
        if place is None:
            starts = ", ".join(str(each.start) for each in profile.places)
            return f"{spot} can't be made; the profile's places begin at {starts}"
        if place.bits & taken:
            return f"{spot} overlaps another slice of the layout"
        taken |= place.bits
    return _too_many(ask.layout, profiles)


def _too_many(layout: Iterable[Spot], profiles: Mapping[str, Profile]) -> str:
    spots = list(layout)
    for name in sorted({spot.profile for spot in spots}):
        number, most = sum(spot.profile == name for spot in spots), profiles[name].most
        if number > most:
            return f"{number} slices of {name}; the GPU takes {most}"
    return ""


#: Between two looks that show that nobody has a slice.
CLEAR_NS: Final = 2 * SECOND_NS
#: A kubelet that starts does not know its pods yet, and lists none.
KUBELET_SETTLES_NS: Final = 10 * SECOND_NS
#: For so long the slices are withdrawn without being free.
PATIENCE_NS: Final = 30 * SECOND_NS


class State(enum.Enum):
    """What became of an attempt. The value is ``status.cards[].partitioning.state`` of a GpuNode."""

    UNDER_WAY = "underway"
    DONE = "done"
    #: Nothing was changed.
    REFUSED = "refused"
    #: The driver refused a step. The GPU has the slices that ``status.cards[].layout`` names.
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is reported of an attempt."""

    attempt: str
    state: State
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Partitioning:
    """An attempt under way. ``before``: the slices at its start. ``withdrawn``: UUIDs that the plug-in does not offer.

    ``clear_ns``: the first look that showed that nobody has them. ``is_cutting``: a slice was destroyed or made.
    ``error``: the driver's words; the slices of before are then made again, without those in ``skipped``.
    """

    ask: Ask
    before: tuple[Spot, ...]
    withdrawn: frozenset[str]
    since_ns: int
    clear_ns: int | None = None
    is_cutting: bool = False
    error: str = ""
    skipped: frozenset[Spot] = frozenset()


@dataclass(frozen=True, slots=True)
class Destroy:
    """Destroy the compute instances of a GPU instance, and itself."""

    present: Present


@dataclass(frozen=True, slots=True)
class Make:
    """Make a GPU instance at a place, where none is there, and its compute instance."""

    spot: Spot


@dataclass(frozen=True, slots=True)
class Step:
    """What is under way from now on, what to do now, and what to report. None: nothing."""

    partitioning: Partitioning | None = None
    action: Destroy | Make | None = None
    outcome: Outcome | None = None


def due(ask: Ask | None, last: Outcome | None) -> Ask | None:
    """Return what is asked for, if it has not ended. ``last``: what was reported last."""
    if ask is None or last is None or last.attempt != ask.attempt or last.state is State.UNDER_WAY:
        return ask
    return None


def step(partitioning: Partitioning | None, ask: Ask | None, seen: Seen | None, now_ns: int) -> Step:
    """Return the next step. ``ask``: what is due now. ``seen`` None: the driver or kubelet does not answer.

    A slice is destroyed only while no pod and no book has it (invariant S18). kubelet marks a device as given under one
    lock, then calls Allocate, and then shows the device in its List. So the order is:

    1. The slices to go are withdrawn: the plug-in lists them as unhealthy, and its Allocate refuses them. No device
       that kubelet has chosen by now is given after this.
    2. GetAllocatableResources does not name them any more: kubelet has read the list, and chooses none of them.
    3. List shows that nobody has them, and shows the same at least two seconds later: what was given just before 1 is
       visible by then.
    """
    if partitioning is None:
        return Step() if ask is None or seen is None else _begin(ask, seen, now_ns)
    if not partitioning.is_cutting:
        if ask is None or ask.attempt != partitioning.ask.attempt:
            return Step(outcome=Outcome(partitioning.ask.attempt, State.REFUSED, "the attempt was withdrawn"))
        if now_ns - partitioning.since_ns >= PATIENCE_NS:
            return _refuse(partitioning.ask, f"slices to go were not free within {PATIENCE_NS // SECOND_NS} s")
    if seen is None:
        return Step(partitioning)
    return _make_again(partitioning, seen) if partitioning.error else _cut(partitioning, seen)


def failed(partitioning: Partitioning, action: Destroy | Make, why: str) -> Partitioning:
    """Take the driver's refusal of an action."""
    if not partitioning.error:
        return replace(partitioning, is_cutting=True, error=f"{_named(action)}: {why}")
    return replace(partitioning, skipped=partitioning.skipped | {_spot(action)})


def done(partitioning: Partitioning) -> Partitioning:
    """Take that the driver did an action."""
    return replace(partitioning, is_cutting=True)


def _begin(ask: Ask, seen: Seen, now_ns: int) -> Step:
    if why := mistake(ask, seen.profiles):
        return _refuse(ask, why)
    going = _going(ask.layout, seen)
    if why := next((user for each in going if (user := seen.user_of(each))), ""):
        return _refuse(ask, why)
    withdrawn = frozenset(uuid for each in going for uuid in each.uuids)
    began = Partitioning(ask=ask, before=tuple(sorted(seen.spots)), withdrawn=withdrawn, since_ns=now_ns)
    return Step(began, outcome=Outcome(ask.attempt, State.UNDER_WAY))


def _cut(partitioning: Partitioning, seen: Seen) -> Step:
    going = _going(partitioning.ask.layout, seen)
    if not going:
        coming = _coming(partitioning.ask.layout, seen)
        if coming:
            return Step(partitioning, Make(coming[0]))
        return Step(outcome=Outcome(partitioning.ask.attempt, State.DONE))
    if _is_clear(partitioning, going, seen):
        if partitioning.clear_ns is None:
            return Step(replace(partitioning, clear_ns=seen.at_ns))
        is_sure = seen.at_ns - partitioning.clear_ns >= CLEAR_NS
        return Step(partitioning, Destroy(going[0]) if is_sure else None)
    user = next((user for each in going if (user := seen.user_of(each))), "")
    if user and not partitioning.is_cutting:
        return _refuse(partitioning.ask, user)
    return Step(replace(partitioning, clear_ns=None, error=user))


def _is_clear(partitioning: Partitioning, going: Sequence[Present], seen: Seen) -> bool:
    """Whether this look shows that nobody has a slice to go, and that none is given any more."""
    uuids = frozenset(uuid for each in going for uuid in each.uuids)
    is_settled = seen.at_ns - seen.kubelet_since_ns >= KUBELET_SETTLES_NS
    is_withdrawn = uuids <= partitioning.withdrawn and not uuids & seen.offered
    return is_settled and is_withdrawn and not any(seen.user_of(each) for each in going)


def _make_again(partitioning: Partitioning, seen: Seen) -> Step:
    taken = 0
    for each in seen.present:
        # A GPU instance of a slice that was to be made again, without its compute instance, is made whole.
        taken |= 0 if not each.uuids and each.spot in partitioning.before else each.place.bits
    for spot in _coming(partitioning.before, seen):
        profile = seen.profiles.get(spot.profile)
        place = next((at for at in profile.places if at.start == spot.start), None) if profile else None
        if place is not None and not place.bits & taken and spot not in partitioning.skipped:
            return Step(partitioning, Make(spot))
    return Step(outcome=Outcome(partitioning.ask.attempt, State.FAILED, partitioning.error))


def _going(layout: Iterable[Spot], seen: Seen) -> list[Present]:
    """GPU instances that the layout does not have. One without compute instance stays where its slice is to be."""
    wanted = frozenset(layout)
    return [each for each in seen.present if each.spot not in wanted or (each.uuids and not each.is_slice)]


def _coming(layout: Iterable[Spot], seen: Seen) -> list[Spot]:
    return sorted(frozenset(layout) - seen.spots)


def _refuse(ask: Ask, why: str) -> Step:
    return Step(outcome=Outcome(ask.attempt, State.REFUSED, why))


def _spot(action: Destroy | Make) -> Spot:
    return action.present.spot if isinstance(action, Destroy) else action.spot


def _named(action: Destroy | Make) -> str:
    return f"{'destroy' if isinstance(action, Destroy) else 'create'} {_spot(action)}"


@dataclass(frozen=True, slots=True)
class CardReport:
    """What the status of a GpuNode says of the slices of a GPU. ``layout`` None: nothing is known of them."""

    profiles: tuple[MigProfile, ...] = ()
    layout: tuple[SliceStatus, ...] | None = None
    partitioning: PartitioningStatus | None = None

    def with_outcome(self, outcome: Outcome | None) -> CardReport:
        """Return it with what became of an attempt since."""
        return replace(self, partitioning=self.partitioning if outcome is None else _told(outcome))


def ask_of(wanted: MigLayout) -> Ask:
    """Read a layout that a GpuNode asks for."""
    return Ask(wanted.attempt, tuple(Spot(each.start, each.profile) for each in wanted.layout))


def outcome_of(told: PartitioningStatus) -> Outcome:
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
    return CardReport(tuple(card.profiles or ()), layout, card.partitioning)


def _slice(present: Present, seen: Seen) -> SliceStatus:
    return SliceStatus(
        profile=present.spot.profile,
        start=present.spot.start,
        size=present.size,
        uuid=present.uuids[0] if present.is_slice else "",
        in_use=bool(seen.user_of(present)),
    )


def _told(outcome: Outcome) -> PartitioningStatus:
    return PartitioningStatus(attempt=outcome.attempt, state=outcome.state.value, why=outcome.why)


@dataclass(frozen=True, slots=True)
class Restored:
    """GPUs (UUIDs) that were looked at since this boot of the machine.

    Instances do not outlive a reboot, and a GpuNode does. So slices that a reboot took are made again. A GPU is looked
    at once for each boot of the machine: a slice that somebody destroys later, by hand, stays destroyed. Slices are
    only made, beside those that were made before a crash. So nothing that runs is touched, and each step can be taken
    again. A GPU with any other slice is left alone.
    """

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
    last = None if told.partitioning is None else outcome_of(told.partitioning)
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
