"""The least number of further nodes, of each kind that the group may use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from scheduler.core.decide.changes import AnotherNode, WithoutPods
from scheduler.core.model.plan import placements
from scheduler.core.what_if.edits import NotPossible
from scheduler.core.what_if.node_changes import MoreNodes, added_nodes, ended_groups, kinds_of_nodes
from tests.scheduler.core.device_objects import DRIVER, ask, device, selectors, written_slice
from tests.scheduler.core.nodes.claiming import GPU, claimed, claiming, offered
from tests.scheduler.core.objects import cluster, node, pod, pod_group
from tests.scheduler.core.what_if.given import NO_ROOM, changes, edits, spelled, tries
from wire import names
from wire.core import Node
from wire.crds.podgroup import PodGroup
from wire.resource import DeviceClass

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


def test_members_that_another_gang_has_beyond_its_minimum_take_nodes_first() -> None:
    """Nodes come one by one, so the other gang has started by then."""
    gangs = [pod_group("a", 2), *(pod(f"a{at}", gpus=1, group="a", created="2025-01-01T00:00:00Z") for at in range(3))]
    gangs += [pod_group("g", 2), *(pod(name, gpus=1, group="g") for name in "pq")]
    tried = tries(node("n1", 1), pod("there", gpus=1, bound_to="n1"), *gangs)
    assert spelled(edits(added_nodes, tried)) == ["node +5 like n1"]


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


# Which nodes are of one kind for a group, and which kinds come first.

#: Nodes of four kinds, two of each.
CPU_NODES = [node(f"c{kind}-{number}", 0, cpu=str(8 + kind)) for kind in range(4) for number in range(2)]
#: A class that stands for what device plugins offer.
MAPPED = msgspec.convert(
    {"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": names.GPU_RESOURCE}}, DeviceClass
)
#: A class whose selector reads an attribute.
OF_TYPE = msgspec.convert(
    {"metadata": {"name": "gpu"}, "spec": {"selectors": selectors(f'device.attributes["{DRIVER}"].type == "gpu"')}},
    DeviceClass,
)


def model(name: str) -> str:
    """A selector of one model."""
    return f'device.attributes["{DRIVER}"].model == "{name}"'


def devices_of(node_name: str, *attributes: dict[str, Any]) -> list[Any]:
    """A node, and what its driver publishes: a device with each of these attributes."""
    listed = (device(f"d{number}", attributes=each) for number, each in enumerate(attributes))
    return [node(node_name, 0), written_slice(node_name, *listed)]


@pytest.mark.parametrize(
    ("objects", "found"),
    [
        ((*WAITS, node("z", 0), offered("z")), ["z", "c0-0", "c1-0", "c2-0"]),
        # Both sources count.
        ((MAPPED, pod("p", gpus=1), node("z", 0), offered("z"), node("y", 1)), ["y", "z", "c0-0", "c1-0"]),
        # Of a gang those members count that need devices.
        (
            (
                *WAITS,
                pod_group("g", 2),
                claiming("m", "c", group="g"),
                pod("p1", group="g"),
                node("z", 0),
                offered("z"),
            ),
            ["z", "c0-0", "c1-0", "c2-0"],
        ),
        # Nobody needs devices.
        ((pod("p"), node("z", 0, cpu="64"), offered("z")), ["c0-0", "c1-0", "c2-0", "c3-0"]),
        (WAITS, ["c0-0", "c1-0", "c2-0", "c3-0"]),
    ],
    ids=["claims", "extended resources", "a gang", "no claims", "no devices"],
)
def test_kinds_without_devices_come_last_where_pods_need_some(objects: tuple[Any, ...], found: list[str]) -> None:
    name = "m" if any(getattr(each.metadata, "name", "") == "m" for each in objects) else "p"
    assert kinds_of_nodes(tries(*CPU_NODES, *objects, name=name)) == found


ONE, TWO = ["n1"], ["n1", "n2"]
OWN = [{"uuid": f"GPU-{number}", "pciBusID": f"0{number}:00.0", "model": "h100", "type": "gpu"} for number in range(2)]


@pytest.mark.parametrize(
    ("first", "second", "cel", "found"),
    [
        ({"model": "a100"}, {"model": "h100"}, model("h100"), TWO),
        ({f"{DRIVER}/model": "a100"}, {f"{DRIVER}/model": "h100"}, model("h100"), TWO),
        ({"type": "gpu"}, {"type": "mig"}, "", TWO),
        (*OWN, model("h100"), ONE),
        (*OWN, f'device.attributes["{DRIVER}"].uuid == "GPU-1"', ONE),
        ({"model": "a100"}, {"model": "h100"}, "", ONE),
    ],
    ids=["model", "model by its full name", "what a class reads", "of one model", "by UUID", "what nobody reads"],
)
def test_devices_are_told_apart_by_what_selectors_read(
    first: dict[str, Any], second: dict[str, Any], cel: str, found: list[str]
) -> None:
    asked = claimed("c", ask(cel=[cel] if cel else []))
    there = (*devices_of("n1", first), *devices_of("n2", second))
    assert kinds_of_nodes(tries(*there, OF_TYPE, asked, claiming("p", "c"))) == found


@pytest.mark.parametrize(
    ("first", "second", "found"), [("ab", "bb", TWO), ("aa", "bb", ONE), ("ab", "cd", ONE), ("aab", "abb", TWO)]
)
def test_by_a_rule_between_devices_it_counts_which_of_them_agree(first: str, second: str, found: list[str]) -> None:
    listed = [devices_of(name, *({"root": each} for each in of)) for name, of in (("n1", first), ("n2", second))]
    rules = [{"requests": ["r"], "matchAttribute": f"{DRIVER}/root"}]
    asked = msgspec.to_builtins(claimed("c", ask(count=2)))
    asked["spec"]["devices"]["constraints"] = rules
    written = msgspec.convert(asked, type(claimed()))
    assert kinds_of_nodes(tries(*listed[0], *listed[1], GPU, written, claiming("p", "c"))) == found


TAINT = [{"key": "ill", "value": "", "effect": "NoSchedule"}]


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        (["d0"], ["d0", "d1"], TWO),
        (["d0", "d1"], ["d1", "d0"], ONE),
        ([{"capacity": SMALL}], [{"capacity": LARGE}], TWO),
        # A second device may be unlike the first.
        ([{"capacity": SMALL}, {"capacity": SMALL}], [{"capacity": SMALL}, {"capacity": LARGE}], TWO),
        ([{"taints": TAINT}], [{}], TWO),
        ([{"allowMultipleAllocations": True}], [{}], TWO),
    ],
    ids=["number", "names", "capacity", "capacity of the second", "taints", "shared"],
)
def test_devices_are_told_apart_by_what_a_claim_may_need(first: list[Any], second: list[Any], found: list[str]) -> None:
    def offered_by(name: str, listed: list[Any]) -> tuple[Node, Any]:
        made = (
            device(each) if isinstance(each, str) else device(f"d{number}", **each)
            for number, each in enumerate(listed)
        )
        return node(name, 0), written_slice(name, *made)

    assert kinds_of_nodes(tries(*offered_by("n1", first), *offered_by("n2", second), *WAITS)) == found


# Of a pod that anti-affinity keeps out: whose end lets it start, whichever of the two has the term.
WEB: Mapping[str, str] = {"app": "web"}
KEEPS_OFF: Mapping[str, Any] = {
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": names.HOSTNAME_LABEL, "labelSelector": {"matchLabels": dict(WEB)}}
            ]
        }
    }
}
PORT: Mapping[str, Any] = {
    "containers": [{"name": "main", "ports": [{"containerPort": 80, "hostPort": 80}], "resources": {}}]
}
#: More pods than are tried, each smaller than the one in question.
CROWD = [pod(f"a{at:02}", cpu="1m", bound_to="n1") for at in range(20)]


@pytest.mark.parametrize("crowd", [[], CROWD], ids=["alone", "in-a-crowd"])
@pytest.mark.parametrize(
    ("theirs", "own"),
    [({}, KEEPS_OFF), (KEEPS_OFF, {}), (KEEPS_OFF, KEEPS_OFF), (PORT, PORT)],
    ids=["its-own-term", "their-term", "both-terms", "a-port"],
)
def test_the_pod_that_is_in_the_way_is_named_and_the_waiting_pod_starts_when_it_has_ended(
    theirs: Mapping[str, Any], own: Mapping[str, Any], crowd: list[Any]
) -> None:
    there = pod("there", bound_to="n1", labels=WEB, spec=theirs)
    objects = node(), *crowd, there, pod("p", labels=WEB, spec=own)
    assert spelled(edits(ended_groups, tries(*objects, settings=NO_ROOM)))[:1] == ["finish there"]
    made = cluster(*objects, settings=NO_ROOM)
    assert list(placements(made.decide(0).entries)) == []
    made.remove_pod("uid-there")
    assert [each.name for each in placements(made.decide(1).entries)] == ["p"]


@pytest.mark.parametrize(("gone", "starts"), [(("r",), False), (("s",), False), (("r", "s"), True)])
def test_a_node_is_open_once_all_owners_of_the_term_there_are_gone(gone: tuple[str, ...], starts: bool) -> None:
    owners = [pod(name, bound_to="n1", spec=KEEPS_OFF) for name in ("r", "s")]
    tried = tries(node(), *owners, pod("p", labels=WEB), settings=NO_ROOM)
    assert tried.helps(WithoutPods(tuple(f"uid-{name}" for name in gone)), is_own=False) is starts
    assert not tried.outcome().starts  # what was supposed is not remembered
