from __future__ import annotations

import pytest

from gpu.node_use import NodeUse, State, TenantUse, Told, caps_condition

CAPS = {"GPU-b": 5_000, "GPU-a": 20_000}
CAP = "20000 MiB on GPU-a and 5000 MiB on GPU-b"


def use(a: str = "kill", b: str = "kill") -> NodeUse:
    tenants = {("u", "GPU-a"): TenantUse(enforced=a), ("u", "GPU-b"): TenantUse(enforced=b)}
    return NodeUse(State.CURRENT, tenants, has_limits=True)


@pytest.mark.parametrize(
    ("a", "b", "reason", "how"),
    [
        ("kill", "kill", "EnforcedByKilling", "processes above it are ended (strength: after)"),
        ("driver", "driver", "EnforcedByDriver", "the driver refuses what is beyond it (strength: hard)"),
        ("driver", "kill", "EnforcedByKilling", "processes above it are ended (strength: after)"),
        ("mps", "kill", "EnforcedByMPS", "MPS limits each process, and a program can pass it (strength: soft)"),
        (
            "driver", "hami-core", "EnforcedByHamiCore",
            "a preloaded library limits it, and a program can pass it (strength: soft)",
        ),
    ],
)  # fmt: skip
def test_a_cap_that_is_in_place_is_told_with_its_number_and_the_weakest_strength(
    a: str, b: str, reason: str, how: str
) -> None:
    assert caps_condition("n", "u", CAPS, use(a, b)) == Told("True", reason, f"Memory cap of {CAP}: {how}")


def test_one_device_without_a_limit_is_enough_to_say_so() -> None:
    assert caps_condition("n", "u", CAPS, use("kill", "")) == Told(
        "False", "NotInPlace", f"A memory cap of {CAP} is not enforced now: the agent reports no limit"
    )
    told = caps_condition("n", "u", CAPS, use("kill", ""), lacks="a compute cap of 30%")
    assert told is not None
    assert told.message.endswith("the agent reports no limit. Node n does not enforce a compute cap of 30% either")
    none = NodeUse(State.CURRENT, why_no_limit="no warden: gone")
    assert caps_condition("n", "u", CAPS, none) == Told(
        "False", "NotInPlace", f"A memory cap of {CAP} is not enforced now: no warden: gone", is_correction=True
    )


@pytest.mark.parametrize(
    ("seen", "needs_agent", "may_be_first"),
    [
        (NodeUse(State.STALE, has_limits=True), True, True),
        (NodeUse(State.STALE, has_limits=True), False, False),
        (NodeUse(State.STALE), True, False),
        (NodeUse(State.UNSURE, has_limits=True), True, False),
    ],
)
def test_that_nobody_knows_is_said_first_where_an_agent_has_capped_pods(
    seen: NodeUse, needs_agent: bool, may_be_first: bool
) -> None:
    told = caps_condition("n", "u", CAPS, seen, needs_agent=needs_agent)
    assert told is not None
    assert (told.is_correction, told.may_be_first) == (True, may_be_first)


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (NodeUse(State.STALE, since="T"), "does not work since T"),
        (NodeUse(State.STALE), "does not work"),
        (NodeUse(State.STALE, since="T", written_at="R"), "does not work since T; its last report is of R"),
        (NodeUse(State.UNSURE, use().tenants, has_limits=True), "does not work"),
    ],
)
def test_what_a_dead_agent_said_is_only_taken_back(seen: NodeUse, said: str) -> None:
    assert caps_condition("n", "u", CAPS, seen) == Told(
        "Unknown",
        "AgentNotReady",
        f"Whether a memory cap of {CAP} is enforced is not known: the agent of node n {said}",
        is_correction=True,
    )


def test_a_cap_in_place_does_not_hide_what_else_the_node_can_not_do() -> None:
    told = caps_condition("n", "u", {"GPU-a": 0}, use(), lacks="mode mps")
    assert told == Told(
        "False",
        "NotEnforced",
        "Node n does not enforce mode mps: kept as bookkeeping only. "
        "Memory cap of its share of GPU-a: processes above it are ended (strength: after)",
    )


def test_who_has_no_cap_is_told_nothing() -> None:
    assert caps_condition("n", "u", {}, use()) is None
