"""What moorage check says of nodes and their agents."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cli.checks.mig import mig_check
from cli.checks.nodes import (
    check_agents,
    check_device_plugins,
    check_enforcement,
    check_multiplied,
    check_vanished,
    reports_check,
)
from cli.checks.reader import Finding, Level, Reader
from gpu.book import Book, Entry, render
from tests.cli.checks.told import Told
from wire import names
from wire.rfc3339 import parse_ns

PATH = "/apis/apps/v1/namespaces/kai-scheduler-node/daemonsets/moorage-node-agent"


def _status(wanted: int, ready: int) -> dict[str, Any]:
    return {"status": {"desiredNumberScheduled": wanted, "numberReady": ready}}


@pytest.mark.parametrize(
    ("found", "level", "said"),
    [
        ({}, Level.OK, "not installed; the processes of reservations report their GPUs"),
        ({PATH: _status(3, 3)}, Level.OK, "3 of 3 are ready"),
        ({PATH: _status(3, 2)}, Level.WARNING, "2 of 3 are ready"),
        ({PATH: _status(0, 0)}, Level.WARNING, "installed, and no node is selected for one"),
        ({PATH: {}}, Level.WARNING, "installed, and no node is selected for one"),
    ],
)
async def test_agents_that_are_installed_are_counted(found: dict[str, Any], level: Level, said: str) -> None:
    (finding,) = await check_agents(Reader(Told(found)))
    assert (finding.level, finding.said, bool(finding.do)) == (level, said, level is Level.WARNING)


DEVICEPLUGINS_PATH = "/apis/moorage.dev/v1alpha1/gpunodes"


def _node(name: str, mode: str = "", *missing: str) -> dict[str, Any]:
    agent = {"pluginMode": mode, "missing": [{"what": each, "why": "x"} for each in missing]}
    return {"metadata": {"name": name}, "status": {"agent": agent}}


async def _found(*nodes: dict[str, Any]) -> list[Finding]:
    return await check_device_plugins(Reader(Told({DEVICEPLUGINS_PATH: {"items": list(nodes)}})))


@pytest.mark.parametrize(
    "nodes", [(), (_node("a", "off", "devices"), _node("b"), {"metadata": {"name": "c"}})], ids=["none", "off"]
)
async def test_where_no_agent_is_a_device_plugin_nothing_is_told(nodes: tuple[dict[str, Any], ...]) -> None:
    assert await _found(*nodes) == []


async def test_where_the_kind_is_not_served_nothing_is_told() -> None:
    assert await check_device_plugins(Reader(Told({}))) == []


async def test_it_tells_who_serves_the_nodes_and_what_is_not_served() -> None:
    found = await _found(_node("a", "own"), _node("b", "own", "nvidia.com/gpu"), _node("c", "off", "devices"))
    assert [(each.level, each.said) for each in found] == [
        (Level.OK, "off on 1 node(s), own on 2 node(s)"),
        (Level.WARNING, "something is not served on b (nvidia.com/gpu)"),
    ]


def _nodes(*said: str | None) -> Told:
    items = [
        {"metadata": {"name": f"n{number}", "annotations": {names.NODE_ENFORCES: text} if text is not None else None}}
        for number, text in enumerate(said)
    ]
    return Told({"/api/v1/nodes": {"items": items}})


@pytest.mark.parametrize(
    ("said", "level", "parts"),
    [
        ((None, None), Level.OK, ("0 of 2 nodes",)),
        (("memory-cap, mps", None), Level.OK, ("1 of 2 nodes",)),
        (("", None), Level.OK, ("1 of 2 nodes",)),
        (("memory-caps", "mps"), Level.WARNING, ("memory-caps", " on n0:")),
        (("MPS", "warp;drive"), Level.WARNING, ("MPS, warp;drive", " on n0, n1:")),
    ],
)
async def test_words_of_nodes_that_nobody_knows_are_told(
    said: tuple[str | None, ...], level: Level, parts: tuple[str, ...]
) -> None:
    (finding,) = await check_enforcement(Reader(_nodes(*said)))
    assert finding.level is level
    assert all(part in finding.said for part in parts)
    assert bool(finding.do) is (level is Level.WARNING)


@pytest.mark.parametrize(("said", "is_told"), [("450", False), ("3%", False), ("", False), ("450Mi", True)])
async def test_a_reserve_of_memory_that_can_not_be_read_is_told(said: str, is_told: bool) -> None:
    items = [{"metadata": {"name": "n0", "annotations": {names.GPU_MEMORY_RESERVE: said}}}]
    found = await check_enforcement(Reader(Told({"/api/v1/nodes": {"items": items}})))
    warnings = [each for each in found if each.level is Level.WARNING]
    assert [("n0 (450Mi)" in each.said, "3%" in each.do) for each in warnings] == [(True, True)] * is_told


REPORTS = "/apis/moorage.dev/v1alpha1/gpunodes"
PODS = "/api/v1/namespaces/kai-scheduler-node/pods"
HELD = "/api/v1/namespaces/kai-resource-reservation/pods"
NODES = "/api/v1/nodes"


class Noon:
    def now_ns(self) -> int:
        return parse_ns("2026-11-27T12:00:00Z") or 0


def node(name: str, has_gpus: str = "true", enforces: str = "") -> dict[str, Any]:
    annotations = {names.NODE_ENFORCES: enforces} if enforces else {}
    return {"metadata": {"name": name, "labels": {"nvidia.com/gpu.present": has_gpus}, "annotations": annotations}}


def agent(name: str, ready: str = "True", since: str = "2026-11-27T09:30:00Z") -> dict[str, Any]:
    return {
        "metadata": {"name": f"a-{name}", "namespace": names.NODE_NAMESPACE},
        "spec": {"nodeName": name, "serviceAccountName": names.NODE_AGENT_SERVICE_ACCOUNT},
        "status": {"conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": since}]},
    }


def enforcer(name: str, version: str = "1") -> dict[str, Any]:
    labels = {"app.kubernetes.io/component": "memory-enforcer", "app.kubernetes.io/version": version}
    meta = {"name": f"w-{name}", "namespace": names.NODE_NAMESPACE, "labels": labels}
    return {"metadata": meta, "spec": {"nodeName": name}}


def report(name: str, *back_ends: str, why: str = "") -> dict[str, Any]:
    status: dict[str, Any] = {"version": "1", "backEnds": list(back_ends)}
    if why:
        status["missing"] = [{"what": "memory caps", "why": why}]
    return {"metadata": {"name": name}, "status": {"agent": status}}


def book(name: str, **cap: Any) -> dict[str, Any]:
    written = render(Book({"u": Entry(1, "a", "1", 0, "team/p", **cap)}))
    meta = {
        "name": "r",
        "namespace": names.RESERVATION_NAMESPACE,
        "labels": {names.APP_LABEL: names.RESERVATION_APP},
        "annotations": {names.TENANTS: written},
    }
    return {"metadata": meta, "spec": {"nodeName": name}}


CAPPED = book("n1", cap_mib=100)
NO_CAPS = book("n1")


@pytest.mark.parametrize(
    ("reports", "pods", "held", "nodes", "said"),
    [
        ([], [], [], [node("n1")], []),
        ([], [], [NO_CAPS], [], []),
        ([], [], [], [node("n1", enforces="memory-cap=hami-core,compute-cap=hami-core")], [
            "containers with limits do not start, as no agent serves what their node says on n1 (hami-core)",
        ]),
        (
            [report("n1", "hami-core"), report("n2", "kill"), report("n3", "hami-core")],
            [agent("n1"), agent("n2"), agent("n3", "False")], [],
            [node(name, enforces="memory-cap=hami-core") for name in ("n1", "n2", "n3")],
            [
                "the agent does not work on n3 (for 2h30m); its report is old",
                "containers with limits do not start, as no agent serves what their node says on n2 (hami-core), "
                "n3 (hami-core)",
            ],
        ),
        (
            [report("n1", "kill")], [agent("n1")], [],
            [node("n1", enforces="memory-cap/after,memory-cap=driver,hami-core")],
            ["agents: 1, memory enforcers: 0; every report is current"],
        ),
        ([], [], [CAPPED], [], ["memory caps in books are enforced by nobody on n1 (no agent works there)"]),
        (
            [report("n1", "kill")], [agent("n1"), enforcer("n1")], [CAPPED], [node("n1"), node("n2", "false")],
            ["agents: 1, memory enforcers: 1; every report is current"],
        ),
        ([report("n1", "kill")], [agent("n1")], [], [node("n1"), node("n2")], [
            "nvidia.com/gpu.present=true, and no agent on n2",
        ]),
        ([report("n1", "kill"), report("n2")], [agent("n1", "False")], [], [node("n1")], [
            "the agent does not work on n1 (for 2h30m), n2; its report is old",
        ]),
        ([], [agent("n1"), agent("n2", "False")], [], [], ["the agent has not reported on n1, n2"]),
        ([report("n1")], [agent("n1")], [CAPPED], [], [
            "memory caps in books are enforced by nobody on n1 (the node has no memory enforcer, which measures use)",
        ]),
        ([report("n1", why="the memory enforcer is in dry run")], [agent("n1")], [CAPPED], [], [
            "memory caps in books are enforced by nobody on n1 (the memory enforcer is in dry run)",
        ]),
        ([report("n1", "kill")], [agent("n1", "False")], [CAPPED], [], [
            "the agent does not work on n1 (for 2h30m); its report is old",
            "memory caps in books are enforced by nobody on n1 (no agent works there)",
        ]),
        ([report("n1", "kill")], [agent("n1"), enforcer("n1", "2")], [], [], [
            "memory enforcers of another version than their agents on n1 (2, its agent 1)",
        ]),
    ],
    ids=[
        "none", "no caps", "limits without agents", "limits not served", "limits of others", "no agent", "well",
        "without", "old", "no report",
        "no memory enforcer", "dry run", "dead", "versions",
    ],
)  # fmt: skip
async def test_what_agents_and_enforcers_do_not_do_is_named(
    reports: list[Any], pods: list[Any], held: list[Any], nodes: list[Any], said: list[str]
) -> None:
    answers = {REPORTS: reports, PODS: pods, HELD: held, NODES: nodes}
    told = Told({path: {"items": items} for path, items in answers.items()})
    found = await reports_check(Noon())(Reader(told))
    assert [finding.said for finding in found] == said
    assert all((finding.level is Level.OK) != bool(finding.do) for finding in found)


async def test_where_the_kind_is_not_served_or_an_object_is_odd_the_rest_is_looked_at() -> None:
    odd = msgspec.convert({"metadata": {"name": 7}}, dict[str, Any])
    told = Told({HELD: {"items": [odd, CAPPED]}, PODS: {"items": []}, NODES: {"items": []}})
    (found,) = await reports_check(Noon())(Reader(told))
    assert found.level is Level.WARNING


def multiplied_node(name: str, gpus: str, **labels: str) -> dict[str, Any]:
    own = {f"nvidia.com/gpu.{key}": text for key, text in labels.items()}
    amounts = {"nvidia.com/gpu": gpus}
    return {"metadata": {"name": name, "labels": own}, "status": {"capacity": amounts, "allocatable": amounts}}


async def test_nodes_that_offer_each_gpu_several_times_are_named_with_what_tells_it() -> None:
    nodes = [
        multiplied_node("a", "8", count="2"),
        multiplied_node("b", "8", count="2"),
        multiplied_node("c", "8", count="8"),
        multiplied_node("d", "4", replicas="4"),
    ]
    found = await check_multiplied(Reader(Told({"/api/v1/nodes": {"items": nodes}})))
    assert [(each.level, each.said) for each in found] == [
        (
            Level.WARNING,
            "a, b: each GPU is offered several times (8 nvidia.com/gpu of 2 by label nvidia.com/gpu.count)",
        ),
        (Level.WARNING, "d: each GPU is offered several times (label nvidia.com/gpu.replicas=4)"),
    ]
    assert all("without sharing" in each.do for each in found)


async def test_nodes_that_offer_each_gpu_once_are_well() -> None:
    nodes = [multiplied_node("a", "8", count="8"), {"metadata": {"name": "no-gpu"}}]
    (found,) = await check_multiplied(Reader(Told({"/api/v1/nodes": {"items": nodes}})))
    assert found.level is Level.OK


# Nodes that are offered for MIG on demand, as a table of what each lacks; attempts by their age.

MIG_REPORTS, MIG_NODES = "/apis/moorage.dev/v1alpha1/gpunodes", "/api/v1/nodes"
OFFERED = {"moorage.dev/mig": "dynamic", "nvidia.com/mig.strategy": "mixed"}
CARD: dict[str, Any] = {"uuid": "GPU-a", "mig": True, "layout": []}
OWN: dict[str, Any] = {"pluginMode": "own"}


def mig_node(name: str = "n1", **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {key.replace("__", "/"): text for key, text in labels.items()}}}


def offered(**changed: str) -> dict[str, Any]:
    return {"metadata": {"name": "n1", "labels": {**OFFERED, **changed}}}


def mig_report(
    *cards: dict[str, Any],
    agent: dict[str, Any] | None = None,
    asks: str = "",
    asked_at: str = "",
    reported_at: str | None = None,
) -> dict[str, Any]:
    managed = [{"time": asked_at, "fieldsV1": {"f:spec": {}}}, {"time": "2026-11-27T11:59:59Z", "fieldsV1": {}}]
    spec = {"mig": [{"uuid": "GPU-a", "layout": [], "attempt": asks}]} if asks else {}
    return {
        "metadata": {"name": "n1", "managedFields": managed if asked_at else []},
        "spec": spec,
        "status": {"agent": OWN if agent is None else agent, "cards": list(cards), "reportedAt": reported_at},
    }


def partitioned(state: str, attempt: str = "a", why: str = "") -> dict[str, Any]:
    return {**CARD, "partitioning": {"attempt": attempt, "state": state, "why": why}}


async def found(nodes: list[Any], *reports: dict[str, Any]) -> list[Finding]:
    there = {MIG_NODES: {"items": nodes}, MIG_REPORTS: {"items": list(reports)}}
    return await mig_check(Noon())(Reader(Told(there)))


@pytest.mark.parametrize(
    ("nodes", "reports"),
    [
        ([], []),
        ([mig_node()], [mig_report()]),
        ([{"metadata": {"name": 1}}], [{"metadata": {"name": "n1"}, "status": 1}]),
    ],
    ids=["empty", "not-offered", "unreadable"],
)
async def test_where_nothing_is_offered_or_asked_nothing_is_told(nodes: list[Any], reports: list[Any]) -> None:
    assert await found(nodes, *reports) == []
    assert await mig_check(Noon())(Reader(Told({}))) == []


async def test_a_node_that_can_serve_is_counted() -> None:
    done = mig_report(partitioned("done"), asks="a", asked_at="2026-11-26T00:00:00Z")
    (finding,) = await found([offered(), mig_node("other")], done)
    assert (finding.level, finding.said) == (Level.OK, "moorage.dev/mig=dynamic on 1 node(s), and all can serve")


@pytest.mark.parametrize(
    ("labels", "reports", "why"),
    [
        ({}, [], "no agent has reported"),
        ({}, [{"metadata": {"name": "n1"}, "status": 1}], "no agent has reported"),
        ({}, [mig_report(CARD, agent={"pluginMode": "off"})], "its agent is not the device plug-in"),
        ({}, [mig_report(CARD, agent={})], "its agent is not the device plug-in"),
        ({}, [mig_report({**CARD, "mig": False})], "no GPU is in MIG mode"),
        (
            {},
            [mig_report({"uuid": "GPU-a", "mig": True})],
            "its agent makes no slices: migOnDemand is off, or the driver",
        ),
        (
            {},
            [mig_report(CARD, agent={**OWN, "missing": [{"what": "mig-on-demand", "why": "Driver Not Loaded"}]})],
            "Driver Not Loaded",
        ),
        ({"nvidia.com/mig.strategy": "single"}, [mig_report(CARD)], "nvidia.com/mig.strategy is not mixed"),
    ],
)
async def test_a_node_that_is_offered_and_can_not_serve_is_named(
    labels: dict[str, str], reports: list[dict[str, Any]], why: str
) -> None:
    (finding,) = await found([offered(**labels)], *reports)
    assert finding.level is Level.WARNING
    assert finding.said.startswith(f"can't serve MIG on demand: n1 ({why}")
    assert finding.do


@pytest.mark.parametrize(
    ("nodes", "given", "said"),
    [
        ([offered()], mig_report(CARD, asks="b", asked_at="2026-11-27T11:55:00Z"), "GPU-a not taken up for 5m"),
        (
            [offered()],
            mig_report(partitioned("done"), asks="b", asked_at="2026-11-27T11:57:00Z"),
            "GPU-a not taken up for 3m",
        ),
        (
            [mig_node()],
            mig_report(CARD, asks="b", asked_at="2026-11-27T11:00:00Z"),
            "GPU-a not taken up, without moorage.dev/mig=dynamic, for 1h",
        ),
        (
            [offered()],
            mig_report(partitioned("underway"), asks="a", reported_at="2026-11-27T11:50:00Z"),
            "GPU-a under way for 10m",
        ),
    ],
)
async def test_an_attempt_that_does_not_end_is_named(nodes: list[Any], given: dict[str, Any], said: str) -> None:
    (finding,) = await found(nodes, given)
    assert (finding.level, finding.said) == (Level.WARNING, f"an attempt at MIG slices does not end: n1 ({said})")
    assert finding.do


@pytest.mark.parametrize(
    "given",
    [
        mig_report(CARD, asks="b", asked_at="2026-11-27T11:57:01Z"),
        mig_report(CARD, asks="b"),
        mig_report(partitioned("underway"), asks="a", reported_at="2026-11-27T11:57:01Z"),
        mig_report(partitioned("refused"), asks="a", asked_at="2026-11-27T00:00:00Z"),
    ],
    ids=["young", "of-no-known-age", "under-way-not-long", "ended"],
)
async def test_an_attempt_that_may_end_yet_or_has_ended_is_not(given: dict[str, Any]) -> None:
    assert [finding.level for finding in await found([offered()], given)] == [Level.OK]


async def test_what_the_driver_refused_is_told_in_its_words() -> None:
    failed = partitioned("failed", why="create 2g.20gb at 0: In use by another client")
    (finding,) = await found([offered()], mig_report(failed, asks="a"))
    assert finding.said == ("the driver refused MIG slices: n1 (GPU-a: create 2g.20gb at 0: In use by another client)")


GONE = "/api/v1/namespaces/team/pods/gone"


def vanished_node(name: str, ready: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": name}, "status": {"conditions": [{"type": "Ready", "status": ready}]}}


def reservation(on: str, *pods: str) -> dict[str, Any]:
    """A reservation whose book names these pods; their UIDs are their names."""
    book = {name: Entry(1, "attempt", "1", 0, f"team/{name}") for name in pods}
    meta = {
        "name": f"gpu-reservation-{on}",
        "namespace": names.RESERVATION_NAMESPACE,
        "labels": {"app": names.RESERVATION_APP, names.GPU_GROUP_LABEL: f"group-{on}"},
        "annotations": {names.TENANTS: msgspec.json.encode(book).decode()},
    }
    return {"metadata": meta, "spec": {"nodeName": on, "containers": []}}


def cluster(*nodes: dict[str, Any], **pods: Any) -> Told:
    """One reservation on node a, with tenants that run, that are gone, and that are not bound yet."""
    held = reservation("a", "runs", "gone", "unbound")
    answers: dict[str, Any] = {
        "/api/v1/nodes": {"items": list(nodes)},
        f"/api/v1/namespaces/{names.RESERVATION_NAMESPACE}/pods": {"items": [held]},
        "/api/v1/pods": {"items": [{"metadata": {"name": "runs", "uid": "runs"}}]},
        "/api/v1/namespaces/team/pods/unbound": {"metadata": {"uid": "unbound"}},
    }
    return Told(answers | pods)


@pytest.mark.parametrize("nodes", [(), (vanished_node("a", "Unknown"),), (vanished_node("a", "False"),)])
@pytest.mark.parametrize("again", [{}, {GONE: {"metadata": {"uid": "another"}}}], ids=["gone", "made again"])
async def test_a_share_that_is_kept_for_a_pod_that_is_gone_is_named_with_its_node(
    nodes: tuple[dict[str, Any], ...], again: dict[str, Any]
) -> None:
    (found,) = await check_vanished(Reader(cluster(*nodes, **again)))
    assert (found.level, found.said) == (Level.WARNING, "node a is gone or not ready: shares are kept of team/gone")
    assert "an hour" in found.do


async def test_pods_of_nodes_that_are_ready_are_not_read() -> None:
    told = cluster(vanished_node("a", "True"))
    (found,) = await check_vanished(Reader(told))
    assert found.level is Level.OK
    assert not [
        path for _, path, _ in told.asked if path == "/api/v1/pods" or path.startswith("/api/v1/namespaces/team")
    ]
