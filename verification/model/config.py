"""A configuration: how much of everything there is, and what may go wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from verification.model.state import DEVICE, ENDED, POD, RESERVATION, RUNNING, VERSIONS, Binder, Left, Pod, Resv, World
from verification.model.state import INCARNATIONS as PER_NAME

NOTHING: Final = Left()


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """``shares``: per pod the tenths that it asks of each of its devices.

    ``modes``: per pod how schedulers commit it, "direct", "handed" or "" for both (all, if there are none).
    ``hesitant``: a direct decision may be old when it is carried out.
    ``rival``: schedulers do not spare each other's attempts. ``backlog``: withdrawals of a pod that may be unfinished
    when it is decided on again. ``lag``: binders may act on views that have seen nothing since the attempt joined.
    ``impatient``: the collector may fence direct attempts that are still worked on. ``split_collector``: an entry is
    judged and removed in two steps. ``slow_identity``: a reservation runs before it says what it holds.
    ``patient``: the collector leaves entries alone that are worked on. ``gang``: slots of the pods that are one gang.
    ``keeps_room``: it is also checked that nobody else has the room that a gang's plan names.
    ``heeds_fences``: it is also checked that no attempt binds a pod that was fenced for it.
    ``releases``: a gang that is bound in part, and that nobody works on, is evicted. ``known``: this many idle
    reservations exist from the start, through which pods were bound before (``known_ended``: which have ended
    since). ``witness``: the node has an agent, which tells devices early; ``pulls``: the image of reservations can be
    pulled, so their processes run some day. ``rests``: whether it is also checked that the system can always come to
    rest.
    """

    shares: tuple[tuple[int, ...], ...]
    devices: int = 1
    schedulers: int = 1
    binders: int = 1
    modes: tuple[str, ...] = ()
    lag: bool = False
    backlog: int = 0
    rival: bool = False
    impatient: bool = False
    patient: bool = False
    split_collector: bool = False
    slow_identity: bool = False
    witness: bool = False
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
