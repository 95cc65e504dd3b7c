"""What nodes have and report: memory of cards, replicas, use, and what pods need at one time."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu import bind_request
from gpu.bind_request import Foreign, Handover, Order, PlannedDevice
from gpu.node_resources import cards_mib, integer, multiplied, slices_are
from gpu.node_use import Agent, NodeUse, State, TenantUse, agents, idle_nano_seconds, is_idle, node_use
from gpu.request import effective
from gpu.share import NANO_PER_DEVICE
from wire import names
from wire.core import Condition, ObjectMeta, Pod, PodSpec, PodStatus
from wire.crds.bindrequest import BindRequest
from wire.crds.gpunode import AgentStatus, GpuNode, GpuNodeStatus, Missing, TenantStatus

# What a node says of its cards, in our annotation or NVIDIA's label.

MOST = 16 * 1024 * 1024
BYTES = 1024 * 1024


@pytest.mark.parametrize(
    ("listed", "labelled", "expected"),
    [
        ("24576", "", (24576, 24576)),
        ("81920, 24576,40960", "", (24576, 81920)),
        # Ours is of each card, NVIDIA's label of one of them.
        ("24576,81920", "15109", (24576, 81920)),
        (f"1,{MOST}", "", (1, MOST)),
        # What can't be read in one place is not half believed.
        ("24576,", "15109", (15109, 15109)),
        ("24576,0", "15109", (15109, 15109)),
        ("24576,-1", "15109", (15109, 15109)),
        (f"24576,{MOST + 1}", "15109", (15109, 15109)),
        ("much", "15109", (15109, 15109)),
        ("", "1", (1, 1)),
        ("", str(MOST), (MOST, MOST)),
        # Above that it was written in bytes.
        ("", str(MOST + 1), (MOST // BYTES, MOST // BYTES)),
        ("", str(15109 * BYTES + 5), (15109, 15109)),
        ("", str(MOST * BYTES), (MOST, MOST)),
        ("", str((MOST + 1) * BYTES), (0, 0)),
        ("", "0", (0, 0)),
        ("", "-5", (0, 0)),
        ("", "much", (0, 0)),
        ("", "", (0, 0)),
    ],
)
def test_the_smallest_and_the_largest_card_are_told(listed: str, labelled: str, expected: tuple[int, int]) -> None:
    annotations = {names.NODE_CARDS: listed} if listed else {}
    labels = {names.NODE_GPU_MEMORY: labelled} if labelled else {}
    assert cards_mib(labels, annotations) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("7", 7),
        ("-7", -7),
        ("007", 7),
        ("9" * 18, 10**18 - 1),
        ("9" * 19, 0),
        ("", 0),
        ("-", 0),
        ("--7", 0),
        ("+7", 0),
        ("7.0", 0),
        (" 7", 0),
        ("\u0667", 0),
        ("\u00b2", 0),
    ],
)
def test_an_integer_is_read_as_people_write_it(text: str, expected: int) -> None:
    assert integer(text) == expected


COUNT = "nvidia.com/gpu.count"
REPLICAS = "nvidia.com/gpu.replicas"
STRATEGY = "nvidia.com/gpu.sharing-strategy"
REGISTER = "hami.io/node-nvidia-register"
TWO_CARDS = "GPU-03f6,10,32768,100,NVIDIA-A100,0,true:GPU-7a1c,10,32768,100,NVIDIA-A100,0,true:"
TWO_CARDS_NEWER = '[{"id":"GPU-03f6","count":10,"devmem":32768},{"id":"GPU-7a1c","count":10,"devmem":32768}]'


@pytest.mark.parametrize(
    ("labels", "annotations", "offered", "expected"),
    [
        ({}, {}, 8, ""),
        ({COUNT: "8", REPLICAS: "1", STRATEGY: "none"}, {}, 8, ""),
        ({COUNT: "8"}, {}, 7, ""),
        ({COUNT: "2", REPLICAS: "4", STRATEGY: "time-slicing"}, {}, 8, f"8 nvidia.com/gpu of 2 by label {COUNT}"),
        ({COUNT: "2"}, {}, 3, f"3 nvidia.com/gpu of 2 by label {COUNT}"),
        # Labels of a plugin that has gone, which nobody took off.
        ({COUNT: "2", REPLICAS: "4", STRATEGY: "mps"}, {}, 2, ""),
        # Replicas under another name, and none under the vendor's own.
        ({COUNT: "2", REPLICAS: "4", STRATEGY: "time-slicing"}, {}, 0, ""),
        # Without a number of cards.
        ({REPLICAS: "2"}, {}, 8, f"label {REPLICAS}=2"),
        ({REPLICAS: "1", STRATEGY: "mps"}, {}, 8, ""),
        ({STRATEGY: "mps"}, {}, 8, f"label {STRATEGY}=mps"),
        ({STRATEGY: "none"}, {}, 8, ""),
        ({COUNT: "many", REPLICAS: "4"}, {}, 8, f"label {REPLICAS}=4"),
        ({REPLICAS: "-2"}, {}, 8, ""),
        ({REPLICAS: "999999999"}, {}, 8, f"label {REPLICAS}=999999999"),
        ({REPLICAS: "1000000000"}, {}, 8, ""),
        # HAMi, in both of its formats; left behind when NVIDIA's plugin is back.
        ({}, {REGISTER: TWO_CARDS}, 20, f"20 nvidia.com/gpu of 2 by annotation {REGISTER}"),
        ({}, {REGISTER: TWO_CARDS_NEWER}, 20, f"20 nvidia.com/gpu of 2 by annotation {REGISTER}"),
        ({}, {REGISTER: TWO_CARDS}, 2, ""),
        ({}, {REGISTER: "nothing that can be read"}, 20, ""),
        ({COUNT: "2"}, {REGISTER: "GPU-03f6"}, 2, ""),
        # Slices of MIG are refused for another reason.
        ({COUNT: "1", "nvidia.com/mig.strategy": "single"}, {}, 7, ""),
    ],
)
def test_a_node_whose_gpus_are_offered_several_times_is_known(
    labels: dict[str, str], annotations: dict[str, str], offered: int, expected: str
) -> None:
    assert multiplied(labels, annotations, offered) == expected


@pytest.mark.parametrize(("text", "are"), [("2", True), ("1", False), ("0", False), ("", False), ("many", False)])
def test_slices_that_are_offered_several_times_are_known_by_their_own_label(text: str, are: bool) -> None:
    resource = "nvidia.com/mig-1g.10gb"
    assert slices_are({f"{resource}.replicas": text} if text else {}, resource) is are
    assert not slices_are({f"{resource}.replicas": text}, "nvidia.com/mig-3g.40gb")


THEN, LATER = "2026-01-01T00:00:00Z", "2026-01-01T03:00:00Z"
BUSY = TenantStatus(pod_uid="u1", pod="team/a", card="GPU-a", memory_percent=50, sm_percent=40, enforced="kill")
IDLE = TenantStatus(pod_uid="u2", pod="team/b", card="GPU-a", memory_percent=0, sm_percent=0, idle_since=THEN)
UNMEASURED = TenantStatus(pod_uid="u1", pod="team/a", card="GPU-a")


def report(*tenants: TenantStatus, agent: AgentStatus | None = None, at: str | None = LATER) -> GpuNode:
    status = GpuNodeStatus(tenants=list(tenants) or None, agent=agent or AgentStatus(), reported_at=at)
    return GpuNode(metadata=ObjectMeta(name="node-a"), status=status)


def agent(node: str = "node-a", ready: str = "True", since: str | None = THEN, **where: Any) -> Pod:
    place = {"namespace": names.NODE_NAMESPACE, "account": names.NODE_AGENT_SERVICE_ACCOUNT, **where}
    return Pod(
        metadata=ObjectMeta(name="x", namespace=place["namespace"]),
        spec=PodSpec(node_name=node, service_account_name=place["account"]),
        status=PodStatus(conditions=[Condition(type="Ready", status=ready, last_transition_time=since)]),
    )


def test_a_report_is_current_while_the_agent_of_its_node_is_ready() -> None:
    seen = node_use(report(BUSY, IDLE, agent=AgentStatus(back_ends=["kill"])), agents([agent()]))
    assert seen == NodeUse(
        State.CURRENT,
        {("u1", "GPU-a"): TenantUse(50, 40, "", "kill"), ("u2", "GPU-a"): TenantUse(0, 0, THEN, "")},
        has_limits=True,
    )
    assert [one.strength for one in seen.tenants.values()] == ["after", ""]
    assert [is_idle(seen, one) for one in seen.tenants.values()] == [False, True]


@pytest.mark.parametrize(
    ("pods", "since"),
    [
        # The report was written LATER, which says nothing about when the agent ended.
        ([], ""),
        ([agent("node-b")], ""),
        ([agent(ready="False")], THEN),
        ([agent(ready="Unknown", since=None)], ""),
        ([Pod(metadata=agent().metadata, spec=agent().spec)], ""),
        # Pods that anybody could make, or of another component.
        ([agent(namespace="team")], ""),
        ([agent(account="default")], ""),
    ],
    ids=["none", "elsewhere", "not ready", "unknown", "no condition", "a user's", "a memory enforcer"],
)
def test_without_a_ready_agent_nothing_of_a_report_is_taken_for_current(pods: list[Pod], since: str) -> None:
    assert node_use(report(BUSY, IDLE), agents(pods)) == NodeUse(State.STALE, since=since, written_at=LATER)
    assert node_use(report(BUSY, at=None), {}) == NodeUse(State.STALE)
    capped = node_use(report(BUSY, agent=AgentStatus(back_ends=["kill"])), agents(pods))
    assert capped == NodeUse(State.STALE, since=since, written_at=LATER, has_limits=True)


def test_of_several_agents_of_a_node_a_ready_one_counts() -> None:
    ready, ended = agent(), agent(ready="False", since=LATER)
    assert agents([ready, ended]) == agents([ended, ready]) == {"node-a": Agent(is_ready=True, since=THEN)}


def test_who_may_not_read_agents_can_not_say_whether_a_report_is_current() -> None:
    seen = node_use(report(IDLE), None)
    assert seen.state is State.UNSURE
    assert [is_idle(seen, one) for one in seen.tenants.values()] == [True]


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (AgentStatus(), "the node has no memory enforcer, which measures use"),
        (
            AgentStatus(missing=[Missing(what="devices", why="x")]),
            "the node has no memory enforcer, which measures use",
        ),
        (
            AgentStatus(missing=[Missing(what="memory caps", why="no memory enforcer: gone")]),
            "no memory enforcer: gone",
        ),
        (AgentStatus(missing=[Missing(what="memory caps")]), "the memory enforcer of the node has not reported"),
        (AgentStatus(back_ends=["kill"]), "the driver does not report it, or the memory enforcer has not reported yet"),
        (AgentStatus(missing=[Missing(what="memory caps by hami-core", why="no library")]), "no library"),
        (AgentStatus(back_ends=["hami-core"]), "the node has no memory enforcer, which measures use"),
    ],
)
def test_a_report_without_numbers_says_why(status: AgentStatus, why: str) -> None:
    known = {"node-a": Agent(is_ready=True)}
    seen = node_use(report(UNMEASURED, agent=status), known)
    assert (seen.why, seen.has_limits or seen.why_no_limit == why) == (why, True)
    assert node_use(report(UNMEASURED, BUSY, agent=status), known).why == ""
    assert node_use(report(agent=status), known).why == ""
    slow = TenantStatus(pod_uid="u1", pod="team/a", card="GPU-a", sm_percent=5)
    assert node_use(report(slow, agent=status), known).why == ""


def test_what_an_agent_says_is_cut() -> None:
    long = AgentStatus(missing=[Missing(what="memory caps", why="x" * 1_000_000)])
    seen = node_use(report(UNMEASURED, agent=long), {"node-a": Agent(is_ready=True)})
    assert (len(seen.why), len(seen.why_no_limit)) == (300, 300)


def test_words_that_nobody_knows_are_no_limit_and_no_time() -> None:
    odd = TenantStatus(pod_uid="u", card="c", memory_percent=5, idle_since="yesterday", enforced="magic")
    (one,) = node_use(report(odd), None).tenants.values()
    assert (one.idle_since, one.enforced, one.strength) == ("", "", "")


def test_idle_shares_are_compared_by_what_they_cost() -> None:
    hour_ns = 3_600 * 10**9
    began_ns = 1_767_225_600 * 10**9
    assert idle_nano_seconds(NANO_PER_DEVICE // 2, THEN, began_ns + hour_ns) == NANO_PER_DEVICE // 2 * 3_600
    assert idle_nano_seconds(NANO_PER_DEVICE, THEN, began_ns - 1) == 0
    assert idle_nano_seconds(NANO_PER_DEVICE, "no time", began_ns) == 0


# Which BindRequests are orders of ours.

HANDED = Handover("10", (PlannedDevice("g", 500_000_000),), "plan", 2)


def _request(meta: dict[str, Any] | None = None, spec: dict[str, Any] | None = None) -> BindRequest:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p"}
    plain = {"name": "p", "namespace": "team", "uid": "attempt-p", "ownerReferences": [owner]}
    annotations = {"annotations": {names.HANDOVER: bind_request.render(HANDED)}}
    said = {"podName": "p", "selectedNode": "node-1", "selectedGPUGroups": ["g"]}
    body = {"metadata": {**plain, **annotations, **(meta or {})}, "spec": {**said, **(spec or {})}}
    return msgspec.convert(body, BindRequest)


def test_a_request_of_ours_is_an_order() -> None:
    assert bind_request.read(_request()) == Order("uid-p", HANDED)


@pytest.mark.parametrize(
    ("meta", "spec", "why"),
    [
        ({"ownerReferences": None}, {}, "it names no pod by UID"),
        ({"ownerReferences": [{"kind": "Job", "uid": "u"}]}, {}, "it names no pod by UID"),
        ({"ownerReferences": [{"kind": "Pod"}]}, {}, "it names no pod by UID"),
        ({"annotations": None}, {}, "the annotation is missing"),
        ({"annotations": {names.HANDOVER: "{}"}}, {}, names.HANDOVER),
        ({}, {"selectedGPUGroups": ["h"]}, "name different groups"),
        ({}, {"selectedNode": ""}, "spec.selectedNode is empty"),
        ({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a.b/c"]}, {}, "it is being deleted"),
        ({}, {"podName": "q"}, "its name is not spec.podName, 'q'"),
    ],
)
def test_an_incomplete_request_is_foreign_and_says_why(meta: dict[str, Any], spec: dict[str, Any], why: str) -> None:
    read = bind_request.read(_request(meta, spec))
    assert isinstance(read, Foreign)
    assert why in read.why


@pytest.mark.parametrize(
    ("regular", "init", "expected"),
    [
        ([], [], 0),
        ([1, 2], [], 3),
        ([1], [(4, False), (2, False)], 4),
        ([3], [(1, False)], 3),
        ([1], [(2, True)], 3),
        ([1], [(2, True), (4, False)], 6),
        ([1], [(4, False), (2, True)], 4),
        ([5], [(2, True), (4, False), (1, True)], 8),
        ([0], [(1, True), (1, True)], 2),
    ],
)
def test_a_pod_needs_what_runs_at_once(regular: list[int], init: list[tuple[int, bool]], expected: int) -> None:
    assert effective(regular, init) == expected


@given(st.lists(st.integers(0, 9), max_size=5), st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=6))
def test_it_is_the_largest_moment_of_the_start(regular: list[int], init: list[tuple[int, bool]]) -> None:
    moments = [
        sum(amount for amount, is_sidecar in init[:step] if is_sidecar) + init[step][0] for step in range(len(init))
    ]
    steady = sum(amount for amount, is_sidecar in init if is_sidecar) + sum(regular)
    assert effective(regular, init) == max([*moments, steady])
