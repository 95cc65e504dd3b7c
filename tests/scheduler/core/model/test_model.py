"""Values of the model: classes and kinds of pods, node pools, verdicts and small containers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpu.request import Ask, ContainerKind, ContainerRef, ContainerRequest, FractionAsk, GpuRequest
from gpu.translation import Place
from scheduler.core.cluster import Cluster
from scheduler.core.convert.pod_groups import pod_group_record
from scheduler.core.convert.pods import pod_record
from scheduler.core.model.facts import Membership
from scheduler.core.model.pod_class import Constraints, Demand, PodClass
from scheduler.core.model.pod_kind import Kind, asked_kind, kind_of, usual
from scheduler.core.model.quota import NOTHING, WITHOUT_END, QueueRecord, Resources
from scheduler.core.model.records import PodGroupRecord, PodRecord
from scheduler.core.model.seen_pods import Elsewhere
from scheduler.core.model.settings import NodePool, Settings, name_of
from scheduler.core.model.stale import Stale, StaleFacts
from scheduler.core.model.steps import Steps, ended
from scheduler.core.model.verdict import Code, NodeReason, Verdict
from tests.scheduler.core.objects import NANO, bound, changed_group, cluster, pod, pod_group
from wire import names

# What a pod asks, in each of the ways in which it may be given.

_NET = "example.com/net"


def _asking(*asks: Ask) -> GpuRequest:
    return GpuRequest((ContainerRequest(ContainerRef(ContainerKind.REGULAR, 0, "main"), asks),))


HALF, TENTH = _asking(FractionAsk(NANO // 2)), _asking(FractionAsk(NANO // 10))


@pytest.mark.parametrize(
    ("resources", "gpus", "extended", "claimed"),
    [
        pytest.param((), 2, ((_NET, 3),), (), id="none"),
        pytest.param((names.GPU_RESOURCE,), 0, ((_NET, 3),), ((names.GPU_RESOURCE, 2),), id="whole GPUs"),
        pytest.param((_NET,), 2, (), ((_NET, 3),), id="another resource"),
        pytest.param((_NET, names.GPU_RESOURCE), 0, (), ((_NET, 3), (names.GPU_RESOURCE, 2)), id="both, by name"),
        pytest.param(("example.com/other",), 2, ((_NET, 3),), (), id="one that is not asked"),
    ],
)
def test_what_claims_give_is_not_asked_of_the_node_and_still_counted(
    resources: tuple[str, ...], gpus: int, extended: tuple[tuple[str, int], ...], claimed: tuple[tuple[str, int], ...]
) -> None:
    asked = Demand(cpu_milli=100, gpus=2, extended=((_NET, 3),))
    assert asked.by_claim(resources) == Demand(cpu_milli=100, gpus=gpus, extended=extended, claimed=claimed)


def test_memory_is_counted_by_bytes_though_it_is_asked_in_mib() -> None:
    assert Demand(mem_mib=2, mem_rounding_bytes=1).mem_bytes == 2 * 2**20 - 1


def test_a_request_without_places_has_a_way_for_each_alternative_on_all_nodes() -> None:
    asked = PodClass(request=HALF, alternatives=(TENTH,))
    assert [way.request for way in asked.ways()] == [HALF, TENTH]
    assert asked.all_constraints() == (Constraints(),)


def test_each_way_is_for_nodes_of_its_place() -> None:
    here, there = Place(labels=(("zone", "a"),)), Place(labels=(("zone", "b"),))
    asked = PodClass(request=HALF, alternatives=(TENTH, HALF), places=(here, there, here))
    assert [(way.request, way.constraints.place) for way in asked.ways()] == [
        (HALF, here),
        (TENTH, there),
        (HALF, here),
    ]
    assert all(not way.places and not way.alternatives for way in asked.ways())
    assert asked.all_constraints() == tuple(
        msgspec.structs.replace(Constraints(), place=place) for place in (here, there)
    )


def test_profiles_are_those_of_all_ways() -> None:
    slices = _asking(FractionAsk(NANO // 2, profile="1g.10gb"))
    assert PodClass(request=HALF, alternatives=(slices,)).profiles() == {"1g.10gb"}


# What kind of GPU pod a pod is.

_CPU: dict[str, Any] = {"cpu": "2", "memory": "4Gi"}
_MIG = {"nvidia.com/mig-1g.5gb": "1"}


def _record(made: Cluster, name: str) -> PodRecord:
    record = made.pod(f"uid-{name}")
    assert record is not None
    return record


@pytest.mark.parametrize(
    ("waiting", "expected"),
    [
        (pod("a", gpus=2, **_CPU), Kind(2, 1_000, 2_000, 4_096)),
        (pod("a", fraction="0.333333333", **_CPU), Kind(1, 333, 2_000, 4_096)),
        (pod("a", fraction="0.0001"), Kind(1, 1, 0, 0)),
        (pod("a", fraction="0.5", devices=2), Kind(2, 500, 0, 0)),
        (pod("a", mem=6_000, devices=2, **_CPU), Kind(2, 0, 2_000, 4_096, 6_000)),
        (pod("a", **_CPU), None),
        (pod("a", extended=_MIG), None),
    ],
    ids=["whole", "share", "hardly any", "two shares", "memory", "no GPU", "a MIG slice"],
)
def test_a_pod_that_waits_is_of_the_kind_that_it_asks_for(waiting: Any, expected: Kind | None) -> None:
    assert asked_kind(_record(cluster(waiting), "a").cls) == expected


def test_a_pod_on_a_node_is_of_the_kind_that_it_was_given() -> None:
    made = cluster(bound(pod("a", mem=6_000, **_CPU), "n1", ("g", 250_000_000)), pod("b", gpus=1, bound_to="n1"))
    assert kind_of(_record(made, "a")) == Kind(1, 250, 2_000, 4_096)
    assert kind_of(_record(made, "b")) == Kind(1, 1_000, 0, 0)


def test_usual_kinds_are_the_most_frequent_that_make_up_95_percent() -> None:
    often, seldom, rare = Kind(1, 500, 0, 0), Kind(1, 1_000, 0, 0), Kind(8, 1_000, 0, 0)
    assert usual({rare: 5, often: 60, seldom: 35}) == [(often, 60), (seldom, 35)]
    assert usual({rare: 6, often: 60, seldom: 34}) == [(often, 60), (seldom, 34), (rare, 6)]
    assert usual({}) == []


def test_a_queue_that_says_nothing_guarantees_nothing_and_limits_nothing() -> None:
    record = QueueRecord(name="a")
    assert (record.key, record.quota, record.limit, record.priority) == ("a", NOTHING, WITHOUT_END, 100)


ONE, TWO = Resources(1, 20, 300), Resources(4, 50, 600)


# Who is where, in the order in which they came there: never in that of hashes, which differ between processes.

_KEYS = [f"key-{number}" for number in range(30)]


def test_everybody_at_a_place_is_in_the_order_of_coming() -> None:
    index = Membership[str]()
    for key in _KEYS:
        index.move(key, "here")
    assert list(index.at("here")) == _KEYS
    index.move("key-0", "there")
    index.move("key-0", "here")
    assert list(index.at("here")) == [*_KEYS[1:], "key-0"]


def test_a_place_that_all_have_left_is_none() -> None:
    index = Membership[str]()
    index.move("key", "here")
    index.move("key", "")
    assert not index.has("here")
    assert not index.at("here")


S = 1_000_000_000


def test_only_what_differs_is_news() -> None:
    facts, key, gang = StaleFacts(), ("ns", "g"), Stale(since_ns=5)
    told = [facts.note(key, each) for each in (None, gang, Stale(since_ns=5), Stale(since_ns=5, is_going=True), None)]
    assert told == [False, True, False, True, True]
    assert (facts.version, facts.gangs) == (3, {})


@pytest.mark.parametrize(("grace_s", "every_s"), [(60, 6), (5, 0.5), (86_400, 10)])
def test_gangs_are_looked_at_ten_times_in_their_grace_time_and_each_ten_seconds(grace_s: int, every_s: float) -> None:
    assert StaleFacts(staleness_grace_ns=grace_s * S).interval_ns == every_s * S


# Work in steps has the result that it has at once.


def _sum(numbers: list[int], done: list[int]) -> Steps[int]:
    for number in numbers:
        done.append(number)
        yield number
    return sum(numbers)


def test_all_steps_are_done_and_the_result_is_returned() -> None:
    done: list[int] = []
    assert ended(_sum([3, 4], done)) == 7
    assert done == [3, 4]


def test_work_that_is_given_up_goes_no_further() -> None:
    done: list[int] = []
    steps = _sum([3, 4], done)
    assert next(steps) == 3
    steps.close()
    assert done == [3]


# What of a verdict is a reason, and what is a count.


def _verdict(*kinds: str, code: Code = Code.NO_NODE_FITS, nodes: int = 1, detail: str = "") -> Verdict:
    return Verdict(code=code, node_reasons=tuple(NodeReason(kind, "", nodes) for kind in kinds), detail=detail)


@pytest.mark.parametrize(
    ("other", "is_news"),
    [
        pytest.param(_verdict("insufficient", "taint", nodes=7), False, id="other counts"),
        pytest.param(_verdict("insufficient"), True, id="a reason less"),
        pytest.param(_verdict("insufficient", "taint", "selector"), True, id="a reason more"),
        pytest.param(_verdict("insufficient", "taint", "cordoned", "not-ready"), False, id="closed nodes beside"),
        pytest.param(_verdict("cordoned"), True, id="closed nodes alone"),
        pytest.param(_verdict("insufficient", "taint", code=Code.GANG_INCOMPLETE), True, id="another code"),
        pytest.param(_verdict("insufficient", "taint", detail="data"), True, id="another detail"),
    ],
)
def test_a_pod_has_news_when_its_reasons_differ(other: Verdict, is_news: bool) -> None:
    assert (_verdict("insufficient", "taint").reasons != other.reasons) is is_news


def test_nodes_that_are_closed_and_those_that_are_not_ready_are_two_reasons_where_there_is_no_other() -> None:
    assert _verdict("cordoned").reasons != _verdict("not-ready").reasons


# Which objects are of a node pool.

KEY = names.NODE_POOL_LABEL


@pytest.mark.parametrize(
    ("value", "labels", "takes"),
    [
        ("a", {KEY: "a"}, True),
        ("a", {KEY: "b"}, False),
        ("a", {KEY: "A"}, False),
        ("a", {}, False),
        ("a", None, False),
        ("", {}, True),
        ("", None, True),
        ("", {KEY: ""}, True),
        ("", {KEY: "a"}, False),
        ("", {"other": "a"}, True),
    ],
)
def test_an_object_is_of_the_pool_that_its_label_names(value: str, labels: dict[str, str] | None, takes: bool) -> None:
    assert NodePool(value=value).takes(labels) is takes


def test_the_key_is_a_setting() -> None:
    pool = NodePool(key="team", value="a")
    assert pool.takes({"team": "a"})
    assert not pool.takes({KEY: "a"})
    assert pool.labels == {"team": "a"}


def test_the_pool_without_a_value_has_a_name_and_no_label() -> None:
    assert (NodePool().name, NodePool().labels) == ("default", {})
    assert [name_of(None), name_of(NodePool()), name_of(NodePool(value="a"))] == ["default", "default", "a"]


# Whose a pod is, and what it counts for where it is another scheduler's.

A = NodePool(value="a")


def _pod(label: str = "", group: str = "", **asked: Any) -> PodRecord:
    read = pod_record(pod(labels={KEY: label} if label else {}, group=group, gpus=1, **asked), Settings())
    assert read is not None
    return read


def _groups(label: str) -> dict[tuple[str, str], PodGroupRecord]:
    found = changed_group(pod_group("g"), labels={KEY: label})
    return {("ns", "g"): pod_group_record(found, A)}


@pytest.mark.parametrize(
    ("label", "of_group", "is_elsewhere"),
    [("a", None, False), ("b", None, True), ("", None, True), ("a", "b", True), ("b", "a", False), ("", "a", False)],
)
def test_its_podgroup_says_whose_a_pod_is_and_its_own_label_without_one(
    label: str, of_group: str | None, is_elsewhere: bool
) -> None:
    groups = {} if of_group is None else _groups(of_group)
    assert Elsewhere(A, groups).seen(_pod(label, group="g")).is_elsewhere is is_elsewhere


def test_a_pod_of_another_pool_is_in_no_queue_and_counts_as_another_schedulers() -> None:
    found = Elsewhere(A, {}).seen(_pod("b"))
    assert (found.queue, found.is_foreign, found.moves_as) == ("", True, None)


def test_a_pod_that_comes_to_this_pool_is_what_it_was() -> None:
    groups = _groups("b")
    elsewhere, read = Elsewhere(A, groups), _pod("", group="g")
    out = elsewhere.seen(read)
    groups.update(_groups("a"))
    assert elsewhere.seen_again(out) == read


def test_pods_of_other_schedulers_are_left_as_they_are() -> None:
    read = _pod("b", scheduler="default-scheduler", bound_to="n1")
    assert Elsewhere(A, {}).seen(read) is read


def test_a_cluster_that_is_not_divided_has_none() -> None:
    read = _pod("b")
    assert Elsewhere(None, {}).seen(read) is read
