"""The turns of gangs that ask the same: as long as they start, the next one follows; the first that can't ends them."""

from __future__ import annotations

from collections import Counter

from scheduler.core.cluster import Cluster
from scheduler.core.decide.allowance import Limits
from scheduler.core.decide.decide import decide
from scheduler.core.model.plan import placements
from scheduler.core.model.settings import Settings
from scheduler.core.scheduling_queue.effects import AlikeFailed
from tests.scheduler.core.objects import bound, feed, node, pod, pod_group, queue
from wire import names

_TEAMS = ("a", "b", "c")


def _waiting(gangs: int, *, quota: float = 0, limit: float = -1) -> Cluster:
    """So many gangs of two for each team, and no node yet."""
    teams = (queue(team, "dept", gpu=(quota, 1, limit)) for team in _TEAMS)
    made = Cluster(Settings(preemption=False))
    feed(made, node("n0", 0), queue("dept", gpu=(-1, 1, -1)), *teams)
    for team in _TEAMS:
        for i in range(gangs):
            name = f"{team}{i:03}"
            feed(made, pod_group(name, 2, queue=team))
            feed(made, *(pod(f"{name}-{at}", gpus=1, group=name) for at in range(2)))
    made.decide(0)
    return made


def _placed(made: Cluster) -> list[str]:
    return [placement.name for placement in placements(made.decide(0).entries)]


def test_as_many_start_as_fit_the_oldest_of_each_team_and_all_teams_alike() -> None:
    made = _waiting(20)
    feed(made, node("n1", 14))
    placed = _placed(made)
    assert Counter(name[0] for name in placed) == {"a": 6, "b": 4, "c": 4}
    assert {name[:4] for name in placed} == {"a000", "a001", "a002", "b000", "b001", "c000", "c001"}


def test_the_first_that_fits_nowhere_speaks_for_all_teams() -> None:
    made = _waiting(100)
    feed(made, node("n1", 2))
    decision = decide(made.prepared(0), 0)
    assert len(list(placements(decision.entries))) == 2
    assert sum(isinstance(note, AlikeFailed) for note in decision.notes) == 1
    assert len(decision.notes) < 12


def test_a_team_at_its_limit_does_not_end_the_turns_of_others() -> None:
    made = _waiting(5, limit=2)
    feed(made, node("n1", 100))
    assert Counter(name[0] for name in _placed(made)) == {"a": 2, "b": 2, "c": 2}


def test_gangs_at_the_limit_of_their_queue_are_looked_at_over_several_decisions() -> None:
    made = _waiting(100, limit=2)
    for team in _TEAMS:
        feed(made, bound(pod(f"{team}-old", gpus=2, labels={names.QUEUE_LABEL: team}), "n1"))
    feed(made, node("n1", 100))
    limits = Limits(most=7_000, retold=0)
    looked_at = []
    for now_ns in range(1, 5):
        made.decide(now_ns, limits)
        looked_at.append(len(made.backlog.quota_sleepers))
    assert looked_at == [102, 203, 300, 300], "as many as a decision may, and the one at which each line ends"
    assert made.decide(5, limits).wake_at_ns is None
