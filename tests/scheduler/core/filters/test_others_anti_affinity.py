"""Domains that other pods keep a pod off: those that run, and those that a decision has placed."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from scheduler.core.decide.allowance import Limits
from scheduler.core.filters.pod_affinity import OthersAntiAffinity
from tests.scheduler.core.filters.beside import HOST, NODES, anti_affinity, made, places, reasons, term, waiting
from tests.scheduler.core.objects import cluster, node, pod


@pytest.mark.parametrize("key", ["zone", "rack"])
@pytest.mark.parametrize("value", ["a", "b"])
def test_the_ledger_takes_out_the_nodes_of_a_domain(key: str, value: str) -> None:
    nodes = [node(f"n{i}", labels={"zone": "ab"[i % 2], "rack": "abc"[i % 3]}) for i in range(6)]
    found = cluster(*nodes, node("plain"), pod())
    record, ledger, domains = found.pod("uid-p"), found.refresh(), frozenset({(key, value)})
    assert record is not None
    judged = ledger.admitting(replace(record.cls, avoids=domains))
    out = {name for name, row in ledger.row_of.items() if judged[row] == ledger.filters.number(OthersAntiAffinity)}
    assert out == {of.metadata.name for of in nodes if (of.metadata.labels or {})[key] == value}


def test_who_is_placed_keeps_off_those_that_come_after_it_in_the_same_decision() -> None:
    avoiding = waiting(anti_affinity(term(HOST)), "v", priority=5)
    found = made(avoiding, waiting({}, "w", "a"), waiting({}, "x"), nodes=NODES[:1])
    assert places(found.decide(0)) == {"v": "p", "x": "p"}
    assert reasons(found, "uid-w") == {"others-anti-affinity": 1}


def test_who_is_kept_off_by_one_that_was_placed_waits_no_longer_than_that_is_there() -> None:
    avoiding = waiting(anti_affinity(term(HOST)), "v", priority=5)
    found = made(avoiding, waiting({}, "w", "a"), nodes=NODES[:1])
    assert places(found.decide(0)) == {"v": "p"}
    found.remove_pod("uid-v")
    assert places(found.decide(1)) == {"w": "p"}


def test_a_term_of_a_running_pod_that_asks_more_is_not_taken_for_one_that_takes_all() -> None:
    narrow = term(selector={"matchLabels": {"app": "b"}}, namespaces=["ns"])
    there = pod("r", namespace="other", bound_to="p", spec=anti_affinity(narrow))
    found = made(there, waiting(anti_affinity(term(selector={}))), nodes=NODES[:1])
    assert places(found.decide(0)) == {"w": "p"}


def test_a_crowd_that_waits_closes_no_nodes_of_pods_whose_terms_take_others() -> None:
    daemons = [pod(f"r{on}", namespace="there", bound_to=on, spec=_alone(app="daemon")) for on in "pqrs"]
    crowd = [
        pod(
            f"c{i}", namespace="crowd", gpus=99, spec=_alone(app="nobody", teams={"key": f"k{i}", "operator": "Exists"})
        )
        for i in range(100)
    ]
    found = made(*daemons, *crowd, waiting({}), teams={"ns": "a", "crowd": "b", "there": "c"})
    judged = found.snapshot().judge(found.waiting()[-1])
    assert [each.is_widened for each in judged.cls.taken_by] == [True]
    assert places(found.decide(0)) == {"w": "p"}


def test_a_crowd_is_kept_apart_from_those_it_takes_once_one_of_it_is_placed() -> None:
    crowd = [
        pod(
            f"c{i}",
            gpus=99 if i else 1,
            priority=5,
            spec=_alone(app="w", teams={"key": f"k{i}", "operator": "DoesNotExist"}),
        )
        for i in range(80)
    ]
    found = made(*crowd, waiting({}), nodes=NODES[:2], teams={"ns": "a"})
    assert places(found.decide(0, Limits(most=1_000_000))) == {"c0": "p", "w": "q"}


def _alone(*, app: str, teams: dict[str, str] | None = None) -> dict[str, Any]:
    more = {} if teams is None else {"namespaceSelector": {"matchExpressions": [teams]}}
    return anti_affinity(term(HOST, {"matchLabels": {"app": app}}, **more))
