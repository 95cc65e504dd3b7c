"""The steps by which the MIG slices of a GPU become those that a GpuNode asks for.

Pure: a layout that is asked for, a look at the GPU and the time go in; one step comes out. After each step the GPU is
looked at again. An agent that ends between two steps forgets the carving, and begins it again from the GPU as it is.

A slice is destroyed only while no pod and no book has it (invariant S18). kubelet marks a device as given under one
lock, then calls Allocate, and then shows the device in its List. So the order is:

1. The slices to go are withdrawn: the plug-in lists them as unhealthy, and its Allocate refuses them. No device that
   kubelet has chosen by now is given after this.
2. GetAllocatableResources does not name them any more: kubelet has read the list, and chooses none of them.
3. List shows that nobody has them, and shows the same at least two seconds later: what was given just before 1 is
   visible by then.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from nodeagent.core.mig.card import Ask, Present, Seen, Spot, mistake

_SECOND_NS: Final = 1_000_000_000
#: Between two looks that show that nobody has a slice.
CLEAR_NS: Final = 2 * _SECOND_NS
#: A kubelet that starts does not know its pods yet, and lists none.
KUBELET_SETTLES_NS: Final = 10 * _SECOND_NS
#: For so long the slices are withdrawn without being free.
PATIENCE_NS: Final = 30 * _SECOND_NS


class State(enum.Enum):
    """What became of an attempt. The value is ``status.cards[].carving.state`` of a GpuNode."""

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
class Carving:
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

    carving: Carving | None = None
    action: Destroy | Make | None = None
    outcome: Outcome | None = None


def due(ask: Ask | None, last: Outcome | None) -> Ask | None:
    """Return what is asked for, if it has not ended. ``last``: what was reported last."""
    if ask is None or last is None or last.attempt != ask.attempt or last.state is State.UNDER_WAY:
        return ask
    return None


def step(carving: Carving | None, ask: Ask | None, seen: Seen | None, now_ns: int) -> Step:
    """Return the next step. ``ask``: what is due now. ``seen`` None: the driver or kubelet does not answer."""
    if carving is None:
        return Step() if ask is None or seen is None else _begin(ask, seen, now_ns)
    if not carving.is_cutting:
        if ask is None or ask.attempt != carving.ask.attempt:
            return Step(outcome=Outcome(carving.ask.attempt, State.REFUSED, "the attempt was withdrawn"))
        if now_ns - carving.since_ns >= PATIENCE_NS:
            return _refuse(carving.ask, f"slices to go were not free within {PATIENCE_NS // _SECOND_NS} s")
    if seen is None:
        return Step(carving)
    return _make_again(carving, seen) if carving.error else _cut(carving, seen)


def failed(carving: Carving, action: Destroy | Make, why: str) -> Carving:
    """Take the driver's refusal of an action."""
    if not carving.error:
        return replace(carving, is_cutting=True, error=f"{_named(action)}: {why}")
    return replace(carving, skipped=carving.skipped | {_spot(action)})


def done(carving: Carving) -> Carving:
    """Take that the driver did an action."""
    return replace(carving, is_cutting=True)


def _begin(ask: Ask, seen: Seen, now_ns: int) -> Step:
    if why := mistake(ask, seen.profiles):
        return _refuse(ask, why)
    going = _going(ask.layout, seen)
    if why := next((user for each in going if (user := seen.user_of(each))), ""):
        return _refuse(ask, why)
    withdrawn = frozenset(uuid for each in going for uuid in each.uuids)
    began = Carving(ask=ask, before=tuple(sorted(seen.spots)), withdrawn=withdrawn, since_ns=now_ns)
    return Step(began, outcome=Outcome(ask.attempt, State.UNDER_WAY))


def _cut(carving: Carving, seen: Seen) -> Step:
    going = _going(carving.ask.layout, seen)
    if not going:
        coming = _coming(carving.ask.layout, seen)
        if coming:
            return Step(carving, Make(coming[0]))
        return Step(outcome=Outcome(carving.ask.attempt, State.DONE))
    if _is_clear(carving, going, seen):
        if carving.clear_ns is None:
            return Step(replace(carving, clear_ns=seen.at_ns))
        is_sure = seen.at_ns - carving.clear_ns >= CLEAR_NS
        return Step(carving, Destroy(going[0]) if is_sure else None)
    user = next((user for each in going if (user := seen.user_of(each))), "")
    if user and not carving.is_cutting:
        return _refuse(carving.ask, user)
    return Step(replace(carving, clear_ns=None, error=user))


def _is_clear(carving: Carving, going: Sequence[Present], seen: Seen) -> bool:
    """Whether this look shows that nobody has a slice to go, and that none is given any more."""
    uuids = frozenset(uuid for each in going for uuid in each.uuids)
    is_settled = seen.at_ns - seen.kubelet_since_ns >= KUBELET_SETTLES_NS
    is_withdrawn = uuids <= carving.withdrawn and not uuids & seen.offered
    return is_settled and is_withdrawn and not any(seen.user_of(each) for each in going)


def _make_again(carving: Carving, seen: Seen) -> Step:
    taken = 0
    for each in seen.present:
        # A GPU instance of a slice that was to be made again, without its compute instance, is made whole.
        taken |= 0 if not each.uuids and each.spot in carving.before else each.place.bits
    for spot in _coming(carving.before, seen):
        profile = seen.profiles.get(spot.profile)
        place = next((at for at in profile.places if at.start == spot.start), None) if profile else None
        if place is not None and not place.bits & taken and spot not in carving.skipped:
            return Step(carving, Make(spot))
    return Step(outcome=Outcome(carving.ask.attempt, State.FAILED, carving.error))


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
