"""What the API server answered to an action, and what a state makes of it.

Actions that are safe to repeat (join, renew, drop, fence, leave) are repeated by the shell until they are answered, so
they have no "unknown" outcome here. A Binding is never repeated blindly: an answer that is not a clear yes is settled
by a quorum read (docs/design/protocol.md, step 3).
"""

from __future__ import annotations

import msgspec

from gpu.attempts import Cause
from sharing.failure import Failure
from sharing.pods import PodView
from sharing.state import Joined, Phase, State

#: A Binding that is refused this often, with the pod found unbound and willing each time, is given up.
MAX_TRIES = 6


class JoinedAs(msgspec.Struct, frozen=True, gc=False):
    """The book has our entry. ``rv`` is the entry's own: an earlier incarnation may have renewed it."""

    group: str
    reservation: str
    rv: str


class Failed(msgspec.Struct, frozen=True, gc=False):
    """A join, a verification or a ConfigMap was refused for good."""

    failure: Failure


class Verified(msgspec.Struct, frozen=True, gc=False):
    """No other claim on the device was found. The shell keeps the fact in its world."""

    group: str


class Disputed(msgspec.Struct, frozen=True, gc=False):
    """Another claim on the device is there, by a reservation that is going: look again."""

    group: str
    detail: str


class PodRead(msgspec.Struct, frozen=True, gc=False):
    """Quorum read of the pod; None: there is no pod of this UID any more."""

    pod: PodView | None


class ConfigMapsWritten(msgspec.Struct, frozen=True, gc=False):
    """Both ConfigMaps are there with their final content, owned by this pod."""


class BindingAccepted(msgspec.Struct, frozen=True, gc=False):
    """201: the pod is bound with everything that the Binding carried."""


class BoundTold(msgspec.Struct, frozen=True, gc=False):
    """The pod has the condition, or it could not be written: either way it is not tried again."""


class BindingNotAccepted(msgspec.Struct, frozen=True, gc=False):
    """Refused, or no answer (``is_unknown``: it may still land): nothing is known until the pod is read."""

    detail: str
    is_unknown: bool = True


class Renewed(msgspec.Struct, frozen=True, gc=False):
    """Our entry has moved to ``rv``."""

    group: str
    rv: str


class EntryGone(msgspec.Struct, frozen=True, gc=False):
    """Our entry is not in the book any more: somebody judged it dead."""

    group: str


class RequestDropped(msgspec.Struct, frozen=True, gc=False):
    """The BindRequest is gone."""


class Fenced(msgspec.Struct, frozen=True, gc=False):
    """The pod has a new resourceVersion and is unbound: no Binding of ours can land any more."""


class FenceMissed(msgspec.Struct, frozen=True, gc=False):
    """The pod was not at that resourceVersion any more."""


class Left(msgspec.Struct, frozen=True, gc=False):
    """Our entry is out of this group's book, or the book is gone."""

    group: str


Outcome = (
    JoinedAs | Failed | Verified | Disputed | PodRead | ConfigMapsWritten | BindingAccepted | BindingNotAccepted
    | BoundTold | Renewed | EntryGone | RequestDropped | Fenced | FenceMissed | Left
)  # fmt: skip


def absorb(state: State, outcome: Outcome) -> State:  # noqa: C901, PLR0911, PLR0912 - one flat case per outcome reads best
    """Return the state after an outcome."""
    match outcome:
        case JoinedAs(group=group, reservation=reservation, rv=rv):
            return _joined(state, group, Joined(reservation, rv))
        case Failed(failure=failure):
            return fail(state, failure)
        case Verified():
            return state
        case Disputed(detail=detail):
            return msgspec.structs.replace(state, disputed=detail)
        case PodRead(pod=pod):
            return _after_read(msgspec.structs.replace(state, reads=state.reads + 1), pod)
        case ConfigMapsWritten():
            return msgspec.structs.replace(state, has_config_maps=True)
        case BindingAccepted():
            return msgspec.structs.replace(state, phase=_after_binding(state))
        case BoundTold():
            return msgspec.structs.replace(state, has_told=True)
        case BindingNotAccepted(detail=detail, is_unknown=is_unknown):
            return _not_accepted(state, detail, is_unknown=is_unknown)
        case Renewed(group=group, rv=rv):
            return _renewed(state, group, rv)
        case EntryGone(group=group):
            return fail(_without(state, group), Failure(cause=Cause.RESERVATION_LOST, detail=f"group {group}"))
        case RequestDropped():
            return msgspec.structs.replace(state, phase=_after_drop(state))
        case Fenced():
            return msgspec.structs.replace(state, phase=Phase.LEAVE)
        case FenceMissed():
            return msgspec.structs.replace(state, pod=None, phase=Phase.SETTLE)
        case Left(group=group):
            return _without(state, group)


def fail(state: State, failure: Failure) -> State:
    """Turn to withdrawing; the first failure is the one that is reported."""
    if state.failure is not None:
        return state
    return msgspec.structs.replace(state, failure=failure, phase=_withdrawing(state))


def _withdrawing(state: State) -> Phase:
    """A direct attempt has no BindRequest, and leaves without a fence where no Binding can land (step 4)."""
    if not state.attempt.is_direct:
        return Phase.DROP
    return Phase.FENCE if state.may_land else Phase.LEAVE


def _after_binding(state: State) -> Phase:
    return Phase.END if state.attempt.is_direct else Phase.CLOSE


#: Failures after which the pod can't be at our resourceVersion: it is read before it would be fenced.
_READ_FIRST = frozenset({Cause.POD_GONE, Cause.BOUND_ELSEWHERE})


def _after_drop(state: State) -> Phase:
    if state.failure is None:
        return Phase.END
    return Phase.SETTLE if state.failure.cause in _READ_FIRST else Phase.FENCE


def _joined(state: State, group: str, joined: Joined) -> State:
    return msgspec.structs.replace(state, joined={**state.joined, group: joined})


def _without(state: State, group: str) -> State:
    return msgspec.structs.replace(state, joined={g: j for g, j in state.joined.items() if g != group})


def _not_accepted(state: State, detail: str, *, is_unknown: bool) -> State:
    tries = state.tries + 1
    may_land = state.may_land or is_unknown
    state = msgspec.structs.replace(state, tries=tries, pod=None, phase=Phase.SETTLE, refused=detail, may_land=may_land)
    if tries < MAX_TRIES or state.attempt.is_direct:  # a direct one is read first, and may have been bound after all
        return state
    return fail(state, Failure(cause=Cause.REFUSED, detail=detail))


def _renewed(state: State, group: str, rv: str) -> State:
    if group not in state.joined:
        return state
    state = _joined(state, group, Joined(state.joined[group].reservation, rv))
    if state.phase is not Phase.RENEW:
        return state  # another device's entry was gone: the attempt has failed
    is_complete = all(joined.rv == state.rv for joined in state.joined.values())
    return msgspec.structs.replace(state, phase=Phase.BIND) if is_complete else state


def _after_read(state: State, pod: PodView | None) -> State:
    """Settle by a quorum read: bound by us, dead for a reason, or unbound and to be gone on with."""
    if pod is not None and state.attempt.is_done(pod):
        return msgspec.structs.replace(state, pod=pod, failure=None, phase=_after_binding(state))
    if state.failure is not None:
        return _withdraw_after_read(state, pod)
    if (failure := unwilling(state, pod) or _given_up(state, pod)) is not None:
        failed = fail(msgspec.structs.replace(state, pod=pod), failure)
        return _withdraw_after_read(failed, pod) if state.attempt.is_direct else failed
    assert pod is not None  # noqa: S101 - unwilling() names None a failure
    if pod.rv == state.rv:
        return _go_on(msgspec.structs.replace(state, pod=pod))
    # What is written for one version of the pod holds for that version (binder/core/reservation_pod.py), and no
    # Binding at the old one can land.
    return _go_on(msgspec.structs.replace(state, pod=pod, rv=pod.rv, has_config_maps=False, may_land=False))


def _given_up(state: State, pod: PodView | None) -> Failure | None:
    """Why a direct attempt ends where the binder would go on: the scheduler decides again, which costs it nothing.

    A pod alone that was changed is decided on again; a member of a gang goes on, as others may be bound. A clear
    refusal at the version that was posted would be given again.
    """
    if not state.attempt.is_direct or pod is None or not state.tries:
        return None
    if pod.rv != state.rv and not state.attempt.plan:
        return Failure(cause=Cause.REQUEST_CHANGED)
    if state.tries >= MAX_TRIES or (pod.rv == state.rv and not state.may_land):
        return Failure(cause=Cause.REFUSED, detail=state.refused)
    return None


def _withdraw_after_read(state: State, pod: PodView | None) -> State:
    """Which entries of a failed attempt may be taken out by us, and whether the pod must be fenced first.

    A pod that is gone may have been bound by our late Binding and may still run: its entries, and those of a pod that
    somebody else bound to our groups, are the collector's to judge (sharing/entries.py).
    """
    if pod is None:
        return msgspec.structs.replace(state, pod=None, joined={}, phase=Phase.LEAVE)
    if pod.is_bound:
        ours = {group: joined for group, joined in state.joined.items() if group not in pod.held_groups}
        return msgspec.structs.replace(state, pod=pod, joined=ours, phase=Phase.LEAVE)
    if pod.deleting or pod.was_fenced_for(state.attempt.id) or not _wants_fence(state, pod):
        return msgspec.structs.replace(state, pod=pod, phase=Phase.LEAVE)
    return msgspec.structs.replace(state, pod=pod, rv=pod.rv, phase=Phase.FENCE)


def _wants_fence(state: State, pod: PodView) -> bool:
    """Whether an unbound pod needs the fence: as long as our Binding may land, or to tell the scheduler why we failed.

    After the scheduler took the attempt back, a pod at another version may be on its way by a new attempt. The
    scheduler itself need not be told.
    """
    at_ours = pod.rv in {state.rv, *(joined.rv for joined in state.joined.values())}
    if state.attempt.is_direct:
        return at_ours and state.may_land
    return at_ours or (state.failure is not None and state.failure.cause is not Cause.WITHDRAWN)


def _go_on(state: State) -> State:
    stale = any(joined.rv != state.rv for joined in state.joined.values())
    return msgspec.structs.replace(state, phase=Phase.RENEW if stale else Phase.BIND)


def unwilling(state: State, pod: PodView | None) -> Failure | None:
    """Why a pod that was just read can't be bound by this attempt, or None."""
    attempt = state.attempt
    if pod is None or pod.uid != attempt.pod_uid or pod.ended or pod.deleting:
        return Failure(cause=Cause.POD_GONE)
    if pod.is_bound:
        return Failure(cause=Cause.BOUND_ELSEWHERE, detail=f"to node {pod.node}")
    if pod.was_fenced_for(attempt.id):
        return Failure(cause=Cause.WITHDRAWN, detail="the pod was fenced")
    if pod.gated or not attempt.asks_same(pod):
        return Failure(cause=Cause.REQUEST_CHANGED)
    return None
