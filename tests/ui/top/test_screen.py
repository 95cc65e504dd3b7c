"""moorage top: its screen, its queues, and what it measures."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from gpu.share import NANO_PER_DEVICE
from kube.client.api import Api
from kube.client.retry import Retry
from scheduler.core.report.fragmentation import Cause
from simulator.apiserver.server import MemoryApiServer
from simulator.clock import VirtualClock
from ui.commands.top import Top
from ui.inspect.values import UnusableView
from ui.leaders import Leaders
from ui.page.values import Changes, Device, NodeCard, PodLine, QueueLine, Tenant
from ui.page.watch import Following, Publishing
from ui.top.panels import queue_lines
from ui.top.screen import Letters, Screen, View, screen

VIRTUAL_TIME = True

# What ``moorage top`` draws: to scale, within the terminal, and nothing that moves its cursor.

HALF = NANO_PER_DEVICE // 2


def shared(*shares: tuple[str, int], closed: tuple[str, ...] = ()) -> Device:
    """A device with tenants: namespace and nano of each."""
    used = sum(nano for _, nano in shares)
    tenants = tuple(
        Tenant(namespace=where, name=f"p{number}", uid=f"{where}-{number}", nano=nano)
        for number, (where, nano) in enumerate(shares)
    )
    return Device(
        kind="shared", number=0, used_nano=used, free_nano=NANO_PER_DEVICE - used, tenants=tenants, closed=closed
    )


def node(name: str, *devices: Device, **how: Any) -> NodeCard:
    used = sum(device.used_nano for device in devices)
    return NodeCard(name=name, gpus=len(devices), devices=devices, used_nano=used, **how)


UNKNOWN = Device(kind="unknown")
FREE = Device(kind="free", free_nano=NANO_PER_DEVICE)


def lines(made: Screen) -> list[str]:
    return [each.plain.rstrip() for each in made.lines]


def drawn(shown: Changes, *, width: int = 100, height: int = 24, **how: Any) -> list[str]:
    return lines(screen(shown, Letters(), View(width, height, **how)))


@pytest.mark.parametrize(
    ("device", "bar"),
    [
        (FREE, "------------"),
        (shared(("a", HALF)), "aaaaaa......"),
        (shared(("one", HALF), ("two", HALF // 2)), "aaaaaabbb..."),
        # The smallest share is seen, and takes no room from what is there already.
        (shared(("one", HALF), ("two", 1)), "aaaaaab....."),
        (shared(*((f"n{number}", 1) for number in range(12))), "abcdefghijkl"),
        # More tenants than cells: those that come last have none.
        (shared(*((f"n{number:02d}", 1) for number in range(14))), 12),
        (shared(("one", HALF), closed=("ill",)), "aaaaaaxxxxxx"),
        (shared(("", HALF)), "??????......"),
        (Device(kind="whole", used_nano=NANO_PER_DEVICE), "############"),
        (UNKNOWN, "~~~~~~~~~~~~"),
        (msgspec.structs.replace(shared(("one", HALF)), is_partly_known=True, free_nano=0), "aaaaaa~~~~~~"),
    ],
)
def test_a_device_is_a_bar_to_scale(device: Device, bar: str | int) -> None:
    (row,) = [each for each in drawn(Changes(nodes=(node("n", device),))) if each.startswith("n ")]
    found = row.split()[-1]
    assert found == bar if isinstance(bar, str) else len(found) == bar


def test_of_pods_that_were_not_read_nothing_is_said_to_be_idle() -> None:
    some = node("n", shared(("a", HALF)), UNKNOWN, is_partly_known=True, unknown_nano=3 * HALF)
    shown = Changes(nodes=(some,))
    assert drawn(shown)[0] == "2 GPUs on 1 nodes  used at least 0.5  not known 1.5"
    assert "2 GPUs, at least 0.5 used" in "\n".join(drawn(shown, details=True))
    assert "idle" not in "\n".join(drawn(shown, details=True))


def test_a_share_of_a_mig_slice_is_no_part_of_the_gpus_that_are_summed_up() -> None:
    slices = msgspec.structs.replace(shared(("a", HALF)), resource="nvidia.com/mig-1g.10gb")
    sums, legend, *_ = drawn(Changes(nodes=(node("n1", shared(("a", HALF))), NodeCard(name="n2", devices=(slices,)))))
    assert "used 0.5" in sums
    assert legend == "a a 0.5"


def test_free_gpus_that_fit_no_pod_are_a_line_below_the_sums_the_largest_cause_first() -> None:
    shown = Changes(nodes=(node("n", FREE, FREE),))
    unusable = (UnusableView(cause=Cause.CORDONED, nano=HALF), UnusableView(cause=Cause.PIECES, nano=3 * HALF))
    made = lines(screen(shown, Letters(), View(100, 24), unusable=unusable))
    assert made[1] == "free and fits no pod 2:  pieces 1.5  cordoned 0.5"
    assert [made[0], *made[2:]] == drawn(shown)
    assert len(screen(shown, Letters(), View(100, 8), unusable=unusable).lines) <= 8


def test_nodes_of_a_divided_cluster_stand_under_their_node_pools() -> None:
    half = shared(("x", HALF))
    nodes = (node("n1", half), node("n2", FREE, FREE, node_pool="b"), node("n3", half, node_pool="a"), node("n4", FREE))
    shown = Changes(nodes=(*nodes, node("n5", half, node_pool="a")))
    rows = drawn(shown)[3:-3]
    assert [row.split("  ")[0] for row in rows if row] == [
        "node pool default: 2 GPUs on 2 nodes, 0.5 used",
        "n1",
        "n4",
        "node pool a: 2 GPUs on 2 nodes, 1 used",
        "n3",
        "n5",
        "node pool b: 2 GPUs on 1 nodes, 0 used",
        "n2",
    ]


@pytest.mark.parametrize("details", [False, True])
def test_the_heads_of_node_pools_scroll_with_the_map(details: bool) -> None:
    nodes = tuple(node(f"n{number}", FREE, node_pool=f"p{number % 3}") for number in range(9))
    whole = drawn(Changes(nodes=nodes), height=60, details=details)
    rows = whole[3 : whole.index("no pod waits") - 1]
    assert len(rows) == (21 if details else 12)
    for top in range(len(rows) - 4):
        part = drawn(Changes(nodes=nodes), height=10, details=details, top=top)
        assert part[3:7] == rows[top : top + 4]
        assert f"lines {top + 1}-{top + 4} of {len(rows)} " in part[-1]


def test_without_nodes_there_is_no_map_and_no_sums() -> None:
    assert drawn(Changes(), has_nodes=False)[0] == "nodes can't be read, so there is no map"


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
@pytest.mark.parametrize("height", [8, 12, 24, 60])
@pytest.mark.parametrize("details", [False, True])
def test_a_screen_is_never_larger_than_its_terminal(width: int, height: int, details: bool) -> None:
    nodes = tuple(node(f"node-{n}", *([shared(("team", HALF))] * 4), FREE) for n in range(20))
    pods = tuple(
        PodLine(namespace="team", name=f"w{n}", uid=f"w{n}", waits=True, asks=("main: a GPU",), message="x " * 200)
        for n in range(30)
    )
    made = screen(Changes(nodes=nodes, pods=pods), Letters(), View(width, height, details=details), notes=["oh"])
    assert len(made.lines) <= height
    assert all(each.cell_len <= width for each in made.lines)


def test_a_small_cluster_is_shown_whole() -> None:
    pods = (
        PodLine(
            namespace="vision",
            name="big",
            uid="1",
            waits=True,
            asks=("main: 9 times a whole GPU",),
            reason="Unschedulable",
            message="no nodes with\nenough resources",
        ),
        PodLine(namespace="vision", name="early", uid="0", waits=True, created="2026-01-01T00:00:00Z"),
        PodLine(namespace="vision", name="soon", uid="2", waits=True, on_its_way_to="n1", created="2027"),
        PodLine(namespace="vision", name="starts", uid="3", waits=True, node="n1"),
    )
    cordoned = node("n2", FREE, is_cordoned=True, stranded_nano=NANO_PER_DEVICE)
    shown = Changes(nodes=(node("n1", shared(("vision", HALF), ("serving", 10_000_001))), cordoned), pods=pods)
    assert drawn(shown) == [
        "2 GPUs on 2 nodes  used 0.52  left of shared 0  idle 0  stranded 1",
        "a vision 0.5  b serving 0.02",
        "",
        "n1                      ready          baaaaaa.....",
        "n2                      cordoned       ------------",
        "",
        "3 waiting",
        "vision/big  main: 9 times a whole GPU  Unschedulable: no nodes with enough resources",
        "vision/early    nobody has looked at it yet",
        "vision/soon    on its way to n1",
        "q ends   arrows, space: scroll   d: devices   u: queues   b: namespace or queue",
    ]


def test_devices_are_told_with_their_tenants() -> None:
    tenants = (Tenant(namespace="a", name="p", uid="1", nano=HALF), Tenant(nano=1, is_hidden=True))
    device = Device(kind="shared", number=3, used_nano=HALF + 1, free_nano=HALF - 1, tenants=tenants)
    whole = Device(kind="whole", number=4, used_nano=NANO_PER_DEVICE)
    closed = shared(("a", HALF), closed=("ill", "lost"))
    said = drawn(Changes(nodes=(node("n", device, whole, closed),)), details=True, width=120)[3:7]
    assert said == [
        "n                       ready         3 GPUs, 2.01 used",
        "  GPU 3  ?aaaaaa.....   50.01% used  49.99% free  a a/p 50%  ? somebody's 0.01%",
        "  GPU 4  ############     100% used",
        "  GPU 0  aaaaaaxxxxxx      50% used  closed: ill, lost  a a/p0 50%",
    ]


def test_shares_are_told_apart_by_queue_where_that_is_asked() -> None:
    pods = tuple(
        PodLine(namespace="ns", name=name, uid=f"ns-{number}", node="n", queue=queue)
        for number, (name, queue) in enumerate([("p0", "research"), ("p1", "")])
    )
    shown = Changes(nodes=(node("n", shared(("ns", HALF), ("ns", HALF // 2))),), pods=pods)
    assert drawn(shown, by="queue")[1] == "a research 0.5  ? no queue 0.25"


@pytest.mark.parametrize(
    ("asked", "top", "first"), [(0, 0, "node-00"), (7, 7, "node-07"), (99, 32, "node-32"), (-5, 0, "node-00")]
)
def test_the_map_is_scrolled_and_never_beyond_its_end(asked: int, top: int, first: str) -> None:
    nodes = tuple(node(f"node-{n:02d}", FREE) for n in range(50))
    made = screen(Changes(nodes=nodes), Letters(), View(80, 24, top=asked))
    assert made.top == top
    assert lines(made)[3].split()[0] == first
    assert lines(made)[-1].startswith(f"lines {top + 1}-{top + 18} of 50   q ends")


def test_who_came_first_keeps_his_letter() -> None:
    letters = Letters()

    def legend(*owners: str) -> str:
        devices: Sequence[Device] = [shared((owner, HALF)) for owner in owners]
        return screen(Changes(nodes=(node("n", *devices),)), letters, View(80, 24)).lines[1].plain

    assert legend("zoo") == "a zoo 0.5  "
    assert legend("ant", "zoo", "zoo") == "a zoo 1  b ant 0.5  "


def test_names_and_reasons_do_not_move_the_cursor() -> None:
    bad = "\x1b[2J\r\n"
    pod = PodLine(namespace=bad, name=bad, uid="1", waits=True, asks=(bad,), reason=bad, message=bad)
    shown = Changes(nodes=(node(bad, shared((bad, HALF))),), pods=(pod,))
    for details in (False, True):
        made = screen(shown, Letters(), View(200, 30, details=details), notes=[bad])
        assert all(each.plain.isprintable() for each in made.lines)


def test_more_owners_than_letters_are_drawn_all_the_same() -> None:
    devices = [shared((f"team-{number:03d}", HALF)) for number in range(200)]
    assert drawn(Changes(nodes=(node("n", *devices),)), height=400, width=80)


@pytest.mark.parametrize("details", [False, True])
@pytest.mark.parametrize("count", [1, 8, 16])
def test_at_80_columns_neither_a_long_name_nor_a_device_is_lost(count: int, details: bool) -> None:
    name = "gke-training-cluster-a100-pool-7-0f3c2b1a-x4zq"
    devices = [FREE for _ in range(count)]
    said = drawn(Changes(nodes=(node(name, *devices),)), width=80, height=60, details=details)
    assert name in said
    bars = [bar for line in said for bar in line.split() if bar.startswith("----")]
    assert len(bars) == count


def test_a_map_with_long_names_is_scrolled_by_the_lines_that_it_has() -> None:
    nodes = tuple(node(f"gke-training-cluster-a100-pool-{i}-x4zq", FREE) for i in range(9))
    said = drawn(Changes(nodes=nodes), width=80, height=16, top=8)
    assert said[3] == "gke-training-cluster-a100-pool-4-x4zq"
    assert said[-1].startswith("lines 9-18 of 18")


def test_a_share_that_is_kept_says_so() -> None:
    tenant = Tenant(namespace="ns", name="gone", uid="u", nano=HALF, is_kept=True)
    device = msgspec.structs.replace(shared(("ns", HALF)), tenants=(tenant,))
    (told,) = [each for each in drawn(Changes(nodes=(node("n", device),)), details=True) if "gone" in each]
    assert "ns/gone 50% (kept: its pod is gone)" in told


# ``moorage top`` on a cluster in which nobody schedules. In virtual time.


@pytest.mark.parametrize("looks", [True, False])
async def test_it_says_that_nobody_schedules_by_the_time_all_is_read(looks: bool) -> None:
    clock = VirtualClock(asyncio.get_running_loop())
    server = MemoryApiServer(clock=clock, rng=random.Random(1), auto_namespaces=True)
    api = Api(server.transport(), retry=Retry(random.Random(1)))
    publishing = Publishing("top", every_s=0.5)
    leaders = Leaders(clock) if looks else None
    following = Following(api, publishing.objects, rng=random.Random(1), leaders=leaders)
    async with anyio.create_task_group() as tasks:
        await tasks.start(following.run)
        await following.settled()
        drawn = "\n".join(line.plain for line in Top(publishing, following, View(100, 20), clock=clock).drawn().lines)
        assert ("no scheduler has worked here yet" in drawn) == looks
        tasks.cancel_scope.cancel()


# The queues in ``top``: a tree with bars to scale, in eighty columns.


def queue(name: str, parent: str = "", **gpus: float) -> QueueLine:
    amounts: dict[str, Any] = {f"{key}_nano": round(amount * NANO_PER_DEVICE) for key, amount in gpus.items()}
    limit = amounts.pop("limit_nano", -1)
    return QueueLine(name=name, parent=parent, is_counted=True, limit_nano=limit, **amounts)


QUEUES = (
    queue("research", quota=16, limit=24, fair=20, used=16, waiting=14),
    queue("vision", "research", quota=4, fair=4, used=6, waiting=0.25),
    queue("speech", "research", quota=2, fair=16, used=10),
    queue("idle"),
)


def queues_lines(*queues: QueueLine, width: int = 80) -> list[str]:
    return [each.plain.rstrip() for each in queue_lines(queues, width)]


def test_queues_stand_below_their_parents_with_a_bar_each() -> None:
    assert queues_lines(*QUEUES) == [
        "QUEUES, IN GPUS                                 USED   FAIR  QUOTA  LIMIT  WAITS",
        "idle                    ....................       0      0      0      -      0",
        "research                ################----      16     20     16     24     14",
        "  speech                ##########------....      10     16      2      -      0",
        "  vision                ####!!..............       6      4      4      -   0.25",
    ]


def test_the_documents_show_what_is_drawn() -> None:
    shown = [
        queue("lab", quota=-1 / NANO_PER_DEVICE, fair=28, used=23, waiting=9),
        queue("interactive", "lab", quota=2, limit=4, fair=1, used=2),
        queue("research", "lab", quota=16, fair=27, used=21, waiting=9),
        queue("production", quota=8, fair=1.45, used=1.45),
    ]
    page = (Path(__file__).parents[3] / "docs" / "top.md").read_text(encoding="utf-8")
    assert "\n".join(queues_lines(*shown)) in page


def test_the_smallest_use_is_seen() -> None:
    assert queues_lines(queue("big", fair=1000, used=1000), queue("small", used=0.1))[-1].split()[1] == "!" + "." * 19


def test_the_queues_of_each_node_pool_stand_apart() -> None:
    pools = [msgspec.structs.replace(each, node_pool=pool) for each, pool in zip(QUEUES, "aab", strict=False)]
    told = [text.partition("   ")[0] for text in queues_lines(*pools, QUEUES[-1])]
    assert told == [
        "QUEUES, IN GPUS",
        "node pool default",
        "idle",
        "node pool a",
        "research",
        "  vision",
        "node pool b",
        "speech",
    ]


def test_the_name_of_a_node_pool_is_whole_in_a_narrow_terminal() -> None:
    pool = "a-pool-with-the-longest-name-that-a-label-may-have-" * 2
    shown = queues_lines(msgspec.structs.replace(QUEUES[-1], node_pool=pool), width=40)
    assert f"node pool {pool}" in "".join(shown)
    assert max(map(len, shown[1:4])) <= 40


@pytest.mark.parametrize("width", [40, 79, 80, 120, 200])
def test_no_line_is_wider_than_the_terminal_and_no_name_is_cut(width: int) -> None:
    name = "a-department-with-a-long-name-" * 5
    shown = Changes(queues=(queue(name, fair=2, used=1), queue("child", name, fair=2, used=1)))
    made = screen(shown, Letters(), View(width, 24, queues=True))
    assert all(each.cell_len <= width for each in made.lines)
    assert name in "".join(each.plain.rstrip() for each in made.lines)


def test_what_is_not_counted_is_not_known_and_what_takes_nobody_says_why() -> None:
    part = QueueLine(name="part", gpu_quota="2", gpu_limit="-1")
    lost = QueueLine(name="lost", is_counted=True, limit_nano=-1, unusable="Queue lost can't be used: no parent")
    told = queues_lines(part, lost)
    assert told[2] == "  takes nobody: Queue lost can't be used: no parent"
    assert told[3].split() == ["part", "~" * 20, "?", "?", "2", "-", "?"]
    assert queues_lines() == ["There are no Queues here: there is none, or they can't be read."]


def test_queues_take_the_place_of_the_map_and_are_scrolled_like_it() -> None:
    queues = tuple(queue(f"q{at:02}", fair=1) for at in range(40))
    made = screen(Changes(queues=queues), Letters(), View(80, 20, queues=True, top=10))
    told = [each.plain for each in made.lines]
    assert told[3].startswith("q09")
    assert (made.top, told[-1].startswith("lines 11-24 of 41")) == (10, True)


def test_a_queue_moves_no_cursor() -> None:
    assert "\x1b" not in "".join(queues_lines(queue("a\x1b[2J", used=1)))
