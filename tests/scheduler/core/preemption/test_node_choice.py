"""Which units of a pool go: against all subsets of small pools."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from gpu.request import FractionAsk
from scheduler.core.model.quota import NOTHING, Resources
from scheduler.core.model.steps import ended
from scheduler.core.nodes.table import CPU, GPUS
from scheduler.core.preemption.capacity import PARTS, Counting, Estimates
from scheduler.core.preemption.node_choice import Choosing
from scheduler.core.preemption.reclaim import NOBODY, Gone, Limits, Permits
from scheduler.core.preemption.search import Wanted, choose_units
from scheduler.core.preemption.trial import Trial
from scheduler.core.preemption.victim_table import ResidentTable, tenants
from scheduler.core.preemption.victim_units import Pricing
from scheduler.core.queues.tree import TreeQueue
from tests.scheduler.core.objects import NANO, cluster, node, pod_group, queue
from tests.scheduler.core.preemption.scenes import Scene, need_of, running, trial_of, waiting
from tests.values import of_kind, there


def _choosing(trial: Trial, more: int, of: int = 0) -> tuple[Choosing, list[int]]:
    trial.residents.refresh(trial)
    (way,) = need_of(trial, "mine").pods[of].cls.ways()
    counting = Counting(trial, trial.residents, way, tenants(trial, trial.residents))
    needed = int(counting.here.sum()) + more
    rows = [row for row, unit in enumerate(trial.residents.residents) if unit]
    return Choosing(counting, Pricing(trial.accounts.total, trial.wall_s), needed), rows


def _choose(choosing: Choosing, rows: list[int]) -> list[int] | None:
    wanted = [Wanted(choosing.counting, choosing.needed)]
    trial = choosing.counting.trial
    leaf = there(trial.accounts.tree.find(need_of(trial, "mine").queue))
    limits = Limits(trial.accounts, leaf, NOTHING)
    pool = np.array(rows, np.int64)
    return ended(choose_units(wanted, pool, choosing.pricing, limits=limits, permits=choosing.permits))


def _held(choosing: Choosing, gone: Any) -> int:
    return sum(choosing.counting.count(position, frozenset(gone)) for position in range(len(choosing.counting.here)))


def _is_closed(choosing: Choosing, rows: Any) -> bool:
    return all(set(choosing.counting.table.surplus_of(row)) <= set(rows) for row in rows)


@given(st.integers(0, 1 << 32))
def test_what_is_chosen_is_enough_and_none_of_it_can_be_left_out(seed: int) -> None:
    trial, rng = trial_of(Scene(seed, most_units=7).cluster()), random.Random(seed)
    choosing, rows = _choosing(trial, rng.choice([1, 1, 2, 3]))
    found = _choose(choosing, rows)
    enough = [
        gone
        for size in range(len(rows) + 1)
        for gone in combinations(rows, size)
        if _is_closed(choosing, gone) and _held(choosing, gone) >= choosing.needed
    ]
    assert (found is None) is (not enough)
    if found is not None:
        assert _is_closed(choosing, found)
        assert _held(choosing, found) >= choosing.needed
        left = [set(found) - {row} for row in found]
        assert not any(_is_closed(choosing, gone) and _held(choosing, gone) >= choosing.needed for gone in left)


# --- where to look first -------------------------------------------------------------------------------------------
def _estimates_by_hand(choosing: Choosing, rows: Sequence[int]) -> dict[int, float]:
    """By position: the cheapest parts of units that make up for what the next pod lacks there, one pod after another.

    A node whose units are too small in all is left out, unless sizes do not say what becomes free there.
    """
    counting, pricing = choosing.counting, choosing.pricing
    demand, shared = counting.way.demand, counting.way.request.shared
    is_gpu = bool(demand.gpus or shared)
    costs: dict[int, float] = {}
    for position, node_record in enumerate(counting.trial.statement.nodes):
        held: list[tuple[float, int, int]] = []
        for row in rows:
            unit = there(counting.table.residents[row])
            whole = unit.amounts.gpu_nano if is_gpu else unit.amounts.cpu_milli
            here = [pod for pod in unit.pods if pod.node == node_record.name]
            sizes = [whole // len(unit.pods) if is_gpu else pod.cls.demand.cpu_milli for pod in here]
            held += ((pricing.loss(unit) / max(1, whole), row, size) for size in sizes)
        if not held or not counting.where[position]:
            continue
        free = max(0, int(counting.trial.statement.table.free[GPUS if demand.gpus else CPU, position]))
        asked = demand.gpus or max(1, demand.cpu_milli)
        lack = (asked - free % asked) * (NANO if demand.gpus else 1)
        if shared:
            lack = min(ask.nano for ask in shared if isinstance(ask, FractionAsk))
        is_unclear = counting.tenants.odd[position] or counting.tenants.shared[position]
        if sum(size for *_, size in held) < lack and not is_unclear:
            continue
        cost, left = 0.0, lack
        for rate, _, size in sorted(held):
            cost += rate * min(size, left)
            left -= min(size, left)
        costs[position] = cost
    return costs


@given(st.integers(0, 1 << 32))
def test_nodes_are_looked_at_in_the_order_of_what_the_cheapest_parts_of_their_units_cost(seed: int) -> None:
    rng = random.Random(seed)
    trial = trial_of(Scene(seed, most_units=12).cluster())
    choosing, rows = _choosing(trial, 1, of=rng.choice([0, -1]))
    pool = rng.sample(rows, rng.randint(0, len(rows)))
    found, candidates = Estimates(choosing.counting, choosing.pricing).of(np.array(pool, np.int64))
    estimates, by_hand = dict(found), _estimates_by_hand(choosing, pool)
    assert estimates.keys() == by_hand.keys()
    for position, estimate in estimates.items():
        # Weights are rounded down to nano of a GPU for a unit as a whole, but not for a part of it.
        assert abs(estimate / PARTS - by_hand[position] / NANO) <= 0.001 + 0.001 * estimate / PARTS
    assert {position: set(units) for position, units in candidates.items() if position in estimates} == {
        position: {row for row in pool if position in choosing.counting.holds(row)} for position in by_hand
    }
    assert all(len(units) == len(set(units)) for units in candidates.values())


def _chosen(trial: Trial, more: int) -> list[str]:
    choosing, rows = _choosing(trial, more)
    found = _choose(choosing, rows)
    units = [trial.residents.residents[row] for row in found or ()]
    return sorted(uid.removeprefix("uid-") for unit in units if unit for uid in unit.unit.pods)


def _full(*pods: Any, gpus: int = 2) -> Trial:
    nodes = [node(f"n{number}", 2) for number in range(3)]
    return trial_of(cluster(*nodes, queue("a"), *pods, waiting("mine", "a", gpus=gpus)))


def test_the_node_goes_first_whose_pods_have_done_least() -> None:
    pods = [running(f"p{at}{half}", "a", f"n{at}", gpus=1, age_s=100 * (3 - at)) for at in range(3) for half in "ab"]
    assert _chosen(_full(*pods), 1) == ["p2a", "p2b"]
    assert _chosen(_full(*pods), 2) == ["p1a", "p1b", "p2a", "p2b"]


def test_a_gang_on_several_nodes_goes_where_it_costs_less_for_each_pod_than_others() -> None:
    gang = [
        pod_group("g", 2, queue="a"),
        *(running(f"g{at}", "a", f"n{at}", gpus=2, age_s=80, group="g") for at in (0, 1)),
    ]
    alone = running("p", "a", "n2", gpus=2, age_s=100)
    assert _chosen(_full(*gang, alone), 1) == ["p"]
    assert _chosen(_full(*gang, alone), 2) == ["g0", "g1"]


class _AllBut(Permits):
    """All may go but one pod."""

    def __init__(self, table: ResidentTable, name: str) -> None:
        self.table, self.name = table, name

    @override
    def go(self, rows: Sequence[int], before: Gone = NOBODY) -> Gone | None:
        return None if any(unit.pods[0].name == self.name for unit in self.table.at(rows)) else before


def test_a_judge_may_forbid_units() -> None:
    pods = [running(f"p{at}", "a", f"n{at}", gpus=2, age_s=100 * (3 - at)) for at in range(3)]
    choosing, rows = _choosing(_full(*pods), 1)
    table = choosing.counting.table
    choosing.permits = _AllBut(table, "p2")
    found = there(_choose(choosing, rows))
    assert [unit.pods[0].name for unit in map(table.residents.__getitem__, found) if unit] == ["p1"]


class _Counting(_AllBut):
    """All may go; ``judged`` counts them, and ``gone_back`` those who stay after all."""

    judged = 0
    gone_back = 0

    @override
    def go(self, rows: Sequence[int], before: Gone = NOBODY) -> Gone | None:
        self.judged += len(rows)
        return before

    @override
    def back(self, row: int, gone: Gone) -> Gone:
        self.gone_back += 1
        return gone


def test_with_twice_the_units_twice_as_many_are_judged() -> None:
    def judged(count: int) -> int:
        pods = [running(f"p{at}{half}", "a", f"n{at}", gpus=1) for at in range(count) for half in "ab"]
        trial = trial_of(
            cluster(*(node(f"n{at}", 2) for at in range(count)), queue("a"), *pods, waiting("mine", "a", gpus=2))
        )
        choosing, rows = _choosing(trial, count)
        choosing.permits = permits = _Counting(choosing.counting.table, "")
        assert ended(choosing.fill(np.array(rows, np.int64)))
        assert len(choosing.chosen) == 2 * count
        return permits.judged

    assert judged(40) <= 2 * judged(20) + 10


def test_pods_that_come_in_one_order_by_every_rank_are_looked_at_once() -> None:
    pods = [running(f"p{at}", "a", "n", gpus=1) for at in range(8)]
    choosing, rows = _choosing(trial_of(cluster(node("n", 8), queue("a"), *pods, waiting("mine", "a", gpus=1))), 1)
    choosing.permits = permits = _Counting(choosing.counting.table, "")
    assert ended(choosing.fill(np.array(rows, np.int64)))
    assert permits.judged == 4  # twice in one look, and twice as it goes


def test_with_twice_the_units_that_stay_after_all_twice_as_many_are_judged() -> None:
    def judged(count: int) -> int:
        """A queue is at its limits. Pods without GPUs go for CPU first, and stay once those with GPUs go as well."""
        cheap = [running(f"c{at}", "a", f"n{at}", cpu="1") for at in range(4 * count)]
        dear = [running(f"g{at}", "a", f"n{at}", gpus=1, cpu="8") for at in range(count)]
        full = queue("a", gpu=(count, 1, count), cpu=(-1, 1, 12_000 * count))
        waits = [waiting(f"m{at}", "a", gpus=1, cpu="8", group="mine") for at in range(count)]
        nodes = (node(f"n{at}", 8, cpu="64") for at in range(4 * count))
        trial = trial_of(cluster(*nodes, full, *cheap, *dear, pod_group("mine", count, queue="a"), *waits))
        choosing, rows = _choosing(trial, 0)
        leaf = of_kind(TreeQueue, trial.accounts.tree.leaf("a"))
        limits = Limits(trial.accounts, leaf, Resources(8_000 * count, 0, NANO * count))
        permits = _Counting(choosing.counting.table, "")
        wanted = [Wanted(choosing.counting, count)]
        found = ended(choose_units(wanted, np.array(rows, np.int64), choosing.pricing, limits=limits, permits=permits))
        assert found is not None
        assert sorted(unit.pods[0].name for unit in choosing.counting.table.at(found)) == sorted(
            f"g{at}" for at in range(count)
        )
        assert permits.gone_back == 4 * count
        return permits.judged

    assert judged(10) <= 2 * judged(5) + 10
