"""The rules that the model runs by: product functions where the product decides purely, named choices where it acts.

``Rules()`` is the protocol as built. A test that wants to know what a rule is for explores with one of them replaced:
the product itself has no such switches.

The choices transcribe single lines of the product's shells: which preconditions a write carries, in which order two
reads are made, what is waited for. Each names the place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpu import attempts
from gpu.book import Entry, Tenant
from gpu.reservation import Reservation
from kube import books
from sharing import claims, entries, machines, outcome, rebuilding
from sharing import step as steps
from sharing.entries import Evidence, Judgement
from sharing.machines import Heard, Registration
from sharing.outcome import Disputed, Failed, Outcome, Verified
from sharing.pods import PodView
from sharing.state import State
from sharing.state import World as Seen
from sharing.step import Next

Change = Callable[[Reservation], Any]


def fences_told(fences: tuple[int, ...]) -> tuple[int, ...]:
    """What a pod's annotations tell of its fences, the last one first in both."""
    annotations: dict[str, str] = {}
    for attempt in reversed(fences):
        annotations = attempts.fencing(annotations, str(attempt))
    return tuple(int(one) for one in attempts.fences(annotations))


def as_it_is(held: Reservation) -> Reservation:
    """A reservation as its readers see it."""
    return held


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Product functions first, then the choices of the shells."""

    step: Callable[[Sequence[State], Mapping[str, Seen]], list[Next]] = steps.step
    absorb: Callable[[State, Outcome], State] = outcome.absorb
    joining: Callable[[Iterable[Tenant]], Change] = books.joining
    leaving: Callable[[Iterable[Tenant]], Change] = books.leaving
    renewing: Callable[[Tenant, str], Change] = books.renewing
    #: What a direct gang's member does instead (scheduler/commit/direct.py _renew).
    rejoining: Callable[[Tenant, str], Change] = books.rejoining
    judge: Callable[[Entry, Evidence], Judgement] = entries.judge
    heard: Callable[[Heard | None, Registration | None, float], Heard | None] = machines.heard
    rebuild: Callable[[str, Sequence[PodView]], Any] = rebuilding.rebuild
    held_alone: Callable[[Reservation, Sequence[Reservation]], Reservation | Disputed | Failed] = claims.held_alone
    used_by_tenants: Callable[[Reservation, Iterable[PodView]], Verified | Failed] = claims.used_by_tenants
    fences_told: Callable[[tuple[int, ...]], tuple[int, ...]] = fences_told
    see: Callable[[Reservation], Reservation] = as_it_is

    #: The Binding carries the entry's resourceVersion (kube/binding.py post).
    binding_at_rv: bool = True
    #: ... and not a newer one of the pod that was read since.
    binding_at_entry: bool = True
    #: The Binding carries the pod's UID.
    binding_for_uid: bool = True
    #: A book is written at exactly the version that was read (kube/books.py write).
    book_at_rv: bool = True
    #: The fence is a patch at exactly the entry's version (kube/binding.py fence).
    fence_at_rv: bool = True
    #: An idle reservation is deleted at exactly the version whose book was empty (binder/collect/collector.py).
    retire_at_rv: bool = True
    #: Only a reservation with an empty book is retired (binder/collect/collector.py _tend).
    retire_empty: bool = True
    #: A reservation that has ended is deleted by UID (binder/collect/collector.py delete_ended).
    delete_ended_by_uid: bool = True
    #: A BindRequest is deleted by UID (binder/bind/actions.py, scheduler/commit/bind_requests.py take_back).
    request_by_uid: bool = True
    #: The finalizer stays while an unbound tenant is in the book (binder/collect/collector.py let_go).
    finalizer_waits: bool = True
    #: Verification lists reservations before pods (binder/bind/actions.py).
    reservations_first: bool = True
    #: The collector reads the reservation before the pod (binder/collect/dead_entries.py).
    reservation_before_pod: bool = True
    #: Only a device through which a pod was bound is joined directly (scheduler/core: Device.is_open).
    direct_needs_proof: bool = True
    #: The reservation process names its own pod's UID in its patch (reservation/steps.py).
    identity_for_uid: bool = True
    #: The node agent asks kubelet by name only for a reservation that had its startTime when it was read before the
    #: question: from then on the name means this very pod to kubelet (nodeagent, protocol.md, Told early).
    witness_after_start: bool = True
    #: ... and only for one that had not ended then.
    witness_of_living: bool = True
    #: The node agent's patch names the UID of the reservation that it read before the question.
    witness_for_uid: bool = True
    #: ... and is at exactly the version that was read.
    witness_at_rv: bool = True
    #: A binder forgets what it verified of a reservation that tells another device (binder/watch/view.py
    #: note_reservation).
    verified_until_changed: bool = True
    #: What was seen of a pod before it vanished is not taken for its end (binder/watch/view.py forget_pod).
    last_state_is_last: bool = True
    #: A plan is written only where there is none, or a spent one (scheduler/commit/gangs.py).
    plan_only_if_none: bool = True
    #: Taking a plan back fences all its unbound members first (scheduler/commit/gangs.py _take_back).
    plan_fences_first: bool = True
    #: The places of a written plan are kept for its unbound members (scheduler/core/assumed/planned_members.py).
    plan_keeps_places: bool = True


BUILT = Rules()
