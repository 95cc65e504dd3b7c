"""Room for gangs that have to be in one domain: nobody is evicted in vain."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from scheduler.core.model.preemption import Ended
from tests.scheduler.core.objects import feed, node, pod_group, queue, topology
from tests.scheduler.core.stories.test_preemption import Shell, running, waiting
from tests.whole import seeds

RACKS = {"n1": "x", "n2": "x", "n3": "y", "n4": "y"}
ASKED = {"topology": "t", "requiredTopologyLevel": "rack"}


def _shell(gpus: int = 2, *, late: bool = False) -> Shell:
    shell = Shell(late=late)
    feed(shell.cluster, topology("t", "rack"))
    shell.feed(*(node(name, gpus=gpus, labels={"row": "r", "rack": rack}) for name, rack in RACKS.items()))
    half = 2 * gpus
    return shell.feed(queue("a", gpu=(half, 1, -1)), queue("b", gpu=(half, 1, -1)))


def _gang(shell: Shell, count: int) -> Shell:
    shell.feed(pod_group("g", count, queue="a", topologyConstraint=ASKED))
    return shell.feed(*(waiting(f"m{number}", "a", group="g") for number in range(count)))


def test_all_victims_of_a_gang_are_in_one_rack() -> None:
    shell = _shell().feed(*(running(f"b{number}", "b", on=f"n{number % 4 + 1}") for number in range(8)))
    _gang(shell, 4).run(6)
    assert {RACKS[shell.placed[f"m{number}"]] for number in range(4)} in ({"x"}, {"y"})
    assert len(shell.asked) == 4
    assert shell.record == {}


def test_nobody_is_evicted_where_no_rack_could_hold_the_gang() -> None:
    shell = _shell().feed(*(running(f"b{number}", "b", on=f"n{number % 4 + 1}") for number in range(8)))
    _gang(shell, 5).run(6)
    assert (shell.asked, shell.placed) == ([], {})


@pytest.mark.parametrize("seed", seeds(25))
def test_whoever_is_evicted_makes_a_rack_large_enough(seed: int) -> None:
    rng = Random(seed)
    shell, left = _shell(), dict.fromkeys(RACKS, 2)
    for number in range(rng.randint(2, 8)):
        on = rng.choice([name for name, free in left.items() if free])
        left[on] -= 1
        shell.feed(running(f"b{number}", "b", on=on))
    count = rng.randint(2, 5)
    _gang(shell, count).run(8)
    members = {name for name in shell.placed if name.startswith("m")}
    assert len(members) in {0, count}
    assert len({RACKS[shell.placed[name]] for name in members}) <= 1
    assert bool(members) or not shell.asked


def test_a_gang_for_which_nobody_was_evicted_is_searched_for_again_once_its_topology_is_another_one() -> None:
    shell = _shell().feed(*(running(f"b{number}", "b", on=f"n{number % 4 + 1}") for number in range(8)))
    shell.feed(queue("a", gpu=(6, 1, -1)), queue("b", gpu=(2, 1, -1)))
    _gang(shell, 5).run(6)
    assert shell.asked == []
    feed(shell.cluster, topology("t", "row", aliases=["rack"]))
    shell.run(6)
    assert len(shell.placed) == 5


def _relabel(shell: Shell) -> None:
    shell.feed(node(min(_kept(shell)), gpus=2, labels={"rack": "z"}))


def _drop_topology(shell: Shell) -> None:
    topologies = shell.cluster.topologies
    known = topologies.get("t")
    assert known is not None
    topologies.of_kai.drop(known)


def _ask_for_a_host(shell: Shell) -> None:
    feed(shell.cluster, topology("t", "rack", "kubernetes.io/hostname"))
    asked = {**ASKED, "requiredTopologyLevel": "kubernetes.io/hostname"}
    shell.feed(pod_group("g", 4, queue="a", topologyConstraint=asked))


def _kept(shell: Shell) -> set[str]:
    """Nodes of places that are kept."""
    return {place.node for nomination in shell.record.values() for place in nomination.places}


@pytest.mark.parametrize(
    ("change", "because"),
    [(_relabel, Ended.PLACE_GONE), (_drop_topology, Ended.NOMINEE_KEPT), (_ask_for_a_host, Ended.PLACE_GONE)],
)
def test_a_gang_does_not_start_in_places_that_are_not_in_one_rack_any_more(
    change: Callable[[Shell], None], because: Ended
) -> None:
    shell = _shell(late=True).feed(*(running(f"b{number}", "b", on=f"n{number % 4 + 1}") for number in range(8)))
    _gang(shell, 4).run(2)
    assert len(_kept(shell)) == 2
    change(shell)
    shell.run(1).gone(*shell.asked)
    shell.run(4)
    assert shell.placed == {}
    assert [each.because for each in shell.ended] == [because]


def test_a_gang_starts_in_its_places_if_labels_change_that_it_does_not_ask_for() -> None:
    shell = _shell(late=True).feed(*(running(f"b{number}", "b", on=f"n{number % 4 + 1}") for number in range(8)))
    _gang(shell, 4).run(2)
    kept = _kept(shell)
    shell.feed(*(node(name, gpus=2, labels={"rack": RACKS[name], "row": "q"}) for name in kept))
    shell.run(1).gone(*shell.asked)
    assert {*shell.run(4).placed.values()} == kept
