"""PodDisruptionBudgets as the Eviction sub-resource keeps them (EvictionREST and checkAndDecrement of Kubernetes 1.36).

The disruption controller writes how many disruptions a budget allows; an eviction looks there, takes one, and notes the
pod. Nobody else is asked: a DELETE goes past all budgets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from simulator.apiserver.calls import forbidden, internal, too_many_requests
from simulator.apiserver.store import Store
from simulator.apiserver.types import POD_DISRUPTION_BUDGETS
from wire.rfc3339 import rfc3339

Object = dict[str, Any]

_MANY: Final = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
#: More noted pods than this, and the controller is taken for dead.
_MOST_NOTED: Final = 2000
_RETRY_S: Final = 10
#: The real server names it in the singular here.
_NAMED: Final = msgspec.structs.replace(POD_DISRUPTION_BUDGETS, plural="poddisruptionbudget")
_FIRST_STATUS: Final = {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}
_ALLOWED: Final = "DisruptionAllowed"


def with_first_status(budget: Object) -> Object:
    """Return a new budget as it is stored: the controller has not looked at it yet."""
    return {**budget, "status": dict(_FIRST_STATUS)}


def spend(store: Store, pod: Object, *, now_ns: int) -> None:
    """Take one disruption from the budget of a pod that is to be evicted, if it has one. Raises Refusal (429, 500)."""
    if _is_free(pod):
        return
    matching = [budget for budget in _of_namespace(store, pod["metadata"]["namespace"]) if _selects(budget, pod)]
    if len(matching) > 1:
        raise internal(_MANY)
    if matching and not _is_no_loss(matching[0], pod):
        budget = _decremented(matching[0], pod["metadata"]["name"], now=rfc3339(now_ns))
        meta = budget["metadata"]
        store.put(POD_DISRUPTION_BUDGETS, POD_DISRUPTION_BUDGETS.key(meta["namespace"], meta["name"]), budget)


def _is_free(pod: Object) -> bool:
    """Whether budgets are not looked at: it runs not yet, not any more, or is on its way out."""
    phase = (pod.get("status") or {}).get("phase")
    return phase in ("Pending", "Succeeded", "Failed") or "deletionTimestamp" in pod["metadata"]


def _of_namespace(store: Store, namespace: str) -> list[Object]:
    keys = store.table(POD_DISRUPTION_BUDGETS).keys_within(f"{namespace}/")
    return [found.obj for key in keys if (found := store.get(POD_DISRUPTION_BUDGETS, key)) is not None]


def _selects(budget: Object, pod: Object) -> bool:
    """Whether a budget is for this pod: in policy/v1 an empty selector takes all pods, no selector takes none."""
    selector = (budget.get("spec") or {}).get("selector")
    labels = pod["metadata"].get("labels") or {}
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_meets(each, labels) for each in selector.get("matchExpressions") or ())


def _meets(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, values = expression["key"], expression.get("values") or ()
    match expression["operator"]:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
        case _:
            return False


def _is_no_loss(budget: Object, pod: Object) -> bool:
    """Whether a pod that is not ready may go without counting."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    if any((each.get("type"), each.get("status")) == ("Ready", "True") for each in conditions):
        return False
    status = budget["status"]
    is_healthy: bool = status.get("currentHealthy", 0) >= status.get("desiredHealthy", 0) > 0
    return budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow" or is_healthy


def _decremented(budget: Object, pod: str, *, now: str) -> Object:
    name, status = budget["metadata"]["name"], budget["status"]
    if status.get("observedGeneration", 0) < budget["metadata"]["generation"]:
        cause = f"The disruption budget {name} is still being processed by the server."
        raise too_many_requests(cause, retry_after_s=_RETRY_S)
    allowed, noted = status.get("disruptionsAllowed", 0), status.get("disruptedPods") or {}
    if allowed < 0:
        raise forbidden(_NAMED, name, "pdb disruptions allowed is negative")
    if len(noted) > _MOST_NOTED:
        why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise forbidden(_NAMED, name, why)
    if allowed == 0:
        raise too_many_requests(_why_none(name, status), retry_after_s=None)
    changed = {**status, "disruptionsAllowed": allowed - 1, "disruptedPods": {**noted, pod: now}}
    return {**budget, "status": _with_none_left(changed, now=now) if allowed == 1 else changed}


def _why_none(name: str, status: Object) -> str:
    condition = _condition(status)
    needed, healthy = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
    because = condition.get("message", "") if condition.get("status") == "False" else ""
    if because and condition.get("reason") == "SyncFailed":
        return f"The disruption budget {name} does not allow evicting pods currently because it failed sync: {because}"
    if healthy <= needed:
        return f"The disruption budget {name} needs {needed} healthy pods and has {healthy} currently"
    if because:
        said = f"({condition.get('reason', '')}): {because}"
        return f"The disruption budget {name} does not allow evicting pods currently {said}"
    return f"The disruption budget {name} does not allow evicting pods currently"


def _condition(status: Object) -> Object:
    return next((each for each in status.get("conditions") or () if each.get("type") == _ALLOWED), {})


def _with_none_left(status: Object, *, now: str) -> Object:
    before = _condition(status)
    since = before["lastTransitionTime"] if before.get("status") == "False" else now
    condition = {
        "type": _ALLOWED,
        "status": "False",
        "observedGeneration": status.get("observedGeneration", 0),
        "lastTransitionTime": since,
        "reason": "InsufficientPods",
        "message": "",
    }
    others = [each for each in status.get("conditions") or () if each.get("type") != _ALLOWED]
    return {**status, "conditions": [*others, condition]}
