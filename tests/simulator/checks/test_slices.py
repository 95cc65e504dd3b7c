"""S18: who has a slice when it is destroyed."""

from __future__ import annotations

import pytest

from simulator.checks.checker import PODS
from simulator.nodes.ground_truth import Freed, Held, Record, Started, Stopped
from tests.simulator.made_up import Story, reservation
from wire import names

SLICE, NODE = "MIG-a", "node-0"
HELD = Held(at_s=0, node=NODE, pod_uid="uid-p", devices=(SLICE,))
FREED = Freed(at_s=1, node=NODE, pod_uid="uid-p")
STARTED = Started(
    at_s=1,
    node=NODE,
    pod_uid="uid-p",
    pod="team/p",
    container="main",
    is_init=False,
    restarts=0,
    devices=(SLICE,),
    assigned=(),
)
STOPPED = Stopped(at_s=2, node=NODE, pod_uid="uid-p", container="main")


@pytest.mark.parametrize(
    ("records", "shows_processes", "is_broken"),
    [
        pytest.param((), True, False, id="nobody has it"),
        pytest.param((HELD,), False, True, id="kubelet gave it to a pod"),
        pytest.param((HELD, FREED), True, False, id="kubelet took it back"),
        pytest.param((STARTED,), True, True, id="a process uses it past kubelet"),
        pytest.param((STARTED,), False, False, id="the driver can't know of the process"),
        pytest.param((STARTED, STOPPED), True, False, id="the process has ended"),
        pytest.param((Held(at_s=0, node=NODE, pod_uid="uid-q", devices=("MIG-b",)),), True, False, id="another slice"),
    ],
)
def test_a_slice_goes_only_while_no_pod_has_it(
    records: tuple[Record, ...], shows_processes: bool, is_broken: bool
) -> None:
    checker = Story().checker
    for record in records:
        checker.witnessed(record)
    checker.destroyed(NODE, SLICE, 3.0, shows_processes=shows_processes)
    assert checker.findings.broken("S18") == is_broken


@pytest.mark.parametrize(
    ("device", "book", "is_broken"),
    [(SLICE, {"uid-p": 1}, True), (SLICE, {}, False), ("MIG-b", {"uid-p": 1}, False)],
)
def test_a_slice_goes_only_while_no_book_has_it(device: str, book: dict[str, int], is_broken: bool) -> None:
    checker = Story().checker
    raw = reservation("r", "g", book)
    raw["metadata"]["annotations"][names.RESERVE_FOR_GPU_INDEX] = device
    checker.observed(PODS, "ADDED", raw, 0.0)
    checker.destroyed(NODE, SLICE, 1.0, shows_processes=True)
    assert checker.findings.broken("S18") == is_broken
