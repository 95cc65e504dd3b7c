from __future__ import annotations

import msgspec
import pytest

from gpu.node_use import NodeUse, State, TenantUse
from tests.scheduler.core.objects import NANO, bound, node, pod, reservation
from tests.ui.inspect.test_telling import lines
from ui.inspect.survey import Found, survey
from ui.inspect.tables import cluster_sheets, node_sheets, pod_sheets
from ui.inspect.use import use_view
from ui.inspect.values import Inspection, UseView

NOW = "2026-11-27T18:30:00Z"
HALF = NANO // 2
IDLE = TenantUse(5, 0, "2026-11-27T13:05:00Z", "")
BUSY = TenantUse(90, 80, "", "kill")
A = bound(pod("a", fraction="0.5"), "n1", ("g", HALF), uuid="GPU-1")
B = bound(pod("b", namespace="other", fraction="0.5"), "n1", ("g", HALF), uuid="GPU-1")
HELD = reservation("g", uuid="GPU-1", index=0, book={"uid-a": HALF, "uid-b": HALF})
CURRENT = NodeUse(State.CURRENT, {("uid-a", "GPU-1"): IDLE, ("uid-b", "GPU-1"): BUSY})


def seen(use: NodeUse | None = CURRENT, *namespaces: str, has_nodes: bool = True) -> Inspection:
    found = Found(nodes=[node(gpus=1, mem_mib=1024)], pods=[A, B, HELD], are_all_pods=has_nodes)
    made = survey(found, namespaces=namespaces)
    return msgspec.structs.replace(made, use=use_view(made, {} if use is None else {"n1": use}, at=NOW))


def view(made: Inspection) -> UseView:
    assert isinstance(made.use, UseView)
    return made.use


@pytest.mark.parametrize("has_nodes", [True, False])
def test_shares_that_are_shown_have_what_is_reported_of_them(has_nodes: bool) -> None:
    (only,) = view(seen(has_nodes=has_nodes)).nodes
    assert (only.node, only.state) == ("n1", State.CURRENT)
    assert [(t.namespace, t.name, t.nano, t.memory_percent, t.idle_since, t.strength) for t in only.tenants] == [
        ("ns", "a", HALF, 5, "2026-11-27T13:05:00Z", ""),
        ("other", "b", HALF, 90, "", "after"),
    ]


def test_pods_of_other_namespaces_are_not_named() -> None:
    made = seen(CURRENT, "ns")
    assert b"other" not in msgspec.json.encode(view(made))


def test_nodes_and_pods_have_columns_of_use_and_limit() -> None:
    made = seen()
    head, *rows = lines(node_sheets(made))[1:]
    assert head.split()[6:9] == ["SHARE", "USE", "LIMIT"] or head.split()[7:10] == ["SHARE", "USE", "LIMIT"]
    assert "memory 5%, SM 0%, idle since 13:05Z (5h25m, 2.7 GPU-hours)   -" in rows[0]
    assert "memory 90%, SM 80%" in rows[1]
    assert "after (kill)" in rows[1]
    told = lines(pod_sheets(made))
    assert told[0].split()[5:9] == ["GOT", "USE", "LIMIT", "WHY"]
    assert "after (kill)" in told[2]


def test_a_cluster_lists_idle_shares() -> None:
    told = lines(cluster_sheets(seen()))
    at = told.index("Idle shares:")
    assert told[at + 1 : at + 3] == [
        "POD    NODE   DEVICE   MEMORY   SM   IDLE SINCE",
        "ns/a   n1     GPU-1    5%       0%   13:05Z (5h25m, 2.7 GPU-hours)",
    ]


def test_without_an_agent_there_are_no_columns_and_one_line_says_why() -> None:
    made = seen(None)
    for told in (lines(node_sheets(made)), lines(pod_sheets(made)), lines(cluster_sheets(made))):
        assert told[-1] == "use is not shown: no node agent has reported (docs/node-agent.md)"
        assert "USE " not in "\n".join(told)


def test_nothing_of_a_dead_agent_is_shown_as_current() -> None:
    made = seen(NodeUse(State.STALE, since="2026-11-27T15:30:00Z"))
    told = lines(node_sheets(made))
    assert "not known: the report is old   ?" in told[2]
    assert told[-1] == "n1: its agent has not worked for 3h; what its pods use now is not known"
    assert "Idle shares:" not in lines(cluster_sheets(made))


def test_what_is_not_sure_or_not_measured_is_said() -> None:
    assert lines(node_sheets(seen(NodeUse(State.UNSURE, CURRENT.tenants))))[-1] == (
        "whether the agents work is not known, so use may be old"
    )
    said = lines(node_sheets(seen(NodeUse(State.CURRENT, why="no \x1b warden"))))
    assert said[-1] == "n1: use is not measured: no \\x1b warden"


def test_without_the_option_nothing_is_different() -> None:
    made = msgspec.structs.replace(seen(), use=msgspec.UNSET)
    assert "use" not in msgspec.json.decode(msgspec.json.encode(made))
    assert "USE" not in lines(pod_sheets(made))[0].split()
