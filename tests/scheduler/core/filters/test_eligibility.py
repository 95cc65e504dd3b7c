from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.core.convert import objects
from scheduler.core.convert.constraints import constraints
from scheduler.core.filters.eligibility import AFFINITY, CORDONED, NOT_READY, OK, SELECTOR, TAINT, judge
from tests.scheduler.core.objects import node, pod
from wire.core import Pod

DEDICATED = ("dedicated", "ml", "NoSchedule")


def _judge(spec: dict[str, Any], **of_node: Any) -> int:
    return judge(objects.node_record(node("n1", **of_node)), constraints(pod(spec=spec)))


def _affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {"nodeSelectorTerms": list(terms)}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def _expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("spec", "of_node", "judgement"),
    [
        ({}, {}, OK),
        ({}, {"ready": False}, NOT_READY),
        ({}, {"cordoned": True}, CORDONED),
        ({"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]}, {"cordoned": True}, OK),
        ({"nodeSelector": {"zone": "a"}}, {"labels": {"zone": "a"}}, OK),
        ({"nodeSelector": {"zone": "a"}}, {"labels": {"zone": "b"}}, SELECTOR),
        ({"nodeSelector": {"zone": "a"}}, {}, SELECTOR),
        (_affinity(), {}, AFFINITY),
        (_affinity({}), {}, AFFINITY),
    ],
)
def test_a_node_is_judged_by_the_first_reason(spec: dict[str, Any], of_node: dict[str, Any], judgement: int) -> None:
    assert _judge(spec, **of_node) == judgement


@pytest.mark.parametrize(
    ("toleration", "taint", "tolerated"),
    [
        (None, DEDICATED, False),
        (None, ("dedicated", "ml", "NoExecute"), False),
        (None, ("dedicated", "ml", "PreferNoSchedule"), True),
        ({"key": "dedicated", "operator": "Equal", "value": "ml", "effect": "NoSchedule"}, DEDICATED, True),
        ({"key": "dedicated", "value": "ml"}, DEDICATED, True),
        ({"key": "dedicated", "value": "web"}, DEDICATED, False),
        ({"key": "dedicated", "operator": "Exists"}, DEDICATED, True),
        ({"key": "other", "operator": "Exists"}, DEDICATED, False),
        ({"key": "dedicated", "operator": "Exists", "effect": "NoExecute"}, DEDICATED, False),
        ({"operator": "Exists"}, DEDICATED, True),
        ({"operator": "Equal", "value": "ml"}, DEDICATED, False),
        ({"key": "dedicated", "operator": "Near", "value": "ml"}, DEDICATED, False),
    ],
)
def test_a_taint_keeps_out_whoever_does_not_tolerate_it(
    toleration: dict[str, Any] | None, taint: tuple[str, str, str], tolerated: bool
) -> None:
    spec = {"tolerations": [toleration]} if toleration else {}
    assert _judge(spec, taints=[taint]) == (OK if tolerated else TAINT)


@pytest.mark.parametrize(
    ("term", "fits"),
    [
        (_expression("zone", "In", "a", "b"), True),
        (_expression("zone", "In", "c"), False),
        (_expression("rack", "In", "a"), False),
        (_expression("zone", "NotIn", "c"), True),
        (_expression("zone", "NotIn", "a"), False),
        (_expression("rack", "NotIn", "a"), True),
        (_expression("zone", "Exists"), True),
        (_expression("rack", "Exists"), False),
        (_expression("rack", "DoesNotExist"), True),
        (_expression("zone", "DoesNotExist"), False),
        (_expression("size", "Gt", "7"), True),
        (_expression("size", "Gt", "8"), False),
        (_expression("size", "Lt", "9"), True),
        (_expression("size", "Lt", "8"), False),
        (_expression("zone", "Gt", "1"), False),
        (_expression("size", "Gt", "x"), False),
        (_expression("size", "Gt"), False),
        (_expression("size", "Gt", "007"), True),
        (_expression("size", "Gt", "0_7"), False),
        (_expression("size", "Gt", " 7"), False),
        (_expression("size", "Gt", "\u0667"), False),
        (_expression("size", "Gt", "+7"), False),
        (_expression("size", "Gt", "-7"), False),
        (_expression("size", "Lt", "9223372036854775807"), True),
        (_expression("size", "Lt", "9223372036854775808"), False),
        (_expression("group", "Gt", "7"), False),
        (_expression("zone", "NotIn", "a value"), False),
        (_expression("zone", "In", "a", "a value"), False),
        (_expression("zone", "Resembles", "a"), False),
        ({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}, True),
        ({"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}]}, False),
        (
            {
                **_expression("zone", "Exists"),
                "matchFields": [{"key": "metadata.name", "operator": "In", "values": []}],
            },
            False,
        ),
    ],
)
def test_required_node_affinity_means_what_kubernetes_means(term: dict[str, Any], fits: bool) -> None:
    labels = {"zone": "a", "size": "8", "group": "1_0"}
    assert _judge(_affinity(term), labels=labels) == (OK if fits else AFFINITY)
    assert _judge(_affinity(_expression("never", "Exists"), term), labels=labels) == (OK if fits else AFFINITY)


def test_preferred_affinity_keeps_nobody_out() -> None:
    preferred = [{"weight": 1, "preference": _expression("zone", "In", "z")}]
    spec = {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}}
    assert _judge(spec) == OK


def test_a_pod_without_constraints_shares_its_constraints_with_all_others() -> None:
    assert constraints(msgspec.convert({}, Pod)) == constraints(pod(spec={"nodeSelector": {}}))
