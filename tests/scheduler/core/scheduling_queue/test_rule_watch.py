"""Which events wake a class that rules about other pods keep off all nodes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from scheduler.core.cluster import Cluster
from scheduler.core.convert.selectors import NamespaceRecord
from scheduler.core.decide.placer import Placer
from scheduler.core.model.plan import placements
from scheduler.core.model.records import PodRecord
from tests.scheduler.core.filters.beside import (
    HOST,
    NODES,
    ZONE,
    affinity,
    anti_affinity,
    made,
    places,
    running,
    term,
    waiting,
)
from tests.scheduler.core.filters.test_beside_pods import spread
from tests.scheduler.core.objects import bound, feed, node, pod, pod_group
from tests.whole import seeds
from wire.core import Node, Pod
from wire.crds.podgroup import PodGroup

_PORT = {"containers": [{"name": "c", "ports": [{"hostPort": 80}]}]}
_DISK = {"volumes": [{"name": "v", "gcePersistentDisk": {"pdName": "d"}}]}
_SPREAD = spread(
    HOST, selector={"matchExpressions": [{"key": "app", "operator": "Exists"}]}, nodeAffinityPolicy="Ignore"
)
_HERE = {"nodeSelector": {HOST: "p"}}


def _is_asleep(of: Cluster) -> bool:
    """Whether a decision on what is there now would not look at the class of the pod that waits."""
    snapshot = of.prepared(1)
    record = snapshot.pods.records["uid-w"]
    unschedulable = of.scheduling_queue.unschedulable
    kept = unschedulable.get(record.cls)
    return kept is not None and (
        unschedulable.is_sure(record.cls, kept, of.generation) or unschedulable.still_out(record.cls, kept) is not None
    )


@pytest.mark.parametrize(
    ("there", "asked", "event", "wakes"),
    [
        ((running("r", "p"),), anti_affinity(term(HOST)), running("new", "q", app="b"), False),
        ((running("r", "p"),), anti_affinity(term(HOST)), running("new", "p", app="a"), False),
        ((running("r", "p"), running("s", "p")), anti_affinity(term(HOST)), "uid-s", True),
        ((running("r", "p"), running("s", "q", app="b")), anti_affinity(term(HOST)), "uid-s", False),
        ((), affinity(term(HOST)), running("new", "q", app="b"), False),
        ((), affinity(term(HOST)), running("new", "q", app="a"), True),
        ((running("r", "p"), running("s", "q")), _SPREAD, "uid-s", True),
        ((pod("r", bound_to="p", spec=_PORT),), _PORT, running("new", "q"), False),
        ((pod("r", bound_to="p", spec=_PORT), pod("s", bound_to="p", spec=_PORT)), _PORT, "uid-s", True),
        ((pod("r", bound_to="p", spec=_DISK), pod("s", bound_to="p", spec=_DISK)), _DISK, "uid-s", True),
        ((pod("r", bound_to="p", spec=_DISK), pod("s", bound_to="q", spec=_PORT)), _DISK, "uid-s", False),
    ],
)
def test_an_event_wakes_a_class_only_if_a_rule_of_it_looks_at_the_pod(
    there: tuple[Pod, ...], asked: dict[str, Any], event: Pod | str, wakes: bool
) -> None:
    found = made(*there, waiting({**asked, **_HERE}))
    assert not places(found.decide(0))
    assert _is_asleep(found)
    if isinstance(event, str):
        found.remove_pod(event)
    else:
        found.upsert_pod(event)
    assert _is_asleep(found) is not wakes


@pytest.mark.parametrize("change", ["labels", "taints", "gone", "namespaces"])
def test_what_changes_domains_or_namespaces_wakes_it(change: str) -> None:
    selecting = term(HOST, namespaceSelector={"matchLabels": {"team": "x"}})
    found = made(running("r", "p"), waiting({**anti_affinity(selecting), **_HERE}), teams={"ns": "x"})
    assert not places(found.decide(0))
    assert _is_asleep(found)
    match change:
        case "labels":
            found.upsert_node(node("q", labels={ZONE: "new"}))
        case "taints":
            found.upsert_node(node("q", labels={ZONE: "x"}, taints=[("a", "", "NoSchedule")]))
        case "gone":
            found.remove_node("s")
        case _:
            found.others.namespaces.replace([NamespaceRecord("ns", {"team": "y"})])
    assert not _is_asleep(found)


def test_wake_ups_are_counted_by_what_came_of_them() -> None:
    found = made(
        running("r", "p"),
        running("s", "p"),
        waiting({**anti_affinity(term(HOST)), **_HERE}),
        running("t", "q", app="b"),
    )
    unschedulable = found.scheduling_queue.unschedulable
    for number, uid in enumerate(("uid-t", "uid-s", "uid-r")):
        found.decide(number)
        found.remove_pod(uid)
    assert places(found.decide(9)) == {"w": "p"}
    assert (unschedulable.woken_in_vain, unschedulable.woken_to_fit) == (1, 1)


_KINDS: tuple[dict[str, Any], ...] = (
    anti_affinity(term(HOST)),
    anti_affinity(term()),
    affinity(term()),
    affinity(term(HOST, {"matchLabels": {"app": "b"}})),
    spread(),
    spread(HOST, minDomains=4),
    _PORT,
    _DISK,
)


class _World:
    """A cluster of four nodes, and pods with rules that come, are bound and go."""

    def __init__(self, seed: int) -> None:
        self.rng, self.cluster, self.names = random.Random(seed), made(), [each.metadata.name for each in NODES]
        self.pods: dict[str, Pod] = {}
        self.bound: list[str] = []

    def step(self, number: int) -> None:
        """One event, and a decision that is carried out for the most part."""
        rng, cluster = self.rng, self.cluster
        match rng.randint(0, 9):
            case 0 | 1 | 2 | 3:
                here = {"nodeSelector": {HOST: rng.choice(self.names)}} if rng.random() < 0.5 else {}
                self.pods[f"w{number}"] = waiting({**rng.choice(_KINDS), **here}, f"w{number}", rng.choice("abw"))
                cluster.upsert_pod(self.pods[f"w{number}"])
            case 4 | 5:
                spec = rng.choice((_PORT, _DISK, {}))
                cluster.upsert_pod(running(f"r{number}", rng.choice(self.names), rng.choice("ab"), spec=spec))
                self.bound.append(f"uid-r{number}")
            case 6 | 7 if self.bound:
                cluster.remove_pod(self.bound.pop(rng.randrange(len(self.bound))))
            case 8:
                cluster.upsert_node(
                    node(rng.choice(self.names), cpu=rng.choice("248"), labels={ZONE: rng.choice("xy")})
                )
            case _:
                cluster.forget_gone()
        for name, where in places(cluster.decide(number)).items():
            if rng.random() < 0.8:
                cluster.upsert_pod(bound(self.pods[name], where))
                self.bound.append(f"uid-{name}")

    def unschedulable(self) -> list[PodRecord]:
        """Pods that a decision would not look at."""
        unschedulable, generation = self.cluster.scheduling_queue.unschedulable, self.cluster.generation
        kept = [(each, unschedulable.get(each.cls)) for each in self.cluster.waiting()]
        return [
            each
            for each, known in kept
            if known is not None
            and (
                unschedulable.is_sure(each.cls, known, generation)
                or unschedulable.still_out(each.cls, known) is not None
            )
        ]


@pytest.mark.parametrize("seed", seeds(40))
def test_in_random_worlds_a_class_that_sleeps_would_fit_nowhere_if_it_were_decided(seed: int) -> None:
    world, slept = _World(seed), 0
    for number in range(60):
        world.step(number)
        for pod_asleep in world.unschedulable():
            slept += 1
            assert Placer(world.cluster.snapshot()).place(pod_asleep) is None
    assert slept
    assert world.cluster.validate() == []


# Which events wake a gang whose members have rules about other pods.

Object = Node | Pod | PodGroup
_OF_GANG = {"matchLabels": {"app": "g"}}
_APART = anti_affinity(term(HOST, _OF_GANG))
_TOGETHER = affinity(term(ZONE, _OF_GANG))
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_NOT_BY_A = anti_affinity(term(HOST))


def _gang(name: str, *members: dict[str, Any], app: str = "g", cpu: str = "1", **more: Any) -> list[Object]:
    """A gang that needs all of these members, each of its own spec."""
    pods = [
        pod(f"{name}-{i}", cpu=cpu, group=name, labels={"app": app}, spec=each, **more)
        for i, each in enumerate(members)
    ]
    return [pod_group(name, len(members)), *pods]


def _sleeping(of: Cluster) -> Iterator[tuple[str, str]]:
    """Gangs that a decision on what is there now would not try."""
    of.prepared(1)
    unschedulable, lined = of.scheduling_queue.unschedulable, {}
    for line in of.scheduling_queue.lines.all():
        lined.update(dict.fromkeys(line.gangs(), line.key.alike))
    for key in {record.pod_group for record in of.waiting()}:
        kept = unschedulable.get_gang(lined.get(("ns", key), ("ns", key)))
        is_sure = kept is not None and unschedulable.is_sure_gang(kept, of.generation)
        if kept is not None and (is_sure or unschedulable.still_out_gang(kept) is not None):
            yield "ns", key


def _cluster(*objects: Object, nodes: tuple[Node, ...]) -> Cluster:
    found = made(nodes=nodes)
    found.scheduling_queue.recount_ns = 10**12  # nobody is looked at for counts alone
    feed(found, *objects)
    return found


_NODES = tuple(node(name, cpu="2", labels={ZONE: zone}) for name, zone in zip("pqr", "xxy", strict=True))


@pytest.mark.parametrize(
    ("members", "there", "event", "wakes"),
    [
        pytest.param(
            [_APART] * 4, [], running("new", "p", "b", cpu="1"), True, id="less-room-where-a-member-could-have-gone"
        ),
        pytest.param(
            [_APART] * 4,
            [running("r", "p", "b", cpu="2"), running("s", "p", "b")],
            "uid-s",
            False,
            id="a-pod-goes-from-a-full-node-that-stays-full",
        ),
        pytest.param([_APART] * 4, [running("r", "p", "b", cpu="2")], "uid-r", True, id="a-full-node-has-room-again"),
        pytest.param(
            [_NOT_BY_A] * 2,
            [running(f"r{n}", n, cpu="2") for n in "pqr"] + [running("s", "p", "b")],
            "uid-s",
            False,
            id="of-other-pods-on-full-nodes-nothing-is-said",
        ),
        pytest.param(
            [_TOGETHER] * 5,
            [running(f"r{n}", n, "b", cpu="2") for n in "pqr"],
            running("new", "p", "g"),
            True,
            id="a-pod-comes-that-a-term-takes",
        ),
        pytest.param(
            [_TOGETHER] * 5,
            [running(f"r{n}", n, "b", cpu="2") for n in "pqr"],
            running("new", "p", "c"),
            False,
            id="a-pod-comes-that-no-term-takes",
        ),
        pytest.param([_APART] * 4, [], node("p", cpu="2", labels={ZONE: "new"}), True, id="labels-of-a-node"),
        pytest.param([_APART] * 4, [], node("new", cpu="2", labels={ZONE: "x"}), True, id="a-node-comes"),
        pytest.param([_APART] * 4, [], node("full", cpu="0", labels={ZONE: "x"}), True, id="a-domain-comes"),
    ],
)
def test_a_change_wakes_a_gang_only_if_its_start_reads_it(
    members: list[dict[str, Any]], there: list[Pod], event: Object | str, wakes: bool
) -> None:
    found = _cluster(*there, *_gang("g", *members), nodes=_NODES)
    assert not [*placements(found.decide(0).entries)]
    assert [*_sleeping(found)] == [("ns", "g")]
    if isinstance(event, str):
        found.remove_pod(event)
    else:
        feed(found, event)
    assert [*_sleeping(found)] == ([] if wakes else [("ns", "g")])


def test_a_gang_may_start_because_a_node_lost_room() -> None:
    """The first member goes where the others can't follow; once that node is full, all go elsewhere."""
    nodes = (node("a", cpu="1", labels={ZONE: "x"}), node("b", cpu="2", labels={ZONE: "y"}))
    found = _cluster(*_gang("g", _TOGETHER, _TOGETHER), nodes=nodes)
    assert not [*placements(found.decide(0).entries)]
    feed(found, running("new", "a", "b", cpu="1"))
    assert {each.node for each in placements(found.decide(1).entries)} == {"b"}


def test_a_gang_that_prefers_to_be_spread_wakes_by_any_pod() -> None:
    soft = spread(HOST, whenUnsatisfiable="ScheduleAnyway")
    full = [running(f"r{n}", n, "b", cpu="2") for n in "pqr"]
    found = _cluster(*full, *_gang("g", *[{**_APART, **soft}] * 4), nodes=_NODES)
    found.decide(0)
    assert [*_sleeping(found)] == [("ns", "g")]
    feed(found, running("new", "p", "c"))
    assert [*_sleeping(found)] == []


_GANG_WATCH_KINDS: tuple[dict[str, Any], ...] = (
    _APART,
    _TOGETHER,
    _NOT_BY_A,
    {"affinity": {**_APART["affinity"], **_TOGETHER["affinity"]}},
    affinity(term(ZONE)),
    spread(),
    spread(ZONE, selector=_OF_GANG),
    spread(HOST, selector=_OF_GANG, minDomains=3),
    {"containers": [{"name": "c", "ports": [{"hostPort": 80}], "resources": {"requests": {"cpu": "1"}}}]},
    {},
    {"affinity": {**_APART["affinity"], "podAffinity": {_PREFERRED: [{"weight": 9, "podAffinityTerm": term(ZONE)}]}}},
)
_NAMES = "pqrs"
#: The most gangs that wait at a time.
_MOST_WAITING = 4


class _GangWatchWorld:
    """A cluster of four small nodes, and gangs with rules that come, are bound and go."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.nodes = {name: self._node(name) for name in _NAMES}
        self.cluster = _cluster(nodes=tuple(self.nodes.values()))
        self.gangs: dict[str, list[Object]] = {}
        self.bound: dict[str, Pod] = {}

    def _node(self, name: str) -> Node:
        return node(name, cpu=self.rng.choice("1234"), labels={ZONE: self.rng.choice("xy")})

    def step(self, number: int) -> None:
        """One event, and a decision that is carried out for the most part."""
        rng, cluster = self.rng, self.cluster
        match rng.randint(0, 9):
            case 0 | 1 | 2 if len(self.gangs) < _MOST_WAITING:
                kinds = rng.sample(_GANG_WATCH_KINDS, rng.choice((1, 1, 2)))
                members = [kinds[i % len(kinds)] for i in range(rng.randint(2, 5))]
                self.gangs[f"g{number}"] = _gang(f"g{number}", *members, app=rng.choice("gga"))
                feed(cluster, *self.gangs[f"g{number}"])
            case 0 if self.gangs:
                for each in self.gangs.pop(rng.choice([*self.gangs]))[1:]:
                    cluster.remove_pod(each.metadata.uid)
            case 3 | 4 | 5:
                app, cpu = rng.choice("abg"), rng.choice(("", "1", "2"))
                self._run(running(f"r{number}", rng.choice(_NAMES), app, cpu=cpu))
            case 6 | 7 if self.bound:
                uid = rng.choice([*self.bound])
                del self.bound[uid]
                cluster.remove_pod(uid)
            case 8:
                name = rng.choice(_NAMES)
                self.nodes[name] = self._node(name)
                cluster.upsert_node(self.nodes[name])
            case _:
                cluster.forget_gone()
        placed = {each.name: each.node for each in placements(cluster.decide(number).entries)}
        for name in {pod_name.split("-")[0] for pod_name in placed}:
            if rng.random() < 0.8:
                for each in self.gangs.pop(name)[1:]:
                    assert isinstance(each, Pod)
                    self._run(bound(each, placed[each.metadata.name]))

    def _run(self, each: Pod) -> None:
        self.bound[each.metadata.uid] = each
        self.cluster.upsert_pod(each)

    def anew(self, gang: str) -> Cluster:
        """The same cluster, which has seen nothing but what is there now, and one gang that waits."""
        groups = [each for each in self.gangs[gang] if isinstance(each, PodGroup)]
        fresh = made(nodes=tuple(self.nodes.values()))
        feed(fresh, *self.bound.values(), *groups, *self.gangs[gang][1:])
        return fresh


@pytest.mark.parametrize("seed", seeds(40))
def test_in_random_worlds_a_gang_that_sleeps_would_not_start_if_it_were_decided(seed: int) -> None:
    world, slept = _GangWatchWorld(seed), 0
    for number in range(60):
        world.step(number)
        if sleeping := sorted(_sleeping(world.cluster)):
            slept += 1
            _, name = sleeping[number % len(sleeping)]
            assert not [*placements(world.anew(name).decide(0).entries)]
    assert slept
    assert world.cluster.validate() == []
