"""Gangs on nearly full nodes, while GPUs come free one by one: none sleeps that would start if it were tried."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.decide.allowance import LIMITS, Allowance
from scheduler.core.decide.attempts import Attempts
from scheduler.core.decide.gangs import whole_gang
from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.model.plan import Entry, Explain, Placement, Retire, placements
from scheduler.core.nodes.table import GPUS
from scheduler.core.scheduling_queue.effects import Effects
from scheduler.core.scheduling_queue.queue import SchedulingQueue
from tests.scheduler.core.objects import bound, cluster, feed, node, pod, pod_group, reservation
from tests.whole import examples
from wire.core import Pod

_NODES = ["n0", "n1", "n2", "n3"]
_ASKS: list[dict[str, Any]] = [{"gpus": 1}, {"gpus": 1, "cpu": "3"}, {"gpus": 2}, {"cpu": "3"}, {"fraction": "0.5"}]
#: At this interval counts are brought up to date, by which a gang is tried again. Not here.
_NEVER_NS = 10**18


class Crowd:
    """A cluster, and pods of others that come and go on it."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.made = rng, cluster(*(node(name, 4, cpu="8") for name in _NODES))
        self.pods: dict[str, Pod] = {}
        self.running: list[str] = []
        self.idle: list[str] = []
        self.gangs: list[str] = []
        self.number = 0
        for _ in range(40):
            self.run()

    def step(self) -> None:
        """One thing happens, and all that can start does."""
        steps = [self.run] * 5 + [self.end] * 7 + [self.reserve] * 4 + [self.unreserve, self.turn, self.turn]
        steps += [self.come, self.come, self.come, self.come_alone, self.go, self.go]
        self.rng.choice(steps)()
        self.decide()

    # --- what happens --------------------------------------------------------------------------------------------
    def run(self) -> None:
        name, node_name, gpus = self._name("r"), self.rng.choice(_NODES), self.rng.choice([1, 1, 2])
        if self._free(node_name) >= gpus:
            feed(self.made, bound(pod(name, gpus=gpus, cpu=self.rng.choice(["1", "2"])), node_name))
            self.running.append(f"uid-{name}")

    def end(self) -> None:
        if self.running:
            self.made.remove_pod(self._taken(self.running))

    def reserve(self) -> None:
        """A device that was shared, and nobody uses it."""
        node_name = self.rng.choice(_NODES)
        if self._free(node_name):
            made = reservation(self._name("g"), node_name)
            feed(self.made, made)
            self.idle.append(made.metadata.uid)

    def unreserve(self) -> None:
        if self.idle:
            self.made.remove_pod(self._taken(self.idle))

    def turn(self) -> None:
        feed(self.made, node(self.rng.choice(_NODES), 4, cpu="8", cordoned=self.rng.random() < 0.4))

    def come(self) -> None:
        """A gang of equal members, now and then in two parts of which one is enough."""
        name, count, asked = self._name("g"), self.rng.randint(2, 8), self.rng.choice(_ASKS)
        has_parts = self.rng.random() < 0.25
        parts = [{"name": "a", "minMember": count}, {"name": "b", "minMember": self.rng.randint(1, count)}]
        spec: dict[str, Any] = {"minSubGroup": 1, "subGroups": parts} if has_parts else {"minMember": count}
        feed(self.made, pod_group(name, **spec))
        for part in "ab" if has_parts else [""]:
            self._members(name, count, subgroup=part, **asked)
        self.gangs.append(name)

    def come_alone(self) -> None:
        self._members("", 1, gpus=1)

    def go(self) -> None:
        if self.gangs:
            name = self._taken(self.gangs)
            for uid in [uid for uid, each in self.pods.items() if each.metadata.name.startswith(f"{name}-")]:
                self.made.remove_pod(uid)
            self.made.remove_pod_group("ns", name)

    def _members(self, group: str, count: int, **asked: Any) -> None:
        for _ in range(count):
            made = pod(f"{group}-{self._name('p')}", group=group, **asked)
            self.pods[made.metadata.uid] = made
            feed(self.made, made)

    def _name(self, kind: str) -> str:
        self.number += 1
        return f"{kind}{self.number}"

    def _taken(self, of: list[str]) -> str:
        return of.pop(self.rng.randrange(len(of)))

    def _free(self, name: str) -> int:
        ledger = self.made.refresh()
        return int(ledger.table.free[GPUS, ledger.row_of[name]])

    # --- decisions -----------------------------------------------------------------------------------------------
    def decide(self) -> None:
        """Carry out what is decided, until nothing is."""
        for _ in range(50):
            self.made.scheduling_queue.recount_ns = _NEVER_NS
            plan = self.made.decide(0)
            self.made.told([entry for entry in plan.entries if isinstance(entry, Explain)])
            retired = [entry.reservation_uid for entry in plan.entries if isinstance(entry, Retire)]
            for uid in retired:
                self.made.remove_pod(uid)
                self.idle.remove(uid)
            placed = list(placements(plan.entries))
            for placement in placed:
                self._carry_out(placement)
            if not placed and not retired and plan.wake_at_ns != 0:
                return
        raise AssertionError("decisions go on and on")

    def _carry_out(self, placement: Placement) -> None:
        """Shares are given to nobody: their pods are gone."""
        if placement.devices:
            self.made.remove_pod(placement.pod_uid)
        else:
            feed(self.made, bound(self.pods[placement.pod_uid], placement.node))
            self.running.append(placement.pod_uid)

    def would_start(self) -> Iterator[tuple[str, str]]:
        """Gangs that start if they are tried now."""
        snapshot = self.made.snapshot()
        return (key for key in sorted(self.made.scheduling_queue.gangs()) if _tried(snapshot, key))


def _tried(snapshot: Snapshot, key: tuple[str, str]) -> Sequence[Entry]:
    """What comes of a gang that is decided on alone, by a decision that remembers nothing."""
    entries: list[Entry] = []
    attempts = Attempts(
        snapshot, 0, LIMITS, Allowance(namespaces=1, most=10**9), Effects(SchedulingQueue(snapshot.ledger))
    )
    whole = whole_gang(snapshot.scheduling_queue.gang(key), attempts, entries)
    while whole is not None and whole.decide():
        pass
    return entries


@settings(max_examples=examples(8))
@given(seed=st.integers(0, 2**32))
def test_no_gang_sleeps_that_would_start(seed: int) -> None:
    crowd = Crowd(random.Random(seed))
    for _ in range(40):
        crowd.step()
        assert not list(crowd.would_start())
