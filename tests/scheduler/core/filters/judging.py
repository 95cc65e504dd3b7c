"""The reason why a node is out for a pod, for the tests of filters."""

from __future__ import annotations

from typing import Any

from scheduler.core.convert.constraints import constraints
from scheduler.core.convert.nodes import node_record
from scheduler.core.filters.registry import FILTERS, OK
from scheduler.core.model.pod_class import Constraints
from tests.scheduler.core.objects import node, pod
from wire.core import Node

DEDICATED = ("dedicated", "ml", "NoSchedule")


def reason(spec: dict[str, Any], **of_node: Any) -> str:
    """The kind of the filter that lets no pod of this spec on a node n1; "" if all do."""
    return reason_of(constraints(pod(spec=spec)), node("n1", **of_node))


def reason_of(asked: Constraints, on: Node) -> str:
    """The same of constraints that were read."""
    judged = FILTERS.judge(node_record(on), asked)
    return "" if judged == OK else next(kind for kind, number in FILTERS.numbers.items() if number == judged)


def affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {"nodeSelectorTerms": list(terms)}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}
