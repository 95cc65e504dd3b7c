"""A scheduler's explanation is the one that the command makes, in slices, and leaves decisions their time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import anyio
import msgspec
import pytest

from gpu.node_use import NodeUse, State, TenantUse
from gpu.reservation import Reservation, read
from kube.client.clock import SystemClock, monotonic_ns
from scheduler.core.cluster import Cluster
from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.model.settings import Settings
from scheduler.core.what_if import explanation, suggestions
from scheduler.core.what_if.edits import subject_of_pod
from scheduler.core.what_if.trials import Trying
from tests.scheduler.core.footprint import footprint
from tests.scheduler.core.nodes.claiming import GPU, claimed, claiming, offered
from tests.scheduler.core.objects import NANO, cluster, feed, node, pod, pod_group, queue, reservation
from tests.scheduler.core.preemption.scenes import NOON_S, Scene
from ui.explain import tables
from ui.explain.explanation import CUT, MOST_OPERATIONS, NO_COPIES, Explaining
from ui.explain.server import MOST, MOST_S, Budget, Judging, idle_holders
from ui.explain.views import Asked, GroupView, IdleShareView, Unanswered
from ui.tables import plain
from wire import names
from wire.resource import DeviceClass, DeviceClassSpec
from wire.rfc3339 import parse_ns

VIRTUAL_TIME = True

CLOCK = SystemClock()
GANG: tuple[Any, ...] = (pod_group("g", 3), *(pod(name, gpus=2, group="g") for name in "pqr"))
POD = Asked(kind="pod", namespace="ns", name="p", sees_others=True)


def waiting() -> Cluster:
    """A gang of 6 GPUs, of which there are 4."""
    return cluster(node(gpus=4), pod("t", gpus=1, bound_to="n1"), *GANG)


def judging(made: Cluster, *, is_leading: bool = True, slice_s: float = 0.0) -> Judging:
    """With slices that take so long."""
    worked = iter(range(1_000_000))
    budget = Budget(worked_s=lambda: next(worked) * slice_s)
    return Judging(made, clock=CLOCK, is_leading=lambda: is_leading, budget=budget)


def decided(made: Cluster) -> None:
    for _ in range(9):
        made.decide(monotonic_ns(), wall_s=CLOCK.now_ns() // 10**9)


async def test_it_says_what_the_command_says_and_tries_as_much() -> None:
    made = waiting()
    decided(made)
    whole = await judging(made).explain(POD)
    snapshot = made.snapshot()
    subject = subject_of_pod(snapshot, "ns", "p")
    assert subject is not None
    alone = explanation.explained(Trying(snapshot, subject, monotonic_ns(), CLOCK.now_ns() // 10**9))
    assert msgspec.structs.replace(whole.group, tried=0) == msgspec.structs.replace(tables.group_view(alone), tried=0)
    assert [each.message for each in whole.group.helps] == [
        "request 1 GPU per pod",
        "start with 1 pod (minMember: 1)",
        "add 1 node like n1",
    ]
    assert whole.unread == ()


async def test_a_change_is_supposed() -> None:
    made = waiting()
    decided(made)
    whole = await judging(made).explain(msgspec.structs.replace(POD, supposed=("members=1",)))
    assert whole.group.starts
    assert [each.what_if for each in whole.group.supposed] == ["members=1"]


@pytest.mark.parametrize(
    ("asked", "status", "why"),
    [
        (msgspec.structs.replace(POD, name="x"), 404, "there is no pod x in namespace ns that waits"),
        (msgspec.structs.replace(POD, kind="podgroup", name="x"), 404, "there is no PodGroup x in namespace ns"),
        (msgspec.structs.replace(POD, supposed=("nonsense",)), 400, "--what-if 'nonsense' is no what-if; allowed: "),
        (msgspec.structs.replace(POD, supposed=("drain n9",)), 400, "--what-if drain n9: allowed are nodes: n1"),
        (msgspec.structs.replace(POD, supposed=("finish t",), sees_others=False), 403, "--what-if finish"),
    ],
)
async def test_what_makes_no_sense_is_refused(asked: Asked, status: int, why: str) -> None:
    with pytest.raises(Unanswered) as refused:
        await judging(waiting()).explain(asked)
    assert refused.value.status == status
    assert refused.value.why.startswith(why)


async def test_a_slice_waits_for_a_decision_but_not_for_ever() -> None:
    made = waiting()
    began = anyio.current_time()
    whole = await judging(made).explain(POD)
    assert 1.0 <= anyio.current_time() - began < 1.2
    assert whole.group.helps
    decided(made)
    began = anyio.current_time()
    await judging(made).explain(POD)
    assert anyio.current_time() == began


async def test_it_goes_on_while_the_cluster_changes() -> None:
    """Something happens in each pause: no answer rests on a state that is gone."""
    made = waiting()

    async def changing() -> None:
        for number in range(1_000):
            feed(made, node(f"other{number}", 0))
            decided(made)
            await anyio.sleep(0.01)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(changing)
        whole = await judging(made, slice_s=0.02).explain(POD)
        tasks.cancel_scope.cancel()
    assert [each.edits[0].what_if for each in whole.group.helps] == ["gpus=1", "members=1", "node +1 like n1"]
    assert whole.unread == ()


async def test_a_group_that_goes_ends_the_search() -> None:
    made = waiting()
    decided(made)

    async def going() -> None:
        await anyio.sleep(0.05)
        for name in "pqr":
            made.remove_pod(f"uid-{name}")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(going)
        whole = await judging(made, slice_s=0.1).explain(POD)
    assert [each.split(":")[0] for each in whole.unread] == ["the group or what it depends on changed meanwhile"]


async def test_a_question_has_its_time_and_what_was_found_by_then_is_the_answer() -> None:
    made = waiting()
    decided(made)
    began = anyio.current_time()
    whole = await judging(made, slice_s=1.5).explain(POD)
    assert anyio.current_time() - began == MOST_S
    assert whole.unread == ("time was up: not all changes that might help were tried",)


async def test_one_question_is_worked_on_at_a_time() -> None:
    made = waiting()
    decided(made)
    asking, done = judging(made, slice_s=0.01), list[float]()

    async def ask() -> None:
        await asking.explain(POD)
        done.append(anyio.current_time())

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(ask)
    assert done == sorted(set(done))


async def test_a_replica_that_follows_says_what_it_does_not_know() -> None:
    whole = await judging(waiting(), is_leading=False).explain(POD)
    assert whole.group.helps
    assert whole.unread[0].startswith("this replica of the scheduler does not lead")


async def test_idle_shares_are_named_to_a_group_that_waits_and_of_others_only_to_who_may_see_them() -> None:
    made = waiting()
    decided(made)
    asked_of: list[str] = []
    nominee = IdleShareView(namespace="x", name="n", node="n1", gpu_nano=1, idle_since="", message="x/n holds much")

    def idle(_: int, namespace: str) -> tuple[IdleShareView, ...]:
        asked_of.append(namespace)
        return (nominee,)

    explains = Judging(made, clock=CLOCK, is_leading=lambda: True, idle=idle)
    whole = await explains.explain(POD)
    assert whole.group.idle == (nominee,)
    told = [line for sheet in tables.group_sheets(whole.group) for line in plain(sheet)]
    assert told[-3:] == [
        "Pods that hold shares and use next to none of them; nothing is evicted for that:",
        "IDLE",
        "x/n holds much",
    ]
    await explains.explain(msgspec.structs.replace(POD, sees_others=False))
    assert asked_of == ["", "ns"]
    # A group that starts needs nobody's.
    assert not (await explains.explain(msgspec.structs.replace(POD, supposed=("members=1",)))).group.idle


# Explanations take a tenth of the time, over long, and no two slices follow each other at once.


class Work:
    """A clock of CPU time that moves when work is done."""

    def __init__(self) -> None:
        self.done_s = 0.0

    def __call__(self) -> float:
        return self.done_s


async def spent(budget: Budget, work: Work, slice_s: float, until_s: float) -> float:
    """Do as much as may be done until then."""
    began, until = work.done_s, anyio.current_time() + until_s
    while True:
        await anyio.sleep_until(min(until, budget.begins_at()))
        if anyio.current_time() >= until:
            return work.done_s - began
        with budget.slice():
            work.done_s += slice_s


async def test_after_a_slice_as_much_time_passes_as_it_took() -> None:
    work = Work()
    assert await spent(Budget(worked_s=work), work, 0.1, 1.0) == pytest.approx(1.0, abs=0.11)
    budget, began = Budget(worked_s=work), anyio.current_time()
    with budget.slice():
        work.done_s += 0.25
    assert budget.begins_at() == pytest.approx(began + 0.25)


async def test_over_long_it_is_a_tenth_of_the_time_and_what_was_saved() -> None:
    work = Work()
    budget = Budget(worked_s=work)
    assert await spent(budget, work, 0.02, 1_000.0) == pytest.approx(100 + 2, abs=0.1)


async def test_what_is_saved_has_a_bound() -> None:
    work = Work()
    budget = Budget(worked_s=work)
    await spent(budget, work, 0.02, 100.0)
    await anyio.sleep(10_000)
    assert await spent(budget, work, 0.02, 100.0) == pytest.approx(10 + 2, abs=0.1)


# An explanation in slices is the one made at once. A slice is bounded by work, and repeats by their number.

TO_THE_END = 1 << 60
GROUP = Asked(kind="podgroup", namespace="ns", name="g", sees_others=True)


@dataclass
class Changing:
    """A cluster of which something changes whenever ``change`` is called."""

    cluster: Cluster
    snapshots: int = 0
    changes: list[str] = field(default_factory=list)

    @property
    def generation(self) -> int:
        return self.cluster.generation

    def snapshot(self) -> Snapshot:
        self.snapshots += 1
        return self.cluster.snapshot()

    def change(self) -> None:
        self.changes.append(f"other{len(self.changes)}")
        feed(self.cluster, node(self.changes[-1], 0))


def explaining(made: Any, asked: Asked) -> Explaining:
    return Explaining(made, asked, now_ns=lambda: 0)


def at_once(made: Cluster, asked: Asked) -> GroupView:
    found = explaining(made, asked)
    while found.is_open:
        found.go_on(NOON_S, is_settled=False, most=TO_THE_END)
    assert found.left_out == ""
    return found.view()


def in_slices(made: Cluster, asked: Asked, most: int) -> tuple[GroupView, int]:
    """The view, and the number of slices; the cluster decides between two of them."""
    found, slices = explaining(made, asked), 0
    while found.is_open:
        found.go_on(NOON_S, is_settled=False, most=most)
        made.decide(0, wall_s=NOON_S)
        slices += 1
    assert found.left_out == ""
    return found.view(), slices


def _spelled(view: GroupView) -> list[str]:
    return [edit.what_if for helps in view.helps for edit in helps.edits]


def crowded() -> Cluster:
    """A pod and a gang wait beside others; running pods may be evicted once a queue has a larger quota."""
    made = Cluster(Settings())
    feed(made, queue("a", gpu=(0, 0, -1)), queue("b", gpu=(8, 1, -1)))
    feed(made, *(node(f"n{number}", 2) for number in range(4)))
    for number in range(8):
        labels = {names.QUEUE_LABEL: "b"}
        feed(made, pod(f"r{number}", gpus=1, bound_to=f"n{number // 2}", labels=labels, priority=50))
    of_a = {names.QUEUE_LABEL: "a"}
    feed(made, pod("p", gpus=2, labels=of_a), pod_group("g", 2, queue="a"))
    feed(made, *(pod(f"g{number}", gpus=2, group="g") for number in range(2)))
    feed(made, *(pod(f"w{number}", gpus=1 + number % 2, labels=of_a) for number in range(6)))
    for _ in range(9):
        made.decide(0, wall_s=NOON_S)
    return made


@pytest.mark.parametrize("asked", [POD, GROUP])
@pytest.mark.parametrize("most", [1, 500, MOST_OPERATIONS])
def test_in_slices_the_answer_is_the_one_made_at_once(asked: Asked, most: int) -> None:
    made = crowded()
    expected = at_once(made, asked)
    assert expected.helps
    before = footprint(made)
    found, slices = in_slices(made, asked, most)
    assert found == expected
    assert footprint(made) == before
    assert slices > 50 or most > 1


@pytest.mark.parametrize("seed", range(25))
def test_so_it_is_in_random_clusters(seed: int) -> None:
    made = cluster(*Scene(seed).objects, settings=Settings())
    kind = "podgroup" if made.snapshot().pod_group("ns", "mine") is not None else "pod"
    asked = Asked(kind=kind, namespace="ns", name="mine", sees_others=True)
    for _ in range(9):
        made.decide(0, wall_s=NOON_S)
    assert in_slices(made, asked, 1)[0] == at_once(made, asked)


def test_a_slice_ends_with_a_try_and_after_its_operations() -> None:
    made = crowded()
    found, smaller = explaining(made, POD), explaining(made, POD)
    for each, most in ((found, TO_THE_END), (smaller, 1)):
        each.go_on(NOON_S, is_settled=False, most=most)
    assert found.is_explained
    assert found.is_open
    assert not found.view().helps
    assert not smaller.is_explained


def test_a_try_is_made_again_when_the_cluster_changes_and_the_answer_is_of_the_cluster_as_it_is() -> None:
    state = Changing(crowded())
    found = explaining(state, POD)
    found.go_on(NOON_S, is_settled=False, most=1)
    assert state.snapshots == 1
    feed(state.cluster, node("new", 2))
    while not found.is_explained:
        found.go_on(NOON_S, is_settled=False, most=1)
    assert state.snapshots == 2
    assert found.view().starts
    assert found.view().nodes == 5


def test_a_cluster_that_changes_before_every_slice_is_explained_all_the_same() -> None:
    """Each try is made at once after it was interrupted three times: so there is an end, and few slices are long."""
    state = Changing(crowded())
    found, slices = explaining(state, POD), 0
    while found.is_open:
        state.change()
        found.go_on(NOON_S, is_settled=False, most=1)
        slices += 1
    expected = at_once(state.cluster, POD)
    assert _spelled(found.view()) == _spelled(expected)
    assert slices > len(suggestions.FINDERS)
    assert found.left_out == ""


def test_a_group_that_is_gone_before_it_is_explained_is_refused() -> None:
    state = Changing(crowded())
    found = explaining(state, POD)
    found.go_on(NOON_S, is_settled=False, most=1)
    state.cluster.remove_pod("uid-p")
    with pytest.raises(Unanswered) as refused:
        found.go_on(NOON_S, is_settled=False, most=1)
    assert refused.value.status == 404


def test_what_is_not_finished_is_said_to_be_cut_and_why_it_waits_can_be_found_at_once() -> None:
    found = explaining(crowded(), POD)
    found.go_on(NOON_S, is_settled=False, most=1)
    found.explain_now(NOON_S, is_settled=False)
    assert found.view().verdict
    assert found.view().helps == ()
    assert found.left_out == CUT


BACKED = DeviceClass(metadata=GPU.metadata, spec=DeviceClassSpec(extended_resource_name=names.GPU_RESOURCE))
#: Devices that all nodes of a rack reach, and no node of the tests.
RACK = {"key": "rack", "operator": "In", "values": ["r1"]}
FABRIC = offered("fabric", nodeSelector={"nodeSelectorTerms": [{"matchExpressions": [RACK]}]})


@pytest.mark.parametrize(
    ("objects", "left_out"),
    [
        ((GPU, claimed(), claiming("p", "c"), FABRIC), (NO_COPIES,)),
        ((GPU, claimed(), claiming("p", "c"), offered("n2")), ()),
        ((GPU, claimed(), claiming("p", "c"), FABRIC, offered("n1")), ()),
        ((BACKED, pod("p", gpus=1), FABRIC), (NO_COPIES,)),
        ((GPU, pod("p", gpus=1), FABRIC), ()),
        ((claiming("p", "c"), FABRIC), ()),
    ],
    ids=["no device", "of a node", "fits", "GPU by a claim", "GPU of a plugin", "no such claim"],
)
def test_devices_that_several_nodes_reach_are_named_as_left_out_where_a_group_waits_for_some(
    objects: tuple[Any, ...], left_out: tuple[str, ...]
) -> None:
    made = cluster(node("n1", 0), *objects)
    made.prepared(0)
    found = explaining(made, POD)
    found.explain_now(NOON_S, is_settled=False)
    assert found.not_looked_at == left_out


NOW_NS = parse_ns("2026-11-27T18:30:00Z") or 0
IDLE = TenantUse(5, 0, "2026-11-27T13:05:00Z")
LONGER = TenantUse(0, 0, "2026-11-26T13:05:00Z")
BUSY = TenantUse(90, 80)


def held(node: str, **shares: int) -> Reservation:
    """A reservation on a node; its device has the node's name."""
    return read(
        reservation(f"g-{node}", node, uuid=f"GPU-{node}", book={f"uid-{name}": n for name, n in shares.items()})
    )


def named(reports: dict[str, NodeUse], *there: Reservation, namespace: str = "") -> list[str]:
    return [each.message for each in idle_holders(there, reports.get, now_ns=NOW_NS, namespace=namespace)]


def use(of: dict[str, TenantUse], state: State = State.CURRENT) -> NodeUse:
    return NodeUse(state, {(f"uid-{name}", "GPU-n1"): one for name, one in of.items()})


HALVES = held("n1", a=NANO // 2, b=NANO // 4, c=NANO // 4)


def test_who_is_idle_is_named_with_what_it_holds_and_since_when() -> None:
    (first, second) = named({"n1": use({"a": IDLE, "b": LONGER, "c": BUSY})}, HALVES)
    assert first == "ns/p holds 0.25 of a GPU on node n1, and has used 5% of it at most since 2026-11-26 13:05Z"
    assert second == "ns/p holds 0.5 of a GPU on node n1, and has used 5% of it at most since 13:05Z"


def test_nobody_is_idle_by_the_word_of_an_agent_that_is_dead_or_not_there() -> None:
    assert named({"n1": use({"a": IDLE}, State.STALE)}, HALVES) == []
    assert named({}, HALVES) == []


def test_of_others_namespaces_nobody_is_named() -> None:
    reports = {"n1": use({"a": IDLE})}
    (one,) = idle_holders([HALVES], reports.get, now_ns=NOW_NS)
    assert named(reports, HALVES, namespace=one.namespace) == [one.message]
    assert named(reports, HALVES, namespace="elsewhere") == []


def test_few_are_named_of_many() -> None:
    many = held("n1", **{f"p{number}": NANO // 50 for number in range(40)})
    reports = {"n1": use({f"p{number}": IDLE for number in range(40)})}
    assert len(named(reports, many)) == MOST
