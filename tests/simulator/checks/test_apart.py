"""Pods that keep apart: which nodes they are kept off, and what is judged of those that wait (L1, L3)."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.checks import facts
from simulator.checks.checker import NODES
from simulator.checks.fit import Apart, terms_of
from tests.simulator.made_up import Story, node, pod, waiting
from wire import names

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
NO_NODE = "no nodes with enough resources were found: "
BY_OWN, BY_OTHERS = "didn't match pod anti-affinity rules", "didn't satisfy existing pods anti-affinity rules"


def term(key: str = names.HOSTNAME_LABEL, **labels: str) -> dict[str, Any]:
    """A term about pods with these labels."""
    return {"labelSelector": {"matchLabels": labels}, "topologyKey": key}


def rule(*terms: dict[str, Any]) -> dict[str, Any]:
    """The affinity of a pod that keeps apart."""
    return {"podAntiAffinity": {REQUIRED: list(terms)}}


A, B, RULE_A = {"app": "a"}, {"app": "b"}, rule(term(app="a"))


def there(name: str, labels: dict[str, str], affinity: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    made = pod(name, labels=labels, **more)
    made["spec"]["affinity"] = affinity or {}
    return made


def asker(labels: dict[str, str], affinity: dict[str, Any] | None = None, message: str = "something") -> dict[str, Any]:
    made = waiting("q", message, labels=labels)
    made["spec"]["affinity"] = affinity or {}
    return made


@pytest.mark.parametrize(
    ("others", "labels", "affinity", "kept"),
    [
        ([there("p", A)], A, RULE_A, {"node-0"}),
        ([there("p", A)], B, RULE_A, {"node-0"}),
        ([there("p", B)], A, RULE_A, set()),
        ([there("p", A, RULE_A)], A, None, {"node-0"}),
        ([there("p", B, RULE_A)], A, None, {"node-0"}),
        ([there("p", A, RULE_A)], B, None, set()),
        ([there("p", A), there("o", A, node="node-1")], A, RULE_A, {"node-0", "node-1"}),
        ([there("p", A, phase="Succeeded")], A, RULE_A, set()),
        ([there("p", A, metadata={"namespace": "elsewhere"})], A, RULE_A, set()),
        ([there("p", A, node="")], A, RULE_A, set()),
    ],
)
def test_a_pod_is_kept_off_by_its_own_rules_and_by_those_of_others(
    others: list[dict[str, Any]], labels: dict[str, str], affinity: dict[str, Any] | None, kept: set[str]
) -> None:
    assert Apart.of(map(facts.pod, others)).kept_from(facts.pod(asker(labels, affinity))) == kept


@pytest.mark.parametrize(
    "affinity",
    [
        {"nodeAffinity": {}},
        {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
        rule(term("topology.kubernetes.io/zone", app="a")),
        rule({**term(app="a"), "namespaces": ["elsewhere"]}),
        rule({"labelSelector": {"matchExpressions": []}, "topologyKey": names.HOSTNAME_LABEL}),
        rule(term()),
    ],
)
def test_rules_of_other_forms_are_not_read(affinity: dict[str, Any]) -> None:
    assert terms_of({"affinity": affinity}) is None


@pytest.mark.parametrize(("nodes", "broken"), [(1, set()), (2, {"L1"})])
@pytest.mark.parametrize(("first", "second"), [((A, RULE_A), (A, None)), ((A, None), (A, RULE_A))])
def test_a_pod_that_keeps_apart_waits_only_while_each_node_has_another_one(
    nodes: int, broken: set[str], first: Any, second: Any
) -> None:
    story = Story()
    for number in range(nodes):
        story.sees(node(f"node-{number}"), kind=NODES)
    assert story.sees(there("p", *first)).sees(asker(*second)).rests().broken() == broken


@pytest.mark.parametrize(
    ("told", "broken"),
    [
        (f"1 node(s) {BY_OWN}.", set()),
        (f"1 node(s) {BY_OTHERS}.", set()),
        (f"2 node(s) {BY_OWN}.", {"L3"}),
        ("", {"L3"}),
    ],
)
def test_the_nodes_that_other_pods_keep_a_pod_off_are_counted(told: str, broken: set[str]) -> None:
    story = Story().sees(node(), kind=NODES).sees(there("p", A))
    assert story.sees(asker(A, RULE_A, NO_NODE + told)).rests().broken() == broken
