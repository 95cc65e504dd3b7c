"""Teams whose queues, PodGroups and labels change all the time: nobody sleeps who could start, all sums are right."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule
from typing_extensions import override

from scheduler.core.decide.allowance import LIMITS, Allowance
from scheduler.core.decide.attempts import Attempts
from scheduler.core.decide.gangs import whole_gang
from scheduler.core.decide.single_pods import decide_alone
from scheduler.core.decide.snapshot import Snapshot, obstacle
from scheduler.core.model.plan import Entry, Explain, Retire, placements
from scheduler.core.queues.use import allocatable, held
from scheduler.core.scheduling_queue.effects import Effects
from scheduler.core.scheduling_queue.queue import SchedulingQueue
from tests.scheduler.core.objects import changed, node, pod, pod_group, queue
from tests.scheduler.core.stories.test_machine import Scheduling
from tests.whole import examples
from wire import names
from wire.core import Toleration

_TEAMS = ["default-queue", "a", "b", "dept"]
_CARDS = ["", "20000", "40000", "80000", "20000,40000"]
_ASKS: list[dict[str, Any]] = [
    {"fraction": "0.5"},
    {"fraction": "0.333"},
    {"mem": 10000},
    {"mem": 15000},
    {"gpus": 1},
    {"gpus": 2},
    {"cpu": "2"},
    {"cpu": "500m"},
]
_SEEDS = st.integers(0, 2**32)
_PREEMPTIBILITY = ["", "preemptible", "non-preemptible"]


class Teams(Scheduling):
    """The same world, in which what pods count for, and where, changes as often as pods come and go."""

    @override
    def _small_steps(self) -> dict[Callable[[random.Random], None], int]:
        return {
            **super()._small_steps(),
            self._change_queue: 5,
            self._change_cards: 3,
            self._change_group: 4,
            self._change_labels: 4,
        }

    @override
    def _put_node(self, name: str, **fields: Any) -> None:
        cards = fields.pop("cards", "40000")
        told = {names.NODE_CARDS: cards} if cards else {}
        self.world.put_node(node(name, gpus=2, cpu="4", annotations=told, **fields))

    def _change_cards(self, rng: random.Random) -> None:
        self._put_node(rng.choice(["n0", "n1", "n2"]), cards=rng.choice(_CARDS))

    @override
    def _arrive(self, rng: random.Random) -> None:
        if rng.random() < 0.2:
            self._arrive_alike(rng)
            return
        group, count = "", rng.randint(1, 3)
        if rng.random() < 0.5:
            group = f"g{self.created}"
            self._put_group(rng, group, max(1, count + rng.randint(-2, 1)))
        asked = rng.choice(_ASKS)
        for _ in range(count):
            self.created += 1
            asked = asked if rng.random() < 0.7 else rng.choice(_ASKS)
            priority = rng.choice([0, 0, 0, 100])
            made = pod(f"p{self.created:03}", group=group, labels=self._labels(rng), priority=priority, **asked)
            self.world.put_pod(made)

    def _arrive_alike(self, rng: random.Random) -> None:
        """A gang whose members ask one thing, some of which may find a place while it can't start."""
        count, asked, group = rng.randint(2, 6), rng.choice(_ASKS), f"g{self.created}"
        self._put_group(rng, group, count - rng.choice([0, 0, 1]))
        for _ in range(count):
            self.created += 1
            self.world.put_pod(pod(f"p{self.created:03}", group=group, **asked))

    def _labels(self, rng: random.Random) -> dict[str, str]:
        labels = {names.QUEUE_LABEL: rng.choice(_TEAMS), names.PREEMPTIBILITY_LABEL: rng.choice(_PREEMPTIBILITY)}
        return {key: value for key, value in labels.items() if value}

    def _put_group(self, rng: random.Random, name: str, minimum: int) -> None:
        said: dict[str, Any] = {"preemptibility": rng.choice(_PREEMPTIBILITY)} if rng.random() < 0.3 else {}
        self.world.put_group(pod_group(name, minimum, queue=rng.choice(_TEAMS), **said))

    def _change_group(self, rng: random.Random) -> None:
        """A PodGroup is given to another team, or deleted, or made again."""
        named = {(each.metadata.annotations or {}).get(names.POD_GROUP_NAME) for each in self.world.pods.values()}
        if not (all_named := sorted(name for name in named if name)):
            return
        name = rng.choice(all_named)
        known = self.world.groups.get(name)
        if known is not None and rng.random() < 0.2:
            self.world.drop_group(name)
        else:
            minimum = known.spec.min_member if known is not None else 1
            self._put_group(rng, name, minimum or 1)

    def _change_labels(self, rng: random.Random) -> None:
        uids = self._tenants(bound=rng.random() < 0.3)
        if uids:
            of = self.world.pods[rng.choice(uids)]
            kept = {key: value for key, value in (of.metadata.labels or {}).items() if key not in _CHANGING}
            self.world.put_pod(changed(of, labels={**kept, **self._labels(rng)}))

    @override
    def _change_queue(self, rng: random.Random) -> None:
        name = rng.choice(_TEAMS)
        if name in self.world.shares and rng.random() < 0.2:
            self.world.drop_share(name)
            return
        parent = rng.choice(["", "", "dept", "a"])
        quota, limit = rng.choice([-1, 0, 0.25, 1, 1.5, -2]), rng.choice([-1, -1, 0.25, 0.5, 0.75, 1, 2, 3])
        cpu = rng.choice([(-1, 1, -1), (-1, 1, -1), (1000, 1, 2500), (0, 0, 500)])
        self.world.put_share(queue(name, parent, gpu=(quota, rng.choice([0, 1, 2.5]), limit), cpu=cpu))

    # --- a quiet world ---------------------------------------------------------------------------------------------
    @rule(seed=_SEEDS, steps=st.integers(5, 40))
    def one_thing_changes_at_a_time(self, seed: int, steps: int) -> None:
        rng = random.Random(seed)
        changes = [self._arrive] * 4 + [self._go, self._end, self._touch, self._change_node, self._change_queue]
        changes += [self._change_cards, self._change_group, self._change_labels, self._change_tolerations]
        for _ in range(steps):
            rng.choice(changes)(rng)
            self._calm_down()
            self.who_sleeps_would_not_start_if_he_were_decided_on()
            self._come_to_rest()

    def _change_tolerations(self, rng: random.Random) -> None:
        if uids := self._tenants(bound=False):
            of = self.world.pods[rng.choice(uids)]
            more = [Toleration(key=f"t{rng.randint(0, 2)}", operator="Exists")]
            spec = msgspec.structs.replace(of.spec, tolerations=more)
            self.world.put_pod(changed(msgspec.structs.replace(of, spec=spec)))

    def _calm_down(self) -> None:
        """Carry out whatever is decided, until nothing is under way and nothing more is placed."""
        world = self.world
        for _ in range(30):
            world.deliver_all()
            world.look_for_departed()
            world.collect()
            before = len(world.commits)
            self._decide(random.Random(0))
            if not before and not world.commits and not any(world.queues.values()):
                return
            for uid in sorted(world.commits):
                world.advance(uid)
        raise AssertionError("what is decided is never carried out")

    def _come_to_rest(self) -> None:
        """Decide when it is time to: counts are brought up to date, and then there is nothing to do any more (L5)."""
        for _ in range(20):
            plan = self.world.cluster.decide(self.world.now_ns)
            if plan.wake_at_ns is None or list(placements(plan.entries)):
                return
            self.world.now_ns = plan.wake_at_ns
        raise AssertionError("decisions go on and on, and nothing has changed")

    # --- what always holds ---------------------------------------------------------------------------------------
    @invariant()
    def who_sleeps_would_not_start_if_he_were_decided_on(self) -> None:
        cluster, now_ns = self.world.cluster, self.world.now_ns
        plan = cluster.decide(now_ns)
        if plan.wake_at_ns == now_ns or not all(isinstance(entry, Explain) for entry in plan.entries):
            return  # what is placed now is charged, and wakes others or not when that is known
        scheduling_queue = self.world.recorded.scheduling_queue
        if any(isinstance(entry, Retire) for entry in plan.entries) or self.world.recorded.commits.flights():
            return  # room is kept for who waits for a device, or for the minimum of his gang
        snapshot = self.world.recorded.snapshot()
        for record in cluster.waiting():
            if not record.pod_group:
                entries = _alone(snapshot, record.uid, now_ns)
                assert entries == [], f"pod {record.name} waits, and may start"
        for key in sorted(scheduling_queue.gangs()):
            assert _of_gang(snapshot, key, now_ns) == [], f"gang {key} waits, and may start"

    @invariant()
    def what_queues_divide_is_a_recount(self) -> None:
        cluster = self.world.recorded
        cluster.refresh()
        total = sum(allocatable(each).gpu_nano for each in cluster._nodes.values())
        foreign = [each for each in cluster._pods.records.values() if each.is_foreign and each.node]
        for each in foreign:
            on = cluster.node(each.node)
            total -= held(each, on).gpu_nano if on is not None and on.is_ready else 0
        assert cluster.queues._total.gpu_nano == total


_CHANGING = {names.QUEUE_LABEL, names.PREEMPTIBILITY_LABEL}


def _fresh(snapshot: Snapshot, now_ns: int) -> Attempts:
    """Tries of one who is decided on alone, by a decision that remembers nothing."""
    allowance = Allowance(namespaces=1, most=10**9)
    return Attempts(snapshot, now_ns, LIMITS, allowance, Effects(SchedulingQueue(snapshot.ledger)))


def _alone(snapshot: Snapshot, uid: str, now_ns: int) -> list[Entry]:
    known = snapshot.pod(uid)
    assert known is not None
    judged = snapshot.judged(known, now_ns)
    entries: list[Entry] = []
    if not judged.gated and obstacle(snapshot, judged, now_ns)[0] is None:
        decide_alone(judged, _fresh(snapshot, now_ns), entries)
    return entries


def _of_gang(snapshot: Snapshot, key: tuple[str, str], now_ns: int) -> list[Entry]:
    entries: list[Entry] = []
    whole = whole_gang(snapshot.scheduling_queue.gang(key), _fresh(snapshot, now_ns), entries)
    while whole is not None and whole.decide():
        pass
    return entries


Teams.TestCase.settings = settings(max_examples=examples(5), stateful_step_count=12, deadline=None)
TestTeams = Teams.TestCase
