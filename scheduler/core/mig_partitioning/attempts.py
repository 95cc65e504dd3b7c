"""Attempts at cutting GPUs: which are under way, for whom, and which GPUs rest.

Pure: what GpuNodes show and the time go in. An attempt is one of ours if its id begins with our prefix; others, that
administrators wrote, are waited for and left alone. What a GpuNode shows counts for its own node's GPUs alone, whatever
UUIDs it names.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import msgspec

from scheduler.core.mig_partitioning.node_choice import GpuPartition
from scheduler.core.model.mig import DONE, FAILED, UNDER_WAY, Gpu, MigCard, MigLayoutAsked, MigNode

PREFIX: Final = "moorage-"
#: Resources, each with its number.
Amounts: TypeAlias = Iterable[tuple[str, int]]


class How(enum.Enum):
    """What became of an attempt of ours. The value is its stable name for machines."""

    ASKED = "asked"
    DONE = "done"
    #: By the agent: nothing was changed.
    REFUSED = "refused"
    #: The driver refused a step.
    FAILED = "failed"
    #: No agent took it up, or it did not end in time.
    WITHDRAWN = "withdrawn"
    #: Its GPU is not shown any more.
    GONE = "gone"
    #: The API server did not take it.
    NOT_WRITTEN = "not-written"


class GpuState(enum.Enum):
    """GPUs that are not cut now, and why. The value is its stable name for machines."""

    UNDER_WAY = "under-way"
    #: After a change.
    RESTING = "resting"
    #: After an attempt in vain.
    LEFT_OUT = "left-out"


class InFlight(msgspec.Struct, kw_only=True):
    """An attempt. ``caps``: what counts of the node's slices until it has ended. ``done_s``: when it was done."""

    node: str
    uuid: str
    attempt: str
    since_s: float
    uids: tuple[str, ...] = ()
    caps: dict[str, int] = {}
    done_s: float | None = None

    @property
    def gpu(self) -> Gpu:
        """Of which GPU."""
        return self.node, self.uuid


class Withdraw(msgspec.Struct, frozen=True):
    """Take an attempt back that the agent did not take up."""

    node: str
    uuid: str
    attempt: str


@dataclass(slots=True)
class Attempts:
    """``rest_s``: of a GPU after each attempt. ``patience_s``: until the agent shows an attempt.

    ``shown_s``: for so long the slices of an attempt that was done are waited for: kubelet tells its Node's resources
    every ten seconds. ``longest_rest_s``: after failures the rest is doubled up to this.
    """

    rest_s: float = 60.0
    patience_s: float = 60.0
    longest_s: float = 600.0
    shown_s: float = 30.0
    longest_rest_s: float = 3600.0
    in_flight: dict[Gpu, InFlight] = field(default_factory=dict)
    _rest_until_s: dict[Gpu, float] = field(default_factory=dict)
    _failures: dict[Gpu, int] = field(default_factory=dict)
    #: Of those that rest, those whose last attempt was in vain.
    _in_vain: set[Gpu] = field(default_factory=set)
    #: How many attempts of ours there were, by what became of them.
    counts: Counter[How] = field(default_factory=Counter)

    def begin(self, partition: GpuPartition, attempt: str, there: Amounts, *, now_s: float) -> None:
        """Take an attempt that is asked for from now on. ``there``: resources that the node offers."""
        uuid, caps = partition.cut.uuid, self._caps_of(partition.node, partition.cut.gone, there)
        one = InFlight(node=partition.node, uuid=uuid, attempt=attempt, since_s=now_s, uids=partition.uids, caps=caps)
        self.in_flight[one.gpu] = one
        self.counts[How.ASKED] += 1

    def _caps_of(self, node: str, gone: Amounts, there: Amounts) -> dict[str, int]:
        """What counts of a node's slices while these go, beside those that go already."""
        counted = dict(there)
        for resource, most in self.caps().get(node, {}).items():
            counted[resource] = min(counted.get(resource, most), most)
        return {resource: max(0, counted.get(resource, 0) - number) for resource, number in gone}

    def forget(self, node: str, uuid: str) -> None:
        """Take that an attempt was not asked for, as far as is known."""
        if self.in_flight.pop((node, uuid), None) is not None:
            self.counts[How.NOT_WRITTEN] += 1

    def drop(self, node: str, uuid: str, *, now_s: float, how: How = How.NOT_WRITTEN) -> None:
        """Take that an attempt could not be asked for, or ended in vain: the GPU rests, longer each time."""
        gpu = node, uuid
        one = self.in_flight.pop(gpu, None)
        if one is not None and one.done_s is None:
            self._count(one, how)
        failures = self._failures[gpu] = self._failures.get(gpu, 0) + 1
        self._in_vain.add(gpu)
        self._rest_until_s[gpu] = now_s + min(self.rest_s * 2 ** min(failures - 1, 16), self.longest_rest_s)

    def _count(self, one: InFlight, how: How) -> None:
        """Count an end; those that others asked for are not ours."""
        self.counts[how] += one.attempt.startswith(PREFIX)

    def states(self, now_s: float) -> Counter[GpuState]:
        """How many GPUs are not cut now, and why."""
        found = Counter({GpuState.UNDER_WAY: sum(one.done_s is None for one in self.in_flight.values())})
        for gpu, until_s in self._rest_until_s.items():
            if until_s > now_s:
                found[GpuState.LEFT_OUT if gpu in self._in_vain else GpuState.RESTING] += 1
        return found

    def busy(self, now_s: float) -> set[Gpu]:
        """GPUs that can't be cut now."""
        return {*self.in_flight, *(gpu for gpu, until in self._rest_until_s.items() if until > now_s)}

    def covered(self) -> set[str]:
        """Pods (UIDs) for which slices are being made."""
        return {uid for one in self.in_flight.values() for uid in one.uids}

    def caps(self) -> dict[str, dict[str, int]]:
        """What counts of each node's slices; of several attempts there the least."""
        found: dict[str, dict[str, int]] = {}
        for one in self.in_flight.values():
            of_node = found.setdefault(one.node, {})
            for resource, most in one.caps.items():
                of_node[resource] = min(of_node.get(resource, most), most)
        return {node: caps for node, caps in found.items() if caps}

    def next_s(self) -> float | None:
        """When time alone changes something."""
        times = [*self._rest_until_s.values()]
        times += [one.since_s + self.patience_s for one in self.in_flight.values() if one.done_s is None]
        times += [one.done_s + self.shown_s for one in self.in_flight.values() if one.done_s is not None]
        return min(times, default=None)

    def observe(
        self, nodes: Mapping[str, MigNode], *, now_s: float, there: Callable[[str], Amounts | None] = lambda _: None
    ) -> list[Withdraw]:
        """Take what GpuNodes show; return what to take back.

        ``there``: resources that a node (by name) offers; None: nothing is cut on it.
        """
        self._rest_until_s = {gpu: until for gpu, until in self._rest_until_s.items() if until > now_s}
        self._in_vain &= self._rest_until_s.keys()
        self._failures = {gpu: number for gpu, number in self._failures.items() if _card(nodes, gpu) is not None}
        # Of most nodes nothing is asked: a look at 1,000 of them takes no longer than at those few.
        for node in nodes.values():
            for card in node.cards if node.asked else ():
                self._adopt(node, card, there, now_s)
        withdrawn = (self._look(one, _card(nodes, one.gpu), now_s) for one in list(self.in_flight.values()))
        return [each for each in withdrawn if each is not None]

    def _adopt(self, node: MigNode, card: MigCard, there: Callable[[str], Amounts | None], now_s: float) -> None:
        """Take an attempt that another scheduler, or somebody else, asked for. Its slices that go count no more."""
        gpu, asked = (node.name, card.uuid), node.asked_of(card.uuid)
        if asked is None or not node.is_open(card.uuid) or gpu in self.in_flight or gpu in self._rest_until_s:
            return
        amounts = there(node.name)
        caps = {} if amounts is None else self._caps_of(node.name, _going(card, asked), amounts)
        one = InFlight(node=node.name, uuid=card.uuid, attempt=asked.attempt, since_s=now_s, caps=caps)
        self.in_flight[gpu] = one

    def _look(self, one: InFlight, card: MigCard | None, now_s: float) -> Withdraw | None:
        if card is None:
            self.drop(*one.gpu, now_s=now_s, how=How.GONE)
            return None
        if one.done_s is not None:
            if now_s >= one.done_s + self.shown_s:
                del self.in_flight[one.gpu]
            return None
        if card.attempt == one.attempt and card.state != UNDER_WAY:
            self._end(one, card, now_s)
            return None
        waits_s = self.longest_s if card.attempt == one.attempt else self.patience_s
        if now_s < one.since_s + waits_s:
            return None
        self.drop(*one.gpu, now_s=now_s, how=How.WITHDRAWN)
        return Withdraw(one.node, one.uuid, one.attempt) if one.attempt.startswith(PREFIX) else None

    def _end(self, one: InFlight, card: MigCard, now_s: float) -> None:
        if card.state != DONE:
            self.drop(*one.gpu, now_s=now_s, how=How.FAILED if card.state == FAILED else How.REFUSED)
            return
        one.done_s = now_s
        self._count(one, How.DONE)
        self._failures.pop(one.gpu, None)
        self._in_vain.discard(one.gpu)
        self._rest_until_s[one.gpu] = now_s + self.rest_s


def _card(nodes: Mapping[str, MigNode], gpu: Gpu) -> MigCard | None:
    """Return a GPU as its GpuNode shows it."""
    name, uuid = gpu
    node = nodes.get(name)
    return None if node is None else next((each for each in reversed(node.cards) if each.uuid == uuid), None)


def _going(card: MigCard, asked: MigLayoutAsked) -> Amounts:
    """Slices of a GPU that a layout does not have, by resource."""
    going = (each for each in card.slices if each.is_whole and (each.profile, each.start) not in asked.layout)
    return Counter(each.resource for each in going).items()
