"""Starts of gangs that ask for places, against all assignments on small clusters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from random import Random
from typing import Any

import pytest

from scheduler.core.cluster import Cluster
from scheduler.core.model.plan import Explain, placements
from scheduler.core.model.verdict import Code
from tests.scheduler.core.objects import cluster, node, pod, pod_group, topology
from wire.core import Node

LABELS = ("zone", "rack")
TREE = topology("t", *LABELS)


def _nodes(rng: Random) -> list[Node]:
    """Up to six nodes with up to four GPUs; a tenth lacks its rack."""
    found = []
    for number in range(rng.randint(1, 6)):
        labels = {"zone": f"z{rng.randint(0, 1)}", "rack": f"r{rng.randint(0, 2)}"}
        if rng.random() < 0.1:
            del labels["rack"]
        found.append(node(f"n{number}", gpus=rng.randint(0, 4), labels=labels))
    return found


def _path(of: Node, depth: int) -> tuple[str, ...] | None:
    """The domain of a level that a node is in; None if it counts for none."""
    labels = of.metadata.labels or {}
    path = [labels.get(label) for label in LABELS[:depth]]
    return None if None in path else tuple(each or "" for each in path)


def _domains(nodes: Sequence[Node], depth: int) -> dict[tuple[str, ...], list[Node]]:
    found: dict[tuple[str, ...], list[Node]] = {}
    for each in nodes:
        if (path := _path(each, depth)) is not None:
            found.setdefault(path, []).append(each)
    return found


def _gpus(of: Node) -> int:
    return int((of.status.allocatable or {}).get("nvidia.com/gpu", 0))


def _fits(sizes: Sequence[int], nodes: Sequence[Node]) -> bool:
    """Whether some assignment of these pods to these nodes fits."""
    for chosen in product(range(len(nodes)), repeat=len(sizes)):
        left = [_gpus(each) for each in nodes]
        for size, at in zip(sizes, chosen, strict=True):
            left[at] -= size
        if min(left, default=0) >= 0:
            return True
    return False


def _gang(nodes: Sequence[Node], sizes: Sequence[int], *, required: int, preferred: int) -> Cluster:
    levels = ["", *LABELS]
    asked = {"topology": "t", "requiredTopologyLevel": levels[required], "preferredTopologyLevel": levels[preferred]}
    members = [pod(f"m{n}", gpus=size, group="g") for n, size in enumerate(sizes)]
    return cluster(TREE, *nodes, pod_group("g", len(sizes), topologyConstraint=asked), *members)


def _levels(rng: Random) -> tuple[int, int]:
    required = rng.randint(0, 2)
    return required, rng.randint(max(1, required), 2)


def _used(made: Cluster) -> Iterator[str]:
    return (placed.node for placed in placements(made.decide(0).entries))


@pytest.mark.parametrize("seed", range(150))
def test_equal_pods_get_the_tightest_domain_of_the_deepest_level_that_takes_them(seed: int) -> None:
    rng = Random(seed)
    nodes, size, count = _nodes(rng), rng.randint(1, 2), rng.randint(1, 5)
    required, preferred = _levels(rng)
    used = {*_used(_gang(nodes, [size] * count, required=required, preferred=preferred))}
    for depth in range(preferred, required - 1, -1):
        rooms = {path: sum(_gpus(n) // size for n in of) for path, of in _domains(nodes, depth).items()}
        fitting = [room for room in rooms.values() if room >= count]
        if fitting:
            [path] = {_path(each, depth) for each in nodes if each.metadata.name in used}
            assert path is not None
            assert rooms[path] == min(fitting)
            return
    assert not used


@pytest.mark.parametrize("seed", range(150))
def test_unequal_pods_start_if_and_only_if_some_assignment_in_one_domain_fits(seed: int) -> None:
    """Of sizes that divide each other placing the largest first misses none."""
    rng = Random(seed)
    nodes, sizes = _nodes(rng), [rng.choice([1, 2, 4]) for _ in range(rng.randint(1, 5))]
    required, preferred = _levels(rng)
    made = _gang(nodes, sizes, required=required, preferred=preferred)
    used = {*_used(made)}
    deepest = [
        depth
        for depth in range(preferred, required - 1, -1)
        if any(_fits(sizes, of) for of in _domains(nodes, depth).values())
    ]
    assert bool(used) == bool(deepest)
    if used:
        assert len({_path(each, deepest[0]) for each in nodes if each.metadata.name in used}) == 1


def _full(racks: int) -> list[Node]:
    """Racks in which one node is too small for the second of two pods, each rack another one."""
    found = []
    for rack in range(racks):
        for number, cpu in enumerate(("3", "3")):
            labels = {"zone": "z", "rack": f"r{rack:03}"}
            found.append(node(f"n{rack:03}-{number}", gpus=3, cpu=cpu, memory=f"{100 + rack}Gi", labels=labels))
    return found


@pytest.mark.parametrize(("racks", "code"), [(63, Code.TOPOLOGY_NOT_SATISFIED), (65, Code.TOPOLOGY_SEARCH_CUT)])
def test_a_search_that_fails_again_and_again_for_other_reasons_ends_and_says_so(racks: int, code: Code) -> None:
    asked = {"topology": "t", "requiredTopologyLevel": "rack"}
    members = [pod(f"m{n}", gpus=gpus, group="g") for n, gpus in enumerate((2, 2, 2))]
    members[2] = pod("m2", gpus=2, cpu="1", group="g")
    made = cluster(TREE, *_full(racks), pod_group("g", 3, topologyConstraint=asked), *members)
    [entry] = made.decide(0).entries
    assert isinstance(entry, Explain)
    assert entry.verdict.code is code


def test_racks_that_are_alike_are_tried_once() -> None:
    asked = {"topology": "t", "requiredTopologyLevel": "rack"}
    members = [pod("m0", gpus=2, group="g"), pod("m1", gpus=2, group="g"), pod("m2", gpus=2, cpu="1", group="g")]
    nodes = [
        node(f"n{rack:03}-{number}", gpus=3, labels={"zone": "z", "rack": f"r{rack:03}"})
        for rack in range(200)
        for number in range(2)
    ]
    made = cluster(TREE, *nodes, pod_group("g", 3, topologyConstraint=asked), *members)
    [entry] = made.decide(0).entries
    assert isinstance(entry, Explain)
    assert entry.verdict.code is Code.TOPOLOGY_NOT_SATISFIED


def test_a_search_that_placed_as_many_pods_as_it_may_says_so() -> None:
    """Each rack has 150 free GPUs for pods that ask 150, but one of a node's three is of no use."""
    nodes = [
        node(f"n{rack:02}-{number:02}", gpus=3, memory=f"{200 + rack}Gi", labels={"zone": "z", "rack": f"r{rack:02}"})
        for rack in range(60)
        for number in range(50)
    ]
    members = [pod(f"m{n}", gpus=2, cpu=f"{1 + n % 2}", group="g") for n in range(75)]
    made = cluster(TREE, *nodes, pod_group("g", 75, topologyConstraint=_asked("rack")), *members)
    [entry] = made.decide(0).entries
    assert isinstance(entry, Explain)
    assert entry.verdict.code is Code.TOPOLOGY_SEARCH_CUT


def _asked(level: str) -> dict[str, str]:
    return {"topology": "t", "requiredTopologyLevel": level}


@pytest.mark.parametrize("seed", range(150))
def test_whatever_starts_keeps_to_what_the_gang_and_each_subgroup_ask(seed: int) -> None:
    rng = Random(seed)
    nodes, names = _nodes(rng), [f"s{number}" for number in range(rng.randint(1, 3))]
    levels = {name: rng.choice(["", "zone", "rack"]) for name in ["", *names]}
    spec: dict[str, Any] = {
        "subGroups": [{"name": name, "minMember": rng.randint(1, 2), **_constraint(levels[name])} for name in names],
        **_constraint(levels[""]),
    }
    if rng.random() < 0.3:
        spec["minSubGroup"] = rng.randint(1, len(names))
    minimum = rng.randint(1, 6) if "minSubGroup" not in spec and rng.random() < 0.5 else None
    members = [
        pod(f"{name}-{number}", gpus=rng.randint(1, 2), group="g", subgroup=name)
        for name in names
        for number in range(rng.randint(1, 3))
    ]
    made = cluster(TREE, *nodes, pod_group("g", minimum, **spec), *members)
    entries = made.decide(0).entries
    places = {placed.name: placed.node for placed in placements(entries)}
    if places:
        started = Counter(placed.name.partition("-")[0] for placed in placements(entries[:1]))
        least = {each["name"]: each["minMember"] for each in spec["subGroups"]}
        needed = sorted(least[name] for name in started)
        assert all(count >= least[name] for name, count in started.items())
        assert len(started) == spec.get("minSubGroup", len(names))
        assert started.total() == max(minimum or 0, sum(needed)), "a subgroup that failed keeps no place"
    of = {each.metadata.name: each for each in nodes}
    for name in ["", *names]:
        depth = ["", *LABELS].index(levels[name])
        inside = {_path(of[on], depth) for each, on in places.items() if each.startswith(name)}
        assert len(inside) <= 1
        assert None not in inside


@pytest.mark.parametrize(("fails", "starts"), ["ab", "ba"])
def test_a_subgroup_that_fits_in_part_keeps_no_place_when_another_one_starts(fails: str, starts: str) -> None:
    subgroups = [{"name": name, "minMember": 2} for name in "ab"]
    spec: dict[str, Any] = {"subGroups": subgroups, "minSubGroup": 1, **_constraint("rack")}
    members = [pod(f"{fails}{n}", gpus=gpus, group="g", subgroup=fails) for n, gpus in enumerate((4, 4))]
    members += [pod(f"{starts}{n}", gpus=1, group="g", subgroup=starts) for n in range(2)]
    made = cluster(TREE, node("n", gpus=5, labels={"zone": "z", "rack": "r"}), pod_group("g", None, **spec), *members)
    assert [placed.name for placed in placements(made.decide(0).entries[:1])] == [f"{starts}0", f"{starts}1"]


@pytest.mark.parametrize("seed", range(60))
def test_one_subgroup_finds_a_rack_for_all_that_the_minimum_asks_of_it(seed: int) -> None:
    """Whatever its own minimum is, 0 included: it starts if and only if some rack takes as many as start."""
    rng = Random(seed)
    nodes, count = _nodes(rng), rng.randint(1, 5)
    subgroups = [{"name": "w", "minMember": rng.randint(0, count), **_constraint("rack")}]
    members = [pod(f"m{n}", gpus=1, group="g", subgroup="w") for n in range(count)]
    made = cluster(TREE, *nodes, pod_group("g", count, subGroups=subgroups), *members)
    entries = made.decide(0).entries
    rooms = [sum(map(_gpus, of)) for of in _domains(nodes, 2).values()]
    is_placed = bool([*placements(entries)])
    assert is_placed == (max(rooms, default=0) >= count)
    codes = {entry.verdict.code for entry in entries if isinstance(entry, Explain)}
    assert codes == (set() if is_placed else {Code.TOPOLOGY_NOT_SATISFIED})


def _constraint(level: str) -> dict[str, dict[str, str]]:
    return {"topologyConstraint": _asked(level)} if level else {}
