"""What drains, further nodes, weights and limits change, as the scheduler itself decides it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cli.simulation.comparison import Comparison, Scheduling, ended, pools_of
from runtime.text import BadInput
from scheduler.core.model.settings import NodePool, Settings
from tests.calls import calls
from tests.cli.simulation.given import NO_EVICTIONS, compare, snapshot, told
from tests.scheduler.core.objects import node, pod, pod_group, queue
from wire import names

JOB = ("batch/v1", "Job")
DAEMON = ("apps/v1", "DaemonSet")


def runs(name: str, at: str, gpus: int = 2, **more: Any) -> Any:
    more = {"owner": JOB, "phase": "Running", **more}
    return pod(name, gpus=gpus, bound_to=at, **more)


def of(team: str) -> dict[str, str]:
    return {names.QUEUE_LABEL: team}


GANG = [pod_group("g", 3, queue="default"), *(pod(name, gpus=2, group="g") for name in ("g0", "g1", "g2"))]
TWO = (node("n1", 4), node("n2", 4))


@pytest.mark.parametrize(
    ("objects", "changes", "found"),
    [
        # A drain that fits elsewhere.
        ((*TWO, runs("a", "n1"), runs("b", "n2")), ["drain n1"], ["a moves n1 n2"]),
        # One that does not: the successor waits.
        ((*TWO, runs("a", "n1", 4), runs("b", "n2")), ["drain n1"], ["a waits n1 NoNodeFits"]),
        # Nothing makes a pod without a controller again, and what a DaemonSet runs stays.
        ((*TWO, runs("a", "n1", owner=None), runs("d", "n1", owner=DAEMON)), ["drain n1"], ["a ends n1 -"]),
        # A node that is cordoned keeps its pods.
        ((node("n1", 4), runs("a", "n1"), pod("p", gpus=2)), ["cordon n1"], ["p waits n1 NoNodeFits"]),
        # Further nodes start a gang that waits.
        ((node("n1", 4), *GANG), ["node +1 like n1"], [f"g{at} starts - n1{'-more-1' * (at > 1)}" for at in range(3)]),
        # What ends makes room for what waits.
        ((node("n1", 2), runs("a", "n1"), pod("p", gpus=2)), ["finish ns/a"], ["a ends n1 -", "p starts - n1"]),
        # A higher limit.
        (
            (node("n1", 4), queue("team", gpu=(0, 1, 1)), pod("p", gpus=2, labels=of("team"))),
            ["limit team gpu=2"],
            ["p starts - n1"],
        ),
        # What waits now only comes to another node.
        ((*TWO, pod("p", gpus=4)), ["cordon n1"], ["p elsewhere n1 n2"]),
        # A gang of which a member leaves and finds no place goes as a whole after its grace time.
        (
            (
                *TWO,
                pod_group("h", 2, queue="default"),
                runs("h0", "n1", 4, group="h"),
                runs("h1", "n2", 4, group="h"),
                pod("p", gpus=4),
            ),
            ["drain n1"],
            ["h0 waits n1 GangIncomplete", "h1 waits n2 GangIncomplete", "p starts - n2"],
        ),
    ],
)
def test_the_scheduler_decides_what_changes_mean(
    objects: tuple[Any, ...], changes: list[str], found: list[str]
) -> None:
    result = compare(snapshot(*objects), changes)
    assert told(result) == found
    assert (result.without.is_at_rest, result.with_.is_at_rest) == (True, True)


def used(result: Comparison) -> dict[str, tuple[int, int]]:
    return {
        each.name: (each.without.allocated.gpu_nano // 10**9, each.with_.allocated.gpu_nano // 10**9)
        for each in result.queues
    }


def test_a_weight_shifts_shares_and_pods() -> None:
    teams = [queue("a", gpu=(0, 1, -1)), queue("b", gpu=(0, 1, -1))]
    waiting = [pod(f"{team}{at}", gpus=1, labels=of(team)) for team in "ab" for at in range(8)]
    result = compare(snapshot(node("n1", 8), *teams, *waiting), ["weight a gpu=3"])
    assert used(result) == {"a": (4, 6), "b": (4, 2)}
    assert [each.change.value for each in result.pods] == ["waits", "waits", "starts", "starts"]
    fair = [(each.without.fair_share, each.with_.fair_share) for each in result.queues]
    assert [(a and a.gpu_nano // 10**9, b and b.gpu_nano // 10**9) for a, b in fair] == [(4, 6), (4, 2)]


def test_pods_are_evicted_for_a_queue_that_gets_a_quota() -> None:
    teams = [queue("a", gpu=(0, 1, -1)), queue("b", gpu=(0, 0, -1))]
    running = [runs(f"a{at}", "n1", 1, labels=of("a")) for at in range(4)]
    waiting = [pod(f"b{at}", gpus=1, labels=of("b")) for at in range(4)]
    found = snapshot(node("n1", 4), *teams, *running, *waiting, room=NO_EVICTIONS)
    result = compare(found, ["quota b gpu=2"])
    assert (result.without.evicted, result.with_.evicted) == (0, 2)
    assert used(result) == {"a": (4, 2), "b": (0, 2)}


def test_without_a_record_of_evictions_nobody_is_evicted() -> None:
    teams = [queue("a", gpu=(0, 1, -1)), queue("b", gpu=(0, 0, -1))]
    running = [runs(f"a{at}", "n1", 1, labels=of("a")) for at in range(4)]
    found = snapshot(node("n1", 4), *teams, *running, pod("b", gpus=1, labels=of("b")))
    result = compare(found, ["quota b gpu=2"])
    assert (result.with_.evicted, told(result)) == (0, [])


def test_another_strategy_places_pods_otherwise() -> None:
    objects = (*TWO, runs("a", "n1"), pod("p", gpus=1))
    result = compare(snapshot(*objects), [], ("spread", "spread"))
    assert told(result) == ["p elsewhere n1 n2"]
    assert [each.message for each in result.changes] == ["place GPUs by spread, and pods without GPUs by spread"]


def test_shares_leave_a_drained_device_and_share_another() -> None:
    objects = (*TWO, *(pod(f"p{at}", fraction="0.5", owner=JOB) for at in range(4)))
    result = compare(snapshot(*objects), ["drain n1"])
    assert told(result) == [f"p{at} elsewhere n1 n2" for at in range(4)]


def test_reasons_and_pods_of_other_schedulers_are_counted() -> None:
    objects = (*TWO, runs("o", "n1", scheduler="default-scheduler"), runs("a", "n1"), pod("p", gpus=8))
    result = compare(snapshot(*objects), ["drain n1", "drain n2"])
    assert result.others_gone == 1
    assert [(each.reason, each.pods_without, each.pods_with) for each in result.reasons] == [("NoNodeFits", 1, 2)]
    assert result.reasons[0].help == "moorage explain reason no-node-fits"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("drain n9", "drain n9: allowed are nodes: n1"),
        ("node +1 like n9", "allowed are nodes: n1"),
        ("weight team gpu=2", "weight team: there is no Queue"),
        ("finish ns/p", "finish ns/p: nothing runs"),
        ("finish p", "finish p: allowed are changes of the cluster: limit QUEUE"),
        ("members=6", "members=6: allowed are changes of the cluster: limit QUEUE"),
        ("nothing", "'nothing' is no what-if; allowed"),
    ],
)
def test_what_can_not_be_is_refused(change: str, says: str) -> None:
    with pytest.raises(BadInput, match=says.replace("+", r"\+")):
        compare(snapshot(node("n1", 1), pod("p")), [change])


def of_pool(value: str) -> dict[str, str]:
    return {names.NODE_POOL_LABEL: value}


def test_each_node_pool_has_its_own_pods_nodes_and_queues() -> None:
    in_pool = queue("small", gpu=(0, 1, 2))
    in_pool = msgspec.structs.replace(in_pool, metadata=msgspec.structs.replace(in_pool.metadata, labels=of_pool("a")))
    found = snapshot(
        node("n1", 4),
        node("n2", 4, labels=of_pool("a")),
        queue("wide"),
        in_pool,
        runs("a", "n2", labels={**of_pool("a"), **of("small")}),
        runs("d", "n1", labels=of("wide")),
        runs("other", "n1", 0, scheduler="default-scheduler"),
        pod("p", gpus=3, labels=of("wide")),
        pod("q", gpus=1, labels={**of_pool("a"), **of("small")}),
        room=NO_EVICTIONS,
    )
    divided = Settings(pool=NodePool())
    waits = ["a waits n2 NoNodeFits"]
    assert told(compare(found, ["drain n2"], settings=divided)) == waits
    assert told(compare(found, ["limit small gpu=4"], settings=divided)) == ["q starts - n2"]
    drained = compare(found, ["drain n1"], settings=divided)
    assert (told(drained), drained.others_gone) == (["d waits n1 NoNodeFits"], 1)
    assert {each.name for each in drained.queues} == {"wide", "small"}
    (note,) = Scheduling(divided, 60.0).unread(found)
    assert note == "which node pools have a scheduler: default, a are taken to"


def test_pods_alone_make_no_node_pools() -> None:
    """Each pool is simulated as a cluster of its own: a tenant's labels could ask for thousands."""
    strays = [pod(f"p{number}", gpus=1, labels=of_pool(f"made-up-{number}")) for number in range(3)]
    found, divided = snapshot(node("n1", 4), *strays, room=NO_EVICTIONS), Settings(pool=NodePool())
    assert pools_of(found, divided.pool) == [NodePool()]
    assert Scheduling(divided, 60.0).unread(found) == ("pods of node pools that no node and no Queue names: 3",)


@pytest.mark.parametrize(("phase", "most"), [("Running", 600), ("Pending", 1_600)])
def test_pods_that_are_alike_are_read_once(phase: str, most: int) -> None:
    def work(count: int) -> int:
        nodes = [node(f"n{at}", 8) for at in range(count // 8)]
        places = [f"n{at // 8}" if phase == "Running" else "" for at in range(count)]
        pods = [pod(f"p{at}", gpus=1, owner=JOB, phase=phase, bound_to=place) for at, place in enumerate(places)]
        found = snapshot(*nodes, *pods, room=NO_EVICTIONS)
        return calls(lambda: ended(found, Scheduling(Settings(), 60.0)))

    work(8)
    assert (work(240) - work(80)) / 160 < most
