from __future__ import annotations

import io

import pytest
from rich.console import Console

from simulator.outcome import DeviceOutcome, NodeOutcome, Outcome, PodOutcome, Tenant
from ui import outcomes


def shown(*nodes: NodeOutcome, width: int = 200) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(outcomes.gpu_map(nodes, width=width))
    return out.getvalue()


def device(index: int, *shares: int, reserved: bool = True) -> DeviceOutcome:
    tenants = tuple(Tenant(f"team/pod-{i}", share * 10_000_000) for i, share in enumerate(shares))
    return DeviceOutcome(index=index, uuid=f"GPU-{index}", mem_mib=1000, reserved=reserved, tenants=tenants)


@pytest.mark.parametrize(
    ("drawn", "expected"),
    [
        (device(0, 50, 30), "████████▒▒"),
        (device(0, 100, reserved=False), "██████████"),
        (device(0, reserved=False), "░░░░░░░░░░"),
        (device(0), "▒▒▒▒▒▒▒▒▒▒"),
        (device(0, 1), "█▒▒▒▒▒▒▒▒▒"),
        (device(0, 33, 33, 33), "██████████"),
    ],
)
def test_a_bar_shows_shares_what_is_held_and_what_is_free(drawn: DeviceOutcome, expected: str) -> None:
    assert expected in shown(NodeOutcome("node-0", (drawn,)))


def test_many_tenants_and_many_nodes_are_counted_instead_of_listed() -> None:
    assert "and 3 more" in shown(NodeOutcome("node-0", (device(0, *[10] * 7),)))
    assert "and 6 more nodes" in shown(*[NodeOutcome(f"node-{i}", ()) for i in range(30)])


def test_sixteen_devices_take_two_rows() -> None:
    lines = shown(NodeOutcome("node-0", tuple(device(i, 7, reserved=True) for i in range(16)))).splitlines()
    assert sum("█" in line for line in lines) == 2


@pytest.mark.parametrize(
    ("nano", "text"),
    [(500_000_000, "50%"), (333_000_000, "33.3%"), (1_000_000, "0.1%"), (123_456_789, "12.345%"), (1, "0%")],
)
def test_shares_are_percents(nano: int, text: str) -> None:
    assert outcomes.percent(nano) == text


@pytest.mark.parametrize("count", [1, 4, 8, 16])
def test_at_80_columns_neither_the_nodes_name_nor_a_device_is_lost(count: int) -> None:
    name = "gke-training-cluster-a100-pool-7-0f3c2b1a-x4zq"
    drawn = shown(NodeOutcome(name, tuple(device(i, 70) for i in range(count))), width=80)
    assert all(len(line) <= 80 for line in drawn.splitlines())
    assert drawn.count("███████▒▒▒") == count
    first = "".join(line.split("│")[1].strip() for line in drawn.splitlines() if line.count("│") > 1)
    assert first == name


@pytest.mark.parametrize("width", [80, 100, 140])
def test_long_names_of_tenants_leave_the_nodes_name_its_room(width: int) -> None:
    tenant = Tenant("team/train-worker-of-a-long-name", 1_000_000_000)
    devices = tuple(
        DeviceOutcome(index=i, uuid=f"GPU-{i}", mem_mib=1000, reserved=False, tenants=(tenant,)) for i in range(8)
    )
    drawn = shown(NodeOutcome("node-0", devices), width=width)
    assert "node-0" in drawn
    assert drawn.count("train-worker-… 100%") == 8


def test_invariants_that_held_are_one_line_and_each_is_named_with_details() -> None:
    invariants = {"S1": "held", "S2": "held", "L1": "not judged"}
    outcome = Outcome(pods=(), nodes=(), invariants=invariants, idle=True, ended_at_s=2.0)
    assert outcomes.invariants_line(outcome).plain == "2 invariants held; not judged: L1"
    told = outcomes.invariants_line(outcome, details=True).plain
    assert told == "invariants: S1 held S2 held L1 not judged"


def test_a_violation_is_told() -> None:
    invariants = {"S1": "at 1.000 s: GPU-a carries 1.5", "S2": "held"}
    outcome = Outcome(pods=(), nodes=(), invariants=invariants, idle=True, ended_at_s=2.0)
    assert not outcome.all_held
    assert outcomes.invariants_line(outcome).plain == "invariants: S1 at 1.000 s: GPU-a carries 1.5\n S2 held"


def outcome_of(name: str, reason: str = "", verdict: str = "") -> PodOutcome:
    phase, node = ("Pending", "") if verdict else ("Running", "n")
    return PodOutcome(
        namespace="team", name=name, phase=phase, node=node, devices=(), reason=reason, verdict=verdict, to_bind_s=1.0
    )


def test_only_pods_with_a_reason_are_listed_as_waiting() -> None:
    assert outcomes.waiting_table([outcome_of("p")]) is None


def test_pods_that_wait_for_one_reason_are_counted_in_one_row() -> None:
    """In the order of the first of each; texts that differ in blanks alone are one."""
    gang = [outcome_of(f"gang-{number}", "Unschedulable", f"no  GPUs\n{'':{number}}left") for number in range(12)]
    alone, other = outcome_of("alone", "Unschedulable", "no CPU"), outcome_of("other", "Refused", "no CPU")
    sheet = outcomes.waiting_table([gang[0], alone, outcome_of("runs"), *gang[1:], other])
    assert sheet is not None
    assert [[cell.text for cell in row] for row in sheet.rows] == [
        ["12 pods: team/gang-0, ...", "Unschedulable", "no GPUs left"],
        ["team/alone", "Unschedulable", "no CPU"],
        ["team/other", "Refused", "no CPU"],
    ]
