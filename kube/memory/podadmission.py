"""What a pod passes on its way in: the plugins Priority, ServiceAccount, RuntimeClass, DefaultTolerationSeconds."""

from __future__ import annotations

from typing import Any

from kube.memory.pods import with_default_tolerations
from kube.memory.refusals import forbidden
from kube.memory.store import Store
from kube.memory.types import PODS, PRIORITY_CLASSES, RUNTIME_CLASSES, SERVICE_ACCOUNTS

Object = dict[str, Any]


def admitted(pod: Object, store: Store, namespace: str) -> Object:
    """Return the pod with what the plugins add before the webhooks see it. Raises Refusal (403)."""
    _check_service_account(pod, store, namespace)
    return with_default_tolerations(_with_priority(pod, store))


def check_runtime_class(pod: Object, store: Store) -> None:
    """Refuse (403) a pod whose RuntimeClass is not there; asked after the webhooks, which may have set it."""
    wanted = pod["spec"].get("runtimeClassName")
    if wanted and store.get(RUNTIME_CLASSES, wanted) is None:
        raise forbidden(PODS, _name(pod), f'pod rejected: RuntimeClass "{wanted}" not found')


def _name(pod: Object) -> str:
    return str(pod["metadata"].get("name") or "")


def _check_service_account(pod: Object, store: Store, namespace: str) -> None:
    # Every namespace has "default" sooner or later; here it needs no object.
    wanted = pod["spec"]["serviceAccountName"]
    if wanted != "default" and store.get(SERVICE_ACCOUNTS, f"{namespace}/{wanted}") is None:
        why = f'error looking up service account {namespace}/{wanted}: serviceaccount "{wanted}" not found'
        raise forbidden(PODS, _name(pod), why)


def _with_priority(pod: Object, store: Store) -> Object:
    spec = pod["spec"]
    name = spec.get("priorityClassName") or _default_class(store)
    value, policy = 0, "PreemptLowerPriority"
    if name:
        found = store.get(PRIORITY_CLASSES, name)
        if found is None:
            raise forbidden(PODS, _name(pod), f"no PriorityClass with name {name} was found")
        value, policy = found.obj.get("value", 0), found.obj.get("preemptionPolicy", policy)
    said = spec.get("priority")
    if said is not None and said != value:
        why = (
            f"the integer value of priority ({said}) must not be provided in pod spec; priority admission controller "
            f"computed {value} from the given PriorityClass name"
        )
        raise forbidden(PODS, _name(pod), why)
    named = {"priorityClassName": name} if name else {}
    return {**pod, "spec": {**spec, **named, "priority": value, "preemptionPolicy": policy}}


def _default_class(store: Store) -> str:
    defaults = [each for each in store.objects(PRIORITY_CLASSES) if each.get("globalDefault")]
    return str(min(defaults, key=lambda each: each["value"])["metadata"]["name"]) if defaults else ""
