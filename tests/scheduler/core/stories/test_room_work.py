"""Looking for room has an end, whatever a tenant writes."""

from __future__ import annotations

from scheduler.core.preemption.search import MOST_PLACED
from tests.scheduler.core.objects import node, pod, pod_group, queue
from tests.scheduler.core.stories.test_room import S, Shell, of, running

_MEMBERS = 160


def test_a_gang_whose_members_all_ask_differently_does_not_hold_up_decisions() -> None:
    shell = Shell().feed(*(node(f"n{at}") for at in range(40)), queue("a", gpu=(200, 1, -1)), queue("b"))
    shell.feed(*(running(f"b{at}", "b", on=f"n{at // 8}") for at in range(320)), pod_group("g", _MEMBERS, queue="a"))
    asking = (pod(f"m{at}", gpus=1, cpu=f"{100 + at}m", group="g", labels=of("a")) for at in range(_MEMBERS))
    shell.feed(*asking)
    shell.cluster.decide(S)
    (refused,) = shell.cluster.backlog.room.refused.values()
    assert MOST_PLACED < refused.answer.placed <= MOST_PLACED + _MEMBERS
    for at in range(2, 60):
        shell.gone(f"b{at}")
        shell.cluster.decide(at * S)
    assert [each.at_ns for each in shell.cluster.backlog.room.refused.values()] == [S]
