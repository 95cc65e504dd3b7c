from __future__ import annotations

from typing import Any

import pytest

from scheduler.core.model.plan import Explain
from scheduler.core.model.settings import Settings
from scheduler.core.model.verdict import Code, Verdict
from tests.scheduler.core.objects import NANO, bound, cluster, node, pod, reservation
from wire import names

HALF = NANO // 2
#: A tenant whose reservation was made anew, and got another device.
LOST = [reservation("g", "a", book={"uid-t": HALF}, uuid="GPU-2"), bound(pod("t"), "a", ("g", HALF), uuid="GPU-1")]


def _verdict(*objects: Any, settings: Settings | None = None) -> Verdict:
    entry = cluster(*objects, settings=settings).decide(0).entries[-1]
    assert isinstance(entry, Explain)
    assert entry.verdict.code is Code.NO_NODE_FITS
    return entry.verdict


def _reasons(*objects: Any) -> dict[str, int]:
    reasons = _verdict(*objects).node_reasons
    return {f"{reason.kind}/{reason.resource}" if reason.resource else reason.kind: reason.nodes for reason in reasons}


def test_each_node_out_of_question_counts_once_by_its_first_reason() -> None:
    assert _reasons(
        node("a", ready=False, cordoned=True),
        node("b", cordoned=True),
        node("c", taints=[("k", "", "NoSchedule")]),
        node("d", taints=[("k", "", "NoExecute")]),
        node("e", labels={"zone": "z"}),
        node("f", 0, labels={"zone": "y"}),
        pod(gpus=1, spec={"nodeSelector": {"zone": "y"}}),
    ) == {"not-ready": 1, "cordoned": 1, "taint": 2, "selector": 1, "insufficient/nvidia.com/gpu": 1}


def test_a_node_counts_for_each_thing_it_lacks() -> None:
    asked = pod(gpus=9, cpu="65", memory="1Ti", spec={})
    assert _reasons(node("a"), node("b", cpu="100"), asked) == {
        "insufficient/cpu": 1,
        "insufficient/memory": 2,
        "insufficient/nvidia.com/gpu": 2,
    }


@pytest.mark.parametrize(
    ("objects", "asked", "reasons", "shortfall"),
    [
        ([node("a", 4), node("b", 2)], {"gpus": 6}, {"insufficient/nvidia.com/gpu": 2}, ("gpu", 2)),
        ([node("a", cpu="2"), node("b", cpu="3")], {"cpu": "4"}, {"insufficient/cpu": 2}, ("cpu_milli", 1000)),
        ([node("a", memory="1Gi")], {"memory": "1537Mi"}, {"insufficient/memory": 1}, ("mem_mib", 513)),
        # The node that lacks one thing only says what would help; GPUs before CPU.
        (
            [node("a", 4, cpu="1"), node("b", 3, cpu="8"), node("c", 8, cpu="2")],
            {"gpus": 4, "cpu": "4"},
            {"insufficient/cpu": 2, "insufficient/nvidia.com/gpu": 1},
            ("gpu", 1),
        ),
        (
            [node("a", 1, cpu="1")],
            {"gpus": 2, "cpu": "2"},
            {"insufficient/cpu": 1, "insufficient/nvidia.com/gpu": 1},
            None,
        ),
        (
            [node("a", 1), reservation("g", "a", book={"x": 600_000_000})],
            {"fraction": "0.5"},
            {"insufficient/gpu-share": 1},
            ("nano_gpu", 100_000_000),
        ),
        ([node("a", 0)], {"fraction": "0.5"}, {"insufficient/gpu-share": 1}, ("nano_gpu", HALF)),
        ([node("a", 2)], {"fraction": "0.5", "devices": 3}, {"insufficient/gpu-share": 1}, ("nano_gpu", HALF)),
        # Of several devices all that is missing counts: one has half left, another is taken whole.
        (
            [node("a", 2), reservation("g", "a", book={"x": 600_000_000}), bound(pod("t", gpus=1), "a")],
            {"fraction": "0.5", "devices": 2},
            {"insufficient/gpu-share": 1},
            ("nano_gpu", 600_000_000),
        ),
        (
            [node("a", 2), reservation("g", "a", book={"x": 600_000_000})],
            {"fraction": "0.5", "devices": 2},
            {"insufficient/gpu-share": 1},
            ("nano_gpu", 100_000_000),
        ),
        (
            [node("a", 2, mem_mib=40000), reservation("g", "a", book={"x": HALF})],
            {"mem": 30000, "devices": 3},
            {"insufficient/gpu-memory": 1},
            ("gpu_mem_mib", 40000),
        ),
        (
            [node("a", 2, mem_mib=40000)],
            {"mem": 2**63, "devices": 256},
            {"insufficient/gpu-memory": 1},
            ("gpu_mem_mib", 2**60),
        ),
        (
            [node("a", 1, mem_mib=40000), reservation("g", "a", book={"x": HALF})],
            {"mem": 30000},
            {"insufficient/gpu-memory": 1},
            ("gpu_mem_mib", 10000),
        ),
        ([node("a", 1, mem_mib=40000)], {"mem": 40001}, {"insufficient/gpu-memory": 1}, ("gpu_mem_mib", 40001)),
        ([node("a", 1)], {"mem": 100}, {"no-gpu-memory-label": 1}, None),
        ([node("a", 8, pods=0)], {"cpu": "1"}, {"pods": 1}, ("pods", 1)),
        ([node("a", 8, pods=1)], {"fraction": "0.5"}, {"pods": 1}, ("pods", 1)),
        ([node("a", labels={names.NODE_MIG_STRATEGY: "single"})], {"fraction": "0.5"}, {"mig": 1}, None),
        ([], {"gpus": 1}, {}, None),
        # A pod uses GPU-1, which its reservation lost: neither that nor what it holds now is anybody's to have.
        ([node("a", 2), *LOST], {"gpus": 1}, {"contended": 1, "insufficient/nvidia.com/gpu": 1}, ("gpu", 1)),
        ([node("a", 2), *LOST], {"fraction": "0.5"}, {"contended": 1, "insufficient/gpu-share": 1}, ("nano_gpu", HALF)),
        ([node("a", 3), *LOST], {"gpus": 2}, {"contended": 1, "insufficient/nvidia.com/gpu": 1}, ("gpu", 1)),
        (
            [node("a", 1), reservation("g", "a", book={"x": HALF}, is_ill=True)],
            {"fraction": "0.5"},
            {"ill": 1, "insufficient/gpu-share": 1},
            ("nano_gpu", HALF),
        ),
        (
            [node("a", 2), *LOST, reservation("h", "a", uuid="GPU-1")],
            {"fraction": "0.5"},
            {"contended": 1, "insufficient/gpu-share": 1},
            ("nano_gpu", HALF),
        ),
    ],
)
def test_the_verdict_says_what_is_missing_and_how_much_would_help(
    objects: list[Any], asked: dict[str, Any], reasons: dict[str, int], shortfall: tuple[str, int] | None
) -> None:
    assert _reasons(*objects, pod(**asked)) == reasons
    assert _verdict(*objects, pod(**asked)).shortfall == shortfall


def test_a_resource_that_no_node_has_is_named() -> None:
    asked = pod(spec={"containers": [{"name": "c", "resources": {"limits": {"example.com/nic": 2}}}]})
    verdict = _verdict(node("a"), node("b"), asked)
    assert [(r.kind, r.resource, r.nodes) for r in verdict.node_reasons] == [("insufficient", "example.com/nic", 2)]
    assert verdict.shortfall == ("example.com/nic", 2)


def test_a_resource_that_some_nodes_have_counts_those_that_lack_it() -> None:
    asked = pod(spec={"containers": [{"name": "c", "resources": {"limits": {"example.com/nic": 2}}}]})
    verdict = _verdict(node("a", extended={"example.com/nic": 1}), node("b"), asked)
    assert [(r.kind, r.resource, r.nodes) for r in verdict.node_reasons] == [("insufficient", "example.com/nic", 2)]
    assert verdict.shortfall == ("example.com/nic", 1)


def test_requests_of_the_reservation_that_would_be_needed_are_named() -> None:
    verdict = _verdict(
        node("a", cpu="1"), pod(fraction="0.5", cpu="750m"), settings=Settings(reservation_cpu_milli=500)
    )
    assert [(r.kind, r.resource) for r in verdict.node_reasons] == [("insufficient", "cpu")]
    assert verdict.shortfall == ("cpu_milli", 250)


def test_a_node_on_probation_does_not_have_what_a_silent_reservation_holds() -> None:
    held = reservation("g", "a", book={"uid-t": HALF}, uuid="")
    made = cluster(node("a", 1), held, bound(pod("t"), "a", ("g", HALF), uuid="GPU-1"), pod(fraction="0.5"))
    made.commits.probation.fail("a")
    entry = made.decide(0).entries[-1]
    assert isinstance(entry, Explain)
    assert [(r.kind, r.resource) for r in entry.verdict.node_reasons] == [("insufficient", "gpu-share"), ("silent", "")]


def test_all_pods_that_wait_for_the_same_reason_are_told_at_once() -> None:
    made = cluster(node("a", 0), *(pod(f"p{i}", gpus=1) for i in range(3)), pod("q", gpus=2))
    explained = [entry for entry in made.decide(0).entries if isinstance(entry, Explain)]
    assert [entry.pods for entry in explained] == [("uid-p0", "uid-p1", "uid-p2"), ("uid-q",)]


def test_equal_verdicts_are_equal_values() -> None:
    assert _verdict(node("a", 0), pod(gpus=1)) == _verdict(node("a", 0), pod(gpus=1))
