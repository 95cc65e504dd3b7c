"""Which events wake a class that rules about other pods keep off all nodes."""

from __future__ import annotations

import random
from typing import Any

import pytest

from scheduler.core.cluster import Cluster
from scheduler.core.convert.selectors import NamespaceRecord
from scheduler.core.decide.placer import Placer
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
from tests.scheduler.core.filters.test_spread import spread
from tests.scheduler.core.objects import bound, node, pod
from tests.whole import seeds
from wire.core import Pod

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
    asleep = of.backlog.asleep
    kept = asleep.get(record.cls)
    return kept is not None and (
        asleep.is_sure(record.cls, kept, of.generation) or asleep.still_out(record.cls, kept) is not None
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
    asleep = found.backlog.asleep
    for number, uid in enumerate(("uid-t", "uid-s", "uid-r")):
        found.decide(number)
        found.remove_pod(uid)
    assert places(found.decide(9)) == {"w": "p"}
    assert (asleep.woken_in_vain, asleep.woken_to_fit) == (1, 1)


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

    def asleep(self) -> list[PodRecord]:
        """Pods that a decision would not look at."""
        asleep, generation = self.cluster.backlog.asleep, self.cluster.generation
        kept = [(each, asleep.get(each.cls)) for each in self.cluster.waiting()]
        return [
            each
            for each, known in kept
            if known is not None
            and (asleep.is_sure(each.cls, known, generation) or asleep.still_out(each.cls, known) is not None)
        ]


@pytest.mark.parametrize("seed", seeds(40))
def test_in_random_worlds_a_class_that_sleeps_would_fit_nowhere_if_it_were_decided(seed: int) -> None:
    world, slept = _World(seed), 0
    for number in range(60):
        world.step(number)
        for pod_asleep in world.asleep():
            slept += 1
            assert Placer(world.cluster.snapshot()).place(pod_asleep) is None
    assert slept
    assert world.cluster.validate() == []
