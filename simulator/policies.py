"""The ValidatingAdmissionPolicies of admission/policies.py, as the in-memory API server enforces them.

That server evaluates no CEL, so each rule is said once more here, in Python. That the CEL is right is the business of
tests/e2e, on a real API server; here the rules keep simulated users from what real ones can't do either. Users are
known by name: ``is_ours`` says which are the scheduler and the binder.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from admission import protected
from admission.policies import Identities
from wire import names

Json = Mapping[str, Any]

#: Who reservation processes are in a simulation (simulator/world.py).
RESERVATION: Final = "reservation"
#: Who node agents are.
AGENT: Final = "node-agent"
_LIFE_CYCLE: Final = frozenset({*Identities().life_cycle_users, "system:nodes"})
_HANDOVER_NAME: Final = re.compile(r".*-[a-z0-9]{7}-shared-gpu-i?[0-9]+(-evar)?")
_CREATE, _UPDATE, _DELETE = "CREATE", "UPDATE", "DELETE"


@dataclass(frozen=True, slots=True)
class Request:
    """What a policy looks at. ``old`` and ``new`` are empty where there is none."""

    user: str
    operation: str
    namespace: str
    name: str
    old: Json
    new: Json

    def changed(self, field: str) -> list[str]:
        """Keys of a map of the metadata that were added, changed or taken away."""
        old, new = _map(self.old, field), _map(self.new, field)
        return [key for key in {**new, **old} if old.get(key) != new.get(key)]


Rule = Callable[[Request], str]


@dataclass(slots=True)
class Policy:
    """One policy on one resource, in the form in which the server asks webhooks."""

    name: str
    resource: str
    operations: tuple[str, ...]
    rule: Rule
    is_ours: Callable[[str], bool]
    code: int = 403
    mutating: bool = False
    is_optional: bool = False

    def matches(self, obj: dict[str, Any], namespace_labels: dict[str, str]) -> bool:
        """Look at everything: who asks is known in the review only."""
        del obj, namespace_labels
        return True

    async def review(self, admission_review: dict[str, Any]) -> dict[str, Any]:
        """Answer a review."""
        asked = admission_review["request"]
        request = Request(
            user=asked["userInfo"]["username"],
            operation=asked["operation"],
            namespace=asked.get("namespace", ""),
            name=asked["name"],
            old=asked["oldObject"] or {},
            new=asked["object"] or {},
        )
        why = "" if self.is_ours(request.user) else self.rule(request)
        if not why:
            return {"response": {"uid": asked["uid"], "allowed": True}}
        reason = "TooManyRequests" if self.code == 429 else "Forbidden"
        status = {"code": self.code, "reason": reason, "message": why}
        return {"response": {"uid": asked["uid"], "allowed": False, "status": status}}


def policies(is_ours: Callable[[str], bool]) -> Iterator[Policy]:
    """All of them. ``is_ours``: whether a user is the scheduler or the binder."""
    both = (_CREATE, _UPDATE)
    for resource in ("pods", "pods/status", "pods/binding"):
        yield Policy("moorage-protected-keys", resource, both, _protected_keys, is_ours)
    yield Policy("moorage-protected-keys", "pods/binding", (_CREATE,), _late, is_ours)
    for resource in ("pods", "pods/status"):
        yield Policy("moorage-fixed-asks", resource, (_UPDATE,), _fixed_asks, is_ours)
        yield Policy("moorage-reservations", resource, (*both, _DELETE), _reservations, is_ours)
    yield Policy("moorage-reservations-budget", "pods/eviction", (_CREATE,), _budget, is_ours, code=429)
    yield Policy("moorage-hand-over", "bindrequests", both, _orders, is_ours)
    yield Policy("moorage-hand-over", "podgroups", both, _plans, is_ours)
    yield Policy("moorage-config-maps", "configmaps", (_CREATE,), _config_maps, is_ours)


def _protected_keys(request: Request) -> str:
    touched = [key for key in request.changed("annotations") if protected.is_annotation(key)]
    touched += [key for key in request.changed("labels") if protected.is_label(key)]
    return f"only the scheduler and the binder may write {', '.join(touched)}" if touched else ""


def _late(request: Request) -> str:
    late = [key for key in request.changed("annotations") if protected.is_fixed(key)]
    return f"{', '.join(late)} is fixed when a pod is created" if late else ""


def _fixed_asks(request: Request) -> str:
    spec = request.old.get("spec") or {}
    if spec.get("schedulerName") != names.SCHEDULER_NAME:
        return ""
    changed = request.changed("annotations")
    fixed = [key for key in changed if protected.is_fixed(key)]
    if fixed:
        return f"{', '.join(fixed)} is fixed when a pod is created"
    asks = [key for key in changed if protected.is_ask(key)]
    is_placed = bool(spec.get("nodeName")) or names.GRANT in _map(request.old, "annotations")
    counted = [key for key in request.changed("labels") if key in protected.COUNTED_LABELS]
    if names.POD_GROUP_NAME in changed and names.POD_GROUP_NAME in _map(request.old, "annotations"):
        counted.append(names.POD_GROUP_NAME)
    wrong = [*asks, *counted]
    return f"{', '.join(wrong)} can not be changed any more" if wrong and is_placed else ""


def _reservations(request: Request) -> str:
    if request.namespace != names.RESERVATION_NAMESPACE:
        return ""
    was, is_now = _is_reservation(request.old), _is_reservation(request.new)
    if request.operation == _DELETE:
        is_free = not was or request.user in _LIFE_CYCLE or _has_empty_book(request.old)
        return "" if is_free else "the device of this reservation pod has tenants: delete those, and it goes too"
    if was != is_now:
        return "reservation pods are made by the binder only, and stay what they are"
    if request.operation == _UPDATE and was:
        return _changed_reservation(request)
    return ""


def _changed_reservation(request: Request) -> str:
    held, kept = (
        names.BOOK_FINALIZER in (_metadata(obj).get("finalizers") or ()) for obj in (request.old, request.new)
    )
    told = [key for key in request.changed("annotations") if key in protected.TOLD]
    if held != kept:
        return f"only the binder may add or remove the finalizer {names.BOOK_FINALIZER}"
    if told and request.user not in {RESERVATION, AGENT}:
        return f"only the process inside a reservation pod, and the agent of its node, may write {', '.join(told)}"
    return ""


def _budget(request: Request) -> str:
    is_one = request.namespace == names.RESERVATION_NAMESPACE and _is_reservation(request.old)
    return "Cannot evict pod as it would violate the pod's disruption budget." if is_one else ""


def _orders(request: Request) -> str:
    is_same = (
        bool(request.old)
        and names.HANDOVER not in request.changed("annotations")
        and request.old.get("spec") == request.new.get("spec")
        and request.old.get("status") == request.new.get("status")
        and _metadata(request.old).get("ownerReferences") == _metadata(request.new).get("ownerReferences")
        and set(_metadata(request.new).get("finalizers") or ()) <= set(_metadata(request.old).get("finalizers") or ())
    )
    return "" if is_same else "BindRequests are written by the scheduler and the binder only"


def _plans(request: Request) -> str:
    is_touched = names.PLAN in request.changed("annotations")
    return f"only the scheduler and the binder may write {names.PLAN}" if is_touched else ""


def _config_maps(request: Request) -> str:
    if not _HANDOVER_NAME.fullmatch(request.name):
        return ""
    return "ConfigMaps of this form of name say which GPUs a pod sees: only the binder makes them"


def _is_reservation(obj: Json) -> bool:
    return _map(obj, "labels").get(names.APP_LABEL) == names.RESERVATION_APP


def _has_empty_book(obj: Json) -> bool:
    text = _map(obj, "annotations").get(names.TENANTS)
    return text is not None and json.loads(text) == {}


def _metadata(obj: Json) -> Json:
    return obj.get("metadata") or {}


def _map(obj: Json, field: str) -> Mapping[str, str]:
    return _metadata(obj).get(field) or {}
