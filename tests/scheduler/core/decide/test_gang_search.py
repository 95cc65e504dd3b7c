"""Gangs with trees of minimums: which subgroups start, and that each starts whole or not at all (S4)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from random import Random
from typing import Any

import pytest

from scheduler.core.cluster import Cluster
from scheduler.core.decide.gang_search import Search, Tried
from scheduler.core.decide.stale_gangs import can_complete, candidates
from scheduler.core.groups.quorum import quorum
from scheduler.core.model.plan import Bind, Explain, Gang, placements
from scheduler.core.model.records import PodRecord
from scheduler.core.model.verdict import Code, SubgroupShort, Verdict
from tests.scheduler.core.objects import bound, cluster, feed, node, pod, pod_group, queue, topology
from tests.whole import seeds
from wire.core import Node

#: One line a subgroup: its name, ``<`` its parent, and ``=`` its minimum: of pods, or with ``*`` of subgroups.
_PART = re.compile(r"(?P<name>[\w-]+)(<(?P<parent>[\w-]+))?(=(?P<star>\*?)(?P<least>\d+))?")


def parts(text: str) -> list[dict[str, Any]]:
    """Subgroups of a PodGroup."""
    made = []
    for word in text.split():
        found = _PART.fullmatch(word)
        assert found is not None
        part: dict[str, Any] = {"name": found["name"]}
        if found["parent"]:
            part["parent"] = found["parent"]
        if found["least"]:
            part["minSubGroup" if found["star"] else "minMember"] = int(found["least"])
        made.append(part)
    return made


def members(text: str) -> list[Any]:
    """Pods: ``a2`` two of subgroup a with a GPU each, ``a2x4`` with four, ``+``: they run on n1; ``!``: gated."""
    made: list[Any] = []
    for word in text.split():
        found = re.fullmatch(r"([a-z-]+?)(\d+)(x(\d+))?([+!]?)", word)
        assert found is not None
        name, count, gpus, how = found[1], int(found[2]), int(found[4] or 1), found[5]
        for _ in range(count):
            made.append(pod(f"{name}-{len(made):02}", group="g", subgroup=name, gpus=gpus, gated=how == "!"))
            made[-1] = bound(made[-1], "n1") if how == "+" else made[-1]
    return made


def started(made: Cluster) -> dict[str, int]:
    """How many members of which subgroups start."""
    found: dict[str, int] = {}
    for entry in made.decide(0).entries:
        placements = entry.placements if isinstance(entry, Gang) else ()
        if isinstance(entry, Bind):
            placements = (entry.placement,)
        for placement in placements:
            name = placement.name.rpartition("-")[0]
            found[name] = found.get(name, 0) + 1
    return found


def verdict_of(made: Cluster) -> Verdict:
    verdicts = {entry.verdict for entry in made.decide(0).entries if isinstance(entry, Explain)}
    (found,) = verdicts
    return found


SCENARIOS = [
    # tree, the PodGroup's own minimum of subgroups, members, GPUs of nodes, what starts
    pytest.param("a=2 b=2", 1, "a2 b2", [8], {"a": 2}, id="of two that could start the first that is declared does"),
    pytest.param("b=2 a=2", 1, "a2 b2", [8], {"b": 2}, id="whatever their names are"),
    pytest.param("a=3 b=2", 1, "a3 b2", [8], {"b": 2}, id="the one that needs fewer pods"),
    pytest.param("a=3 b=3 c=3", 2, "a3 b3 c3", [8], {"a": 3, "b": 3}, id="as many as are needed and no more"),
    pytest.param("a=2 b=3", 1, "a1 b3", [8], {"b": 3}, id="one whose pods are all there"),
    pytest.param("a=2 b=3", 1, "a2! b3", [8], {"b": 3}, id="one whose pods are not gated"),
    pytest.param("a=2 b=2", 1, "a2x8 b2", [8], {"b": 2}, id="one that fits, if the preferred one does not"),
    pytest.param("a=2 b=2 c=2", 1, "a2x5 b2x5 c2", [8], {"c": 2}, id="the third, if the first two fit in part only"),
    pytest.param("a=2 b=2 c=2", 2, "a2 b2x8 c2", [4], {"a": 2, "c": 2}, id="the first and the third"),
    pytest.param("a=2 b=2 c=2", 2, "a2 b2x8 c2", [3], {}, id="nobody, if too few of them fit"),
    pytest.param("a=2 b=2", None, "a2 b2", [3], {}, id="all are needed where nothing is said"),
    pytest.param("a=2 b=2", None, "a2 b2", [4], {"a": 2, "b": 2}, id="all at once"),
    pytest.param("a=1 b=1", 1, "a2 b1", [8], {"a": 1}, id="the minimum of a subgroup and not all its pods"),
    pytest.param(
        "rj=*2 r-a<rj=2 r-b<rj=2 r-c<rj=2", None, "r-a2 r-b2x8 r-c2", [4], {"r-a": 2, "r-c": 2}, id="a level below"
    ),
    pytest.param(
        "x=*1 y=*1 xa<x=4 xb<x=4 ya<y=1 yb<y=1", 2, "xa4 xb4x2 ya1x9 yb1", [5], {"xa": 4, "yb": 1}, id="two choices"
    ),
    pytest.param(
        "x y xa<x=2 xb<x=2 ya<y=3 yb<y=2", 1, "xa2 xb2x8 ya3 yb2", [5], {"ya": 3, "yb": 2}, id="a whole level gives way"
    ),
    pytest.param(
        "l x=*1 y=*1 xa<x=3 xb<x=1 ya<y=2 h<l=1", None, "h1 xa3 xb1x9 ya2", [6], {"h": 1, "xa": 3, "ya": 2}, id="mixed"
    ),
    pytest.param("w=*2 s<w=2 t<w=2 u<w=0", None, "s2 t2 u9", [4], {"s": 2, "t": 2}, id="an elastic part is no minimum"),
    pytest.param("a=2 b=2", 1, "a1+ a1 b2", [8], {"a": 1}, id="the one that lost a pod is completed"),
    pytest.param("a=2 b=2", 1, "a1+ b2", [8], {"b": 2}, id="another one, if it can't be completed"),
]


@pytest.mark.parametrize(("tree", "least", "pods", "nodes", "found"), SCENARIOS)
def test_a_gang_starts_enough_subgroups_and_each_of_them_whole(
    tree: str, least: int | None, pods: str, nodes: list[int], found: dict[str, int]
) -> None:
    spec: dict[str, Any] = {} if least is None else {"minSubGroup": least}
    there = [node(f"n{i}", gpus) for i, gpus in enumerate(nodes, 1)]
    made = cluster(*there, pod_group("g", subGroups=parts(tree), **spec), *members(pods))
    assert started(made) == found
    assert made.validate() == []


def test_a_start_that_fails_leaves_all_room_to_the_next() -> None:
    group = pod_group("g", minSubGroup=2, subGroups=parts("a=2 b=2 c=2"))
    late = pod("late-0", gpus=3, created="2026-02-01T00:00:00Z")
    made = cluster(node(gpus=3), group, *members("a2 b2x8 c2"), late)
    assert started(made) == {"late": 1}
    assert made.validate() == []


@pytest.mark.parametrize(
    ("tree", "least", "pods", "short"),
    [
        ("a=2 b=3", None, "a2 b1 b1!", SubgroupShort("b", 3, 1, 1)),
        ("a=2 b=3", None, "a2 b1+", SubgroupShort("b", 3, 1)),
        ("a=2 b=3", 1, "a1 b1", SubgroupShort("", 1, 0, is_of_subgroups=True)),
        ("x=*2 a<x=1 b<x=1 c<x=1", None, "a1", SubgroupShort("x", 2, 1, is_of_subgroups=True)),
        ("x a<x=1 b<x=4", None, "a1 b3", SubgroupShort("b", 4, 3)),
        ("a=1", 2, "a1", SubgroupShort("", 2, 1, is_of_subgroups=True)),
        ("a=2 b=3", None, "a2 z1 y1", SubgroupShort("b", 3, 0, stray="y")),
        ("x a<x=1 b<x=1", None, "a1 x1", SubgroupShort("b", 1, 0, stray="x")),
        ("a=2", 1, "a1 z1", SubgroupShort("a", 2, 1, stray="z")),
    ],
)
def test_who_is_not_ready_says_which_subgroup_and_how_many_it_lacks(
    tree: str, least: int | None, pods: str, short: SubgroupShort
) -> None:
    spec: dict[str, Any] = {} if least is None else {"minSubGroup": least}
    made = cluster(node("n1"), pod_group("g", subGroups=parts(tree), **spec), *members(pods))
    verdict = verdict_of(made)
    assert (verdict.code, verdict.subgroup) == (Code.GANG_NOT_READY, short)


def test_who_finds_no_room_says_for_which_subgroup_of_the_first_choice() -> None:
    group = pod_group("g", minSubGroup=1, subGroups=parts("a=3 b=4"))
    verdict = verdict_of(cluster(node(gpus=2), group, *members("a3 b4")))
    assert (verdict.code, verdict.placed, verdict.required) == (Code.GANG_INCOMPLETE, 2, 3)
    assert verdict.subgroup == SubgroupShort("a", 3, 2)


def test_what_one_subgroup_lacks_is_not_told_as_if_another_ones_pod_lacked_it() -> None:
    group = pod_group("g", minSubGroup=1, subGroups=parts("a=2 b=1"))
    verdict = verdict_of(cluster(node(gpus=2), group, *members("a1x2 a1")))
    assert (verdict.code, verdict.subgroup) == (Code.GANG_INCOMPLETE, SubgroupShort("a", 2, 1))


@pytest.mark.parametrize(
    ("spec", "code", "subgroup"),
    [
        ({"subGroups": parts("a<b b<a")}, Code.GROUP_CYCLE, "a"),
        ({"subGroups": parts("a<b=1")}, Code.GROUP_PARENT_NOT_FOUND, "a"),
        ({"minimum": 1, "minSubGroup": 1, "subGroups": parts("a=1")}, Code.GROUP_TWO_MINIMUMS, ""),
        ({"subGroups": [{"name": "a", "minMember": 1, "minSubGroup": 1}]}, Code.GROUP_TWO_MINIMUMS, "a"),
        ({"subGroups": parts("a=*1")}, Code.GROUP_NO_CHILDREN, "a"),
        ({"subGroups": parts("a=1 a=1")}, Code.GROUP_NAME_TWICE, "a"),
    ],
)
def test_a_group_that_contradicts_itself_keeps_its_pods_waiting_and_evicts_nobody(
    spec: dict[str, Any], code: Code, subgroup: str
) -> None:
    made = cluster(node("n1"), pod_group("g", **spec), *members("a1 a1+"))
    verdict = verdict_of(made)
    assert (verdict.code, verdict.detail) == (code, subgroup)
    assert made.broken_gangs() == []
    feed(made, pod_group("g", 1))
    assert started(made) == {"a": 1}


def test_a_gang_is_broken_when_too_few_subgroups_are_whole() -> None:
    group = pod_group("g", minSubGroup=1, subGroups=parts("a=2 b=2"))
    made = cluster(node("n1"), group, *members("a2+ b1+"))
    assert made.broken_gangs() == []
    made = cluster(node("n1"), group, *members("a1+ b1+"))
    assert [broken.name for broken in made.broken_gangs()] == ["g"]


@pytest.mark.parametrize(("gpus", "can"), [(3, True), (1, False)])
def test_a_broken_gang_can_be_completed_by_another_subgroup(gpus: int, can: bool) -> None:
    group = pod_group("g", minSubGroup=1, subGroups=parts("a=2 b=2"))
    made = cluster(node("n1", gpus), group, *members("a1+ a1x9 b2"))
    record = made.pod_group("ns", "g")
    assert record is not None
    snapshot = made.prepared(0)
    assert can_complete(snapshot, record, candidates(snapshot, record, 0), 0) is can


def test_beyond_the_minimum_the_subgroup_with_the_least_of_its_minimum_grows_first() -> None:
    group = pod_group("g", minSubGroup=1, subGroups=parts("x=*1 xa<x=2 xb<x=2 y=2"))
    made = cluster(node("n1", 16), group, *members("xa2+ xa2 xb2 y4"))
    names = [e.placement.name.rpartition("-")[0] for e in made.decide(0).entries if isinstance(e, Bind)]
    assert names == ["y", "y", "xb", "xb", "y", "y", "xa", "xa"]


def test_a_queue_that_takes_one_subgroup_and_not_the_other_gets_the_one_that_it_takes() -> None:
    team = queue("team", gpu=(-1, 1, 2))
    group = pod_group("g", minSubGroup=1, queue="team", subGroups=parts("a=2 b=2"))
    made = cluster(team, node("n1", 16), group, *members("a2x4 b2"))
    assert started(made) == {"b": 2}
    assert made.validate() == []


def test_a_gang_that_its_queue_or_the_nodes_hold_back_starts_when_either_changes() -> None:
    group = pod_group("g", minSubGroup=1, queue="team", subGroups=parts("a=2 b=2"))
    pods = members("a2x4 b2x9")
    made = cluster(queue("team", gpu=(-1, 1, 2)), node("n1", 8), group, *pods)
    assert started(made) == {}
    feed(made, queue("team", gpu=(-1, 1, 8)))
    assert started(made) == {"a": 2}
    group = pod_group("g", minSubGroup=1, queue="team", subGroups=parts("a=2 b=1"))
    made = cluster(queue("team", gpu=(-1, 1, 9)), node("n1", 5), node("n2", 5), group, *members("a2x5 b1x9"))
    assert started(made) == {}
    feed(made, node("n3", 9))
    assert started(made) == {"b": 1}


class _Counting:
    """Has room for no member of some classes; counts what it is asked."""

    def __init__(self, room: int) -> None:
        self.room, self.tries, self.failures = room, 0, list[tuple[str, int]]()

    def place(self, pod: PodRecord) -> Tried:
        self.tries += 1
        if pod.cls.demand.gpus > self.room:
            return Tried.PASSED
        self.room -= pod.cls.demand.gpus
        return Tried.PLACED

    def failed(self, subgroup: str, placed: int) -> None:
        self.failures.append((subgroup, placed))

    def checkpoint(self) -> int:
        return self.room

    def rollback(self, mark: int) -> None:
        self.room = mark


def _search(tree: str, least: int, pods: str, room: int) -> tuple[bool, _Counting]:
    made = cluster(node("n1", 1), pod_group("g", minSubGroup=least, subGroups=parts(tree)), *members(pods))
    record = made.pod_group("ns", "g")
    assert record is not None
    ready = sorted(made.members("ns", "g"), key=lambda each: each.name)
    trying = _Counting(room)
    return Search(quorum(record, ready, lambda _: False), ready, trying).run(), trying


def test_each_member_is_tried_at_most_once_however_many_combinations_there_are() -> None:
    names = [f"{a}{b}" for a in "abcdefgh" for b in "abcdefgh"]
    tree = " ".join(f"{name}=2" for name in names)
    pods = " ".join(f"{name}1x{2 + number} {name}1x3" for number, name in enumerate(names))
    is_whole, trying = _search(tree, 32, pods, room=9)
    assert not is_whole
    assert trying.tries <= 2 * len(names)
    assert trying.room == 9


def test_subgroups_that_ask_the_same_as_one_that_failed_are_not_tried() -> None:
    names = [f"{a}{b}" for a in "abcdefgh" for b in "abcdefgh"]
    is_whole, trying = _search(" ".join(f"{name}=2" for name in names), 1, " ".join(f"{n}2x5" for n in names), room=9)
    assert not is_whole
    assert trying.failures == [("aa", 1)]
    assert trying.tries == 2


# Starts of gangs that ask for places, against all assignments on small clusters.

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


@pytest.mark.parametrize("seed", seeds(150))
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


@pytest.mark.parametrize("seed", seeds(150))
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


@pytest.mark.parametrize("seed", seeds(150))
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


@pytest.mark.parametrize("seed", seeds(60))
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
