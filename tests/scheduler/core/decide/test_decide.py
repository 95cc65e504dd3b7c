"""Order, purity and memory of ``decide``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import msgspec
import pytest
from typing_extensions import override

from scheduler.core.cluster import Cluster
from scheduler.core.decide.allowance import LIMITS, Allowance, Limits
from scheduler.core.decide.attempts import Attempts, asked_use, least_use, placed_use
from scheduler.core.decide.capacity import pod_slots
from scheduler.core.decide.changes import WithoutPods
from scheduler.core.decide.decide import decide
from scheduler.core.decide.gangs import whole_gang
from scheduler.core.decide.placer import Placer
from scheduler.core.decide.snapshot import StaleSnapshot
from scheduler.core.filters.registry import FILTERS, Filters
from scheduler.core.model.plan import Attempt, Bind, Explain, Gang, Plan, Withdraw, placements
from scheduler.core.model.pod_class import Constraints
from scheduler.core.model.priority_order import order_members
from scheduler.core.model.quota import Resources
from scheduler.core.model.records import NodeRecord, PodRecord
from scheduler.core.model.settings import Settings
from scheduler.core.queues.accounts import Use
from scheduler.core.scheduling_queue.effects import Effects
from scheduler.core.snapshot.node_count import Supposed
from tests.scheduler.core.footprint import footprint
from tests.scheduler.core.objects import (
    NANO,
    bound,
    changed,
    cluster,
    commit,
    ended,
    feed,
    node,
    pod,
    pod_group,
    reservation,
)
from wire import names


def _bound_names(plan: Plan) -> list[str]:
    return [entry.placement.name for entry in plan.entries if isinstance(entry, Bind)]


def test_the_more_important_then_the_older_then_the_smaller_uid_comes_first() -> None:
    pods = [
        pod("d", gpus=1, created="2026-01-02T00:00:00Z"),
        pod("c", gpus=1, uid="uid-2"),
        pod("b", gpus=1, uid="uid-1"),
        pod("a", gpus=1, priority=5, created="2026-01-03T00:00:00Z"),
    ]
    assert _bound_names(cluster(node(), *pods).decide(0)) == ["a", "b", "c", "d"]


def test_the_order_of_events_does_not_matter() -> None:
    objects: list[Any] = [
        node("n1"),
        node("n2"),
        reservation("g", "n2", book={"x": 5}),
        pod_group("g", 2),
        *(pod(f"m{i}", group="g", fraction="0.5") for i in range(2)),
        *(pod(f"p{i}", gpus=i + 1) for i in range(5)),
        bound(pod("t", fraction="0.5"), "n2", ("g", 7)),
    ]
    plans = {msgspec.json.encode(cluster(*order).decide(0)) for order in (objects, objects[::-1])}
    assert len(plans) == 1


def test_a_decision_changes_nothing_until_what_it_learned_is_kept() -> None:
    made = Cluster(Settings(preemption=False))  # units that may be evicted are read by the first decision that asks
    feed(made, node(), reservation("g"), *(pod(f"p{i}", fraction="0.5") for i in range(20)), pod("w", gpus=3))
    snapshot = made.prepared(0)
    before = footprint(made)
    first = decide(snapshot, 0)
    assert decide(snapshot, 0) == first
    assert footprint(made) == before
    plan = made.learn(first, 0)
    assert footprint(made) != before
    feed(made, node("elsewhere", 0, ready=False))
    made.remove_node("elsewhere")
    assert made.decide(0) == plan


def test_an_unchanged_cluster_gets_the_same_answer_for_nothing() -> None:
    made = cluster(node(), pod(gpus=9))
    assert made.decide(0) is made.decide(10**18)


@pytest.mark.parametrize("event", ["heartbeat", "own condition"])
def test_events_that_change_nothing_cost_nothing(event: str) -> None:
    waiting = pod(gpus=9)
    made = cluster(node("n1"), waiting)
    plan = made.decide(0)
    feed(made, node("n1") if event == "heartbeat" else changed(waiting))
    assert made.decide(0) is plan


@pytest.mark.thorough
def test_classes_of_pods_long_gone_are_forgotten() -> None:
    made = cluster(node())
    for number in range(5000):
        feed(made, pod(f"p{number}", cpu=f"{number + 1}m"))
        made.remove_pod(f"uid-p{number}")
    assert len(made._pods._classes) <= 1025


class _Counting(Filters):
    """All filters; ``judged`` has the constraints of each judgement of a node."""

    def __init__(self) -> None:
        super().__init__(FILTERS.all)
        self.judged: list[Constraints] = []

    @override
    def judging(self, constraints: Constraints) -> Callable[[NodeRecord], int]:
        judge = super().judging(constraints)

        def counted(node: NodeRecord) -> int:
            self.judged.append(constraints)
            return judge(node)

        return counted


def test_constraints_that_are_new_are_judged_a_few_at_a_time_and_each_decision_gets_further() -> None:
    """Nothing else runs while a decision lasts: ever so many of them must not cost the lease."""
    counting = _Counting()
    limits = Limits(most=600, retold=0)
    alone = [pod(f"p{i:02}", spec={"nodeSelector": {"kubernetes.io/hostname": f"x{i}"}}) for i in range(20)]
    gang = [pod(f"m{i}", group="g", spec={"nodeSelector": {"rack": f"r{i}"}}) for i in range(8)]
    made = cluster(*(node(f"n{i}") for i in range(4)), pod_group("g", 8), *alone, *gang, filters=counting)
    told: set[str] = set()
    for rounds in range(80):  # noqa: B007 - how many it took is what is asked
        counting.judged.clear()
        plan = made.decide(7, limits)
        assert len(counting.judged) <= 40
        told |= {uid for entry in plan.entries if isinstance(entry, Explain) for uid in entry.pods}
        if plan.wake_at_ns != 7:
            break
    assert 5 <= rounds < 40
    assert len(told) == 28


def test_one_pod_with_constraints_for_very_many_nodes_is_judged_over_several_decisions() -> None:
    terms = [{"matchExpressions": [{"key": "pool", "operator": "In", "values": [f"v{i}"]}]} for i in range(200)]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    heavy = pod("heavy", priority=5, spec={"affinity": {"nodeAffinity": required}})
    made = cluster(*(node(f"n{i}") for i in range(40)), heavy, pod("other", namespace="elsewhere"))
    limits = Limits(most=2_000)
    first = made.decide(7, limits)
    assert (_bound_names(first), first.wake_at_ns) == (["other"], 7)
    commit(made, first)
    waited = 0
    while made.decide(7, limits).wake_at_ns == 7:
        waited += 1
    assert 5 <= waited <= 40
    assert [type(entry) for entry in made.decide(7, limits).entries] == [Explain]


def test_a_gang_is_tried_only_when_the_constraints_of_all_members_are_judged() -> None:
    counting = _Counting()
    terms = [{"matchExpressions": [{"key": "pool", "operator": "Exists"}]} for _ in range(200)]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    members = [
        pod("light", group="g", labels={names.TASK_PRIORITY_LABEL: "1"}),
        pod("heavy", group="g", spec={"affinity": {"nodeAffinity": required}}),
    ]
    nodes = (node(f"n{i}", labels={"pool": "a"}) for i in range(40))
    made = cluster(*nodes, pod_group("g", 2), *members, filters=counting)
    limits, rounds = Limits(most=2_000), 0
    while (plan := made.decide(7, limits)).wake_at_ns == 7:
        assert plan.entries == ()
        assert sum(bool(constraints.terms) for constraints in counting.judged) <= 8
        counting.judged.clear()
        rounds += 1
    assert rounds >= 5
    assert [type(entry) for entry in plan.entries] == [Gang]


@pytest.mark.thorough
def test_a_namespace_with_thousands_of_different_pods_does_not_keep_another_from_being_decided() -> None:
    crowd = [pod(f"p{i:03}", cpu=f"{100 + i}", priority=9, namespace="crowd") for i in range(300)]
    made = cluster(node(), *crowd, pod("other", namespace="elsewhere"))
    plan = made.decide(7, Limits(most=2_000))
    assert (_bound_names(plan), plan.wake_at_ns) == (["other"], 7)
    assert sum(len(entry.pods) for entry in plan.entries if isinstance(entry, Explain)) < 20
    rounds = 1
    while (plan := made.decide(7, Limits(most=2_000))).wake_at_ns == 7:
        rounds += 1
    assert rounds > 10
    assert sum(len(entry.pods) for entry in plan.entries if isinstance(entry, Explain)) == 300


def test_pods_that_failed_on_a_node_do_not_keep_others_of_their_namespace_waiting_for_ever() -> None:
    failed = [pod(f"p{i:02}", gpus=1, cpu=f"{100 + i}m", priority=9) for i in range(30)]
    made = cluster(node("bad"), *(node(f"n{i}", gpus=0) for i in range(3)), *failed)
    for waiting in failed:
        made.commits.failed(waiting.metadata.uid, "bad", "rejected", now_ns=0)
    feed(made, pod("late", cpu="1"))
    limits, now_ns, rounds = Limits(most=1_000), made.settings.back_off_ns, 0
    while (plan := made.decide(now_ns, limits)).wake_at_ns == now_ns:
        assert _bound_names(plan) == []
        rounds += 1
        assert rounds < 30
    assert rounds > 3
    assert _bound_names(plan) == ["late"]
    assert [list(shape.uids) for shape in made.scheduling_queue.awake()] == [["uid-late"]]


def test_a_class_that_is_known_to_fit_nowhere_costs_the_next_decision_nothing() -> None:
    crowd = [pod(f"p{i:03}", cpu=f"{100 + i}") for i in range(300)]
    made = cluster(node(), *crowd)
    while made.decide(7).wake_at_ns == 7:
        pass
    feed(made, pod("other", namespace="elsewhere"))
    plan = made.decide(7, Limits(most=100))
    assert _bound_names(plan) == ["other"]
    assert sum(len(entry.pods) for entry in plan.entries if isinstance(entry, Explain)) == 300


def test_who_is_put_off_and_may_fit_is_not_overtaken_by_lower_priority() -> None:
    """The bound divides work between namespaces, not capacity against priority."""
    many = [pod(f"p{i:03}", cpu="1", priority=9, namespace="many") for i in range(100)]
    low, equal = pod("low", cpu="1", namespace="low"), pod("zz-equal", cpu="1", priority=9, namespace="equal")
    plan = cluster(node(), *many, low, equal).decide(7, Limits(most=1_000))
    assert "low" not in _bound_names(plan)
    assert _bound_names(plan)[-1] == "zz-equal"
    assert 0 < len(_bound_names(plan)) < 100


@pytest.mark.parametrize(
    ("change", "wakes"),
    [
        (lambda: node("n2", cpu="200"), True),
        (lambda: node("n2", cpu="80"), False),
        (lambda: ended(pod("r", cpu="50", bound_to="n1")), True),
        (lambda: pod("s", cpu="5", bound_to="n1"), False),
    ],
    ids=["a node that is large enough", "a node that is too small", "a pod that ends", "a pod that comes"],
)
def test_a_class_that_fitted_nowhere_is_judged_again_when_a_node_changes_so_that_it_may_fit(
    change: Callable[[], Any], wakes: bool
) -> None:
    made = cluster(node(cpu="100"), pod("r", cpu="50", bound_to="n1"), pod(cpu="90"))
    made.decide(0)
    feed(made, change())
    made.refresh()
    unschedulable, waiting = made.scheduling_queue.unschedulable, made.pod("uid-p")
    assert waiting is not None
    kept = unschedulable.get(waiting.cls)
    assert kept is not None
    assert (
        not unschedulable.is_sure(waiting.cls, kept, made.generation)
        and unschedulable.still_out(waiting.cls, kept) is None
    ) is wakes
    assert bool(_bound_names(made.decide(0))) is wakes


def test_many_nodes_make_the_verdict_on_a_class_little_dearer() -> None:
    crowd = [pod(f"p{i:03}", cpu=f"{100 + i}") for i in range(30)]
    plan = cluster(*(node(f"n{i:03}") for i in range(100)), *crowd).decide(7, Limits(most=2_000, retold=0))
    assert sum(len(entry.pods) for entry in plan.entries if isinstance(entry, Explain)) == 10


def test_kept_verdicts_are_compared_with_a_node_that_comes_over_several_decisions() -> None:
    limits = Limits(most=1_000, retold=0)
    made = cluster(node(), *(pod(f"p{i:04}", cpu=f"{100 + i}") for i in range(1_300)))
    while made.decide(7).wake_at_ns == 7:
        pass
    feed(made, node("n2"))
    rounds = 1  # the first thousand are compared before
    while (plan := made.decide(7, limits)).wake_at_ns == 7:
        assert sum(len(entry.pods) for entry in plan.entries if isinstance(entry, Explain)) == 1_300
        rounds += 1
    assert rounds == 6


def test_of_shares_that_wait_for_a_late_node_a_class_that_fits_nowhere_else_is_judged_once() -> None:
    """Else it would spend what its namespace has, and a smaller share behind it would stay where it is."""
    large, small = [pod(f"p{number}", fraction="0.3") for number in range(3)], pod("q", fraction="0.1")
    made = cluster(node("a-late", 1), *large, small)
    first = made.decide(0)
    commit(made, first)
    (opening,) = [entry.placement for entry in first.entries if isinstance(entry, Attempt)]
    book = {opening.pod_uid: opening.devices[0].nano}
    late = reservation(opening.devices[0].group, "a-late", uuid="", uid="asked", book=book)
    tenant = bound(pod("tenant", fraction="0.8"), "b", ("known", NANO * 8 // 10), reservation="r", uuid="GPU-1")
    known = reservation("known", "b", book={"uid-tenant": NANO * 8 // 10}, uuid="GPU-1", uid="r")
    feed(made, node("b", 1), tenant, known, late)
    made.commits.late("asked")
    snapshot = made.prepared(0)
    for most, moved in ((200, ["q"]), (100, [])):
        decided = decide(snapshot, 0, Limits(most=most))
        assert [entry.placement.name for entry in decided.entries if isinstance(entry, Withdraw)] == moved


# A snapshot is good until the next event.


def test_a_snapshot_that_is_older_than_the_last_event_is_refused() -> None:
    made = cluster(node(), pod("a", gpus=1))
    snapshot = made.prepared(0)
    assert decide(snapshot, 0).entries
    feed(made, node("n2"))
    with pytest.raises(StaleSnapshot, match="generation"):
        decide(snapshot, 0)
    assert decide(made.prepared(0), 0).entries


def test_a_node_is_counted_once_without_pods_that_go_until_something_on_it_changes() -> None:
    made = cluster(node(), bound(pod("v", gpus=3), "n1"), bound(pod("w", gpus=1), "n1"))
    where, gone = made.node("n1"), Supposed(evicted={"uid-v"})
    assert where is not None
    first = made.snapshot().used(where, gone)
    assert (first.gpus, made.snapshot().used(where, gone)) == (1, first)
    assert made.snapshot().used(where, gone) is first
    assert made.snapshot().with_(WithoutPods(("uid-w",))).used(where, gone).gpus == 0
    made.remove_pod("uid-w")
    assert made.snapshot().used(where, gone).gpus == 0


def test_what_is_asked_what_is_the_least_and_what_it_is_where_it_is_placed() -> None:
    made = cluster(node("n1", mem_mib=40_000), pod("p", mem=10_000, cpu="1"))
    snapshot = made.snapshot()
    record = snapshot.pod("uid-p")
    assert record is not None
    expected = Use("default-queue", Resources(1000, 0, NANO // 4))
    assert asked_use(snapshot, [record]) == least_use(snapshot, [record]) == expected
    (placement,) = placements(made.decide(0).entries)
    assert placed_use(snapshot, record, placement) == expected


def test_members_of_a_gang_count_together_in_the_queue_of_their_group() -> None:
    made = cluster(node(), pod_group("g", 2, queue="a", preemptibility="non-preemptible"))
    for i in range(3):
        made.upsert_pod(pod(f"m{i}", gpus=2, group="g"))
    snapshot = made.snapshot()
    members = snapshot.waiting_members("ns", "g", 0)
    assert asked_use(snapshot, members) == Use("a", Resources(gpu_nano=6 * NANO), is_fixed=True)


def test_a_gang_can_be_preempted_where_one_of_its_members_can() -> None:
    made = cluster(node(), pod_group("g", 2, queue="a"))
    for i in range(2):
        made.upsert_pod(pod(f"m{i}", gpus=1, group="g", priority=100 * i))
    snapshot = made.snapshot()
    members = order_members(snapshot.waiting_members("ns", "g", 0))
    assert [least_use(snapshot, some).is_fixed for some in (members[:1], members[1:], members)] == [1, 0, 0]


class Looked(list[PodRecord]):
    """Pods, and how often all of them were looked at."""

    times = 0

    @override
    def __iter__(self) -> Iterator[PodRecord]:
        self.times += 1
        return super().__iter__()


def test_what_a_gang_uses_is_counted_once_however_many_queues_are_above() -> None:
    made = cluster(node(), pod_group("g", 3, queue="a"), *(pod(f"m{i}", gpus=1, group="g") for i in range(3)))
    snapshot = made.prepared(0)
    allowance = Allowance(namespaces=1, most=LIMITS.most)
    attempts = Attempts(snapshot, 0, LIMITS, allowance, Effects(snapshot.scheduling_queue))
    whole = whole_gang(snapshot.scheduling_queue.gang(("ns", "g")), attempts, [])
    assert whole is not None
    looked = whole.pods = Looked(whole.pods)
    assert {whole.use for _ in range(30)} == {Resources(gpu_nano=3 * NANO)}
    assert looked.times == 1


# How many pods of a class nodes take: never fewer than placing one after the other finds.


@pytest.mark.parametrize(
    "asked",
    [
        {"gpus": 2},
        {"cpu": "3"},
        {"fraction": "0.4"},
        {"fraction": "0.4", "devices": 2},
        {"mem": 30_000},
        {"gpus": 1, "cpu": "20"},
    ],
)
@pytest.mark.parametrize("seed", range(6))
def test_a_node_takes_no_more_pods_than_it_is_counted_to_take(asked: dict[str, Any], seed: int) -> None:
    rng = Random(seed)
    nodes = [
        node(f"n{number}", gpus=rng.randint(0, 4), cpu=str(rng.randint(1, 40)), mem_mib=81_920) for number in range(3)
    ]
    made = cluster(*nodes, pod("nominee", gpus=1, bound_to="n0"), *(pod(f"p{n}", **asked) for n in range(60)))
    placer = Placer(made.prepared(0))
    waiting = [each for n in range(60) if (each := made.pod(f"uid-p{n}")) is not None]
    counted = pod_slots(placer, waiting[0].cls, None)
    placed = [placer.place(each) for each in waiting]
    for number, most in enumerate(counted.tolist()):
        there = sum(each is not None and each.node == f"n{number}" for each in placed)
        assert there <= most
        if "devices" not in asked and "fraction" not in asked and "mem" not in asked:
            assert there == most


def test_nodes_out_of_the_mask_or_closed_to_the_class_take_none() -> None:
    closed = node("n2", taints=[("k", "v", "NoSchedule")])
    made = cluster(node("n0"), node("n1"), closed, pod("p", gpus=4))
    placer, waiting = Placer(made.prepared(0)), made.pod("uid-p")
    assert waiting is not None
    assert pod_slots(placer, waiting.cls, None).tolist() == [2, 2, 0]
    assert pod_slots(placer, waiting.cls, placer.all_but(frozenset({"n0"}))).tolist() == [0, 2, 0]


@pytest.mark.parametrize(("with_idle", "slots"), [(False, 0), (True, 1)])
def test_gpus_that_idle_reservations_hold_count_if_that_is_asked(with_idle: bool, slots: int) -> None:
    made = cluster(node("n1", gpus=1), reservation("g1"), pod("p", gpus=1))
    placer, waiting = Placer(made.prepared(0)), made.pod("uid-p")
    assert waiting is not None
    assert pod_slots(placer, waiting.cls, None, with_idle=with_idle).tolist() == [slots]
