from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest
from msgspec.structs import astuple

from gpu.mig import GpuPartitioning, Stage
from gpu.node_use import NodeUse, State, TenantUse
from gpu.share import NANO_PER_DEVICE
from scheduler.core.cluster import Cluster
from scheduler.core.convert.demand import readable_demand
from scheduler.core.report.fragmentation import Cause
from scheduler.core.report.pool_use import use_of_pools
from tests.scheduler.core.objects import NANO, bind_request, bound, cluster, ended, node, pod, reservation
from tests.ui.inspect.test_telling import lines
from ui.inspect.survey import Beside, Count, Found, matters, survey
from ui.inspect.tables import cluster_sheets, node_sheets, pod_sheets
from ui.inspect.use import Row, Sum, age, clock, idle, in_order, limit, partitioning, percent, stale, sums, use_view
from ui.inspect.values import Inspection, UseView
from wire import names
from wire.core import Node, Pod
from wire.crds.bindrequest import BindRequest
from wire.rfc3339 import parse_ns

HALF = NANO_PER_DEVICE // 2
AT = "2026-11-27T18:30:00Z"
NOW_NS = parse_ns(AT) or 0
SECOND = 10**9


def row(name: str, memory: int | None = 50, sm: int | None = 0, **how: Any) -> Row:
    given = {
        "namespace": "team-a",
        "uid": name,
        "uuid": "GPU-0",
        "node": "n",
        "device": "0",
        "nano": HALF,
        "state": State.CURRENT,
        **how,
    }
    return Row(name=name, memory_percent=memory, sm_percent=sm, **given)


def test_who_is_idle_comes_first_and_the_dearest_of_them_before_others() -> None:
    rows = [
        row("unknown", None, None),
        row("full", 100, 100),
        row("half", 50, 10),
        row("large", 50, 10, nano=NANO_PER_DEVICE),
        row("short", 0, idle_since="2026-11-27T18:00:00Z"),
        row("long", 0, idle_since="2026-11-27T12:00:00Z"),
        row("small and long", 0, nano=HALF // 2, idle_since="2026-11-27T12:00:00Z"),
        row("past", None, None, idle_since="2026-11-20T12:00:00Z", state=State.STALE),
    ]
    assert [each.name for each in in_order(rows, NOW_NS)] == [
        "long",
        "small and long",
        "short",
        "large",
        "half",
        "full",
        "past",
        "unknown",
    ]


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (GpuPartitioning("GPU-a", 0, Stage.ASKED, ("2g", "1g")), "MIG slices of GPU 0 are asked for: 2g, 1g"),
        (GpuPartitioning("GPU-a", 1, Stage.UNDER_WAY, ()), "MIG slices of GPU 1 are being made: none"),
        (
            GpuPartitioning("GPU-a", -1, Stage.FAILED, ("7g at 0",), "x"),
            "MIG slices of GPU-a could not be made (7g at 0): x",
        ),
    ],
)
def test_mig_slices_are_told_with_how_far_they_came(one: GpuPartitioning, said: str) -> None:
    assert partitioning(one) == said


def test_sums_are_weighed_by_size_and_say_of_how_many_nothing_is_known() -> None:
    rows = [
        row("a", 10, 0),
        row("b", 100, None, nano=NANO_PER_DEVICE),
        row("c", None, None),
        row("d", 0, 0, namespace="team-b", idle_since=AT),
    ]
    assert sums(rows, lambda each: each.namespace) == [
        Sum(name="team-b", shares=1, nano=HALF, idle_nano=HALF, memory_percent=0, sm_percent=0),
        Sum(name="team-a", shares=3, unknown=1, nano=2 * NANO_PER_DEVICE, memory_percent=70, sm_percent=0),
    ]
    (only,) = sums([row("c", None, None)], lambda each: each.node)
    assert (only.memory_percent, only.unknown) == (None, 1)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0s"), (59, "59s"), (60, "1m"), (3_599, "59m59s"), (3_600, "1h"), (7_265, "2h1m"), (90_000, "1d1h")],
)
def test_times_are_in_two_units_at_most(seconds: int, said: str) -> None:
    assert age(seconds * SECOND) == said


@pytest.mark.parametrize(
    ("at", "said"),
    [
        ("2026-11-27T13:05:09Z", "13:05Z"),
        ("2026-11-26T23:59:59Z", "2026-11-26 23:59Z"),
        ("2026-11-27T02:00:00+02:00", "00:00Z"),
        ("", "?"),
    ],
)
def test_a_time_of_another_day_has_its_date(at: str, said: str) -> None:
    assert clock(at, NOW_NS) == said


def test_words_for_people() -> None:
    assert idle(HALF, "2026-11-27T13:05:00Z", NOW_NS) == "13:05Z (5h25m, 2.7 GPU-hours)"
    assert idle(HALF, "", NOW_NS) == "-"
    assert (percent(None), percent(0), percent(100)) == ("?", "0%", "100%")
    assert (limit("kill", "after"), limit("", "")) == ("after (kill)", "-")
    assert stale("n", "2026-11-27T15:30:00Z", NOW_NS) == (
        "n: its agent has not worked for 3h; what its pods use now is not known"
    )
    assert stale("n", "", NOW_NS) == "n: its agent has not worked; what its pods use now is not known"


NOW = "2026-11-27T18:30:00Z"
USEVIEWS_HALF = NANO // 2
IDLE = TenantUse(5, 0, "2026-11-27T13:05:00Z", "")
BUSY = TenantUse(90, 80, "", "kill")
A = bound(pod("a", fraction="0.5"), "n1", ("g", USEVIEWS_HALF), uuid="GPU-1")
B = bound(pod("b", namespace="other", fraction="0.5"), "n1", ("g", USEVIEWS_HALF), uuid="GPU-1")
HELD = reservation("g", uuid="GPU-1", index=0, book={"uid-a": USEVIEWS_HALF, "uid-b": USEVIEWS_HALF})
CURRENT = NodeUse(State.CURRENT, {("uid-a", "GPU-1"): IDLE, ("uid-b", "GPU-1"): BUSY})


def seen(use: NodeUse | None = CURRENT, *namespaces: str, has_nodes: bool = True) -> Inspection:
    found = Found(nodes=[node(gpus=1, mem_mib=1024)], pods=[A, B, HELD], are_all_pods=has_nodes)
    made = survey(found, namespaces=namespaces)
    return msgspec.structs.replace(made, use=use_view(made, {} if use is None else {"n1": use}, at=NOW))


def view(made: Inspection) -> UseView:
    assert isinstance(made.use, UseView)
    return made.use


@pytest.mark.parametrize("has_nodes", [True, False])
def test_shares_that_are_shown_have_what_is_reported_of_them(has_nodes: bool) -> None:
    (only,) = view(seen(has_nodes=has_nodes)).nodes
    assert (only.node, only.state) == ("n1", State.CURRENT)
    assert [(t.namespace, t.name, t.nano, t.memory_percent, t.idle_since, t.strength) for t in only.tenants] == [
        ("ns", "a", USEVIEWS_HALF, 5, "2026-11-27T13:05:00Z", ""),
        ("other", "b", USEVIEWS_HALF, 90, "", "after"),
    ]


def test_pods_of_other_namespaces_are_not_named() -> None:
    made = seen(CURRENT, "ns")
    assert b"other" not in msgspec.json.encode(view(made))


def test_nodes_and_pods_have_columns_of_use_and_limit() -> None:
    made = seen()
    head, *rows = lines(node_sheets(made))[1:]
    assert head.split()[6:9] == ["SHARE", "USE", "LIMIT"] or head.split()[7:10] == ["SHARE", "USE", "LIMIT"]
    assert "memory 5%, SM 0%, idle since 13:05Z (5h25m, 2.7 GPU-hours)   -" in rows[0]
    assert "memory 90%, SM 80%" in rows[1]
    assert "after (kill)" in rows[1]
    told = lines(pod_sheets(made))
    assert told[0].split()[5:9] == ["GOT", "USE", "LIMIT", "WHY"]
    assert "after (kill)" in told[2]


def test_a_cluster_lists_idle_shares() -> None:
    told = lines(cluster_sheets(seen()))
    at = told.index("Idle shares:")
    assert told[at + 1 : at + 3] == [
        "POD    NODE   DEVICE   MEMORY   SM   IDLE SINCE",
        "ns/a   n1     GPU-1    5%       0%   13:05Z (5h25m, 2.7 GPU-hours)",
    ]


def test_without_an_agent_there_are_no_columns_and_one_line_says_why() -> None:
    made = seen(None)
    for told in (lines(node_sheets(made)), lines(pod_sheets(made)), lines(cluster_sheets(made))):
        assert told[-1] == "use is not shown: no node agent has reported (docs/node-agent.md)"
        assert "USE " not in "\n".join(told)


def test_nothing_of_a_dead_agent_is_shown_as_current() -> None:
    made = seen(NodeUse(State.STALE, since="2026-11-27T15:30:00Z"))
    told = lines(node_sheets(made))
    assert "not known: the report is old   ?" in told[2]
    assert told[-1] == "n1: its agent has not worked for 3h; what its pods use now is not known"
    assert "Idle shares:" not in lines(cluster_sheets(made))


def test_what_is_not_sure_or_not_measured_is_said() -> None:
    assert lines(node_sheets(seen(NodeUse(State.UNSURE, CURRENT.tenants))))[-1] == (
        "whether the agents work is not known, so use may be old"
    )
    said = lines(node_sheets(seen(NodeUse(State.CURRENT, why="no \x1b memory enforcer"))))
    assert said[-1] == "n1: use is not measured: no \\x1b memory enforcer"


def test_without_the_option_nothing_is_different() -> None:
    made = msgspec.structs.replace(seen(), use=msgspec.UNSET)
    assert "use" not in msgspec.json.decode(msgspec.json.encode(made))
    assert "USE" not in lines(pod_sheets(made))[0].split()


# What is counted for an inspection is what the scheduler counts.

NODES = (node("n1", gpus=4, mem_mib=24576), node("n2", gpus=2, mem_mib=81920, cordoned=True))
COUNTING_HALF = bound(pod("half", fraction="0.5"), "n1", ("g", NANO // 2), uuid="GPU-1")
WHOLE = bound(pod("whole", gpus=2), "n2")
COUNTING_HELD = reservation("g", book={"uid-half": NANO // 2, "uid-gone": NANO // 4})
WAITS = pod("w", fraction="0.5")
ORDER = bind_request(WAITS, "n1", ("new", NANO // 2))


def found(*objects: Any) -> Found:
    def of(kind: type) -> list[Any]:
        return [each for each in objects if isinstance(each, kind)]

    return Found(nodes=of(Node), pods=of(Pod), requests=of(BindRequest))


def of_the_scheduler(these: Found) -> Cluster:
    """The same objects, counted by the class that decides."""
    return cluster(*these.nodes, *these.requests, *these.pods)


@pytest.mark.parametrize(
    "objects",
    [
        NODES,
        (*NODES, COUNTING_HELD, COUNTING_HALF, WHOLE),
        (*NODES, COUNTING_HELD, ended(COUNTING_HALF), ended(WHOLE)),
        (*NODES, reservation("g", book={"uid-half": NANO // 2}, phase="Succeeded"), COUNTING_HALF),
        (*NODES, reservation("g", book={"uid-half": NANO // 2}, deleting=True), COUNTING_HALF),
        (*NODES, COUNTING_HELD, COUNTING_HALF, WAITS, ORDER),
        (*NODES, ended(WAITS), ORDER),
        (*NODES, ORDER),
        (*NODES, bound(pod("legacy", gpus=1), "n2"), bound(pod("elsewhere", gpus=1), "n9")),
        (COUNTING_HELD, COUNTING_HALF, WAITS, ORDER),
    ],
    ids=[
        "nothing there", "shares and whole", "ended pods", "an ended reservation", "one that is deleted",
        "on its way", "on its way, and ended", "on its way, and not there", "on no node that is there", "no node",
    ],
)  # fmt: skip
def test_the_views_are_those_of_the_scheduler(objects: tuple[Any, ...]) -> None:
    these = found(*objects)
    ours, theirs = Count(these), of_the_scheduler(these)
    assert ours.views() == {name: theirs.view(name) for name in theirs.node_names()}
    uses = [ours.use(name) for name in ours.views()]
    known = use_of_pools(theirs.refresh()).values()
    ours_in_sum, theirs_in_sum = (
        [sum(each) for each in zip(*map(astuple, some), strict=True)] for some in (uses, known)
    )
    assert ours_in_sum == theirs_in_sum


def test_a_hand_over_is_seen_before_its_pod_is_bound() -> None:
    """The cases above are no empty ones."""
    view = Count(found(*NODES, WAITS, ORDER)).views()["n1"]
    assert [tenant.name for device in view.devices for tenant in device.tenants] == ["w"]


def beside(*objects: Any) -> dict[str, Beside]:
    """What pods without GPUs take, as it is read (reading.py)."""
    taken: dict[str, Beside] = {}
    for each in objects:
        if isinstance(each, Pod) and not matters(each):
            demand = readable_demand(each)
            taken[each.spec.node_name] = taken.get(each.spec.node_name, Beside()) + Beside(
                demand.cpu_milli, demand.mem_mib, 1
            )
    return taken


def unusable(*objects: Any) -> dict[Cause, int]:
    """Counted here, of pods that matter alone and what others take."""
    these = found(*(each for each in objects if not isinstance(each, Pod) or matters(each)))
    return dict(Count(these).unusable(beside(*objects)))


CPU_ALONE = pod("cpu", cpu="30", memory="1Gi", bound_to="n1")


@pytest.mark.parametrize(
    ("objects", "causes"),
    [
        ((node("n1", gpus=2), pod("w", gpus=2)), {}),
        ((node("n1", gpus=2), pod("w", gpus=3)), {Cause.PIECES: 2 * NANO}),
        ((node("n1", gpus=2, cordoned=True), pod("w", gpus=3)), {Cause.CORDONED: 2 * NANO}),
        ((node("n1", gpus=2, cpu="32"), CPU_ALONE, pod("w", gpus=1, cpu="4")), {Cause.CPU: 2 * NANO}),
        ((node("n1", gpus=2, cpu="32"), CPU_ALONE, pod("w", gpus=1, cpu="2")), {}),
        (
            (node("n1", gpus=2, mem_mib=24576), COUNTING_HELD, COUNTING_HALF, pod("w", fraction="0.9")),
            {Cause.PIECES: NANO // 4},
        ),
        ((*NODES, COUNTING_HELD, COUNTING_HALF, WHOLE, WAITS, ORDER), {Cause.PIECES: NANO // 4}),
        # Without a pod that waits, or enough that came, nobody knows what would be of use.
        ((node("n1", gpus=2),), {}),
    ],
)
def test_free_gpus_that_fit_no_pod_are_those_that_the_scheduler_reports(
    objects: tuple[Any, ...], causes: dict[Cause, int]
) -> None:
    theirs: Counter[Cause] = Counter()
    for found_there in of_the_scheduler(found(*objects)).fragmentation().values():
        theirs.update(found_there)
    assert unusable(*objects) == causes == dict(+theirs)


def test_pods_of_another_node_pool_make_no_gpu_usable() -> None:
    a, b = ({names.NODE_POOL_LABEL: pool} for pool in "ab")
    nodes = (node("na", gpus=2, labels=a), node("nb", gpus=4, labels=b))
    assert unusable(*nodes, pod("w", gpus=4, labels=a), pod("v", gpus=4, labels=b)) == {Cause.PIECES: 2 * NANO}


def test_kinds_of_pods_that_run_are_usual_once_enough_of_them_are_known() -> None:
    there = [node(f"n{number}", gpus=8) for number in range(8)]
    running = [pod(f"r{number}", gpus=1, bound_to=f"n{number % 7}") for number in range(49)]
    few = pod("w", gpus=9)
    assert unusable(*there, few, *running) == {Cause.PIECES: 15 * NANO}
    assert unusable(*there, few, *running, pod("r49", gpus=1, bound_to="n7")) == {}
