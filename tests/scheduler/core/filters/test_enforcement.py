"""What pods wish of nodes, and which nodes will do where it has to be enforced (docs/enforcement.md)."""

from __future__ import annotations

from typing import Any

import pytest

from gpu.request import MemoryAsk
from gpu.translation import Wishes
from scheduler.conditions import messages
from scheduler.core.model.plan import Alone
from scheduler.core.model.settings import Settings
from scheduler.core.model.verdict import Code, NodeReason, Verdict
from tests.scheduler.core.decided import decided
from tests.scheduler.core.filters.judging import reason
from tests.scheduler.core.model.test_records import said
from tests.scheduler.core.objects import cluster, feed, node, pod, recorded
from wire import names
from wire.core import Node, Pod

CAPS = Wishes(memory_cap=True, compute_cap=True)
INSISTS = {names.REQUIRE_ENFORCEMENT: "true"}


def _node(name: str, enforces: str | None) -> Node:
    return node(name, mem_mib=40000, annotations={} if enforces is None else {names.NODE_ENFORCES: enforces})


def _pod(wishes: Wishes, annotations: dict[str, str] | None = None) -> Pod:
    return recorded(said((MemoryAsk(5120),), wishes=wishes), annotations=annotations or {})


def _decided(*objects: Any, settings: Settings | None = None) -> tuple[str, Verdict | None]:
    placed, explained = decided(*objects, settings=settings)
    verdict = explained[0].verdict if explained else None
    return next((placement.node for placement in placed.values()), ""), verdict


@pytest.mark.parametrize(
    ("enforces", "wishes", "expected"),
    [
        pytest.param((None, "memory-cap,compute-cap"), CAPS, "n2", id="the one that can"),
        pytest.param((None, "memory-cap"), CAPS, "", id="half of it is not enough"),
        pytest.param((None, "compute-cap,mps,memory-cap"), CAPS, "n2", id="it may do more"),
        pytest.param((None, None), Wishes(), "n1", id="nothing wished"),
        pytest.param((None, None), Wishes(mode="time-slicing"), "n1", id="what every node does"),
        pytest.param((None, "mps"), Wishes(mode="mps"), "n2", id="a mode"),
        pytest.param((None, "mps"), Wishes(mode="hami-core"), "", id="another mode"),
        pytest.param((None, "memory-cap=hami-core,compute-cap"), CAPS, "n2", id="the agent's back end"),
    ],
)
@pytest.mark.parametrize("is_said_by_the_pod", [True, False])
def test_a_pod_that_insists_goes_only_where_all_it_wishes_is_enforced(
    enforces: tuple[str | None, str | None], wishes: Wishes, expected: str, *, is_said_by_the_pod: bool
) -> None:
    nodes = [_node(f"n{number}", said) for number, said in enumerate(enforces, 1)]
    annotations = INSISTS if is_said_by_the_pod else {}
    settings = Settings(require_enforcement=not is_said_by_the_pod)
    place, _ = _decided(*nodes, _pod(wishes, annotations), settings=settings)
    assert place == expected


@pytest.mark.parametrize(
    ("asks", "expected"),
    [
        ((MemoryAsk(5120),), "n1"),
        ((MemoryAsk(5120), MemoryAsk(5120)), "n1"),
        ((MemoryAsk(5120), MemoryAsk(1024)), "n2"),
    ],
)
def test_a_pod_that_the_agents_back_end_does_not_serve_goes_elsewhere(
    asks: tuple[MemoryAsk, ...], expected: str
) -> None:
    nodes = [_node("n1", "memory-cap=hami-core"), _node("n2", "memory-cap" if expected == "n2" else None)]
    served = recorded(said(asks, wishes=Wishes(memory_cap=True)), annotations=INSISTS)
    assert _decided(*nodes, served)[0] == expected


@pytest.mark.parametrize(
    ("enforces", "wishes", "expected"),
    [
        pytest.param(("memory-cap,compute-cap", "memory-cap/hard,compute-cap/hard"), CAPS, "n2", id="both are hard"),
        pytest.param(("memory-cap/hard,compute-cap/soft",), CAPS, "", id="one is not"),
        pytest.param(("memory-cap/after", "memory-cap=driver"), Wishes(memory_cap=True), "", id="the pod reads no cap"),
        pytest.param(("memory-cap", "memory-cap/hard"), Wishes(memory_cap=True), "n2", id="of unknown strength"),
        pytest.param((None, "mps"), Wishes(mode="mps"), "n2", id="a mode has no strength"),
        pytest.param((None,), Wishes(), "n1", id="nothing wished"),
    ],
)
def test_a_pod_that_insists_on_hard_caps_goes_where_they_are_hard(
    enforces: tuple[str | None, ...], wishes: Wishes, expected: str
) -> None:
    nodes = [_node(f"n{number}", said) for number, said in enumerate(enforces, 1)]
    annotations = {names.REQUIRE_ENFORCEMENT: "hard"}
    assert _decided(*nodes, _pod(wishes, annotations))[0] == expected
    # The setting for all pods asks for less, and takes nothing from what the pod says.
    assert _decided(*nodes, _pod(wishes, annotations), settings=Settings(require_enforcement=True))[0] == expected


def test_a_hard_cap_will_do_where_any_is_required() -> None:
    assert _decided(_node("n1", "memory-cap/hard,compute-cap/after"), _pod(CAPS, INSISTS))[0] == "n1"


@pytest.mark.parametrize(
    ("wishes", "expected"),
    [
        pytest.param(CAPS, "n3", id="the first that enforces all of it"),
        pytest.param(Wishes(memory_cap=True), "n2", id="less is wished"),
        pytest.param(Wishes(mode="mps"), "n1", id="nobody enforces it"),
        pytest.param(Wishes(), "n1", id="nothing wished"),
    ],
)
def test_of_equal_nodes_a_pod_that_does_not_insist_gets_one_that_enforces(wishes: Wishes, expected: str) -> None:
    caps = "memory-cap,compute-cap"
    nodes = [_node("n1", None), _node("n2", "memory-cap"), _node("n3", caps), _node("n4", caps)]
    assert _decided(*nodes, _pod(wishes))[0] == expected


def test_a_node_that_ranks_better_comes_before_one_that_enforces() -> None:
    busy = pod("busy", gpus=1, bound_to="n1")
    place, _ = _decided(_node("n1", None), _node("n2", "memory-cap,compute-cap"), busy, _pod(CAPS))
    assert place == "n1"


def test_a_pod_that_waits_for_such_a_node_says_so() -> None:
    _, verdict = _decided(_node("n1", None), _node("n2", "mps"), _pod(CAPS, INSISTS))
    assert verdict is not None
    assert verdict.node_reasons == (NodeReason("enforcement", "", 2),)
    assert "2 node(s) do not enforce the GPU limits" in messages.told(verdict).message


def test_a_node_that_learns_to_enforce_takes_the_pod() -> None:
    made = cluster(_node("n1", None), _pod(CAPS, INSISTS))
    assert not [entry for entry in made.decide(0).entries if isinstance(entry, Alone)]
    feed(made, _node("n1", "memory-cap,compute-cap"))
    assert [entry.placement.node for entry in made.decide(0).entries if isinstance(entry, Alone)] == ["n1"]


def test_an_annotation_that_can_not_be_read_keeps_the_pod_waiting_and_is_named() -> None:
    place, verdict = _decided(_node("n1", None), _pod(CAPS, {names.REQUIRE_ENFORCEMENT: "yes"}))
    assert place == ""
    assert verdict is not None
    assert verdict.code is Code.INVALID_REQUEST
    assert f'{names.REQUIRE_ENFORCEMENT} is "yes"; allowed: true, hard or false' in verdict.detail


def test_a_pod_without_wishes_may_insist() -> None:
    assert _decided(_node("n1", None), pod(fraction="0.5", annotations=INSISTS))[0] == "n1"


# Pods whose containers read a cap for the driver go only to nodes with such caps, whether they insist or not.

PATH = "metadata.annotations['env.moorage.dev/c0.NVIDIA_GPU_MEMORY_LIMIT']"
READS = {
    "containers": [
        {"name": "m", "env": [{"name": names.ENV_MEMORY_LIMIT, "valueFrom": {"fieldRef": {"fieldPath": PATH}}}]}
    ]
}


@pytest.mark.parametrize(
    ("spec", "enforces", "expected"),
    [
        (READS, "memory-cap=driver", ""),
        (READS, "mps, memory-cap=driver", ""),
        (READS, "memory-cap", "driver-caps"),
        (READS, "memory-cap=drivers", "driver-caps"),
        (READS, "", "driver-caps"),
        ({}, "", ""),
    ],
)
def test_a_node_has_to_say_that_its_driver_caps(spec: dict[str, Any], enforces: str, expected: str) -> None:
    assert reason(spec, annotations={names.NODE_ENFORCES: enforces}) == expected
