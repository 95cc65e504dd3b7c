"""Free GPUs of one node that no pod of some kinds can take, by cause. Exact, and without NumPy.

A device counts as usable if one more pod of one kind could take it, or a part of it, as the node is now. What is free
of every other device is unusable. Filters that look at a pod's labels, tolerations or volumes are left out. Of the
kinds that wait, and the usual ones, only those are kept of which none asks for less in everything: the answer is the
same.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Final

import msgspec

from gpu.share import NANO_PER_DEVICE
from scheduler.core.model.pod_kind import LEAST_PODS, WHOLE_MILLI, Kind, asked_kind, most_frequent, usual
from scheduler.core.model.records import NodeRecord, PodRecord
from scheduler.core.model.settings import Settings
from scheduler.core.nodes.node_usage import Group, Occupancy, largest_free_mib
from wire import names

#: The most kinds that are looked at, of usual ones and of those that wait: the most frequent.
MOST_LOOKED_AT: Final = 256
#: And the most that are kept, of which none asks for less in everything.
MOST_KEPT: Final = 32


def counted_kinds(came: Mapping[Kind, int], waiting: Mapping[Kind, int], *, arrival: int = 1) -> tuple[Kind, ...]:
    """Return the kinds that count.

    ``came``: pods that came to nodes, each counted ``arrival`` times; of fewer than ``LEAST_PODS`` nothing is usual.
    """
    is_known = sum(came.values()) >= LEAST_PODS * arrival
    kinds = [kind for kind, _ in usual(came)[:MOST_LOOKED_AT]] if is_known else []
    return _least([*kinds, *(kind for kind, _ in islice(most_frequent(waiting), MOST_LOOKED_AT))])


def waiting_kinds(pods: Iterable[PodRecord]) -> Counter[Kind]:
    """Count pods without a node by their kind, of those that may start now; the most frequent classes of them."""
    classes = Counter(pod.cls for pod in pods if not (pod.gated or pod.deleting or pod.is_elsewhere))
    found: Counter[Kind] = Counter()
    for cls, count in classes.most_common(MOST_LOOKED_AT):
        if (kind := asked_kind(cls)) is not None:
            found[kind] += count
    return found


def _least(kinds: Iterable[Kind]) -> tuple[Kind, ...]:
    """The kinds of which none asks for less in everything; of too many the first."""
    kept: list[Kind] = []
    for kind in kinds:
        if any(_is_within(other, kind) for other in kept):
            continue
        kept = [other for other in kept if not _is_within(kind, other)]
        if len(kept) < MOST_KEPT:
            kept.append(kind)
    return tuple(kept)


def _is_within(kind: Kind, other: Kind) -> bool:
    """Whether a kind can take every device that the other can take, and wants no more beside it."""
    if kind.is_whole != other.is_whole or (kind.milli == 0) != (other.milli == 0):
        return False
    return (
        kind.devices <= other.devices
        and kind.milli <= other.milli
        and kind.device_mib <= other.device_mib
        and kind.cpu_milli <= other.cpu_milli
        and kind.mem_mib <= other.mem_mib
    )


NANO_PER_MILLI: Final = NANO_PER_DEVICE // WHOLE_MILLI


class Cause(enum.Enum):
    """Why free GPUs are unusable."""

    #: The node is not ready, or is cordoned.
    NOT_READY = "not-ready"
    CORDONED = "cordoned"
    #: The shared device takes no tenant: it is unhealthy, contended, or its reservation is leaving or lost.
    CLOSED = "closed"
    #: Less is free of the device, or fewer devices of the node, than any kind asks for.
    PIECES = "pieces"
    #: The devices would do, and this is short beside them.
    CPU = "cpu"
    MEMORY = "memory"
    POD_SLOTS = "pod-slots"
    #: At least two of these three are short, for every kind.
    SEVERAL = "several"


#: What a kind lacks beside a device, as bits of a number; 0: nothing, so the device is usable.
LACKS_CPU: Final = 1
LACKS_MEMORY: Final = 2
LACKS_POD_SLOTS: Final = 4


def _cause_of(found: int) -> Cause | None:
    alone = ((LACKS_CPU, Cause.CPU), (LACKS_MEMORY, Cause.MEMORY), (LACKS_POD_SLOTS, Cause.POD_SLOTS))
    if not found:
        return Cause.PIECES
    return None if found & 1 else next((cause for lack, cause in alone if found >> lack & 1), Cause.SEVERAL)


#: Of each set of lacks that kinds have beside a device (bit ``1 << lack`` each): the cause; None: the device is usable.
CAUSES: Final = tuple(_cause_of(found) for found in range(1 << 8))


class Piece(msgspec.Struct, frozen=True, gc=False):
    """What is free of a shared device. ``free_mib``: the largest memory ask that fits.

    ``takes_shares``: it is open. ``comes_back``: a pod that asks for whole devices is given it, since it has no tenant.
    """

    free_nano: int
    free_mib: int
    takes_shares: bool
    comes_back: bool


class NodeLeft(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What is left of a node. ``gpus``: devices that nobody has; below zero if more is used than it offers.

    ``takes_shares``: devices may be opened for shares. ``out``: why the node takes no pod at all.
    """

    cpu_milli: int
    mem_mib: int
    pods: int
    gpus: int
    largest_card_mib: int
    takes_shares: bool
    pieces: tuple[Piece, ...] = ()
    out: Cause | None = None

    @property
    def is_used_up(self) -> bool:
        """Whether nothing is free of any device."""
        return self.gpus <= 0 and not self.pieces


def node_left(node: NodeRecord, used: Occupancy) -> NodeLeft:
    """Return what is left of a node that was counted."""
    shared = (group for group in used.groups.values() if group.resource == names.GPU_RESOURCE)
    return NodeLeft(
        cpu_milli=node.capacity.cpu_milli - used.cpu_milli,
        mem_mib=node.capacity.mem_mib - used.mem_mib,
        pods=node.pods - used.pods,
        gpus=node.capacity.gpus - used.gpus,
        largest_card_mib=node.largest_card_mib,
        takes_shares=not node.refuses_shares,
        pieces=tuple(_piece(group, node) for group in shared if group.free_nano),
        out=out_of(node),
    )


def out_of(node: NodeRecord) -> Cause | None:
    """Return why a node takes no pod at all."""
    return Cause.NOT_READY if not node.is_ready else Cause.CORDONED if node.is_cordoned else None


def _piece(group: Group, node: NodeRecord) -> Piece:
    free = group.free_nano
    return Piece(
        free,
        largest_free_mib(free, group.mem_mib, node.smallest_card_mib, node.largest_card_mib),
        group.is_open and not node.refuses_shares,
        group.is_idle or group.is_leaving,
    )


class Use(msgspec.Struct, frozen=True, gc=False):
    """Nano-GPU. All four together are what device plugins offer, unless more is used than that.

    ``free``: whole devices. ``pieces``: what is left of shared devices that take tenants. ``stranded``: what is free
    and nobody can get now: on nodes that are not ready, cordoned, or without CPU, memory or pod slots, and on shared
    devices that are closed.
    """

    used: int = 0
    free: int = 0
    pieces: int = 0
    stranded: int = 0


def use_of_node(node: NodeRecord, used: Occupancy) -> Use:
    """Return how much of a counted node is used, free, free in pieces only, and stranded."""
    left = node_left(node, used)
    shared = [
        (group.free_nano, group.is_open) for group in used.groups.values() if group.resource == names.GPU_RESOURCE
    ]
    can_be_had = left.out is None and min(left.cpu_milli, left.mem_mib, left.pods) > 0
    return Use(*use_of(node.capacity.gpus, left.gpus, shared, can_be_had=can_be_had))


def use_of(total: int, free: int, shared: Sequence[tuple[int, bool]], *, can_be_had: bool) -> tuple[int, int, int, int]:
    """What is used, free, in pieces and stranded of one node.

    ``free`` below zero: more is used than is offered, since devices fell ill, say. ``shared``: what is free of each
    shared GPU, and whether it is open.
    """
    left = sum(nano for nano, _ in shared)
    pieces = sum(nano for nano, is_open in shared if is_open) if can_be_had else 0
    whole = max(0, total - free - len(shared))
    unused = max(0, free) * NANO_PER_DEVICE
    got = unused if can_be_had else 0
    return (whole + len(shared)) * NANO_PER_DEVICE - left, got, pieces, unused + left - got - pieces


def unusable_nano(left: NodeLeft, kinds: Sequence[Kind], settings: Settings) -> dict[Cause, int]:
    """Return the nano-GPU of a node that are free and that no pod of these kinds can take, by cause.

    Without kinds nobody knows what is of use: then only what nobody at all can take is unusable. ``settings``: what the
    reservation pod of a device that is opened for a share takes.
    """
    found: dict[Cause, int] = {}

    def add(cause: Cause | None, nano: int) -> None:
        if cause is not None and nano:
            found[cause] = found.get(cause, 0) + nano

    if left.is_used_up:
        return found
    if left.out is not None:
        add(left.out, max(left.gpus, 0) * NANO_PER_DEVICE + sum(piece.free_nano for piece in left.pieces))
        return found
    lacks = _Lacks(left, settings)
    if left.gpus > 0 and kinds:
        add(CAUSES[lacks.found(kinds, None)], left.gpus * NANO_PER_DEVICE)
    for piece in left.pieces:
        cause = CAUSES[lacks.found(kinds, piece)] if kinds else None if piece.takes_shares else Cause.CLOSED
        add(cause if cause is None or piece.takes_shares else Cause.CLOSED, piece.free_nano)
    return found


def unusable_in_sum(nodes: Iterable[NodeLeft], kinds: Sequence[Kind], settings: Settings) -> dict[Cause, int]:
    """Return the same of many nodes together, every cause with something, in the order of causes."""
    sums: dict[Cause, int] = {}
    for left in nodes:
        for cause, nano in unusable_nano(left, kinds, settings).items():
            sums[cause] = sums.get(cause, 0) + nano
    return {cause: sums[cause] for cause in Cause if cause in sums}


class _Lacks:
    """What kinds lack beside devices of one node."""

    def __init__(self, left: NodeLeft, settings: Settings) -> None:
        self._left = left
        self._settings = settings
        self._coming_back = sum(piece.comes_back for piece in left.pieces)

    def found(self, kinds: Iterable[Kind], piece: Piece | None) -> int:
        """The set of lacks beside a piece, or beside a device that nobody has; see ``CAUSES``."""
        found = 0
        for kind in kinds:
            opened = self._opened(kind, piece)
            if opened is not None:
                found |= 1 << self._lack(kind, opened)
                if found & 1:
                    break
        return found

    def _opened(self, kind: Kind, piece: Piece | None) -> int | None:
        """How many devices are opened so that a pod of a kind takes this device; None: it can't."""
        left = self._left
        if kind.is_whole:
            is_had = piece is None or piece.comes_back
            return 0 if is_had and kind.devices <= left.gpus + self._coming_back else None
        if not left.takes_shares or (piece is not None and not _holds(piece, kind)):
            return None
        holding = sum(_holds(each, kind) for each in left.pieces)
        opened = max(kind.devices - holding, 0 if piece is not None else 1)
        if opened > left.gpus or (opened and kind.device_mib > left.largest_card_mib):
            return None
        return opened

    def _lack(self, kind: Kind, opened: int) -> int:
        left, settings = self._left, self._settings
        cpu = kind.cpu_milli + opened * settings.reservation_cpu_milli
        memory = kind.mem_mib + opened * settings.reservation_mem_mib
        lack = LACKS_CPU if cpu and left.cpu_milli < cpu else 0
        lack |= LACKS_MEMORY if memory and left.mem_mib < memory else 0
        return lack | (LACKS_POD_SLOTS if left.pods < 1 + opened else 0)


def _holds(piece: Piece, kind: Kind) -> bool:
    if not piece.takes_shares:
        return False
    return piece.free_mib >= kind.device_mib if kind.device_mib else piece.free_nano >= kind.milli * NANO_PER_MILLI
