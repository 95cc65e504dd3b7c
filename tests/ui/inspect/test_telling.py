"""Tables: what is used is rounded up, what is free down, and lines are as programs want them."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import pytest

from scheduler.core.report.fragmentation import Cause
from tests.scheduler.core.objects import NANO, bound, changed, node, pod, reservation
from ui.inspect.survey import Found, survey
from ui.inspect.tables import (
    CAUSE_WORDS,
    cluster_sheets,
    gpus_up,
    node_sheets,
    percent_down,
    percent_up,
    pod_sheets,
    unusable_sheets,
)
from ui.inspect.values import Inspection, UnusableView
from ui.tables import Look, Sheet, drawn, plain, show
from wire import names
from wire.core import Condition, Node, Pod

THIRD = NANO // 3 + 1
TENANT = bound(pod("t", fraction="0.5"), "n1", ("g", THIRD), uuid="GPU-1")
BOOK = {"uid-t": THIRD}


def seen(*objects: Any) -> Inspection:
    nodes = [each for each in objects if isinstance(each, Node)] or [node(gpus=2, mem_mib=24576)]
    return survey(Found(nodes=nodes, pods=[each for each in objects if isinstance(each, Pod)]))


def card(**more: Any) -> Pod:
    made = reservation("g", uuid="GPU-1", book=BOOK, **more)
    return changed(made, annotations={**(made.metadata.annotations or {}), names.DEVICE_INDEX: "1"})


def lines(sheets: list[Sheet]) -> list[str]:
    return [line for sheet in sheets for line in plain(sheet)]


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_pod_moves_no_cursor_of_those_who_look_at_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "400")
    hostile = changed(pod("h"), annotations={"gpu-fraction": "0.\x1b[2J5"})
    denied = Condition(type="PodScheduled", status="False", reason="Unschedulable", message="no\x1b[2Jthing")
    waits = pod("w", fraction="0.5")
    waits = msgspec.structs.replace(waits, status=msgspec.structs.replace(waits.status, conditions=[denied]))
    show(pod_sheets(seen(hostile, waits)), ["pod a\x1b[2J"])
    told = capsys.readouterr()
    assert (told.out + told.err).replace("\n", "").isprintable()
    assert "no\\x1b[2Jthing" in told.out


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_terminal_gets_the_same_cells_in_colour(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("NO_COLOR", raising=False)
    show(cluster_sheets(seen(card(is_ill=True), TENANT)), ["secrets"])
    told = capsys.readouterr()
    assert ("\x1b[" in told.out) is is_terminal
    assert all(
        word in told.out for word in ("NODE", "1 closed", "its device plugin reports it as unhealthy", "24576 MiB")
    )
    assert told.err == "not read: secrets\n"


@pytest.mark.parametrize(
    ("nano", "up", "down"),
    [
        (0, "0%", "0%"),
        (1, "0.01%", "0%"),
        (NANO // 2, "50%", "50%"),
        (THIRD, "33.34%", "33.33%"),
        (NANO - 1, "100%", "99.99%"),
        (NANO, "100%", "100%"),
    ],
)
def test_a_share_is_rounded_against_who_reads_it(nano: int, up: str, down: str) -> None:
    assert (percent_up(nano), percent_down(nano)) == (up, down)


@pytest.mark.parametrize(
    ("nano", "told"), [(0, "0"), (1, "0.01"), (NANO, "1"), (3 * NANO // 2, "1.5"), (12 * NANO, "12"), (NANO - 1, "1")]
)
def test_gpus_in_use_are_rounded_up(nano: int, told: str) -> None:
    assert gpus_up(nano) == told


def test_a_cluster_is_a_line_for_each_node_and_their_sum() -> None:
    two = [node("n1", gpus=2, mem_mib=24576), node("n2", gpus=4, mem_mib=81920, cordoned=True)]
    assert lines(cluster_sheets(seen(*two, card(), TENANT, pod("w", gpus=1, bound_to="n2")))) == [
        "NODE    STATE      GPU MEMORY   GPUS   FREE   WHOLE   SHARED   USED   LARGEST SHARE",
        "n1      ready      24576 MiB    2      1      0       1        0.34   100%",
        "n2      cordoned   81920 MiB    4      3      1       0        1      -",
        "total                           6      4      1       1        1.34",
    ]


def test_the_wide_table_has_the_node_pool_of_each_node() -> None:
    two = seen(node("n1", gpus=2, labels={names.NODE_POOL_LABEL: "a100"}), node("n2", gpus=2))
    (wide,) = cluster_sheets(two, wide=True)
    at = wide.columns.index("NODE POOL")
    assert [row[at].text for row in wide.rows] == ["a100", "default", ""]
    assert [sheet.title for sheet in node_sheets(two)] == [
        "n1: ready, node pool a100, 2 GPUs, 0 used",
        "n2: ready, 2 GPUs, 0 used",
    ]
    assert [view.node_pool for view in two.nodes] == ["a100", ""]


def test_free_gpus_that_fit_no_pod_have_a_table_by_cause() -> None:
    unusable = (
        UnusableView(cause=Cause.PIECES, nano=5 * NANO // 2 + 1),
        UnusableView(cause=Cause.CPU, nano=NANO // 100 - 1),
    )
    assert lines(unusable_sheets(unusable)) == [
        "Free GPUs that no waiting or usual pod can take:",
        "CAUSE    GPUS   WHY",
        "pieces   2.5    too little is left of the GPU, or too few GPUs of the node",
        "cpu      0      CPU is short beside the GPU",
    ]
    assert unusable_sheets(()) == []


def test_every_cause_has_words() -> None:
    assert set(CAUSE_WORDS) == set(Cause)


def test_pods_that_wait_say_why_in_one_line() -> None:
    condition = Condition(type="PodScheduled", status="False", reason="Unschedulable", message="a \n b")
    waiting = pod("w", gpus=9, annotations={names.FENCED_BECAUSE: "DeviceTaken: late"})
    status = msgspec.structs.replace(waiting.status, conditions=[condition])
    assert lines(cluster_sheets(seen(msgspec.structs.replace(waiting, status=status))))[2:] == [
        "Waiting pods:",
        "POD    DIALECT   ASKS                        WHY",
        "ns/w   plugin    main: 9 times a whole GPU   Unschedulable: a b; last attempt: DeviceTaken: late",
    ]


def test_equal_reasons_of_one_gang_are_said_once_on_a_terminal() -> None:
    def waits(name: str, group: str, message: str) -> Pod:
        made = pod(name, fraction="0.5", group=group)
        said = Condition(type="PodScheduled", status="False", reason="NotReady", message=message)
        return msgspec.structs.replace(made, status=msgspec.structs.replace(made.status, conditions=[said]))

    found = seen(
        waits("a", "g", "two lack"), waits("b", "g", "two lack"), waits("c", "g", "one lacks"),
        waits("d", "h", "one lacks"), waits("e", "", "alone"), waits("f", "", "alone"),
    )  # fmt: skip
    for made in (pod_sheets(found), cluster_sheets(found)[-1:]):
        repeated = [row[-1].repeats for row in made[0].rows]
        assert repeated == [False, True, False, False, False, False]
        assert sum("two lack" in line for line in lines(made)) == 2
        assert sum("two lack" in line for line in drawn(made, 100, Look())) == 1


def test_devices_that_take_nobody_say_why() -> None:
    told = lines(cluster_sheets(seen(card(is_ill=True), TENANT)))
    assert told[1].split("   ")[1:3] == ["  1 closed", "24576 MiB"]
    assert told[2:] == [
        "Closed devices:",
        "NODE   GPU   PODS   WHY",
        "n1     1     ns/t   its device plugin reports it as unhealthy",
    ]


def test_a_node_is_a_line_for_each_device_and_further_tenant() -> None:
    other = bound(pod("u", fraction="0.25"), "n1", ("g", NANO // 4), uuid="GPU-1")
    head = "n1     1     24576 MiB   shared   58.34% 14336 MiB   41.66% 10240 MiB   "
    assert lines(node_sheets(seen(card(), TENANT, other))) == [
        "n1: ready, 2 GPUs, 0.59 used",
        "NODE   GPU   MEMORY      STATE    USED               FREE               "
        "POD    SHARE             DIALECT   ASKS",
        "n1     0     24576 MiB   free     0% 0 MiB           100% 24576 MiB     -      -                 -         -",
        f"{head}ns/t   33.34% 8192 MiB   kai       main: 50% of a GPU",
        f"{head}ns/u   25% 6144 MiB      kai       main: 25% of a GPU",
    ]


def test_used_and_free_memory_of_a_device_are_all_of_it() -> None:
    told = lines(node_sheets(seen(card(), TENANT)))[3].split("   ")
    assert [cell.strip() for cell in told if "MiB" in cell][1:3] == ["33.34% 8192 MiB", "66.66% 16384 MiB"]


def test_a_device_tells_its_mode_and_a_pod_what_is_not_enforced() -> None:
    asks = '[{"container": "c0", "name": "main", "nano": 500000000}]'
    record = f'{{"version": 1, "dialect": "hami", "asks": {asks}, "wishes": {{"mode": "mps"}}}}'
    tenant = bound(pod("t", annotations={names.GPU_RECORD: record}, phase="Running"), "n1", ("g", THIRD))
    said = Condition(type=names.CONDITION_LIMITS_ENFORCED, status="False", message="no mps")
    tenant = msgspec.structs.replace(tenant, status=msgspec.structs.replace(tenant.status, conditions=[said]))
    assert "   shared, mps   " in lines(node_sheets(seen(card(), tenant)))[3]
    assert lines(pod_sheets(seen(card(), tenant)))[1].endswith("   runs, but: no mps")


def test_a_share_on_its_way_is_told_apart() -> None:
    assert "33.34% 8192 MiB (on its way)" in lines(node_sheets(seen(card(), pod("t", fraction="0.5"))))[3]


def test_a_share_that_is_kept_is_named_with_its_node_and_gpu() -> None:
    assert lines(cluster_sheets(seen(card())))[2:] == [
        "Shares kept for pods that are gone, until their nodes confirm it:",
        "NODE   GPU   POD    SHARE",
        "n1     1     ns/p   33.34% 8192 MiB",
    ]
    assert "ns/p   33.34% 8192 MiB (kept: its pod is gone)" in lines(node_sheets(seen(card())))[3]


def test_wide_tells_identities() -> None:
    told = "\n".join(lines(node_sheets(seen(card(), TENANT), wide=True)))
    assert all(word in told for word in ("UUID", "GPU-1", "GROUP", "RESERVATION", "gpu-reservation-g-n1"))
    told = "\n".join(lines(pod_sheets(seen(card(), TENANT), wide=True)))
    assert all(word in told for word in ("GPU-1", "gpu-reservation-g-n1", "PODGROUP"))


def test_a_pod_is_a_line_with_what_it_asked_and_got() -> None:
    waits, runs = pod("r", gpus=1), pod("w", gpus=2, bound_to="n1", phase="Running")
    assert lines(pod_sheets(seen(card(), TENANT, waits, runs))) == [
        "POD    PHASE     NODE   DIALECT   ASKS                        GOT                         WHY",
        f"ns/r   Pending   -      plugin    main: a whole GPU           -{'nobody has looked at it yet':>54}",
        "ns/t   Pending   n1     kai       main: 50% of a GPU          33.34% of GPU 1, 8192 MiB   starting",
        "ns/w   Running   n1     plugin    main: 2 times a whole GPU   2 whole                     -",
    ]


def test_a_pod_whose_words_can_not_be_read_says_so() -> None:
    (_, told) = lines(pod_sheets(seen(pod("r", fraction="2"))))
    assert told.startswith("ns/r   Pending   -      ?         refused: ")
    assert "gpu-fraction" in told
