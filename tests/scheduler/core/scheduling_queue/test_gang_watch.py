"""Which events wake a gang whose members have rules about other pods."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from scheduler.core.cluster import Cluster
from scheduler.core.model.plan import placements
from tests.scheduler.core.filters.beside import HOST, ZONE, affinity, anti_affinity, made, running, term
from tests.scheduler.core.filters.test_spread import spread
from tests.scheduler.core.objects import bound, feed, node, pod, pod_group
from tests.whole import seeds
from wire.core import Node, Pod
from wire.crds.podgroup import PodGroup

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
    asleep, lined = of.backlog.asleep, {}
    for line in of.backlog.lines.all():
        lined.update(dict.fromkeys(line.gangs(), line.key.alike))
    for key in {record.pod_group for record in of.waiting()}:
        kept = asleep.get_gang(lined.get(("ns", key), ("ns", key)))
        is_sure = kept is not None and asleep.is_sure_gang(kept, of.generation)
        if kept is not None and (is_sure or asleep.still_out_gang(kept) is not None):
            yield "ns", key


def _cluster(*objects: Object, nodes: tuple[Node, ...]) -> Cluster:
    found = made(nodes=nodes)
    found.backlog.recount_ns = 10**12  # nobody is looked at for counts alone
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


_KINDS: tuple[dict[str, Any], ...] = (
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


class _World:
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
                kinds = rng.sample(_KINDS, rng.choice((1, 1, 2)))
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
    world, slept = _World(seed), 0
    for number in range(60):
        world.step(number)
        if sleeping := sorted(_sleeping(world.cluster)):
            slept += 1
            _, name = sleeping[number % len(sleeping)]
            assert not [*placements(world.anew(name).decide(0).entries)]
    assert slept
    assert world.cluster.validate() == []
