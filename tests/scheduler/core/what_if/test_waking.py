"""After a change of nodes those have a turn that the backlog would wake."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.core.decide.changes import AnotherNode, Change, WithoutPods
from scheduler.core.model.plan import placements
from scheduler.core.model.steps import ended
from scheduler.core.what_if.rivals import rivals
from tests.scheduler.core.objects import bound, cluster, node, pod, pod_group, queue
from tests.scheduler.core.what_if.given import NO_ROOM, trying

TEAMS: tuple[Any, ...] = queue("a", gpu=(0, 1, -1)), queue("b", gpu=(0, 1, -1))
OLD = "2025-01-01T00:00:00Z"


def gang(name: str, minimum: int, **asked: Any) -> tuple[Any, ...]:
    return pod_group(name, minimum), *(pod(f"{name}{at}", group=name, **asked) for at in range(minimum))


@pytest.mark.parametrize(
    ("others", "awake"),
    [
        ((pod("o", gpus=1),), {"o"}),
        ((pod("o", gpus=2),), set()),
        # a node with one GPU more, of which two members need one each
        (gang("o", 2, gpus=1), set()),
        # two of three find a place already
        ((node("n2", gpus=2), *gang("o", 3, gpus=1)), {"o0", "o1", "o2"}),
        # nobody tells by sums of nodes how many of these fit
        (gang("o", 2, gpus=0, fraction="0.9"), {"o0", "o1"}),
    ],
    ids=["fits", "too-large", "two-of-which-one-fits", "the-last-of-three", "shares"],
)
def test_those_have_a_turn_that_pass_the_sums_of_nodes_that_got_something(
    others: tuple[Any, ...], awake: set[str]
) -> None:
    made = cluster(node(gpus=1), bound(pod("tenant", gpus=1), "n1"), pod("p", gpus=1), *others, settings=NO_ROOM)
    assert _awake(made, WithoutPods(("uid-tenant",))) == {f"uid-{name}" for name in awake}


def test_who_fits_on_a_node_that_got_nothing_sleeps_on() -> None:
    other = gang("o", 2, gpus=1)
    made = cluster(node(gpus=1), node("n2", gpus=1, cordoned=True), pod("p", gpus=2), *other, settings=NO_ROOM)
    assert _awake(made, AnotherNode(_record("n3", gpus=0))) == set()
    assert _awake(made, AnotherNode(_record("n3", gpus=1))) == {"uid-o0", "uid-o1"}


def test_a_gang_that_fits_only_in_part_does_not_make_its_queue_the_last_one() -> None:
    """It is first in its queue and would use most. So it decides who is next only where the scheduler wakes it."""
    a, b = {"kai.scheduler/queue": "a"}, {"kai.scheduler/queue": "b"}
    large: tuple[Any, ...] = (
        pod_group("g", 3, queue="a", created=OLD),
        *(pod(f"g{at}", gpus=1, group="g", created=OLD) for at in range(3)),
    )
    used: tuple[Any, ...] = bound(pod("used", gpus=2, labels=b), "n1"), bound(pod("ends", gpus=1, labels=b), "n1")
    made = cluster(
        node(gpus=3), *TEAMS, *used, *large, pod("p", gpus=1, labels=a), pod("o", gpus=1, labels=b), settings=NO_ROOM
    )
    tried = trying(made)
    assert tried.helps(WithoutPods(("uid-ends",)), is_own=False)
    made.decide(0)
    made.remove_pod("uid-ends")
    assert [placed.name for placed in placements(made.decide(1).entries)] == ["p"]


def _record(name: str, **has: Any) -> Any:
    made = cluster(node(name, **has))
    return made.snapshot().ledger.nodes[0]


def _awake(made: Any, change: Change) -> set[str]:
    tried = trying(made)
    changed = tried.snapshot.with_(change)
    others = rivals(tried.snapshot, tried.subject)
    return set(ended(others.finding_awake(tried.snapshot, changed, 0, is_quiet=True)))
