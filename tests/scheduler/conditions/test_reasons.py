"""Verdicts as text, in KAI's words where it has some (kai-contract 4.10, erratum 7)."""

from __future__ import annotations

import pytest

from scheduler.conditions import messages
from scheduler.core.model.verdict import (
    Code,
    DomainRoom,
    KeptDevices,
    NodeReason,
    QueueCause,
    ReserveCause,
    SubgroupShort,
    TopologyCause,
    Verdict,
)

_OUT_OF_PLACE = TopologyCause(
    topology="hall", level="rack", owner="ns/g", required=4, best=(DomainRoom("a.r1", 3), DomainRoom("a.r2", 1))
)

TEXTS = [
    pytest.param(
        Verdict(code=Code.TOPOLOGY_NOT_SATISFIED, topology=_OUT_OF_PLACE),
        "topology hall, requirement rack couldn't be satisfied for job <ns/g>: node-group a.r1 can allocate only 3 of "
        "4 required pods, node-group a.r2 can allocate only 1 of 4 required pods",
        id="no-domain",
    ),
    pytest.param(
        Verdict(
            code=Code.TOPOLOGY_SEARCH_CUT,
            topology=TopologyCause(
                topology="hall", level="rack", owner="ns/g", subgroup="w", required=2, best=(DomainRoom("a", 2),)
            ),
        ),
        "topology hall, requirement rack couldn't be satisfied for job <ns/g>, subgroup w: node-group a has room for "
        "2 pods in sum, but they don't fit on its nodes, the search ended before all node-groups were tried",
        id="search-cut",
    ),
    pytest.param(
        Verdict(code=Code.TOPOLOGY_NOT_SATISFIED, topology=TopologyCause(topology="hall", level="rack", owner="ns/g")),
        "topology hall, requirement rack couldn't be satisfied for job <ns/g>: no node has the label of this level",
        id="no-node-has-the-label",
    ),
    pytest.param(
        Verdict(code=Code.TOPOLOGY_NOT_FOUND, detail="hall"),
        "topology hall doesn't exist: create it, or name another in topologyConstraint.topology",
        id="no-topology",
    ),
    pytest.param(
        Verdict(
            code=Code.TOPOLOGY_LEVEL_NOT_FOUND, topology=TopologyCause(topology="hall", level="row", is_required=False)
        ),
        "the topology hall doesn't have a level matching the preferred(row)",
        id="no-level",
    ),
    pytest.param(
        Verdict(code=Code.TOPOLOGY_AMBIGUOUS, topology=TopologyCause(topology="hall, row", level="rack")),
        "several Topologies have level rack, with other levels above it: hall, row. Name one in annotation "
        "kai.scheduler/topology of the workload, or in topologyConstraint.topology",
        id="several-topologies",
    ),
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
        Verdict(
            code=Code.NO_NODE_FITS,
            node_reasons=(NodeReason("insufficient", "hugepages-2Mi", 1),),
            shortfall=("hugepages-2Mi", 2**31 + 1),
        ),
        "no nodes with enough resources were found: 1 node(s) didn't have enough resources: hugepages-2Mi. "
        "The best node lacks 2049 MiB of hugepages-2Mi.",
        id="what-would-help-in-bytes",
    ),
    pytest.param(
        Verdict(code=Code.NO_NODE_FITS, node_reasons=(NodeReason("insufficient", "nvidia.com/mig-1g.5gb", 3),)),
        "no nodes with enough resources were found: "
        "3 node(s) didn't have enough of mig profile: nvidia.com/mig-1g.5gb.",
        id="mig",
    ),
    pytest.param(
        Verdict(code=Code.NOT_GROUPED, detail="PyTorchJob"),
        "The pod belongs to a PyTorchJob and names no PodGroup yet: moorage-podgrouper makes it. If that takes longer, "
        "events PodGrouperWarning of the pod tell why",
        id="not-grouped",
    ),
    pytest.param(
        Verdict(code=Code.NO_POD_GROUP, detail="MPIJob"),
        "The pod belongs to an MPIJob, whose pods start together, but to no PodGroup: create one and name it in "
        "annotation pod-group-name",
        id="no-pod-group",
    ),
    pytest.param(
        Verdict(
            code=Code.NO_NODE_FITS,
            node_reasons=(
                NodeReason("affinity", "", 2),
                NodeReason("insufficient", "gpu-share", 3),
                NodeReason("insufficient", "nvidia.com/gpu", 4),
                NodeReason("selector", "", 1),
            ),
        ),
        "no nodes with enough resources were found: 3 node(s) didn't match Pod's node affinity/selector. \n"
        "4 node(s) didn't have enough resources: GPUs.",
        id="the-same-words",
    ),
    pytest.param(
        Verdict(code=Code.NO_NODE_FITS), "no nodes with enough resources were found: there are no nodes.", id="no-nodes"
    ),
    pytest.param(
        Verdict(
            code=Code.GANG_INCOMPLETE, placed=7, required=8, node_reasons=(NodeReason("insufficient", "gpu-share", 4),)
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
        Verdict(code=Code.WAITS_FOR_VICTIMS, required=3, present=1, detail="n1"),
        "Pods on node n1 are being evicted for it. Waiting for 2 of 3 to end",
        id="waits-for-victims",
    ),
    pytest.param(
        Verdict(code=Code.WAITS_FOR_VICTIMS, required=3, present=3),
        "Pods on several nodes were evicted for it. Waiting for 3 to release their resources",
        id="waits-for-victims-that-was-made",
    ),
    pytest.param(
        Verdict(code=Code.PARTITIONING_UNDER_WAY, detail="n1, n2"),
        "MIG slices are being made for it on n1, n2",
        id="partitioning",
    ),
    pytest.param(
        Verdict(code=Code.NO_GPU_CAN_BE_PARTITIONED, detail="1 nvidia.com/mig-7g.80gb"),
        "No GPU can be cut into 1 nvidia.com/mig-7g.80gb now so that it starts: slices in use are in the way, "
        "GPUs rest after a change, or it can't be on their nodes",
        id="no-gpu-can-be-partitioned",
    ),
    pytest.param(
        Verdict(code=Code.GANG_NOT_READY, required=3, present=2, gated=1),
        "Job is not ready for scheduling. Waiting for 3 pods, currently 2 exist, 1 are gated",
        id="gang-not-ready",
    ),
    pytest.param(
        Verdict(
            code=Code.GANG_INCOMPLETE,
            placed=3,
            required=6,
            subgroup=SubgroupShort("b", 4, 1),
            node_reasons=(NodeReason("insufficient", "gpu-share", 4),),
        ),
        "Resources were found for 3 pods from all sub-groups while sub-group b requires 4 pods for gang scheduling "
        "(room for 1). no nodes with enough resources were found: 4 node(s) didn't have enough resources: GPUs.",
        id="gang-incomplete-in-a-subgroup",
    ),
    pytest.param(
        Verdict(code=Code.GANG_NOT_READY, required=8, present=2, gated=1, subgroup=SubgroupShort("b", 4, 1, 1)),
        "Job is not ready for scheduling. Waiting for 4 pods for SubGroup b, currently 1 exist, 1 are gated.",
        id="subgroup-not-ready",
    ),
    pytest.param(
        Verdict(code=Code.GANG_NOT_READY, required=8, present=2, subgroup=SubgroupShort("b", 4, 1, stray="c")),
        "Job is not ready for scheduling. Waiting for 4 pods for SubGroup b, currently 1 exist, 0 are gated. "
        "A pod names SubGroup c, of which the PodGroup counts no pods.",
        id="subgroup-that-there-is-not",
    ),
    pytest.param(
        Verdict(code=Code.GANG_NOT_READY, subgroup=SubgroupShort("b", 2, 1, is_of_subgroups=True)),
        "Job is not ready for scheduling. Waiting for 2 complete subgroups of SubGroup b, currently 1 are complete.",
        id="subgroups-of-a-subgroup-not-ready",
    ),
    pytest.param(
        Verdict(code=Code.GANG_NOT_READY, subgroup=SubgroupShort("", 2, 0, is_of_subgroups=True)),
        "Job is not ready for scheduling. Waiting for 2 complete subgroups of the PodGroup, currently 0 are complete.",
        id="subgroups-not-ready",
    ),
    pytest.param(
        Verdict(code=Code.GROUP_CYCLE, detail="a"),
        "The PodGroup contradicts itself: the parents of subgroup a form a cycle; allowed: a parent that is not "
        "below it",
        id="subgroup-cycle",
    ),
    pytest.param(
        Verdict(code=Code.GROUP_TWO_MINIMUMS),
        "The PodGroup contradicts itself: it has both minMember and minSubGroup; allowed: one of them",
        id="two-minimums",
    ),
    pytest.param(
        Verdict(code=Code.GROUP_TWO_MINIMUMS, detail="a"),
        "The PodGroup contradicts itself: subgroup a has both minMember and minSubGroup; allowed: one of them",
        id="two-minimums-of-a-subgroup",
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
    pytest.param(
        Verdict(
            code=Code.OVER_LIMIT,
            detail="team",
            queue=QueueCause(at="dept", resource="gpu", most=8 * 10**9, held=7_500_000_000, asked=10**9),
        ),
        "dept quota has reached the allowable limit of GPUs. Limit is 8 GPUs, currently 7.5 GPUs allocated and "
        "workload requested 1 GPUs",
        id="over-limit",
    ),
    pytest.param(
        Verdict(
            code=Code.OVER_QUOTA,
            detail="team",
            queue=QueueCause(at="team", resource="cpu", most=8_000, held=7_500, asked=1_000),
        ),
        "Non-preemptible workload is over quota. Workload requested 1 cores, but team quota is 8 cores, while 7.5 "
        "cores are already allocated for non-preemptible pods. Use a preemptible workload to go over quota.",
        id="over-quota",
    ),
    pytest.param(
        Verdict(
            code=Code.OVER_LIMIT,
            detail="team",
            queue=QueueCause(at="team", resource="memory", most=500_000_000, held=0, asked=500_170_752),
        ),
        "team quota has reached the allowable limit of memory. Limit is 0.5 GB, currently 0 GB allocated and workload "
        "requested 0.500170752 GB",
        id="over-limit-of-memory",
    ),
    pytest.param(
        Verdict(
            code=Code.QUEUE_CLOSED,
            detail="team",
            queue=QueueCause(at="dept", field="resources.gpu.quota", value="-2.0"),
        ),
        "Queue team can't be used: spec.resources.gpu.quota of queue dept is -2.0; allowed: -1 for no limit, or a "
        "number from 0 below 2^60 in its smallest unit",
        id="queue-closed",
    ),
    pytest.param(
        Verdict(
            code=Code.QUEUE_CLOSED,
            detail="team",
            queue=QueueCause(at="dept", field="reclaimMinRuntime", value="5 minutes"),
        ),
        "Queue team can't be used: spec.reclaimMinRuntime of queue dept is 5 minutes; allowed: a duration such as 90s "
        "or 1h30m",
        id="queue-closed-by-a-duration",
    ),
    pytest.param(
        Verdict(code=Code.QUEUE_PARENT_NOT_FOUND, detail="team", queue=QueueCause(at="dept")),
        "Queue team can't be used: queue dept, a parent of it, does not exist",
        id="no-parent",
    ),
    pytest.param(Verdict(code=Code.QUEUE_NOT_FOUND, detail="team"), "Queue team does not exist", id="no-such-queue"),
    pytest.param(
        Verdict(
            code=Code.NO_NODE_FITS,
            node_reasons=(NodeReason("reserve", "", 2), NodeReason("insufficient", "nvidia.com/gpu", 3)),
            reserve=ReserveCause(owner="ns/large", since_s=1_767_268_800),
        ),
        "no nodes with enough resources were found: "
        "2 node(s) are kept for ns/large, which has waited since 2026-01-01T12:00:00Z. \n"
        "3 node(s) didn't have enough resources: GPUs.",
        id="kept-off",
    ),
    pytest.param(
        Verdict(
            code=Code.WAITS_FOR_RESERVED_NODES,
            reserve=ReserveCause(
                owner="ns/large", since_s=1_767_268_800, nodes=tuple(f"n{number}" for number in range(10))
            ),
        ),
        "ns/large has waited since 2026-01-01T12:00:00Z, "
        "so its place is being freed on n0, n1, n2, n3, n4, n5, n6, n7 and 2 more. "
        "It starts when enough of the pods there have ended",
        id="waits-for-reserved-nodes",
    ),
]


@pytest.mark.parametrize(
    ("kind", "text"),
    [("PyTorchJob", "a P"), ("AppWrapper", "an A"), ("MPIJob", "an M"), ("TFJob", "a T"), ("gang (x)", "a g")],
)
def test_a_kind_has_the_article_that_it_is_spoken_with(kind: str, text: str) -> None:
    assert messages.with_article(kind).startswith(text)


@pytest.mark.parametrize(("verdict", "text"), TEXTS)
def test_a_verdict_reads_as_kai_says_it(verdict: Verdict, text: str) -> None:
    assert messages.told(verdict, reader="ns").message == text


@pytest.mark.parametrize("code", list(Code))
def test_every_code_has_words_and_a_reason(code: Code) -> None:
    told = messages.told(Verdict(code=code, detail="something"))
    assert told.message
    assert told.reason in {"Unschedulable", "NotReady"}


def test_a_text_never_grows_beyond_what_a_condition_should_hold() -> None:
    many = tuple(NodeReason("insufficient", f"example.com/resource-{i}", 1) for i in range(500))
    assert len(messages.told(Verdict(code=Code.NO_NODE_FITS, node_reasons=many)).message) <= 1000


@pytest.mark.parametrize(("length", "has_it"), [(10, True), (989, True), (990, False)])
def test_a_sentence_about_what_helps_is_added_where_the_text_stays_short_enough(length: int, has_it: bool) -> None:
    reason, sentence = "x" * length, "It helps..."[:10]
    assert messages.with_help(reason, sentence) == (f"{reason} {sentence}" if has_it else reason)
    assert messages.with_help(reason, "") == reason


def test_devices_that_are_kept_name_the_pods_and_the_nodes() -> None:
    kept = (KeptDevices("a", "ns/old"), KeptDevices("b", "ns/older"))
    verdict = Verdict(code=Code.NO_NODE_FITS, node_reasons=(NodeReason("claim-kept", "", 2),), kept=kept)
    assert messages.told(verdict, reader="ns").message == (
        "no nodes with enough resources were found: 2 node(s) have devices free only when programs of Pods that were "
        "deleted by force must have ended. Devices are kept for pod ns/old on node a, pod ns/older on node b."
    )


def test_what_is_wrong_with_a_selector_is_said() -> None:
    text = "selector 'true ': it may take more than 5,000 microseconds for a device"
    verdict = Verdict(code=Code.NO_NODE_FITS, node_reasons=(NodeReason("claim-selector", "", 2),), selector=text)
    assert messages.told(verdict).message == (
        "no nodes with enough resources were found: 2 node(s) where a selector or a field of a ResourceClaim can't be "
        f"evaluated. On one of them: {text}."
    )


@pytest.mark.parametrize("code", list(Code))
@pytest.mark.parametrize(("reader", "sees"), [("ns", False), ("", False), ("canary", True), (None, True)])
def test_no_object_of_another_namespace_is_named(code: Code, reader: str | None, sees: bool) -> None:
    """Who reads a condition has the rights of its namespace: an attacker takes names and UIDs from there."""
    found = Verdict(
        code=code,
        node_reasons=(NodeReason("reserve", "", 2), NodeReason("claim-kept", "", 1)),
        reserve=ReserveCause(owner="canary/large", since_s=1_767_268_800, queue="b"),
        kept=(KeptDevices("a", "canary/old"), KeptDevices("a", "canary/older"), KeptDevices("b", "ns/own")),
    )
    text = messages.told(found, reader=reader).message
    assert ("canary" in text) is (
        sees and code in {Code.NO_NODE_FITS, Code.GANG_INCOMPLETE, Code.WAITS_FOR_RESERVED_NODES}
    )
    if code is Code.NO_NODE_FITS and not sees:
        assert "2 node(s) are kept for another group of queue b, which has waited since 2026-01-01T12:00:00Z." in text
        own = "ns/own" if reader else "of another namespace"
        assert f"Devices are kept for pod of another namespace on node a, pod {own} on node b." in text
