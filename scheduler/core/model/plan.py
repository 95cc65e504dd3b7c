"""What ``decide`` answers: a plan of small values, which the shell carries out.

An entry names pods by UID and carries all that its write needs (resourceVersion, charges), so that the shell adds no
decision of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from gpu.bind_request import PlannedDevice
from gpu.grant import Charged
from scheduler.core.model.devices import ClaimChoice
from scheduler.core.model.pod_class import VolumeChoice
from scheduler.core.model.preemption import Ended, Nomination, Victim
from scheduler.core.model.verdict import SubgroupShort, Verdict


class Placement(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One pod on one node. ``devices`` in the order of its asks; empty when it has no shares.

    ``rv`` is the pod's resourceVersion that was decided on: the only one that its Binding may use.
    ``number`` is the attempt number of this pod (grows with each try). ``alternative``: which of its requests the
    devices are for, 0 for the first. ``volumes``: of its claims that are not bound yet.
    ``claims``: its ResourceClaims that are not allocated and reserved for it yet. ``charged``: what it counts for in
    its queue from now on.
    """

    pod_uid: str
    namespace: str
    name: str
    rv: str
    node: str
    devices: tuple[PlannedDevice, ...] = ()
    number: int = 0
    alternative: int = 0
    volumes: tuple[VolumeChoice, ...] = ()
    claims: tuple[ClaimChoice, ...] = ()
    charged: Charged | None = None

    @property
    def claimed_nano(self) -> int:
        """The part of a device that a claim which is to be made gives it."""
        if not self.claims:
            return 0
        made = (choice.made.share for choice in self.claims if choice.made is not None)
        return sum(share.nano for share in made if share is not None)


class Bind(msgspec.Struct, frozen=True, gc=False, tag="bind"):
    """Bind at once: whole GPUs, MIG slices or CPU only. One write."""

    placement: Placement


class Join(msgspec.Struct, frozen=True, gc=False, tag="join"):
    """Join books of verified reservations, then bind: a further share on known devices. No binder involved."""

    placement: Placement


class Attempt(msgspec.Struct, frozen=True, gc=False, tag="attempt"):
    """Hand over to the binder by a BindRequest: a device is not known yet, or steps are needed before binding."""

    placement: Placement


class Hold(msgspec.Struct, frozen=True, gc=False, tag="hold"):
    """Wait, charged, for a device that another pod's attempt is about to make known; then it is decided on again.

    A further share needs no BindRequest of its own then (protocol.md, Writes).
    """

    placement: Placement


class Prepare(msgspec.Struct, frozen=True, gc=False, tag="prepare"):
    """Have the claims of these pods bound, which start together; then they are decided on again (volumes.md).

    ResourceClaims are allocated and reserved (claims.md). Until then the pods are charged. Pods without such claims are
    among them where their gang has some.
    """

    placements: tuple[Placement, ...]


class Gang(msgspec.Struct, frozen=True, gc=False, tag="gang", kw_only=True):
    """Pods that start together or not at all: the plan is written on the PodGroup first.

    ``by_binder``: at least one member needs the binder, so all go there; else all members are direct.
    ``pod_group`` is (namespace, name); ``rv`` its resourceVersion, the plan's precondition.
    """

    pod_group: tuple[str, str]
    rv: str
    placements: tuple[Placement, ...]
    by_binder: bool


class Retire(msgspec.Struct, frozen=True, gc=False, tag="retire"):
    """Remove an idle reservation (by UID and resourceVersion) because ``for_pod`` needs the whole device."""

    reservation_uid: str
    for_pod: str


class Withdraw(msgspec.Struct, frozen=True, gc=False, tag="withdraw"):
    """Take this placement back: its node owes an answer, and elsewhere there is room that needs none."""

    placement: Placement


class Explain(msgspec.Struct, frozen=True, gc=False, tag="explain", kw_only=True):
    """Why these pods (UIDs) wait. Written only when it differs from what the pods say already."""

    pods: tuple[str, ...]
    pod_group: tuple[str, str] | None
    verdict: Verdict


class Nominate(msgspec.Struct, frozen=True, gc=False, tag="nominate"):
    """Pods have to go for others (preemption.md): the shell charges the nomination before the next event is taken.

    That is ``Commits.nominations.put``; one of the same id that stands was revised, and is replaced. Then it is
    written, and its victims are evicted once it is. If it is not written, ``drop`` takes the charge back: nobody was
    evicted.
    """

    nomination: Nomination


class GiveUp(msgspec.Struct, frozen=True, gc=False, tag="give-up"):
    """A nomination is over (docs/design/preemption.md): ``Commits.nominations.end``, and ``drop`` once it is on record.

    Its victims that were not asked to go yet stay.
    """

    nomination_id: str
    because: Ended


class Evict(msgspec.Struct, frozen=True, gc=False, tag="evict", kw_only=True):
    """What is left of a gang that has been below its minimum for its grace time has to go (kai-contract 4.7).

    ``pod_group`` is (namespace, name). ``pods``: its bound members. ``minimum``, ``short``: what it lacks, for people;
    ``short`` is the subgroup, None if that is not the reason. The shell asks the API server whether that is so before
    anybody goes.
    """

    pod_group: tuple[str, str]
    pod_group_uid: str
    pods: tuple[Victim, ...]
    minimum: int
    short: SubgroupShort | None


#: An entry that places one pod.
Alone = Bind | Join | Attempt | Hold
Entry = Alone | Prepare | Gang | Retire | Withdraw | Explain | Nominate | GiveUp | Evict


class Plan(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Entries in the order of decision. ``wake_at_ns``: when time alone changes the answer (None: never)."""

    entries: tuple[Entry, ...] = ()
    wake_at_ns: int | None = None


def placements(entries: Iterable[Entry]) -> Iterator[Placement]:
    """All placements of a plan's entries, in the order of decision; not those that are taken back."""
    for entry in entries:
        match entry:
            case Bind(placement=placement) | Join(placement=placement):
                yield placement
            case Attempt(placement=placement) | Hold(placement=placement):
                yield placement
            case Gang() | Prepare():
                yield from entry.placements
            case _:
                pass
