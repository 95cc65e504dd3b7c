"""Where pods can be aligned now: with what was reported, what is on its way, and what a decision has placed."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from scheduler.core.cluster import Cluster
from scheduler.core.model.plan import Bind, Nominate, Placement, Plan
from scheduler.core.model.preemption import PreemptionFacts
from scheduler.core.model.settings import Settings
from tests.scheduler.core.nodes.mounting import reasons
from tests.scheduler.core.numa_objects import GPU, report, spec
from tests.scheduler.core.objects import Fed, bound, cluster, feed, node, pod, queue, reservation
from tests.scheduler.core.preemption.scenes import NOON_S, running
from tests.whole import seeds
from wire import names
from wire.core import Pod

_ON = Settings(preemption=False, numa_alignment=True)
_STARTED = "2026-01-01T00:00:{second:02d}Z"
_HALF = 500_000_000


def _made(*objects: Fed, settings: Settings = _ON, **reports: Sequence[Mapping[str, Any]]) -> Cluster:
    made = cluster(*objects, settings=settings)
    for name, zones in reports.items():
        made.numa.put(report(name, *zones))
    return made


def _pod(name: str, gpus: int = 0, *, cpu: int = 0, on: str = "", started: int = 0) -> Pod:
    """A pod of one container; with CPUs it is Guaranteed. ``started``: in which second its node took it up."""
    asked = {key: str(amount) for key, amount in ((GPU, gpus), ("cpu", cpu)) if amount}
    made = msgspec.to_builtins(pod(name, spec=spec(asked, is_guaranteed=bool(cpu)), bound_to=on))
    if started:
        made["status"]["startTime"] = _STARTED.format(second=started)
    return msgspec.convert(made, Pod)


def _placements(plan: Plan) -> list[Placement]:
    return [entry.placement for entry in plan.entries if isinstance(entry, Bind)]


def _placed(made: Cluster) -> dict[str, str]:
    return {placement.name: placement.node for placement in _placements(made.decide(0))}


def test_a_pod_goes_where_one_numa_node_has_all_of_it() -> None:
    made = _made(node("n1"), node("n2"), _pod("p", 3), n1=[{GPU: (4, 2)}, {GPU: (4, 2)}], n2=[{GPU: (4, 0)}, {GPU: 4}])
    assert _placed(made) == {"p": "n2"}


@pytest.mark.parametrize(("gpus", "expected"), [(3, {"numa-free": 1}), (5, {"numa": 1}), (9, {"numa": 1})])
def test_it_says_whether_the_pod_fits_on_no_numa_node_now_or_ever(gpus: int, expected: dict[str, int]) -> None:
    made = _made(node("n1"), _pod("p", gpus), n1=[{GPU: (4, 2)}, {GPU: (4, 2)}])
    assert reasons(made) == expected


def test_nodes_without_an_object_and_clusters_without_the_setting_are_as_before() -> None:
    zones: Any = {"n1": [{GPU: (4, 0)}, {GPU: (4, 0)}]}
    assert _placed(_made(node("n1"), node("n2"), _pod("p", 8), **zones)) == {"p": "n2"}
    assert _placed(_made(node("n1"), _pod("p", 8), settings=Settings(preemption=False), **zones)) == {"p": "n1"}


def test_cpus_of_guaranteed_pods_are_beside_their_gpus() -> None:
    zones = [{GPU: 4, "cpu": (16, 4)}, {GPU: (4, 1), "cpu": 16}]
    made = _made(node("n1"), _pod("p", 1, cpu=8), n1=zones)
    assert _placed(made) == {"p": "n1"}
    made = _made(node("n1"), _pod("p", 2, cpu=8), n1=zones)
    assert reasons(made) == {"numa-free": 1}


def test_pods_of_one_decision_are_charged_on_numa_nodes() -> None:
    made = _made(node("n1", 6), *(_pod(name, 2) for name in "abc"), n1=[{GPU: 3}, {GPU: 3}])
    assert set(_placed(made)) == {"a", "b"}
    made = _made(node("n1", 6), *(_pod(name, 3) for name in "ab"), n1=[{GPU: 3}, {GPU: 3}])
    assert set(_placed(made)) == {"a", "b"}


def test_pods_on_their_way_are_charged_on_numa_nodes() -> None:
    made = _made(node("n1", 6), _pod("a", 2), _pod("b", 2), n1=[{GPU: 3}, {GPU: 3}])
    for placement in _placements(made.decide(0)):
        made.commits.assume(placement)
    feed(made, _pod("p", 2), _pod("q", 1))
    assert _placed(made) == {"q": "n1"}
    assert reasons(made) == {"numa-free": 1}


@pytest.mark.parametrize(
    ("left", "started", "expected"),
    [
        # Not taken up, and not in the report: it goes to the first NUMA node.
        ((3, 3), 0, {"two": "n1", "three": "n1"}),
        # Taken up a moment ago, and not in the report yet: more is in use than it says.
        ((3, 3), 1, {"two": "n1", "three": "n1"}),
        # Taken up and reported: nothing is charged twice.
        ((3, 0), 1, {"two": "n1", "three": "n1"}),
        # Reported though nobody has seen it start: it is charged again until that is seen.
        ((0, 3), 0, {"two": "", "three": ""}),
    ],
)
def test_a_bound_pod_is_charged_once(left: tuple[int, int], started: int, expected: dict[str, str]) -> None:
    for name, gpus in (("two", 2), ("three", 3)):
        held = _pod("held", 3, on="n1", started=started)
        made = _made(node("n1", 6), held, _pod(name, gpus), n1=[{GPU: (3, left[0])}, {GPU: (3, left[1])}])
        assert _placed(made).get(name, "") == expected[name]


def test_the_newest_pods_are_those_that_are_not_reported() -> None:
    """The report has the older one, on the first NUMA node; the newer one is on the second."""
    older, newer = _pod("older", 2, on="n1", started=1), _pod("newer", 3, on="n1", started=5)
    zones: Any = [{GPU: (4, 2)}, {GPU: 4}]
    assert _placed(_made(node("n1"), older, newer, _pod("p", 2), n1=zones)) == {"p": "n1"}
    assert _placed(_made(node("n1"), older, newer, _pod("p", 3), n1=zones)) == {}


@pytest.mark.parametrize(
    ("left", "started", "expected"),
    [
        # Not taken up, or taken up a moment ago; neither is in the report.
        ((8, 8), (0, 0), ""),
        ((8, 8), (1, 2), ""),
        # One of them is in the report, then both.
        ((0, 8), (1, 2), ""),
        ((0, 0), (1, 2), ""),
        # One alone, in the report: nothing is charged twice.
        ((8, 0), (1,), "n1"),
    ],
)
def test_a_guaranteed_pod_without_devices_is_charged_until_it_is_reported(
    left: tuple[int, int], started: tuple[int, ...], expected: str
) -> None:
    """Two pods of 8 CPUs fill two NUMA nodes; a third one goes to neither."""
    held = [_pod(f"held{at}", cpu=8, on="n1", started=second) for at, second in enumerate(started)]
    made = _made(node("n1"), *held, _pod("p", cpu=8), n1=[{"cpu": (8, left[0])}, {"cpu": (8, left[1])}])
    assert _placed(made).get("p", "") == expected


def test_cpus_of_an_init_container_that_has_ended_are_not_missing_from_a_report() -> None:
    held = msgspec.to_builtins(_pod("held", cpu=4, on="n1", started=1))
    held["spec"]["initContainers"] = spec({"cpu": "8"}, is_guaranteed=True)["containers"]
    made = _made(node("n1"), msgspec.convert(held, Pod), n1=[{"cpu": (8, 4)}, {"cpu": 8}])
    feed(made, _pod("p", cpu=8), _pod("q", cpu=4))
    assert _placed(made) == {"p": "n1", "q": "n1"}


def test_a_reservation_that_is_not_reported_holds_a_gpu() -> None:
    tenant = bound(pod("t", fraction="0.5"), "n1", ("g", _HALF))
    made = _made(node("n1", 4), reservation("g", book={"uid-t": _HALF}), tenant, n1=[{GPU: 2}, {GPU: 2}])
    feed(made, _pod("p", 2))
    assert _placed(made) == {"p": "n1"}
    feed(made, _pod("held", 2, on="n1"))
    assert _placed(made) == {}


def test_a_share_is_not_aligned() -> None:
    made = _made(node("n1", 4), pod("s", fraction="0.5"), n1=[{GPU: (2, 1)}, {GPU: (2, 1)}])
    assert "numa" not in str(made.decide(0))
    assert made.waiting()[0].aligned is None


def test_a_pod_that_was_taken_back_leaves_its_numa_nodes() -> None:
    made = _made(node("n1", 6), *(_pod(name, 2) for name in "abc"), n1=[{GPU: 3}, {GPU: 3}])
    first = _placed(made)
    assert _placed(made) == first == _placed(made)


def test_a_pod_is_tried_again_when_its_node_reports_more() -> None:
    made = _made(node("n1", 6), _pod("p", 3), n1=[{GPU: (3, 2)}, {GPU: (3, 2)}])
    assert reasons(made) == {"numa-free": 1}
    made.numa.put(report("n1", {GPU: 3}, {GPU: (3, 2)}))
    assert _placed(made) == {"p": "n1"}
    made.numa.put(report("n1", {GPU: (3, 2)}, {GPU: (3, 2)}))
    assert _placed(made) == {}
    made.numa.drop(report("n1"))
    assert _placed(made) == {"p": "n1"}


def test_a_report_that_came_before_its_node_counts() -> None:
    made = _made(_pod("p", 3), n1=[{GPU: (3, 2)}, {GPU: (3, 2)}])
    feed(made, node("n1", 6))
    assert reasons(made) == {"numa-free": 1}
    feed(made, node("n1", 6, labels={"new": "label"}))
    assert reasons(made) == {"numa-free": 1}


def test_a_pod_is_tried_again_when_another_one_is_seen_to_have_started() -> None:
    """The report has that one already; until then it was charged twice."""
    made = _made(node("n1", 6), _pod("held", 3, on="n1"), _pod("p", 3), n1=[{GPU: (3, 0)}, {GPU: 3}])
    assert reasons(made) == {"numa-free": 1}
    feed(made, _pod("held", 3, on="n1", started=1))
    assert _placed(made) == {"p": "n1"}


@pytest.mark.parametrize("seed", seeds(12))
def test_after_any_changes_a_decision_is_that_of_a_cluster_that_sees_all_at_once(seed: int) -> None:
    chance = random.Random(seed)
    nodes = [node(name, 8) for name in ("n1", "n2")]
    made, pods = _made(*nodes), dict[str, Pod]()
    reports: dict[str, Any] = {}
    uids: dict[str, int] = {}
    for step in range(40):
        number, at = chance.randrange(6), chance.choice(("n1", "n2"))
        name = f"p{number}-{uids.get(str(number), 0)}"
        match chance.randrange(3):
            case 0:
                reports[at] = [{GPU: (4, chance.randint(0, 4)), "cpu": (8, chance.randint(0, 8))} for _ in range(2)]
                made.numa.put(report(at, *reports[at]))
            case 1 if name in pods:
                made.remove_pod(pods.pop(name).metadata.uid)
                uids[str(number)] = uids.get(str(number), 0) + 1
            case _:
                known = pods.get(name)
                gpus, cpu, on = (
                    (chance.randint(0, 3), chance.choice((0, 2)), at) if known is None else _as_before(known)
                )
                pods[name] = _pod(name, gpus, cpu=cpu, on=on, started=chance.choice((0, step + 1)))
                feed(made, pods[name])
        waiting = _pod(f"w{step}", chance.randint(1, 4), cpu=chance.choice((0, 3)))
        feed(made, waiting)
        fresh = _made(*nodes, *pods.values(), waiting, **reports)
        assert _placed(made) == _placed(fresh)
        made.remove_pod(waiting.metadata.uid)


def _as_before(known: Pod) -> tuple[int, int, str]:
    requests = known.spec.containers[0].resources.requests or {}
    return int(requests.get(GPU, 0)), int(requests.get("cpu", 0)), known.spec.node_name


def test_after_all_the_ledger_is_as_a_recount_has_it() -> None:
    made = _made(node("n1", 6), *(_pod(name, 2) for name in "abc"), n1=[{GPU: 3}, {GPU: 3}])
    made.decide(0)
    assert made.validate() == []


@pytest.mark.parametrize(("has_object", "evicts"), [(False, True), (True, False)])
def test_nobody_is_evicted_in_vain_for_a_pod_that_would_not_be_aligned(has_object: bool, evicts: bool) -> None:
    """An object does not say on which NUMA node a pod's devices are, so devices of victims count as used there."""
    others = [running(name, "q", "n1", gpus=4, priority=10) for name in ("v", "w")]
    wanted = pod("p", gpus=4, priority=50, labels={names.QUEUE_LABEL: "q"})
    made = cluster(node("n1"), queue("q", gpu=(0, 1, -1)), *others, wanted, settings=Settings(numa_alignment=True))
    made.note_preemption_facts(PreemptionFacts())
    if has_object:
        made.numa.put(report("n1", {GPU: (4, 0)}, {GPU: (4, 0)}))
    plan = made.decide(0, wall_s=NOON_S)
    assert any(isinstance(entry, Nominate) for entry in plan.entries) is evicts
    if has_object:
        assert reasons(made) == {"insufficient": 1, "numa-free": 1}
