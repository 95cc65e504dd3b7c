"""Any sequence of arrivals, departures, failures, restarts and unruly events keeps S1, S2, S4, S5 and S12.

One rule is a whole busy while of many small steps drawn from a seed: single steps alone rarely get a device full.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from typing_extensions import override

from gpu import reservation as reservations
from scheduler.core.cluster import Cluster
from scheduler.core.decide.allowance import LIMITS, Limits
from scheduler.core.decide.decide import decide
from scheduler.core.decide.placer import Placer
from scheduler.core.model.plan import Alone, Entry, Explain, Gang, Placement, Plan, placements
from scheduler.core.model.quota import DIMENSIONS
from scheduler.core.model.verdict import Reasons
from scheduler.core.queues.accounts import Accounts
from simulator.checks.gangs import Minimums
from tests.scheduler.core.filters.beside import affinity, anti_affinity, term
from tests.scheduler.core.filters.test_beside_pods import spread
from tests.scheduler.core.footprint import footprint
from tests.scheduler.core.objects import changed, node, pod, pod_group, queue
from tests.scheduler.core.scores.preferences.scoring import pods_preferred
from tests.scheduler.core.world import KINDS, World, fresh
from tests.whole import examples
from wire import names

_NODES = ["n0", "n1", "n2"]
_CARDS = {"n0": "40000", "n1": "20000,40000", "n2": ""}
_ASKS: list[dict[str, Any]] = [
    {"fraction": "0.5"},
    {"fraction": "0.333"},
    {"fraction": "0.7"},
    {"fraction": "0.5", "devices": 2},
    {"mem": 10000},
    {"mem": 30000},
    {"gpus": 1},
    {"gpus": 2},
    {"cpu": "2"},
    {"cpu": "1", "spec": anti_affinity(term(names.HOSTNAME_LABEL))},
    {"cpu": "1", "spec": affinity(term(names.HOSTNAME_LABEL))},
    {"gpus": 1, "spec": spread(names.HOSTNAME_LABEL)},
    {"gpus": 1, "spec": pods_preferred((1, names.HOSTNAME_LABEL), kind="podAntiAffinity")},
    {"cpu": "1", "spec": {"hostNetwork": True, "containers": [{"name": "c", "ports": [{"hostPort": 80}]}]}},
]
_QUEUES = ["default-queue", "a", "b", "dept"]
_SEEDS = st.integers(0, 2**32)


def _parts(rng: random.Random, count: int) -> dict[str, Any]:
    """Of some gangs, what they need beside or instead of a minimum: one of two sub-groups, or both, at some depth."""
    if rng.random() < 0.5:
        return {}
    above = rng.choice(["", "x"])
    needs = {"minSubGroup": 1} if rng.random() < 0.7 else {}
    parts: list[dict[str, Any]] = [
        {"name": name, "minMember": rng.randint(0, count), **({"parent": above} if above else {})} for name in "ab"
    ]
    return {"subGroups": [*parts, {"name": "x", **needs}]} if above else {"subGroups": parts, **needs}


def _placements(plan: Plan) -> list[Placement]:
    found: list[Placement] = []
    for entry in plan.entries:
        if isinstance(entry, Alone):
            found.append(entry.placement)
        elif isinstance(entry, Gang):
            found.extend(entry.placements)
    return found


class Scheduling(RuleBasedStateMachine):
    """Small steps, each with the randomness it is given, and rules that take them."""

    limits = LIMITS

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.created = 0

    @initialize()
    def begin(self) -> None:
        for name in _NODES:
            self._put_node(name)

    def _put_node(self, name: str, **fields: Any) -> None:
        cards = {names.NODE_CARDS: _CARDS[name]} if _CARDS[name] else {}
        self.world.put_node(node(name, gpus=2, annotations=cards, **fields))

    # --- small steps ---------------------------------------------------------------------------------------------
    def _arrive(self, rng: random.Random) -> None:
        group, asked = "", rng.choice(_ASKS)
        count = rng.randint(1, 3)
        if rng.random() < 0.3:
            group = f"g{self.created}"
            minimum, team = max(1, count + rng.randint(-1, 1)), rng.choice(["", *_QUEUES])
            parts = _parts(rng, count)
            least = None if parts else minimum
            self.world.put_group(pod_group(group, least, queue=team, **parts))
        labels = {names.QUEUE_LABEL: rng.choice(_QUEUES)} if rng.random() < 0.5 else {}
        labels["app"] = rng.choice("abc")
        priority = 100 if rng.random() < 0.1 else 0
        for _ in range(count):
            self.created += 1
            part = rng.choice("aab") if group else ""
            asked = rng.choice(_ASKS) if part == "b" else asked
            name = f"p{self.created:03}"
            self.world.put_pod(pod(name, group=group, subgroup=part, labels=labels, priority=priority, **asked))

    def _arrive_foreign(self, rng: random.Random) -> None:
        self.created += 1
        on = rng.choice(_NODES)
        self.world.put_pod(pod(f"p{self.created:03}", cpu="1", scheduler="default-scheduler", bound_to=on))

    def _tenants(self, *, bound: bool) -> list[str]:
        pods = self.world.pods.items()
        tenants = [(uid, of) for uid, of in pods if not reservations.is_reservation(of)]
        return sorted(uid for uid, of in tenants if bool(of.spec.node_name) == bound)

    def _go(self, rng: random.Random) -> None:
        if uids := self._tenants(bound=rng.random() < 0.7):
            self.world.drop_pod(rng.choice(uids))

    def _end(self, rng: random.Random) -> None:
        if uids := self._tenants(bound=True):
            self.world.end(rng.choice(uids))

    def _touch(self, rng: random.Random) -> None:
        if uids := self._tenants(bound=False):
            self.world.put_pod(changed(self.world.pods[rng.choice(uids)]))

    def _change_node(self, rng: random.Random) -> None:
        self._put_node(rng.choice(_NODES), ready=rng.random() < 0.8, cordoned=rng.random() < 0.2)

    def _change_queue(self, rng: random.Random) -> None:
        name = rng.choice(_QUEUES)
        if name in self.world.shares and rng.random() < 0.3:
            self.world.drop_share(name)
            return
        parent = rng.choice(["", "", "dept", "a"])
        quota, limit = rng.choice([-1, 0, 1, 1.5, -2]), rng.choice([-1, -1, 0.5, 1, 2, 3])
        self.world.put_share(queue(name, parent, gpu=(quota, rng.choice([0, 1, 2.5]), limit)))

    def _decide(self, _: random.Random) -> None:
        self.world.now_ns += 1000
        plan = self.world.cluster.decide(self.world.now_ns, self.limits)
        self._check(plan)
        self.world.cluster.told([entry for entry in plan.entries if isinstance(entry, Explain)])
        before = self._accounts()
        self.world.commit(plan)
        for queue_, was, now in zip(before.tree.queues, before.of, self._accounts().of, strict=True):
            for held, more, most in (
                (was.held, now.held, queue_.record.limit),
                (was.fixed, now.fixed, queue_.record.quota),
            ):
                for at, name in enumerate(DIMENSIONS):
                    beyond = more[at] > max(held[at], most[at])
                    assert not beyond, f"a decision takes queue {queue_.name} to {more[at]} of {most[at]} {name}"

    def _accounts(self) -> Accounts:
        """What each queue has."""
        cluster = self.world.cluster
        cluster.refresh()
        cluster.count_queues()
        return cluster.queues.accounts()

    def _advance(self, rng: random.Random) -> None:
        if self.world.commits:
            self.world.advance(rng.choice(sorted(self.world.commits)))

    def _fail(self, rng: random.Random) -> None:
        if self.world.commits:
            self.world.withdraw(rng.choice(sorted(self.world.commits)))

    def _answer(self, rng: random.Random) -> None:
        if silent := self.world.silent():
            self.world.answer(rng.choice(silent))

    def _run_late(self, rng: random.Random) -> None:
        for held in self.world.silent():
            if rng.random() < 0.7:
                self.world.cluster.commits.late(held.metadata.uid)
        if rng.random() < 0.1:
            self.world.cluster.commits.probation.fail(rng.choice(_NODES))

    def _collect(self, _: random.Random) -> None:
        self.world.collect()

    def _look_for_departed(self, _: random.Random) -> None:
        self.world.look_for_departed()

    def _retire(self, rng: random.Random) -> None:
        if uids := sorted(held.metadata.uid for held in self.world.reservations()):
            self.world.retire(rng.choice(uids))

    def _deliver(self, rng: random.Random) -> None:
        self.world.deliver(rng.choice(KINDS), rng.randint(1, 10))

    def _repeat(self, rng: random.Random) -> None:
        self.world.repeat_an_old_event(rng)

    def _restart(self, _: random.Random) -> None:
        self.world.restart()

    # --- rules ---------------------------------------------------------------------------------------------------
    @rule(seed=_SEEDS, steps=st.integers(10, 150))
    def a_busy_while_passes(self, seed: int, steps: int) -> None:
        rng, small = random.Random(seed), self._small_steps()
        for step in rng.choices(list(small), weights=list(small.values()), k=steps):
            step(rng)
            self.nothing_is_given_twice()

    def _small_steps(self) -> dict[Callable[[random.Random], None], int]:
        """Steps, each with how often it comes."""
        return {
            self._arrive: 6,
            self._arrive_foreign: 1,
            self._decide: 12,
            self._advance: 30,
            self._deliver: 25,
            self._go: 2,
            self._end: 3,
            self._touch: 1,
            self._fail: 2,
            self._answer: 4,
            self._run_late: 3,
            self._collect: 4,
            self._retire: 3,
            self._look_for_departed: 3,
            self._repeat: 3,
            self._change_node: 1,
            self._restart: 1,
            self._change_queue: 1,
        }

    @rule(seed=_SEEDS)
    def pods_arrive(self, seed: int) -> None:
        self._arrive(random.Random(seed))

    @rule(seed=_SEEDS)
    def a_queue_changes(self, seed: int) -> None:
        self._change_queue(random.Random(seed))

    @rule(seed=_SEEDS)
    def a_pod_goes(self, seed: int) -> None:
        self._go(random.Random(seed))

    @rule()
    def the_scheduler_decides(self) -> None:
        self._decide(random.Random())

    @rule(seed=_SEEDS)
    def a_commit_goes_on(self, seed: int) -> None:
        self._advance(random.Random(seed))

    @rule(seed=_SEEDS)
    def a_commit_fails(self, seed: int) -> None:
        self._fail(random.Random(seed))

    @rule()
    def all_events_come(self) -> None:
        self.world.deliver_all()

    @rule()
    def the_scheduler_restarts(self) -> None:
        self.world.restart()

    # --- what always holds ---------------------------------------------------------------------------------------
    def _check(self, plan: Plan) -> None:
        uids = [placement.pod_uid for placement in _placements(plan)]
        assert len(uids) == len(set(uids)), "a pod is placed twice"
        assert not any(self.world.cluster.is_in_flight(uid) for uid in uids), "a pod under way is placed again"
        for entry in plan.entries:
            if isinstance(entry, Gang):
                self._check_gang(entry)

    def _check_gang(self, gang: Gang) -> None:
        if gang.pod_group[1] not in self.world.groups:
            return  # it is deleted, which the scheduler has not heard yet: its plan can't be written
        spec = self.world.groups[gang.pod_group[1]].spec
        minimum = spec.min_member or 0
        members = [self.world.cluster.pod(p.pod_uid) for p in gang.placements]
        assert all(member is not None and member.pod_group == gang.pod_group[1] for member in members)
        living = [each for each in self.world.cluster.members(*gang.pod_group) if not each.deleting]
        parts = Counter(member.subgroup for member in members if member is not None)
        parts.update(record.subgroup for record in living if record.node)
        if spec.min_member is None and not self.world.succeeded(gang.pod_group[1]):
            assert Minimums(msgspec.to_builtins(spec)).is_whole(parts), "a gang is started in part"
        started = parts.total()
        assert started >= min(minimum, len(living)), "a gang is started in part"
        assert started + self.world.succeeded(gang.pod_group[1]) >= minimum, "a gang is started in part"

    @invariant()
    def nothing_is_given_twice(self) -> None:
        assert self.world.violations() == []

    @invariant()
    def the_ledger_is_a_recount(self) -> None:
        assert self.world.cluster.validate() == []

    @invariant()
    def the_same_answer_comes_again(self) -> None:
        cluster = self.world.cluster
        if self.limits is not LIMITS:
            return
        first = _but_for_counts(cluster, cluster.decide(self.world.now_ns))
        cluster.generation += 1
        again = _but_for_counts(cluster, cluster.decide(self.world.now_ns))
        if cluster.queues.tree.is_implied:
            assert again == first
        assert bool(again[0]) == bool(first[0])

    @invariant()
    def a_decision_changes_nothing_that_it_reads_and_comes_out_the_same_again(self) -> None:
        if self.limits is not LIMITS:
            return  # judgements of nodes are kept, so a second one gets further
        cluster, now_ns = self.world.cluster, self.world.now_ns
        snapshot = cluster.prepared(now_ns)
        before = footprint(self.world.recorded)
        first = decide(snapshot, now_ns)
        assert footprint(self.world.recorded) == before
        assert decide(snapshot, now_ns) == first
        cluster.learn(first, now_ns)

    @invariant()
    def what_sleeps_fits_nowhere(self) -> None:
        cluster = self.world.cluster
        cluster.decide(self.world.now_ns, self.limits)
        unschedulable = cluster.scheduling_queue.unschedulable
        for one in cluster.waiting():
            kept = unschedulable.get(one.cls)
            if kept is None:
                continue
            if (
                not unschedulable.is_sure(one.cls, kept, cluster.generation)
                and unschedulable.still_out(one.cls, kept) is None
            ):
                continue
            assert Placer(cluster.snapshot()).place(one) is None
            assert Placer(cluster.snapshot()).wait_for_device(one) is None

    @invariant()
    def the_plan_is_the_one_without_a_memory(self) -> None:
        cluster = self.world.cluster
        if self.limits is not LIMITS:
            return
        _count_again(cluster, self.world.now_ns)  # a gang that was woken in vain is counted at the next occasion
        first = _but_for_counts(cluster, _count_again(cluster, self.world.now_ns))
        cluster.forget_verdicts()
        done, said = _but_for_counts(cluster, cluster.decide(self.world.now_ns))
        if not cluster.queues.tree.is_implied:
            # Which queue comes first depends on what each gives next, and what sleeps is given by none. But who could
            # be placed does not sleep while nobody else is.
            assert bool(done) == bool(first[0])
            return
        assert done == first[0]
        assert {uid: first[1].get(uid) for uid in said} == said

    @override
    def teardown(self) -> None:
        """With all events in and nothing under way, what was kept from events equals what a list says.

        All that happened, told to another cluster, gives the same plans and leaves it the same.
        """
        for uid in sorted(self.world.commits):
            self.world.withdraw(uid)
        self.world.deliver_all()
        self.world.look_for_departed()
        kept, listed = self.world.cluster.refresh(), fresh(self.world).refresh()
        for name in self.world.nodes:
            row, other = kept.row_of[name], listed.row_of[name]
            assert kept.table.free[:, row].tolist() == listed.table.free[:, other].tolist()
            assert msgspec.json.encode(kept.table.devices[row]) == msgspec.json.encode(listed.table.devices[other])
        again = Cluster(self.world.cluster.settings)
        assert self.world.log.replay(again) == self.world.log.plans
        assert footprint(again) == footprint(self.world.recorded)


def _count_again(cluster: Cluster, now_ns: int) -> Plan:
    """Decide again, when it is time to bring counts up to date."""
    cluster.generation += 1
    cluster.scheduling_queue.recount_ns = 0
    return cluster.decide(now_ns)


def _but_for_counts(cluster: Cluster, plan: Plan) -> tuple[Sequence[Entry], dict[str, Reasons]]:
    """What a plan does, and what every pod that waits says then."""
    done = [entry for entry in plan.entries if not isinstance(entry, Explain)]
    placed = {placement.pod_uid for placement in placements(done)}
    said = cluster.scheduling_queue.said.all()
    return done, {uid: entry.verdict.reasons for entry in said for uid in entry.pods if uid not in placed}


Scheduling.TestCase.settings = settings(max_examples=examples(8), stateful_step_count=12, deadline=None)
TestScheduling = Scheduling.TestCase


class FromMemory(Scheduling):
    """Every verdict is kept as long as it can be, and a decision gets little done."""

    limits = Limits(most=200, retold=0)


FromMemory.TestCase.settings = settings(max_examples=examples(8), stateful_step_count=12, deadline=None)
TestFromMemory = FromMemory.TestCase
