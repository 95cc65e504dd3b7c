"""Which scaling pods are to be made, told and deleted, so that an autoscaler adds nodes for shares that want devices.

Pure: what is wanted, what is there and the time go in, steps come out (docs/design/autoscaling.md). Between two calls
only times are kept, and who stood behind which scaling pod: after a restart the first call starts from what is there.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from gpu.share import NANO_PER_DEVICE
from scheduler.core.autoscale.unmet_demand import Want
from scheduler.core.model.pod_class import Constraints


class ScalingPod(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A scaling pod as it was last seen. ``source_uid`` "": one of KAI's, which says namespace and name only.

    ``is_spent``: it names a node or has ended, so its node is there. ``is_told``: its PodScheduled condition is there.
    """

    uid: str
    name: str
    rv: str
    source: tuple[str, str]
    source_uid: str
    gpus: int
    is_spent: bool
    is_told: bool
    deleting: bool


class Create(msgspec.Struct, frozen=True, gc=False):
    """Make a scaling pod for this source."""

    source: Want


class Tell(msgspec.Struct, frozen=True, gc=False):
    """Say of a scaling pod that it is unschedulable, so that autoscalers look at it."""

    pod: ScalingPod


class Remove(msgspec.Struct, frozen=True, gc=False):
    """Delete a scaling pod."""

    pod: ScalingPod


Step = Create | Tell | Remove


@dataclass(slots=True)
class Block:
    """The devices that one scaling pod stands for, what is left of each, and who would be on them."""

    opener: Want
    free_nano: list[int]
    behind: list[str] = field(default_factory=list)

    def take(self, want: Want) -> bool:
        """Charge a pod, each of its shares on a device of its own, the tightest that has room; False if it can't."""
        if max(self.free_nano) < want.nanos[0]:
            return False
        chosen: list[int] = []
        for nano in want.nanos:  # largest first: what is left for it then is the most there can be
            fitting = [n for n, free in enumerate(self.free_nano) if free >= nano and n not in chosen]
            if not fitting:
                return False
            chosen.append(min(fitting, key=self.free_nano.__getitem__))
        for number, nano in zip(chosen, want.nanos, strict=True):
            self.free_nano[number] -= nano
        self.behind.append(want.uid)
        return True


def pack(wants: Iterable[Want], own: Container[str], is_due: Callable[[Want], bool]) -> dict[str, Block]:
    """Put shares on imagined devices, by who opens them. Nodes are shared by those of equal constraints only.

    Those in ``own`` (UIDs) have a scaling pod, and stand for its devices. The others go first fit decreasing, those
    that may have a scaling pod of their own before those that may not yet.
    """
    blocks: dict[str, Block] = {}
    there: dict[Constraints, list[Block]] = {}
    #: Where the last one of a kind was put: those before it are full for its kind, and never become less so.
    starts: dict[tuple[Constraints, tuple[int, ...]], int] = {}
    for want in sorted(wants, key=lambda each: (each.uid not in own, not is_due(each), *_decreasing(each))):
        side = there.setdefault(want.constraints, [])
        kind = (want.constraints, want.nanos)
        start = len(side) if want.uid in own else starts.get(kind, 0)
        while start < len(side) and not side[start].take(want):
            start += 1
        if want.uid not in own:
            starts[kind] = start
        if start == len(side):
            blocks[want.uid] = Block(want, [NANO_PER_DEVICE] * len(want.nanos))
            blocks[want.uid].take(want)
            side.append(blocks[want.uid])
    return blocks


def _decreasing(want: Want) -> tuple[int, list[int]]:
    return -len(want.nanos), [-nano for nano in want.nanos]


@dataclass(slots=True)
class Scaler:
    """Says what to do next, and when time alone changes the answer (``wake_at_s``, None: never).

    ``patience_s``: a device must have been wanted for so long. ``cool_down_s``: who stood behind a scaling pod that is
    gone gets no new one for so long.
    """

    patience_s: float
    cool_down_s: float
    wake_at_s: float | None = None
    _since_s: dict[str, float] = field(default_factory=dict)
    _cool_until_s: dict[str, float] = field(default_factory=dict)
    #: Scaling pod (UID) -> UIDs of the pods whose devices it stands for.
    _behind: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def steps(self, wants: Sequence[Want], there: Iterable[ScalingPod], *, now_s: float) -> list[Step]:
        """What to do about these wants and these scaling pods; removals first."""
        present = sorted(there, key=lambda pod: pod.name)
        self._note_gone({pod.uid for pod in present}, now_s)
        self._since_s = {want.uid: self._since_s.get(want.uid, now_s) for want in wants}
        own = _own(wants, present)

        def is_due(want: Want) -> bool:
            return self._due_s(want.uid) <= now_s

        blocks = pack(wants, own, is_due)
        surplus = _surplus(wants, own, blocks, is_due)
        if surplus is not None:
            self._behind.pop(own.pop(surplus).uid, None)  # others' devices do for its source: nobody misses it
            blocks = pack(wants, own, is_due)
        self._behind |= {pod.uid: tuple(blocks[uid].behind) for uid, pod in own.items()}
        coming = (self._due_s(uid) for uid in blocks.keys() - own.keys())
        self.wake_at_s = min((at_s for at_s in coming if at_s > now_s), default=None)
        needed = {pod.uid for uid, pod in own.items() if _is_as_wanted(pod, blocks[uid].opener)}
        return [
            *(Remove(pod) for pod in present if not pod.deleting and (pod.is_spent or pod.uid not in needed)),
            *(Tell(pod) for pod in present if pod.uid in needed and not (pod.deleting or pod.is_spent or pod.is_told)),
            *(Create(block.opener) for uid, block in blocks.items() if uid not in own and is_due(block.opener)),
        ]

    def cool(self, source_uid: str, *, now_s: float) -> None:
        """A pod gets no scaling pod for a while: making one did not work."""
        self._cool_until_s[source_uid] = now_s + self.cool_down_s

    def _note_gone(self, present: set[str], now_s: float) -> None:
        for uid in self._behind.keys() - present:
            for source in self._behind.pop(uid):
                self.cool(source, now_s=now_s)
        self._cool_until_s = {uid: until for uid, until in self._cool_until_s.items() if until > now_s}

    def _due_s(self, uid: str) -> float:
        return max(self._since_s[uid] + self.patience_s, self._cool_until_s.get(uid, 0.0))


def _own(wants: Iterable[Want], present: Iterable[ScalingPod]) -> dict[str, ScalingPod]:
    """Pods with a scaling pod: by UID, and where it says none (KAI's) by namespace and name. Of several the first."""
    by_source: dict[str | tuple[str, str], ScalingPod] = {}
    for pod in present:
        by_source.setdefault(pod.source_uid or pod.source, pod)
    pairs = ((w.uid, by_source.get(w.uid) or by_source.get((w.namespace, w.name))) for w in wants)
    return {uid: pod for uid, pod in pairs if pod is not None}


def _surplus(
    wants: Sequence[Want], own: Mapping[str, ScalingPod], blocks: Mapping[str, Block], is_due: Callable[[Want], bool]
) -> str | None:
    """Whose scaling pod (source UID) is one too many: all fit on the devices of the others. None if none is.

    Only the emptiest is looked at, by the very packing that the next call makes without it, so that it is not made
    again then; and not while one is about to go.
    """
    is_moving = any(pod.is_spent or pod.deleting for pod in own.values())
    if not own or is_moving or blocks.keys() != own.keys():
        return None
    emptiest = max(reversed(list(own)), key=lambda uid: sum(blocks[uid].free_nano))
    others = own.keys() - {emptiest}
    return emptiest if pack(wants, others, is_due).keys() == others else None


def _is_as_wanted(pod: ScalingPod, source: Want) -> bool:
    """Whether a scaling pod asks what its source needs, which may have been edited since."""
    return pod.gpus == source.demand.gpus
