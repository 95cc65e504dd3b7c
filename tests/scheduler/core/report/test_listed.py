"""Queues of a list are counted as a cluster that decides counts them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import pytest

from scheduler.conditions.messages import told
from scheduler.core.convert import pod_groups
from scheduler.core.model.plan import Placement
from scheduler.core.model.priority_order import Rank
from scheduler.core.model.quota import Resources
from scheduler.core.queues.order import Key, QueueOrder
from scheduler.core.queues.queues import Queues
from scheduler.core.report.queue_explanation import Turn, order_of_turns
from scheduler.core.report.queue_view import QueueView, queue_views
from tests.scheduler.core.decide import turns
from tests.scheduler.core.objects import NANO, bind_request, bound, cluster, ended, node, pod, pod_group, queue
from tests.scheduler.core.report.listing import listed, random_objects
from tests.whole import seeds
from wire import names


def decided(*objects: Any) -> Queues:
    """The same by a cluster that decides."""
    return cluster(*objects).prepared(0).queues


def views(queues: Queues) -> list[QueueView]:
    return queue_views(queues, queues.accounts(), lambda verdict: told(verdict).message)


@pytest.mark.parametrize("seed", seeds(60))
def test_any_cluster_is_counted_as_it_is_for_decisions(seed: int) -> None:
    objects = list(random_objects(random.Random(seed)))
    ours, others = listed(*objects).queues, decided(*objects)
    assert views(ours) == views(others)
    assert dict(ours.sums.sums) == dict(others.sums.sums)
    assert ours.capacity == others.capacity
    assert ours.card_sizes == others.card_sizes


def test_random_clusters_have_pods_of_every_stage() -> None:
    clusters = [listed(*random_objects(random.Random(seed))) for seed in range(60)]
    sums = [total for each in clusters for total in each.queues.sums.sums.values()]
    assert any(total.held.gpu_nano for total in sums)
    assert any(total.held != total.kept for total in sums)
    assert any(total.asked.gpu_nano > total.kept.gpu_nano for total in sums)
    assert any(total.held.gpu_nano % NANO for total in sums)


def test_a_pod_with_a_place_in_a_written_plan_is_on_its_way() -> None:
    gang = [pod(f"w{at}", gpus=2, group="gang", labels={names.QUEUE_LABEL: "a"}) for at in range(2)]
    first = gang[0].metadata
    placement = Placement(
        pod_uid=first.uid, namespace="ns", name=first.name, rv=first.resource_version, node="n1", devices=()
    )
    plan = pod_groups.render(pod_groups.make("us", [placement]))
    group = pod_group("gang", 2, queue="a", annotations={names.PLAN: plan})
    ours = listed(node(), queue("a"), group, *gang).queues
    assert views(ours) == views(decided(node(), queue("a"), group, *gang))
    assert ours.sums.sums["a"].held.gpu_nano == 2 * NANO


def test_an_older_version_of_a_pod_that_was_listed_twice_says_nothing() -> None:
    made = pod("p", gpus=1, labels={names.QUEUE_LABEL: "a"})
    sums = listed(node(), queue("a"), bound(made, "n1"), made).queues.sums.sums["a"]
    assert (sums.held.gpu_nano, sums.pods) == (NANO, 1)


# What waits is lined up from lists as a cluster that decides lines it up.

TREE: Final = (queue("top", gpu=(8, 1, 12)), queue("left", "top", gpu=(3, 2, -1)), queue("right", "top"), queue("side"))
TEAMS: Final = ("left", "right", "side", "top", "nowhere")
GANGS: Final = ("g0", "g1", "g2", "g3")
SEEDS: Final = range(150)


class RankedQueue(NamedTuple):
    """A queue among its siblings, and its next turn."""

    queue: str
    key: Key
    rank: Rank | None
    use: Resources
    least: Resources


def ranking(order: QueueOrder[Any]) -> dict[int, list[RankedQueue]]:
    """By the number of the queue above."""
    parents = (-1, *(each.number for each in order.accounts.tree.queues))
    return {
        parent: [
            RankedQueue(each.queue.name, each.key, each.first.rank, each.first.use, _amounts(each.first))
            for each in order.ranking(parent)
        ]
        for parent in parents
    }


def _amounts(first: Any) -> Resources:
    least: Resources = first.least.amounts if isinstance(first, Turn) else first.least
    return least


def lined_up(*objects: Any) -> dict[int, list[RankedQueue]]:
    found = listed(*objects)
    return ranking(order_of_turns(found, found.queues.accounts()))


def listed_turns_decided(*objects: Any) -> dict[int, list[RankedQueue]]:
    """The same by a cluster that decides."""
    return ranking(turns.order_of_turns(cluster(*objects).prepared(0), 0))


def of(team: str, name: str, **more: Any) -> Any:
    return pod(name, labels={names.QUEUE_LABEL: team}, **more)


def listed_turns_random_objects(rng: random.Random) -> Iterator[Any]:
    """Gangs and pods of all stages, in queues that can be used and in some that can't."""
    yield from TREE
    yield from (node("n1", 8, mem_mib=24_576), node("n2", 4, mem_mib=81_920))
    for name in GANGS[:3]:  # the last one is never there
        parts = [{"name": "a", "minMember": 1}, {"name": "b", "minMember": 2}] if rng.random() < 0.3 else None
        more: dict[str, Any] = {"subGroups": parts} if parts else {}
        yield pod_group(name, None if parts else rng.randint(1, 4), queue=rng.choice(TEAMS), **more)
    for at in range(rng.randint(4, 24)):
        yield from _random_pod(rng, f"p{at}")


def _random_pod(rng: random.Random, name: str) -> Iterator[Any]:
    made = of(
        rng.choice(TEAMS),
        name,
        group=rng.choice(("", *GANGS)),
        subgroup=rng.choice(("", "a", "b")),
        priority=rng.choice((0, 50, 125)),
        created=f"2026-01-01T00:00:0{rng.randint(0, 2)}Z",
        gated=rng.random() < 0.1,
        deleting=rng.random() < 0.1,
        scheduler="default-scheduler" if rng.random() < 0.1 else names.SCHEDULER_NAME,
        **rng.choice(({"gpus": 2}, {"gpus": 1}, {"mem": 4_096}, {"cpu": "1500m"}, {"mem": 4_096, "admitted": False})),
    )
    where = rng.choice(("n1", "n2"))
    match rng.choice(("waits", "waits", "waits", "bound", "ended", "on its way")):
        case "bound":
            yield bound(made, where)
        case "ended":
            yield ended(bound(made, where), rng.choice(("Succeeded", "Failed")))
        case "on its way":
            yield from (made, bind_request(made, where))
        case _:
            yield made


@pytest.mark.parametrize("seed", SEEDS)
def test_any_cluster_has_the_order_in_which_decisions_give_turns(seed: int) -> None:
    objects = list(listed_turns_random_objects(random.Random(seed)))
    assert lined_up(*objects) == listed_turns_decided(*objects)


@pytest.mark.thorough
def test_random_clusters_have_turns_of_all_kinds() -> None:
    turns: list[Turn] = []
    for seed in SEEDS:
        found = listed(*listed_turns_random_objects(random.Random(seed)))
        order = order_of_turns(found, found.queues.accounts())
        turns += [each.first for parent in range(-1, 4) for each in order.ranking(parent)]
    assert {turn.rank.above for turn in turns} == {0, 1, 2}
    assert any(turn.use != turn.least.amounts for turn in turns)
    assert {turn.least.is_fixed for turn in turns} == {True, False}
    assert sum(turn.use.gpu_nano > 2 * NANO for turn in turns) > 10


def test_a_gang_whose_plan_is_written_has_no_turn() -> None:
    gang = [of("side", f"w{at}", gpus=2, group="gang") for at in range(2)]
    made = [
        Placement(
            pod_uid=each.metadata.uid,
            namespace="ns",
            name=each.metadata.name,
            rv=each.metadata.resource_version,
            node="n1",
            devices=(),
        )
        for each in gang
    ]
    plan = pod_groups.render(pod_groups.make("us", made))
    planned = pod_group("gang", 2, queue="side", annotations={names.PLAN: plan})
    assert lined_up(node("n1"), *TREE, planned, *gang)[-1] == []
    assert len(lined_up(node("n1"), *TREE, pod_group("gang", 2, queue="side"), *gang)[-1]) == 1


def test_members_that_have_succeeded_count_for_the_rank_of_their_gang() -> None:
    done, runs, waits = (
        of("side", name, gpus=2, group="gang", owner=("batch/v1", "Job")) for name in ("done", "runs", "waits")
    )
    others = (node("n1"), *TREE, pod_group("gang", 2, queue="side"), bound(runs, "n1"), waits)
    for objects, above in (((*others, ended(bound(done, "n1"))), 1), (others, 0)):
        ours = lined_up(*objects)
        assert ours == listed_turns_decided(*objects)
        assert [each.rank.above for each in ours[-1] if each.rank] == [above]


def test_without_any_queue_all_wait_in_one() -> None:
    objects = (node("n1"), of("a", "p", gpus=1), of("b", "q", gpus=2, priority=50))
    ours = lined_up(*objects)
    assert ours == listed_turns_decided(*objects)
    assert [each.rank.uid for each in ours[-1] if each.rank] == ["uid-q"]
