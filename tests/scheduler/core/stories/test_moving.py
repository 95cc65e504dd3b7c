"""Groups that are moved so that others fit, in a shell of a few lines. Their makers make them again."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec
import pytest
from typing_extensions import override

from scheduler.core.cluster import Cluster
from scheduler.core.model.plan import Nominate
from scheduler.core.model.preemption import Action, Ended, Nomination
from scheduler.core.model.priority_order import Rank
from scheduler.core.model.settings import Settings, Strategy
from scheduler.core.queues.reserved_nodes import NodeReserve, NodeReserves
from tests.scheduler.core.objects import feed, node, pod, pod_group, queue
from tests.scheduler.core.stories.test_preemption import Shell, of, running, waiting
from tests.whole import seeds
from wire.core import Pod

_MAKER = ("apps/v1", "ReplicaSet")


@dataclass
class Makers(Shell):
    """A shell beside which each pod that is gone is made again at once, unless ``are_late``."""

    are_late: bool = False
    #: Pods that are to be made again.
    owed: list[str] = field(default_factory=list)
    made_of: dict[str, Pod] = field(default_factory=dict)

    @override
    def gone(self, *pods: str) -> None:
        """These pods have ended, and their makers see it."""
        made = [self.objects[f"uid-{name}"] for name in pods]
        super().gone(*pods)
        for was in made:
            assert isinstance(was, Pod)
            self.owed.append(was.metadata.name)
            self.made_of[f"{was.metadata.name}+"] = was
        if not self.are_late:
            self.make_again()

    @override
    def _evict(self, nomination: Nomination) -> None:
        """Those that are still there, and were not asked before: a revised nomination names all its victims."""
        victims = (each for each in nomination.victims if each.pod_uid in self.objects)
        super()._evict(msgspec.structs.replace(nomination, victims=tuple(victims)))

    def make_again(self) -> None:
        """All that is owed comes, by other names."""
        for name in self.owed:
            was = self.made_of[f"{name}+"]
            meta = msgspec.structs.replace(was.metadata, name=f"{name}+", uid=f"uid-{name}+", deletion_timestamp=None)
            self.feed(msgspec.structs.replace(was, metadata=meta, spec=msgspec.structs.replace(was.spec, node_name="")))
        self.owed.clear()


def movable(name: str, gpus: int = 1, on: str = "n1", **more: Any) -> Pod:
    return running(name, "a", gpus, on, owner=_MAKER, **more)


def fragmented(**more: Any) -> Makers:
    """Two nodes of four GPUs: one is in use on the first, two on the second, which nobody may move."""
    made = Makers(**more)
    return made.feed(
        queue("a", gpu=(0, 1, -1)),
        queue("b", gpu=(0, 1, -1)),
        node("n1", 4),
        node("n2", 4),
        movable("x"),
        running("fixed", "a", 2, "n2"),
    )


def test_a_group_is_moved_and_the_need_starts_where_it_was() -> None:
    shell = fragmented().feed(waiting("mine", "a", 4)).run(6)
    assert shell.asked == ["x"]
    assert shell.placed == {"x+": "n2", "mine": "n1"}
    assert shell.record == {}
    assert [each.because for each in shell.ended] == [Ended.BOUND]


def test_the_record_names_the_place_of_the_successor_before_anybody_is_evicted() -> None:
    shell = fragmented(late=True).feed(waiting("mine", "a", 4)).run(1)
    (nomination,) = shell.record.values()
    assert (nomination.action, [victim.name for victim in nomination.victims]) == (Action.MOVE, ["x"])
    assert [(each.pod_uid, each.node, each.demand.gpus) for each in nomination.moved] == [("uid-x", "n2", 1)]
    assert [each.owner for each in nomination.moved] == [victim.owner for victim in nomination.victims]


def test_nobody_else_gets_the_place_of_a_successor_that_comes_late() -> None:
    shell = fragmented(are_late=True).feed(waiting("mine", "a", 4)).run(2)
    shell.feed(waiting("greedy", "a", 2)).run(5)
    assert "greedy" not in shell.placed
    shell.make_again()
    shell.run(3)
    assert shell.placed["x+"] == "n2"


def test_it_stays_kept_through_a_restart() -> None:
    shell = fragmented(are_late=True).feed(waiting("mine", "a", 4)).run(2)
    shell.restart()
    shell.feed(waiting("greedy", "a", 2)).run(3)
    shell.make_again()
    shell.run(3)
    assert "greedy" not in shell.placed
    assert (shell.placed["x+"], shell.placed["mine"]) == ("n2", "n1")


def test_a_place_is_free_after_a_minute_in_which_nobody_was_made_again() -> None:
    shell = fragmented(are_late=True).feed(waiting("mine", "a", 4)).run(2)
    shell.feed(waiting("next", "a", 2)).run(70)
    assert shell.placed == {"mine": "n1", "next": "n2"}
    assert shell.record == {}


def test_a_place_is_for_pods_of_the_owner_that_ask_the_same() -> None:
    shell = fragmented(are_late=True).feed(waiting("mine", "a", 4)).run(2)
    other = pod("other", gpus=2, labels=of("a"), owner=_MAKER)
    shell.feed(other, waiting("stranger", "a", 2)).run(5)
    assert not {"other", "stranger"} & shell.placed.keys()


def test_a_gang_is_moved_whole_and_starts_again_whole() -> None:
    shell = Makers().feed(queue("a", gpu=(0, 1, -1)), *(node(f"n{number}", 4) for number in (1, 2, 3)))
    shell.feed(pod_group("g", 2, queue="a"), *(movable(f"g{at}", 1, f"n{at + 1}", group="g") for at in range(2)))
    shell.feed(running("fixed", "a", 1, "n3"), pod_group("mine", 2, queue="a"))
    shell.feed(*(waiting(f"m{at}", "a", 4, group="mine") for at in range(2)))
    shell.run(8)
    assert (shell.placed["g0+"], shell.placed["g1+"]) == ("n3", "n3")
    assert {shell.placed["m0"], shell.placed["m1"]} == {"n1", "n2"}
    assert shell.record == {}


@pytest.mark.parametrize("strategy", [{"gpu_strategy": Strategy.SPREAD}, {"cpu_strategy": Strategy.SPREAD}])
def test_nobody_is_moved_where_pods_are_spread(strategy: dict[str, Any]) -> None:
    shell = fragmented()
    made = Cluster(Settings(**strategy))
    feed(made, *shell.objects.values(), waiting("mine", "a", 4))
    shell.cluster = made
    assert shell.run(3).asked == []


def test_nobody_is_moved_for_what_fits_once_others_are_gone_that_go_anyway() -> None:
    leaving = running("leaving", "a", 4, "n3", deleting=True)
    shell = fragmented().feed(node("n3", 4), leaving, waiting("mine", "a", 4)).run(3)
    assert shell.asked == []


def test_a_nominee_that_goes_spares_who_was_not_asked_yet() -> None:
    shell = fragmented(late=True).feed(waiting("mine", "a", 4)).run(1)
    del shell.objects["uid-mine"]
    shell.cluster.remove_pod("uid-mine")
    shell.run(2)
    assert shell.record == {}
    assert [each.because for each in shell.ended] == [Ended.NOMINEE_GONE]


def test_nobody_is_moved_to_nodes_that_are_kept_for_a_group() -> None:
    shell = fragmented().feed(waiting("mine", "a", 4))
    rank = Rank(1_000, 0, "", "large")
    kept = NodeReserve(
        queue="a", rank=rank, namespace="ns", name="large", is_gang=False, since_s=1, begun_s=1, nodes=("n2",), gpus=4
    )
    shell.cluster.scheduling_queue.reserves = NodeReserves(of=(kept,))
    plan = shell.cluster.decide(0, wall_s=1_800_000_000)
    assert [entry for entry in plan.entries if isinstance(entry, Nominate)] == []


def test_room_is_moved_for_before_it_is_taken_from_others() -> None:
    """A team above its share has a pod that could be reclaimed; what is free in all is enough without it."""
    shell = Makers().feed(
        queue("a", gpu=(4, 1, -1)), queue("b", gpu=(0, 1, -1)), node("n1", 4), node("n2", 4), node("n3", 4),
        movable("x"), running("fixed", "a", 2, "n2"), running("taken", "b", 4, "n3"), waiting("mine", "a", 1),
    )  # fmt: skip
    shell.feed(waiting("large", "a", 4)).run(6)
    assert shell.asked == ["x"]


def _all_have_places(nomination: Nomination) -> bool:
    return {victim.pod_uid for victim in nomination.victims} == {moved.pod_uid for moved in nomination.moved}


@pytest.mark.parametrize("seed", seeds(20))
def test_nobody_is_moved_without_a_place_and_all_come_to_rest(seed: int) -> None:
    rng = Random(seed)
    shell = Makers().feed(queue("a", gpu=(0, 1, -1)), *(node(f"n{number}", 4) for number in range(4)))
    for number in range(4):
        for at in range(rng.choice([0, 1, 2])):
            shell.feed(movable(f"p{number}-{at}", rng.choice([1, 2]), f"n{number}"))
    shell.feed(*(waiting(f"need{at}", "a", rng.choice([3, 4])) for at in range(2)))
    pods = sum(isinstance(each, Pod) for each in shell.objects.values())
    for _ in range(15):
        before = set(shell.record)
        shell.run(1)
        fresh = [each for key, each in shell.record.items() if key not in before]
        assert all(_all_have_places(each) for each in fresh if each.action is Action.MOVE and not shell.owed)
    there = [each for each in shell.objects.values() if isinstance(each, Pod)]
    assert len(there) == pods
    assert all(each.spec.node_name for each in there if each.metadata.name.endswith("+"))
    assert shell.record == {}
