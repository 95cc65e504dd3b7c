"""What is free on one node by the checker's own count, and what a pod takes of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import combinations

from simulator.checks import counting
from simulator.checks.counting import NANO
from simulator.facts import Ask, PodFacts
from simulator.sharing import asked
from wire import names

Shared = dict[str, tuple[int, int]]
"""Group -> (free nano-GPU, its card's MiB)."""


@dataclass(slots=True)
class Room:
    """What is free on a node. A device that is opened for a pod counts as full afterwards.

    ``is_cut``: it has MIG slices, so that no card of it is shared.
    """

    name: str
    gpus: int
    cpu_milli: int
    mem_mib: int
    pods: int
    smallest_mib: int
    shared: Shared = field(default_factory=dict)
    is_cut: bool = False

    def copy(self) -> Room:
        """Another one, to try something on."""
        return replace(self, shared=dict(self.shared))

    @property
    def key(self) -> tuple[int | bool | tuple[tuple[int, int], ...], ...]:
        """The same for nodes on which the same fits."""
        devices = tuple(sorted(self.shared.values()))
        return (self.gpus, self.cpu_milli, self.mem_mib, self.pods, self.smallest_mib, devices, self.is_cut)

    def without(self, pod: PodFacts) -> Room:
        """The same node when a pod will have left it. A device that it leaves idle counts as shared, not as whole."""
        room = self.copy()
        for grant in pod.grants:
            if grant.group in room.shared:
                free, card_mib = room.shared[grant.group]
                room.shared[grant.group] = (free + grant.nano, card_mib)
        room.gpus += counting.whole_gpus(pod)
        room.pods += 1
        room.cpu_milli += counting.demand(pod, "cpu", per=counting.MILLI)
        room.mem_mib += counting.demand(pod, "memory", per=counting.MIB)
        return room

    def take(self, pod: PodFacts) -> bool:
        """Charge a pod if it fits."""
        whole = counting.demand(pod, names.GPU_RESOURCE)
        opened = self._share(share_of(pod), spare=self.gpus - whole)
        if opened is None or whole > self.gpus:
            return False
        self.gpus -= whole + opened
        self.pods -= 1 + opened
        self.cpu_milli -= counting.demand(pod, "cpu", per=counting.MILLI)
        self.mem_mib -= counting.demand(pod, "memory", per=counting.MIB)
        return min(self.pods, self.cpu_milli, self.mem_mib) >= 0

    def ways(self, pod: PodFacts) -> Iterator[Room]:
        """Yield this node as each choice of devices for a pod would leave it; nothing where it doesn't fit."""
        whole = counting.demand(pod, names.GPU_RESOURCE)
        for opened, shared in self._choices(share_of(pod), spare=self.gpus - whole):
            gpus, slots = self.gpus - whole - opened, self.pods - 1 - opened
            cpu_milli = self.cpu_milli - counting.demand(pod, "cpu", per=counting.MILLI)
            mem_mib = self.mem_mib - counting.demand(pod, "memory", per=counting.MIB)
            if min(gpus, slots, cpu_milli, mem_mib) >= 0:
                yield Room(self.name, gpus, cpu_milli, mem_mib, slots, self.smallest_mib, shared, self.is_cut)

    def _share(self, ask: Ask | None, *, spare: int) -> int | None:
        """Charge shares, the fullest devices first; return how many devices were opened, None if it doesn't fit."""
        if ask is None:
            return 0
        if self.is_cut:
            return None
        left = ask.devices
        for group, (free, card_mib) in sorted(self.shared.items(), key=lambda item: item[1][0]):
            nano = nano_of(ask, card_mib)
            if left and nano <= free:
                self.shared[group] = (free - nano, card_mib)
                left -= 1
        if not left:
            return 0
        return left if left <= spare and self._can_open(ask) else None

    def _choices(self, ask: Ask | None, *, spare: int) -> Iterator[tuple[int, Shared]]:
        """Yield how many devices might be opened, and what would then be left of those that are known."""
        if ask is None:
            yield 0, dict(self.shared)
            return
        if self.is_cut:
            return
        roomy = [group for group, (free, card_mib) in self.shared.items() if nano_of(ask, card_mib) <= free]
        most = min(spare, ask.devices) if self._can_open(ask) else 0
        for opened in range(max(0, most) + 1):
            for groups in combinations(roomy, ask.devices - opened):
                yield opened, {**self.shared, **{group: self._charged(ask, group) for group in groups}}

    def _charged(self, ask: Ask, group: str) -> tuple[int, int]:
        free, card_mib = self.shared[group]
        return free - nano_of(ask, card_mib), card_mib

    def _can_open(self, ask: Ask) -> bool:
        """Whether any card of the node is large enough."""
        return nano_of(ask, self.smallest_mib) <= NANO


def need_of(pod: PodFacts) -> tuple[int, int, int, Ask | None]:
    """The same for pods that fit in the same rooms."""
    return (
        counting.demand(pod, names.GPU_RESOURCE),
        counting.demand(pod, "cpu", per=counting.MILLI),
        counting.demand(pod, "memory", per=counting.MIB),
        share_of(pod),
    )


def share_of(pod: PodFacts) -> Ask | None:
    """What it asks of shared devices."""
    return next((ask for ask in pod.asks.values() if not ask.is_whole), None)


def nano_of(ask: Ask, card_mib: int) -> int:
    """What an ask costs on a card at least; more than a device where it can't be."""
    if not card_mib and ask.mem_mib is not None:
        return NANO + 1
    return asked(ask, card_mib).least_nano(card_mib)
