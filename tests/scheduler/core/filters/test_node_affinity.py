"""Required node affinity, as Kubernetes means it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.scheduler.core.filters.judging import affinity, expression, reason


@pytest.mark.parametrize(
    ("term", "fits"),
    [
        (expression("zone", "In", "a", "b"), True),
        (expression("zone", "In", "c"), False),
        (expression("rack", "In", "a"), False),
        (expression("zone", "NotIn", "c"), True),
        (expression("zone", "NotIn", "a"), False),
        (expression("rack", "NotIn", "a"), True),
        (expression("zone", "Exists"), True),
        (expression("rack", "Exists"), False),
        (expression("rack", "DoesNotExist"), True),
        (expression("zone", "DoesNotExist"), False),
        (expression("size", "Gt", "7"), True),
        (expression("size", "Gt", "8"), False),
        (expression("size", "Lt", "9"), True),
        (expression("size", "Lt", "8"), False),
        (expression("zone", "Gt", "1"), False),
        (expression("size", "Gt", "x"), False),
        (expression("size", "Gt"), False),
        (expression("size", "Gt", "007"), True),
        (expression("size", "Gt", "0_7"), False),
        (expression("size", "Gt", " 7"), False),
        (expression("size", "Gt", "\u0667"), False),
        (expression("size", "Gt", "+7"), False),
        (expression("size", "Gt", "-7"), False),
        (expression("size", "Lt", "9223372036854775807"), True),
        (expression("size", "Lt", "9223372036854775808"), False),
        (expression("group", "Gt", "7"), False),
        (expression("zone", "NotIn", "a value"), False),
        (expression("zone", "In", "a", "a value"), False),
        (expression("zone", "Resembles", "a"), False),
        ({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}, True),
        ({"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}]}, False),
        (
            {
                **expression("zone", "Exists"),
                "matchFields": [{"key": "metadata.name", "operator": "In", "values": []}],
            },
            False,
        ),
    ],
)
def test_required_node_affinity_means_what_kubernetes_means(term: dict[str, Any], fits: bool) -> None:
    labels = {"zone": "a", "size": "8", "group": "1_0"}
    assert reason(affinity(term), labels=labels) == ("" if fits else "affinity")
    assert reason(affinity(expression("never", "Exists"), term), labels=labels) == ("" if fits else "affinity")


def test_preferred_affinity_keeps_nobody_out() -> None:
    preferred = [{"weight": 1, "preference": expression("zone", "In", "z")}]
    spec = {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}}
    assert reason(spec) == ""
