"""Nodes that are offered for MIG on demand, as a table of what each lacks; attempts by their age."""

from __future__ import annotations

from typing import Any

import pytest

from cli.checks.mig import mig_check
from cli.checks.reader import Finding, Level, Reader
from tests.cli.checks.told import Told
from wire.rfc3339 import parse_ns

REPORTS, NODES = "/apis/moorage.dev/v1alpha1/gpunodes", "/api/v1/nodes"
OFFERED = {"moorage.dev/mig": "dynamic", "nvidia.com/mig.strategy": "mixed"}
CARD: dict[str, Any] = {"uuid": "GPU-a", "mig": True, "layout": []}
OWN: dict[str, Any] = {"pluginMode": "own"}


class Noon:
    def now_ns(self) -> int:
        return parse_ns("2026-11-27T12:00:00Z") or 0


def node(name: str = "n1", **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {key.replace("__", "/"): text for key, text in labels.items()}}}


def offered(**changed: str) -> dict[str, Any]:
    return {"metadata": {"name": "n1", "labels": {**OFFERED, **changed}}}


def report(
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


def carved(state: str, attempt: str = "a", why: str = "") -> dict[str, Any]:
    return {**CARD, "carving": {"attempt": attempt, "state": state, "why": why}}


async def found(nodes: list[Any], *reports: dict[str, Any]) -> list[Finding]:
    there = {NODES: {"items": nodes}, REPORTS: {"items": list(reports)}}
    return await mig_check(Noon())(Reader(Told(there)))


@pytest.mark.parametrize(
    ("nodes", "reports"),
    [([], []), ([node()], [report()]), ([{"metadata": {"name": 1}}], [{"metadata": {"name": "n1"}, "status": 1}])],
    ids=["empty", "not-offered", "unreadable"],
)
async def test_where_nothing_is_offered_or_asked_nothing_is_told(nodes: list[Any], reports: list[Any]) -> None:
    assert await found(nodes, *reports) == []
    assert await mig_check(Noon())(Reader(Told({}))) == []


async def test_a_node_that_can_serve_is_counted() -> None:
    done = report(carved("done"), asks="a", asked_at="2026-11-26T00:00:00Z")
    (finding,) = await found([offered(), node("other")], done)
    assert (finding.level, finding.said) == (Level.OK, "moorage.dev/mig=dynamic on 1 node(s), and all can serve")


@pytest.mark.parametrize(
    ("labels", "reports", "why"),
    [
        ({}, [], "no agent has reported"),
        ({}, [{"metadata": {"name": "n1"}, "status": 1}], "no agent has reported"),
        ({}, [report(CARD, agent={"pluginMode": "off"})], "its agent is not the device plug-in"),
        ({}, [report(CARD, agent={})], "its agent is not the device plug-in"),
        ({}, [report({**CARD, "mig": False})], "no GPU is in MIG mode"),
        ({}, [report({"uuid": "GPU-a", "mig": True})], "its agent makes no slices: migOnDemand is off, or the driver"),
        (
            {},
            [report(CARD, agent={**OWN, "missing": [{"what": "mig-on-demand", "why": "Driver Not Loaded"}]})],
            "Driver Not Loaded",
        ),
        ({"nvidia.com/mig.strategy": "single"}, [report(CARD)], "nvidia.com/mig.strategy is not mixed"),
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
        (
            [offered()],
            report(CARD, asks="b", asked_at="2026-11-27T11:55:00Z"),
            "GPU-a not taken up for 5m",
        ),
        (
            [offered()],
            report(carved("done"), asks="b", asked_at="2026-11-27T11:57:00Z"),
            "GPU-a not taken up for 3m",
        ),
        (
            [node()],
            report(CARD, asks="b", asked_at="2026-11-27T11:00:00Z"),
            "GPU-a not taken up, without moorage.dev/mig=dynamic, for 1h",
        ),
        (
            [offered()],
            report(carved("underway"), asks="a", reported_at="2026-11-27T11:50:00Z"),
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
        report(CARD, asks="b", asked_at="2026-11-27T11:57:01Z"),
        report(CARD, asks="b"),
        report(carved("underway"), asks="a", reported_at="2026-11-27T11:57:01Z"),
        report(carved("refused"), asks="a", asked_at="2026-11-27T00:00:00Z"),
    ],
    ids=["young", "of-no-known-age", "under-way-not-long", "ended"],
)
async def test_an_attempt_that_may_end_yet_or_has_ended_is_not(given: dict[str, Any]) -> None:
    assert [finding.level for finding in await found([offered()], given)] == [Level.OK]


async def test_what_the_driver_refused_is_told_in_its_words() -> None:
    failed = carved("failed", why="create 2g.20gb at 0: In use by another client")
    (finding,) = await found([offered()], report(failed, asks="a"))
    assert finding.said == ("the driver refused MIG slices: n1 (GPU-a: create 2g.20gb at 0: In use by another client)")
