from __future__ import annotations

from typing import Any

import pytest

from gpu.node_use import Agent, NodeUse, State, TenantUse, agents, idle_nano_seconds, is_idle, node_use
from gpu.share import NANO_PER_DEVICE
from wire import names
from wire.core import Condition, ObjectMeta, Pod, PodSpec, PodStatus
from wire.crds.gpunode import AgentStatus, GpuNode, GpuNodeStatus, Missing, TenantStatus

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
        {
            ("u1", "GPU-a"): TenantUse(50, 40, "", "kill"),
            ("u2", "GPU-a"): TenantUse(0, 0, THEN, ""),
        },
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
    ids=["none", "elsewhere", "not ready", "unknown", "no condition", "a user's", "a warden"],
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
        (AgentStatus(), "the agent works without a warden, which measures use"),
        (
            AgentStatus(missing=[Missing(what="devices", why="x")]),
            "the agent works without a warden, which measures use",
        ),
        (AgentStatus(missing=[Missing(what="memory caps", why="no warden: gone")]), "no warden: gone"),
        (AgentStatus(missing=[Missing(what="memory caps")]), "the warden of the node has not reported"),
        (AgentStatus(back_ends=["kill"]), "the driver does not report it, or the warden has not reported yet"),
        (AgentStatus(missing=[Missing(what="memory caps by hami-core", why="no library")]), "no library"),
        (AgentStatus(back_ends=["hami-core"]), "the agent works without a warden, which measures use"),
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
