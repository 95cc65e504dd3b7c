"""Filters that look at other pods: affinity, anti-affinity and spread."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from scheduler.core.decide.allowance import Limits
from scheduler.core.filters.pod_affinity import OthersAntiAffinity
from tests.scheduler.core.filters.beside import (
    APP_A,
    HOST,
    NODES,
    ZONE,
    affinity,
    allowed,
    anti_affinity,
    made,
    places,
    reasons,
    running,
    term,
    waiting,
)
from tests.scheduler.core.objects import cluster, node, pod, pod_group

# Required affinity of a pod that waits.

_APP_B = {"matchLabels": {"app": "b"}}


@pytest.mark.parametrize(
    ("terms", "nodes"),
    [
        ([term()], "pq"),
        ([term(HOST)], "p"),
        ([term(selector=_APP_B)], "r"),
        ([term(), term(HOST)], "p"),
        ([term(), term(selector=_APP_B)], ""),
        ([term(selector={})], "pqr"),
        ([term(selector=None)], ""),
        ([term("nobody-has-this")], ""),
        ([term(namespaces=["other"])], ""),
        ([term(namespaceSelector={})], "pq"),
    ],
)
def test_a_pod_follows_those_that_all_its_terms_take(terms: list[dict[str, Any]], nodes: str) -> None:
    assert allowed(running("a", "p"), running("b", "r", "b"), spec=affinity(*terms)) == nodes


@pytest.mark.parametrize(
    ("there", "app", "nodes"),
    [
        ([], "a", "pqr"),
        ([], "w", ""),
        ([running("a", "p")], "a", "pq"),
        # It has no zone, so it is in no domain: the next one is the first of a series as well.
        ([running("a", "s")], "a", "pqr"),
        ([running("a", "p", namespace="other")], "a", "pqr"),
    ],
)
def test_the_first_of_a_series_goes_wherever_there_are_the_labels(there: list[Any], app: str, nodes: str) -> None:
    assert allowed(*there, spec=affinity(term()), app=app) == nodes


def test_a_series_follows_its_first_in_one_decision() -> None:
    series = [waiting(affinity(term()), f"w{i}", "a", priority=i) for i in range(6)]
    zones = {"p": "x", "q": "x", "r": "y"}
    assert len({zones[on] for on in places(made(*series).decide(0)).values()}) == 1


def test_members_of_a_gang_follow_one_that_comes_after_them() -> None:
    def member(name: str, app: str, spec: dict[str, Any]) -> Any:
        return waiting(spec, name, app, group="g")

    found = made(member("w0", "w", affinity(term())), member("w1", "w", affinity(term())), member("w9", "a", {}))
    found.upsert_pod_group(pod_group("g", 3))
    plan = found.decide(0)
    placed = {
        placement.name: placement.node for entry in plan.entries for placement in getattr(entry, "placements", ())
    }
    assert placed.keys() == {"w0", "w1", "w9"}
    assert {*placed.values()} <= {"p", "q"} or {*placed.values()} == {"r"}


def test_a_gang_that_is_taken_back_leaves_nobody_to_follow() -> None:
    too_large = [waiting({}, f"g{i}", "a", group="g", priority=9) for i in range(2)]
    too_large.append(waiting({"nodeSelector": {"nobody": "has-this"}}, "g9", "a", group="g", priority=9))
    found = made(*too_large, waiting(affinity(term())))
    found.upsert_pod_group(pod_group("g", 3))
    assert reasons(found) == {"pod-affinity": 4}


def test_a_pod_that_comes_wakes_who_looks_for_it() -> None:
    found = made(waiting(affinity(term())))
    assert reasons(found) == {"pod-affinity": 4}
    found.upsert_pod(running("a", "r"))
    assert places(found.decide(1)) == {"w": "r"}


def test_the_labels_of_a_running_pod_may_change() -> None:
    found = made(running("a", "r", "b"), waiting(affinity(term())))
    assert not places(found.decide(0))
    found.upsert_pod(running("a", "r"))
    assert places(found.decide(1)) == {"w": "r"}


# Required anti-affinity of a pod that waits.

_OTHER = {"namespace": "other"}


@pytest.mark.parametrize(
    ("terms", "nodes"),
    [
        ([term()], "rs"),
        ([term(HOST)], "qrs"),
        ([term(HOST), term(HOST, {"matchLabels": {"app": "b"}})], "qs"),
        ([term(selector={})], "s"),
        ([term(selector=None)], "pqrs"),
        ([term(selector={"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["a"]}]})], "pqs"),
        ([term(namespaces=["other"])], "pqrs"),
        ([term(namespaceSelector={})], "rs"),
        ([term("nobody-has-this")], "pqrs"),
    ],
)
def test_pods_that_a_term_takes_close_their_domains(terms: list[dict[str, Any]], nodes: str) -> None:
    assert allowed(running("a", "p"), running("b", "r", "b"), spec=anti_affinity(*terms)) == nodes


@pytest.mark.parametrize(("team", "nodes"), [("x", "rs"), ("y", "pqrs")])
def test_namespaces_are_taken_by_their_labels(team: str, nodes: str) -> None:
    spec = anti_affinity(term(namespaceSelector={"matchLabels": {"team": "x"}}))
    assert allowed(running("a", "p", **_OTHER), spec=spec, teams={"other": team}) == nodes


def test_terminating_pods_close_their_domain_until_they_are_gone() -> None:
    found = made(running("a", "p", deleting=True), running("b", "r"), waiting(anti_affinity(term(HOST), term())))
    assert places(found.decide(0)) == {"w": "s"}


def test_replicas_that_avoid_each_other_spread_in_one_decision() -> None:
    replicas = [waiting(anti_affinity(term(HOST)), f"w{i}", "a") for i in range(5)]
    found = made(*replicas)
    assert len({*places(found.decide(0)).values()}) == 4
    assert reasons(found, "uid-w4") == {"pod-anti-affinity": 4}


def test_a_pod_without_rules_keeps_off_those_that_were_placed_in_the_same_decision() -> None:
    avoiding, plain = waiting(anti_affinity(term()), "v", priority=5), waiting({}, "w", "a")
    found = places(made(avoiding, plain, nodes=NODES[:2]).decide(0))
    assert found == {"v": "p"}


def test_a_pod_that_goes_opens_its_domain() -> None:
    found = made(*(running(name, name) for name in "pqrs"), waiting(anti_affinity(term(HOST))))
    assert reasons(found) == {"pod-anti-affinity": 4}
    found.remove_pod("uid-q")
    assert places(found.decide(0)) == {"w": "q"}


# Domains that other pods keep a pod off: those that run, and those that a decision has placed.


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


# Topology spread that has to hold.

_TAINTED = (*NODES, node("t", labels={ZONE: "z"}, taints=[("dedicated", "ml", "NoSchedule")]))


def spread(key: str = ZONE, skew: int = 1, *, selector: Any = APP_A, **more: Any) -> dict[str, Any]:
    made_of = {"topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
    return {"topologySpreadConstraints": [{**made_of, **more}]}


def _both(*specs: dict[str, Any]) -> dict[str, Any]:
    return {"topologySpreadConstraints": [each for spec in specs for each in spec["topologySpreadConstraints"]]}


@pytest.mark.parametrize(
    ("spec", "nodes"),
    [
        (spread(), "r"),
        (spread(skew=2), "pqr"),
        (spread(HOST), "qrs"),
        (spread(selector={"matchLabels": {"app": "nobody"}}), "pqr"),
        # The empty selector takes the pod itself and counts nobody; none takes nobody.
        (spread(selector={}), "pqr"),
        (spread(selector=None), "pqr"),
        (spread("nobody-has-this"), ""),
        (spread(minDomains=3), "r"),
        (spread(skew=2, minDomains=2), "pqr"),
        (_both(spread(), spread(HOST)), "r"),
        (spread(matchLabelKeys=["app"]), "r"),
        (spread(matchLabelKeys=["version"]), "pqr"),
        (spread(whenUnsatisfiable="ScheduleAnyway"), "pqrs"),
    ],
)
def test_domains_differ_by_the_skew_at_most(spec: dict[str, Any], nodes: str) -> None:
    found = [on for on in "pqrs" if _is_placed(spec, on)]
    assert "".join(found) == nodes


def _is_placed(spec: dict[str, Any], on: str) -> bool:
    here = _ignoring_affinity({**spec, "nodeSelector": {HOST: on}})
    waits = pod("w", labels={"app": "a", "version": "2"}, spec=here)
    return bool(places(made(running("a", "p"), waits).decide(0)))


def _ignoring_affinity(spec: dict[str, Any]) -> dict[str, Any]:
    """The selector by which nodes are asked one by one is not to count."""
    every = [{"nodeAffinityPolicy": "Ignore", **each} for each in spec["topologySpreadConstraints"]]
    return {**spec, "topologySpreadConstraints": every}


@pytest.mark.parametrize(
    ("policy", "is_placed"),
    [({}, True), ({"nodeAffinityPolicy": "Honor"}, True), ({"nodeAffinityPolicy": "Ignore"}, False)],
)
def test_only_nodes_that_the_pod_asks_for_count_unless_it_says_otherwise(
    policy: dict[str, Any], is_placed: bool
) -> None:
    spec = {**spread(**policy), "nodeSelector": {ZONE: "x"}}
    assert bool(places(made(running("a", "p"), waiting(spec, app="a")).decide(0))) is is_placed


@pytest.mark.parametrize(("policy", "is_placed"), [({}, False), ({"nodeTaintsPolicy": "Honor"}, True)])
def test_nodes_with_taints_count_unless_they_are_to_be_honoured(policy: dict[str, Any], is_placed: bool) -> None:
    there = [running(f"a{on}", on) for on in "pr"]
    found = made(*there, waiting(spread(**policy), app="a"), nodes=_TAINTED)
    assert bool(places(found.decide(0))) is is_placed


@pytest.mark.parametrize(
    ("more", "is_placed"), [({"deleting": True}, True), ({"namespace": "other"}, True), ({}, False)]
)
def test_terminating_pods_and_those_of_other_namespaces_do_not_count(more: dict[str, Any], is_placed: bool) -> None:
    spec = {**spread(), "nodeSelector": {HOST: "p"}}
    spec = _ignoring_affinity(spec)
    assert bool(places(made(running("a", "p", **more), waiting(spec, app="a")).decide(0))) is is_placed


def test_a_decision_spreads_what_it_places() -> None:
    found = made(*(waiting(spread(), f"w{i}", "a") for i in range(6)))
    zones = [{"p": "x", "q": "x", "r": "y"}[on] for on in places(found.decide(0)).values()]
    assert sorted(zones) == ["x"] * 3 + ["y"] * 3


def test_it_is_told_which_nodes_lack_the_label() -> None:
    found = made(running("a", "p"), running("b", "r"), waiting(spread(skew=1, minDomains=3), app="a"))
    assert reasons(found) == {"spread": 3, "spread-label": 1}


def test_nodes_without_the_label_are_out() -> None:
    assert allowed(spec=_ignoring_affinity(spread())) == "pqr"
