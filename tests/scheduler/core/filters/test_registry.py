"""The first filter that lets no pod on a node says why."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.core.convert.constraints import constraints
from scheduler.core.filters.registry import Filters
from scheduler.core.filters.taints import Cordon, Taints
from scheduler.core.model.pod_class import Constraints
from tests.scheduler.core.filters.judging import DEDICATED, affinity, reason, reason_of
from tests.scheduler.core.objects import node, pod
from wire.core import Pod


@pytest.mark.parametrize(
    ("spec", "of_node", "judgement"),
    [
        ({}, {}, ""),
        ({}, {"ready": False}, "not-ready"),
        ({}, {"cordoned": True}, "cordoned"),
        ({"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]}, {"cordoned": True}, ""),
        ({"nodeSelector": {"zone": "a"}}, {"labels": {"zone": "a"}}, ""),
        ({"nodeSelector": {"zone": "a"}}, {"labels": {"zone": "b"}}, "selector"),
        ({"nodeSelector": {"zone": "a"}}, {}, "selector"),
        ({"nodeSelector": {"zone": "a"}}, {"cordoned": True, "ready": False}, "not-ready"),
        ({"nodeSelector": {"zone": "a"}}, {"cordoned": True, "taints": [DEDICATED]}, "cordoned"),
        ({"nodeSelector": {"zone": "a"}}, {"taints": [DEDICATED]}, "taint"),
        ({**affinity({}), "nodeSelector": {"zone": "a"}}, {}, "selector"),
        (affinity(), {}, "affinity"),
        (affinity({}), {}, "affinity"),
    ],
)
def test_a_node_is_judged_by_the_first_reason(spec: dict[str, Any], of_node: dict[str, Any], judgement: str) -> None:
    assert reason(spec, **of_node) == judgement


def test_a_pod_without_constraints_shares_its_constraints_with_all_others() -> None:
    assert constraints(msgspec.convert({}, Pod)) == constraints(pod(spec={"nodeSelector": {}}))


def test_two_filters_of_one_kind_are_refused() -> None:
    with pytest.raises(ValueError, match="cordoned"):
        Filters([Cordon(), Taints(), Cordon()])


def test_limits_that_a_pod_wants_enforced_keep_it_off_nodes_that_do_not_enforce_them() -> None:
    asked = Constraints(enforced=("memory",))
    assert reason_of(asked, node()) == "enforcement"
