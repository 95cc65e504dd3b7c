"""Order, purity and memory of ``decide``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from typing_extensions import override

from scheduler.core.cluster import Cluster
from scheduler.core.decide.allowance import Limits
from scheduler.core.decide.decide import decide
from scheduler.core.filters.registry import FILTERS, Filters
from scheduler.core.model.plan import Attempt, Bind, Explain, Gang, Plan, Withdraw
from scheduler.core.model.pod_class import Constraints
from scheduler.core.model.records import NodeRecord
from scheduler.core.model.settings import Settings
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


def test_a_node_that_comes_wakes_the_pods_that_wait() -> None:
    made = cluster(node("n1", 1), pod(gpus=2))
    assert _bound_names(made.decide(0)) == []
    feed(made, node("n2", 2))
    assert _bound_names(made.decide(0)) == ["p"]


@pytest.mark.parametrize("event", ["heartbeat", "own condition"])
def test_events_that_change_nothing_cost_nothing(event: str) -> None:
    waiting = pod(gpus=9)
    made = cluster(node("n1"), waiting)
    plan = made.decide(0)
    feed(made, node("n1") if event == "heartbeat" else changed(waiting))
    assert made.decide(0) is plan


def test_a_pod_that_was_placed_leaves_its_place_when_it_ends() -> None:
    running = pod("r", gpus=8, bound_to="n1")
    made = cluster(node(), running, pod(gpus=8))
    (entry,) = made.decide(0).entries
    assert isinstance(entry, Explain)
    made.remove_pod("uid-r")
    assert _bound_names(made.decide(0)) == ["p"]


def test_with_nothing_to_place_there_is_nothing_to_do() -> None:
    assert cluster(node(), pod(bound_to="n1")).decide(0) == Plan()


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
    assert [list(shape.uids) for shape in made.backlog.awake()] == [["uid-late"]]


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
    asleep, waiting = made.backlog.asleep, made.pod("uid-p")
    assert waiting is not None
    kept = asleep.get(waiting.cls)
    assert kept is not None
    assert (
        not asleep.is_sure(waiting.cls, kept, made.generation) and asleep.still_out(waiting.cls, kept) is None
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
