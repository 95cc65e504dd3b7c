"""What decisions and reviews cost beside tenants with the largest and the most different pods, in lines of code."""

from __future__ import annotations

import pytest
from typing_extensions import override

from scheduler.core.cluster import Cluster
from scheduler.core.model.records import SeenPod
from tests.simulation.planted.bugs import deciding_on
from tests.whole import IS_WHOLE
from verification.hostile.crowding import BUDGET, WITH_ROOM, Budget, crowded

pytestmark = pytest.mark.thorough

_PODS = 300 if IS_WHOLE else 150
#: Beside this many a walk over the scheduling queue is found: a pod costs 27,000 lines, where 16,000 are allowed.
_WALKED = 120
#: A crowd for what does not depend on its size.
_FEW = 30 if IS_WHOLE else 12


class WalksTheBacklog(Cluster):
    """Looks at all pods that wait whenever it hears of one."""

    @override
    def take_pod(self, seen: SeenPod) -> None:
        super().take_pod(seen)
        self.waiting()


def test_no_turn_is_long_and_a_pod_costs_the_same_however_many_wait() -> None:
    meter = crowded(_PODS)
    assert meter.found == []
    assert meter.most > BUDGET.turn // 4, "the budget is not near what is done"


def test_the_same_holds_where_pods_are_evicted_for_others() -> None:
    meter = crowded(_PODS, budget=WITH_ROOM, preemption=True)
    assert meter.found == []
    assert meter.most > WITH_ROOM.turn // 4, "the budget is not near what is done"


def test_a_walk_over_the_scheduling_queue_at_each_event_is_found() -> None:
    found = crowded(_WALKED, parts=deciding_on(WalksTheBacklog)).found
    assert [text for text in (violation.text for violation in found) if text.startswith("pod modest/second cost")]


def test_a_long_turn_is_found_and_says_where() -> None:
    (found, *_) = crowded(_FEW, budget=Budget(turn=5_000, pod=10**9)).found
    assert found.invariant == "WORK"
    assert found.text.startswith("more than 5,000 lines in one turn: at ")


def test_the_same_crowd_costs_the_same() -> None:
    crowded(_FEW)
    first, second = (crowded(_FEW) for _ in range(2))
    assert (first.total, first.most) == (second.total, second.most)
