"""Verdicts as text, in KAI's words where it has some (kai-contract 4.10, erratum 7)."""

from __future__ import annotations

import pytest

from scheduler.core.model.verdict import Code, NodeReason, Verdict
from scheduler.status import reasons

TEXTS = [
    pytest.param(
        Verdict(
            code=Code.NO_NODE_FITS,
            node_reasons=(
                NodeReason("insufficient", "nvidia.com/gpu", 2),
                NodeReason("insufficient", "cpu", 10),
                NodeReason("not-ready", "", 1),
            ),
        ),
        "no nodes with enough resources were found: 1 node(s) were not ready. \n"
        "10 node(s) didn't have enough resources: CPU cores. \n2 node(s) didn't have enough resources: GPUs.",
        id="counts-sorted-as-strings",
    ),
    pytest.param(
        Verdict(
            code=Code.NO_NODE_FITS,
            node_reasons=(NodeReason("insufficient", "gpu-share", 1),),
            shortfall=("nano_gpu", 250_000_000),
        ),
        "no nodes with enough resources were found: 1 node(s) didn't have enough resources: GPUs. "
        "The best node lacks 0.25 GPU.",
        id="what-would-help",
    ),
    pytest.param(
        Verdict(code=Code.NO_NODE_FITS, node_reasons=(NodeReason("insufficient", "nvidia.com/mig-1g.5gb", 3),)),
        "no nodes with enough resources were found: "
        "3 node(s) didn't have enough of mig profile: nvidia.com/mig-1g.5gb.",
        id="mig",
    ),
    pytest.param(
        Verdict(code=Code.NOT_GROUPED, detail="PyTorchJob"),
        "The pod belongs to a PyTorchJob and names no PodGroup yet: moorage-workloads makes it. If that takes longer, "
        "events PodGrouperWarning of the pod tell why",
        id="not-grouped",
    ),
    pytest.param(
        Verdict(code=Code.NO_NODE_FITS), "no nodes with enough resources were found: there are no nodes.", id="no-nodes"
    ),
    pytest.param(
        Verdict(
            code=Code.GANG_INCOMPLETE,
            placed=7,
            required=8,
            node_reasons=(NodeReason("insufficient", "gpu-share", 4),),
        ),
        "Resources were found for 7 pods while 8 are required for gang scheduling. "
        "no nodes with enough resources were found: 4 node(s) didn't have enough resources: GPUs.",
        id="gang-incomplete",
    ),
    pytest.param(
        Verdict(code=Code.WAITS_FOR_TURN, required=512),
        "The gang needs 512 pods to start and waits for its turn: "
        "large gangs that found no room were tried just before",
        id="waits-for-turn",
    ),
    pytest.param(
        Verdict(code=Code.GANG_NOT_READY, required=3, present=2, gated=1),
        "Job is not ready for scheduling. Waiting for 3 pods, currently 2 exist, 1 are gated",
        id="gang-not-ready",
    ),
    pytest.param(
        Verdict(code=Code.UNSUPPORTED_CONSTRAINT, detail="podAffinity"),
        "UnsupportedConstraint: podAffinity is not supported yet, so the pod is not scheduled",
        id="unsupported",
    ),
    pytest.param(
        Verdict(code=Code.POD_GROUP_NOT_FOUND, detail="team-a/g"),
        "PodGroup team-a/g was not found (annotation pod-group-name)",
        id="no-such-group",
    ),
]


@pytest.mark.parametrize(("verdict", "text"), TEXTS)
def test_a_verdict_reads_as_kai_says_it(verdict: Verdict, text: str) -> None:
    assert reasons.told(verdict).message == text


@pytest.mark.parametrize("code", list(Code))
def test_every_code_has_words_and_a_reason(code: Code) -> None:
    told = reasons.told(Verdict(code=code, detail="something"))
    assert told.message
    assert told.reason in {"Unschedulable", "NotReady"}


def test_a_text_never_grows_beyond_what_a_condition_should_hold() -> None:
    many = tuple(NodeReason("insufficient", f"example.com/resource-{i}", 1) for i in range(500))
    assert len(reasons.told(Verdict(code=Code.NO_NODE_FITS, node_reasons=many)).message) <= 1000
