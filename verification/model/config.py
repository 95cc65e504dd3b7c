"""The rules that the model runs by, and its configurations: how much of everything there is, and what may go wrong.

Small configurations are explored in every run of the tests, larger ones on demand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar

from gpu import attempts
from gpu.book import Entry, Tenant
from gpu.reservation import Reservation
from kube import books
from sharing import claims, entries, node_liveness, outcome, rebuilding
from sharing import step as steps
from sharing.entries import Evidence, Judgement
from sharing.node_liveness import Heard, Registration
from sharing.outcome import Disputed, Failed, Outcome, Verified
from sharing.pods import PodView
from sharing.state import State
from sharing.state import World as Seen
from sharing.step import Next
from verification.model.state import DEVICE, ENDED, POD, RESERVATION, RUNNING, VERSIONS, Binder, Left, Pod, Resv, World
from verification.model.state import INCARNATIONS as PER_NAME

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
    """The protocol as built: product functions where the product decides purely, named choices where it acts.

    A test that wants to know what a rule is for explores with one of them replaced: the product itself has no such
    switches. The choices transcribe single lines of the product's shells: which preconditions a write carries, in which
    order two reads are made, what is waited for. Each names the place.
    """

    step: Callable[[Sequence[State], Mapping[str, Seen]], list[Next]] = steps.step
    absorb: Callable[[State, Outcome], State] = outcome.absorb
    joining: Callable[[Iterable[Tenant]], Change] = books.joining
    leaving: Callable[[Iterable[Tenant]], Change] = books.leaving
    renewing: Callable[[Tenant, str], Change] = books.renewing
    #: What a direct gang's member does instead (scheduler/commit/direct.py _renew).
    rejoining: Callable[[Tenant, str], Change] = books.rejoining
    judge: Callable[[Entry, Evidence], Judgement] = entries.judge
    heard: Callable[[Heard | None, Registration | None, float], Heard | None] = node_liveness.heard
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
    #: The collector reads the reservation before the pod (binder/collect/book_repair.py).
    reservation_before_pod: bool = True
    #: Only a device through which a pod was bound is joined directly (scheduler/core: Device.is_open).
    direct_needs_proof: bool = True
    #: The reservation process names its own pod's UID in its patch (reservation/steps.py).
    identity_for_uid: bool = True
    #: The node agent asks kubelet by name only for a reservation that had its startTime when it was read before the
    #: question: from then on the name means this very pod to kubelet (nodeagent, protocol.md, Told early).
    reporter_after_start: bool = True
    #: ... and only for one that had not ended then.
    reporter_of_living: bool = True
    #: The node agent's patch names the UID of the reservation that it read before the question.
    reporter_for_uid: bool = True
    #: ... and is at exactly the version that was read.
    reporter_at_rv: bool = True
    #: A binder forgets what it verified of a reservation that tells another device (binder/watch/view.py
    #: note_reservation).
    verified_until_changed: bool = True
    #: What was seen of a pod before it vanished is not taken for its end (binder/watch/view.py forget_pod).
    last_state_is_last: bool = True
    #: A plan is written only where there is none, or a spent one (scheduler/commit/gangs.py).
    plan_only_if_none: bool = True
    #: Taking a plan back fences all its unbound members first (scheduler/commit/gangs.py _take_back).
    plan_fences_first: bool = True
    #: The places of a written plan are kept for its unbound members (scheduler/core/assumed/commits.py).
    plan_keeps_places: bool = True


BUILT = Rules()


NOTHING: Final = Left()


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """``shares``: per pod the tenths that it asks of each of its devices.

    ``modes``: per pod how schedulers commit it, "direct", "handed" or "" for both (all, if there are none).
    ``hesitant``: a direct decision may be old when it is carried out. ``rival``: schedulers do not spare each other's
    attempts. ``scheduling_queue``: withdrawals of a pod that may be unfinished when it is decided on again. ``lag``:
    binders may act on views that have seen nothing since the attempt joined. ``impatient``: the collector may fence
    direct attempts that are still worked on. ``split_collector``: an entry is judged and removed in two steps.
    ``slow_identity``: a reservation runs before it says what it holds. ``patient``: the collector leaves entries alone
    that are worked on. ``gang``: slots of the pods that are one gang. ``keeps_room``: it is also checked that nobody
    else has the room that a gang's plan names. ``heeds_fences``: it is also checked that no attempt binds a pod that
    was fenced for it. ``releases``: a gang that is bound in part, and that nobody works on, is evicted. ``known``: this
    many idle reservations exist from the start, through which pods were bound before (``known_ended``: which have ended
    since). ``reporter``: the node has an agent, which tells devices early; ``pulls``: the image of reservations can be
    pulled, so their processes run some day. ``rests``: whether it is also checked that the system can always come to
    rest.
    """

    shares: tuple[tuple[int, ...], ...]
    devices: int = 1
    schedulers: int = 1
    binders: int = 1
    modes: tuple[str, ...] = ()
    lag: bool = False
    scheduling_queue: int = 0
    rival: bool = False
    impatient: bool = False
    patient: bool = False
    split_collector: bool = False
    slow_identity: bool = False
    reporter: bool = False
    pulls: bool = True
    gang: tuple[int, ...] = ()
    releases: bool = False
    keeps_room: bool = False
    heeds_fences: bool = False
    left: Left = NOTHING
    rests: bool = True
    known: int = 0
    known_ended: bool = False
    hesitant: bool = False

    @property
    def classes(self) -> tuple[int, ...]:
        """Per pod a number; pods of one class are interchangeable."""
        asked = [(share, self.mode(slot), slot in self.gang) for slot, share in enumerate(self.shares)]
        kinds = sorted(set(asked))
        return tuple(kinds.index(one) for one in asked)

    def mode(self, slot: int) -> str:
        """How schedulers commit a pod."""
        return self.modes[slot] if self.modes else ""

    def world(self) -> World:
        """The first state: all pods are there, and nothing else but perhaps a reservation."""
        uids = [POD + slot * PER_NAME for slot in range(len(self.shares))]
        resvs = [self._known(RESERVATION + at, DEVICE + at) for at in range(self.known)]
        return World(
            pods=tuple(Pod(uid, uid * VERSIONS) for uid in uids),
            requests=(None,) * len(uids),
            resvs=(*resvs, *(None,) * (self.devices + 1 - self.known)),
            ghosts=(),
            late=(),
            schedulers=((),) * self.schedulers,
            binders=(Binder(),) * self.binders,
            collector=(),
            plan=(),
            left=self.left,
        )

    def _known(self, uid: int, device: int) -> Resv:
        if self.known_ended:
            return Resv(uid, uid * VERSIONS, (), uuid=device, phase=ENDED, proven=True)
        return Resv(uid, uid * VERSIONS, (), dev=device, uuid=device, phase=RUNNING, proven=True)


#: 0.5 and 0.6: both do not fit on one device. Halves do.
UNEQUAL: Final = ((5,), (6,))
HALVES: Final = ((5,), (5,))
DIRECT: Final = ("direct", "direct")
HANDED: Final = ("handed", "handed")


C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class Named(Generic[C]):
    """A configuration of one of the systems, with its name."""

    name: str
    config: C


#: Two schedulers at once that do not spare each other's attempts, on a device that is known.
TWO_LEADERS: Final = Config(shares=UNEQUAL, known=1, modes=DIRECT, schedulers=2, rival=True)
#: Two halves and a pod that doesn't fit beside either; all join directly.
THREE: Final = Config(shares=(*HALVES, (6,)), known=1, modes=(*DIRECT, "direct"))
#: Two halves that belong together, and a third that takes the room of one.
GANG: Final = Config(shares=(*HALVES, (5,)), known=1, modes=(*DIRECT, "direct"), gang=(0, 1), releases=True)
GANG_HANDED: Final = Config(shares=HALVES, modes=HANDED, gang=(0, 1))
#: The node has an agent that tells devices before the processes of their reservations run.
EARLY: Final = Config(shares=HALVES, reporter=True)
EARLY_ALONE: Final = Config(shares=((5,),), devices=2, reporter=True, modes=("handed",))
#: Everybody twice, everything late: too many states to be all seen.
ALL_AT_ONCE: Final = Config(
    shares=UNEQUAL,
    schedulers=2,
    binders=2,
    rival=True,
    scheduling_queue=1,
    lag=True,
    impatient=True,
    split_collector=True,
    slow_identity=True,
    hesitant=True,
    rests=False,
)

#: Complete, each in seconds.
QUICK: Final = (
    Named("two pods that don't fit together", Config(shares=UNEQUAL)),
    Named("two halves, a slow device", Config(shares=HALVES, slow_identity=True, left=Left(silences=1))),
    Named("two devices, two schedulers", Config(shares=UNEQUAL, devices=2, schedulers=2)),
    Named("a late write", Config(shares=UNEQUAL, left=Left(lates=1))),
    Named("an edited pod", Config(shares=HALVES, left=Left(touches=1))),
    Named("two binders", Config(shares=HALVES, binders=2)),
    Named("a binder that crashes", Config(shares=HALVES, left=Left(binder_crashes=1))),
    Named(
        "a scheduler that crashes, a late write",
        Config(shares=UNEQUAL, known=1, modes=("direct", ""), left=Left(scheduler_crashes=1, lates=1)),
    ),
    Named(
        "two leaders, an edited pod, a late write",
        replace(TWO_LEADERS, hesitant=True, left=Left(lates=1, touches=1)),
    ),
    Named(
        "two leaders, a pod deleted and made again, a late write",
        replace(TWO_LEADERS, left=Left(deletes=1, recreates=1, lates=1)),
    ),
    Named("two devices each", Config(shares=((5, 5), (5, 5)), devices=2, known=2, modes=DIRECT, schedulers=2)),
    Named(
        "a reservation lost",
        Config(shares=HALVES, known=1, modes=("direct", "handed"), left=Left(unreserves=1)),
    ),
    Named("three pods, a late write", replace(THREE, left=Left(lates=1))),
    Named(
        "three pods, two leaders, an impatient collector, an edit, a late write",
        replace(THREE, schedulers=2, rival=True, impatient=True, left=Left(lates=1, touches=1)),
    ),
    Named(
        "late views, one pod, an edit, a reservation lost",
        Config(shares=((5,),), known=1, modes=("handed",), lag=True, left=Left(touches=1, unreserves=1)),
    ),
    Named(
        "late views, two pods, a reservation lost",
        Config(shares=UNEQUAL, known=1, modes=("handed", "direct"), lag=True, left=Left(unreserves=1)),
    ),
    Named("a gang at the binder", replace(GANG_HANDED, shares=UNEQUAL, devices=2)),
    Named("a gang at the binder that crashes", replace(GANG_HANDED, left=Left(binder_crashes=1))),
    Named("a direct gang, a member edited", replace(GANG, left=Left(touches=1))),
    Named(
        "a direct gang, its scheduler crashes, its room is kept",
        replace(GANG, keeps_room=True, left=Left(scheduler_crashes=1)),
    ),
    Named("a direct gang, its scheduler crashes, a late write", replace(GANG, left=Left(scheduler_crashes=1, lates=1))),
    Named("told early, two pods that don't fit together", replace(EARLY, shares=UNEQUAL)),
    Named("told early, two halves, a slow process", replace(EARLY, slow_identity=True, left=Left(silences=1))),
    Named(
        "told early, an image that can't be pulled, a binder that crashes",
        replace(EARLY, pulls=False, left=Left(binder_crashes=1, late_words=1)),
    ),
    Named(
        "told early, a reservation deleted by force, a late agent",
        replace(EARLY_ALONE, known=1, left=Left(forced=1, late_words=1)),
    ),
    Named(
        "told early, a reservation lost, a late agent",
        replace(EARLY, known=1, modes=("direct", "handed"), left=Left(unreserves=1, late_words=1)),
    ),
    Named("told early, another device, a late agent", replace(EARLY_ALONE, left=Left(swaps=1, late_words=1))),
)

LARGE: Final = (
    Named("a pod deleted and made again", Config(shares=UNEQUAL, left=Left(deletes=1, recreates=1))),
    Named("a pod that vanishes and is made again", Config(shares=UNEQUAL, left=Left(vanishes=1, recreates=1))),
    Named(
        "one pod, two binders, a late write, an edit", Config(shares=((5,),), binders=2, left=Left(lates=1, touches=1))
    ),
    Named("one pod, two leaders, a late write", Config(shares=((5,),), schedulers=2, rival=True, left=Left(lates=1))),
    Named(
        "one pod, a binder that crashes, a late write, an edit",
        Config(shares=((5,),), left=Left(binder_crashes=1, lates=1, touches=1)),
    ),
    Named(
        "a reservation lost, a late write",
        Config(shares=UNEQUAL, known=1, modes=("direct", "handed"), left=Left(lates=1, unreserves=1)),
    ),
    Named(
        "two leaders, an impatient collector in two steps, an edit, a refusal, a late write",
        replace(TWO_LEADERS, impatient=True, split_collector=True, left=Left(lates=1, touches=1, refusals=1)),
    ),
    Named(
        "two leaders, one crashes, an impatient collector, a deletion, a late write",
        replace(TWO_LEADERS, impatient=True, hesitant=True, left=Left(lates=1, scheduler_crashes=1, deletes=1)),
    ),
    Named("a reservation evicted, two devices", Config(shares=HALVES, devices=2, left=Left(evictions=1))),
    Named("a gang at the binder, its scheduler crashes", replace(GANG_HANDED, left=Left(scheduler_crashes=1))),
    Named("a gang at the binder, a member edited, a late write", replace(GANG_HANDED, left=Left(touches=1, lates=1))),
    Named(
        "a direct gang, two leaders, an edit, a late write",
        replace(GANG, shares=HALVES, modes=DIRECT, schedulers=2, rival=True, left=Left(touches=1, lates=1)),
    ),
    Named(
        "told early, a pod deleted and made again, a late agent",
        replace(EARLY_ALONE, left=Left(deletes=1, recreates=1, late_words=1)),
    ),
    Named("told early, a reservation lost", replace(EARLY, modes=HANDED, left=Left(unreserves=1))),
    Named("two devices and one", Config(shares=((5, 5), (6,)), devices=2)),
    Named(
        "late views, an edit, a reservation lost", Config(shares=UNEQUAL, lag=True, left=Left(touches=1, unreserves=1))
    ),
    Named(
        "all at once, two pods",
        replace(
            ALL_AT_ONCE,
            left=Left(
                deletes=1,
                vanishes=1,
                recreates=1,
                touches=1,
                unreserves=1,
                evictions=1,
                lates=2,
                binder_crashes=1,
                scheduler_crashes=1,
                silences=1,
                refusals=1,
            ),
        ),
    ),
    Named(
        "all at once, three pods on two devices",
        replace(
            ALL_AT_ONCE,
            shares=(*HALVES, (6,)),
            devices=2,
            left=Left(deletes=1, recreates=1, touches=1, unreserves=1, lates=2, binder_crashes=1, scheduler_crashes=1),
        ),
    ),
)
