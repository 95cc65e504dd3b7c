"""A scheduler's explanation is the one that the command makes, in slices, and leaves decisions their time."""

from __future__ import annotations

from typing import Any

import anyio
import msgspec
import pytest

from kube.client.clock import SystemClock, monotonic_ns
from scheduler.core.cluster import Cluster
from scheduler.core.what_if import explanation
from scheduler.core.what_if.edits import subject_of_pod
from scheduler.core.what_if.trials import Trying
from tests.conftest import AnyioBackend
from tests.scheduler.core.objects import cluster, feed, node, pod, pod_group
from ui.explain import tables
from ui.explain.questions import Asked, Unanswered
from ui.explain.turns import MOST_S, Budget, Judging
from ui.explain.views import HolderView
from ui.tables import plain

CLOCK = SystemClock()
GANG: tuple[Any, ...] = (pod_group("g", 3), *(pod(name, gpus=2, group="g") for name in "pqr"))
POD = Asked(kind="pod", namespace="ns", name="p", sees_others=True)


@pytest.fixture(scope="module")
def anyio_backend(virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    return virtual_anyio_backend


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
    holder = HolderView(namespace="x", name="n", node="n1", gpu_nano=1, idle_since="", message="x/n holds much")

    def idle(_: int, namespace: str) -> tuple[HolderView, ...]:
        asked_of.append(namespace)
        return (holder,)

    explains = Judging(made, clock=CLOCK, is_leading=lambda: True, idle=idle)
    whole = await explains.explain(POD)
    assert whole.group.idle == (holder,)
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
