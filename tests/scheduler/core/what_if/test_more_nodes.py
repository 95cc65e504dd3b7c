"""The least number of further nodes, of each kind that the group may use."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.core.decide.changes import AnotherNode
from scheduler.core.what_if.edits import NotPossible
from scheduler.core.what_if.node_changes import MoreNodes, added_nodes
from tests.scheduler.core.device_objects import DRIVER, ask, device, written_slice
from tests.scheduler.core.nodes.claiming import GPU, claimed, claiming, offered
from tests.scheduler.core.objects import node, pod, pod_group
from tests.scheduler.core.what_if.given import changes, edits, spelled, tries
from wire.crds.podgroup import PodGroup

FULL = (node("n1", 2), node("n2", 2), node("big", 4), *(pod(f"t-{at}", gpus=2, bound_to=at) for at in ("n1", "n2")))


@pytest.mark.parametrize(
    ("objects", "found"),
    [
        ((*FULL, pod("b", gpus=4, bound_to="big"), pod("p", gpus=1)), ["node +1 like n1", "node +1 like big"]),
        ((*FULL, pod("b", gpus=4, bound_to="big"), pod("p", gpus=3)), ["node +1 like big"]),
        ((*FULL, pod("b", gpus=4, bound_to="big"), pod("p", gpus=5)), []),
        (
            (
                node("n1", 2),
                pod("there", gpus=2, bound_to="n1"),
                pod_group("g", 5),
                *(pod(name, gpus=1, group="g") for name in "pqrst"),
            ),
            ["node +3 like n1"],
        ),
        ((node("n1", 2, cordoned=True), pod("p", gpus=1)), ["node +1 like n1"]),
        ((node("n1", 2, labels={"zone": "a"}), pod("p", spec={"nodeSelector": {"zone": "b"}})), []),
    ],
)
def test_the_least_number_of_nodes_is_found(objects: tuple[Any, ...], found: list[str]) -> None:
    assert spelled(edits(added_nodes, tries(*objects))) == found


def test_there_are_as_many_as_those_before_it_take() -> None:
    older = [pod(f"o{at}", gpus=2, created="2025-01-01T00:00:00Z") for at in range(3)]
    tried = tries(node("n1", 2, cordoned=True), *older, pod("p", gpus=1))
    assert spelled(edits(added_nodes, tried)) == ["node +4 like n1"]


SMALL, LARGE = ({"memory": {"value": amount}} for amount in ("40Gi", "80Gi"))
WAITS = (GPU, claimed(), claiming("p", "c"))


def gang(count: int) -> tuple[Any, ...]:
    """A gang, each pod with a claim."""
    pods = [(claimed(f"c{at}"), claiming(f"m{at}", f"c{at}", group="g")) for at in range(count)]
    return pod_group("g", count), *(each for one in pods for each in one)


@pytest.mark.parametrize(
    ("objects", "found"),
    [
        ((node("n1"), offered("n1"), *WAITS, claimed("o", on=("n1", "d0"))), ["node +1 like n1"]),
        ((node("n1"), node("n2"), offered("n2"), *WAITS, claimed("o", on=("n2", "d0"))), ["node +1 like n2"]),
        ((node("n1"), *WAITS), []),
        # As small as those that are there.
        ((node("n1"), offered("n1"), GPU, claimed("c", ask(count=2)), claiming("p", "c")), []),
        ((node("n1", cordoned=True), offered("n1", 2), *WAITS, *gang(3)), ["node +2 like n1"]),
        (
            (
                *(node("n1"), node("n2"), written_slice("n1", device("d0", capacity=SMALL))),
                *(written_slice("n2", device("d0", capacity=LARGE)), GPU, claiming("p", "c")),
                claimed("c", ask(capacity={"requests": {"memory": "80Gi"}})),
                claimed("o", on=("n2", "d0")),
            ),
            ["node +1 like n2"],
        ),
        # Nodes without devices are of four kinds, and there are more of each.
        (
            (
                *(node(f"c{kind}-{number}", 0, cpu=str(8 + kind)) for kind in range(4) for number in range(2)),
                *(node("z"), offered("z"), *WAITS, claimed("o", on=("z", "d0"))),
            ),
            ["node +1 like z"],
        ),
        (
            (
                *(node("n1"), node("n2"), written_slice("n1", device("d0", attributes={"model": "a100"}))),
                *(written_slice("n2", device("d0", attributes={"model": "h100"})), GPU, claiming("p", "c")),
                claimed("c", ask(cel=[f'device.attributes["{DRIVER}"].model == "h100"'])),
                claimed("o", on=("n2", "d0")),
            ),
            ["node +1 like n2"],
        ),
    ],
    ids=[
        *("free ones", "of nodes that have some", "none", "too few", "for all members", "large enough"),
        *("behind kinds that have none", "of the model"),
    ],
)
def test_further_nodes_bring_devices_for_claims(objects: tuple[Any, ...], found: list[str]) -> None:
    name = "m0" if any(isinstance(each, PodGroup) for each in objects) else "p"
    assert spelled(edits(added_nodes, tries(*objects, name=name))) == found


@pytest.mark.parametrize(("attribute", "found"), [("uuid", []), ("parentUUID", []), ("profile", ["node +1 like n1"])])
def test_no_further_node_is_for_a_claim_that_names_a_card(attribute: str, found: list[str]) -> None:
    values = {"uuid": "MIG-1", "parentUUID": "GPU-1", "profile": "1g.10gb"}
    part = device("d0", attributes=values)
    asked = ask(cel=[f'device.attributes["{DRIVER}"].{attribute} == "{values[attribute]}"'])
    taken = claimed("o", on=("n1", "d0"))
    tried = tries(node("n1"), written_slice("n1", part), GPU, claiming("p", "c"), claimed("c", asked), taken)
    assert spelled(edits(added_nodes, tried)) == found


def test_a_node_that_is_supposed_may_be_what_further_ones_are_like() -> None:
    tried = tries(node("n1"), offered("n1"), *WAITS)
    first = tried.snapshot.with_(*changes(tried, MoreNodes(1, "n1")))
    again = MoreNodes(1, "n1-more-1").changes(first, tried.subject)
    (added,) = (each.node for each in again if isinstance(each, AnotherNode))
    assert [pool.pool.id[1] for pool in first.with_(*again).devices.pools_on(added)] == ["n1-more-1-more-1"]


def test_further_nodes_have_names_of_their_own() -> None:
    tried = tries(node("n1"), node("n1-more-1"), pod("p"))
    found = [each.node.name for each in changes(tried, MoreNodes(2, "n1")) if isinstance(each, AnotherNode)]
    assert found == ["n1-more-2", "n1-more-3"]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (MoreNodes(1, "x"), r"node \+1 like x: allowed are nodes: n1"),
        (MoreNodes(65, "n1"), r"node \+65 like n1: allowed are 1 to 64 nodes"),
        (MoreNodes(0, "n1"), "allowed are 1 to 64 nodes"),
    ],
)
def test_what_makes_no_sense_is_refused(edit: MoreNodes, message: str) -> None:
    with pytest.raises(NotPossible, match=message):
        changes(tries(node("n1"), pod("p")), edit)
