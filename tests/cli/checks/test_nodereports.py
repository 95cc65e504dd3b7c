from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cli.checks.nodes import reports_check
from cli.checks.reader import Level, Reader
from gpu.book import Book, Entry, render
from tests.cli.checks.told import Told
from wire import names
from wire.rfc3339 import parse_ns

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


def warden(name: str, version: str = "1") -> dict[str, Any]:
    labels = {"app.kubernetes.io/component": "warden", "app.kubernetes.io/version": version}
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
            ["agents: 1, wardens: 0; every report is current"],
        ),
        ([], [], [CAPPED], [], ["memory caps in books are enforced by nobody on n1 (no agent works there)"]),
        (
            [report("n1", "kill")], [agent("n1"), warden("n1")], [CAPPED], [node("n1"), node("n2", "false")],
            ["agents: 1, wardens: 1; every report is current"],
        ),
        ([report("n1", "kill")], [agent("n1")], [], [node("n1"), node("n2")], [
            "nvidia.com/gpu.present=true, and no agent on n2",
        ]),
        ([report("n1", "kill"), report("n2")], [agent("n1", "False")], [], [node("n1")], [
            "the agent does not work on n1 (for 2h30m), n2; its report is old",
        ]),
        ([], [agent("n1"), agent("n2", "False")], [], [], ["the agent has not reported on n1, n2"]),
        ([report("n1")], [agent("n1")], [CAPPED], [], [
            "memory caps in books are enforced by nobody on n1 (the agent works without a warden, which measures use)",
        ]),
        ([report("n1", why="the warden is in dry run")], [agent("n1")], [CAPPED], [], [
            "memory caps in books are enforced by nobody on n1 (the warden is in dry run)",
        ]),
        ([report("n1", "kill")], [agent("n1", "False")], [CAPPED], [], [
            "the agent does not work on n1 (for 2h30m); its report is old",
            "memory caps in books are enforced by nobody on n1 (no agent works there)",
        ]),
        ([report("n1", "kill")], [agent("n1"), warden("n1", "2")], [], [], [
            "wardens of another version than their agents on n1 (2, its agent 1)",
        ]),
    ],
    ids=[
        "none", "no caps", "limits without agents", "limits not served", "limits of others", "no agent", "well",
        "without", "old", "no report",
        "no warden", "dry run", "dead", "versions",
    ],
)  # fmt: skip
async def test_what_agents_and_wardens_do_not_do_is_named(
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
