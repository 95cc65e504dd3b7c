"""What the API server refuses of Kubernetes' own controllers: their selectors, and the pods of their templates.

In its words, read from pkg/apis/apps/validation and pkg/apis/batch/validation of Kubernetes 1.36; the first of several.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeGuard

import msgspec

from gpu import manifests
from gpu.translation import shown
from simulator.apiserver.pod_spec import selector_problems
from simulator.apiserver.pods import refusal_of_template
from simulator.controllers.kubernetes import with_claims
from simulator.controllers.pods import Malformed, child

#: Without a selector it gets the labels of its template.
_DEFAULTED: Final = "ReplicationController"
_OF_JOBS: Final = ("Job", "CronJob")
#: As the API server calls a kind in its refusal, where it is not the kind.
_CALLED: Final = {"ReplicaSet": "deployment"}


def check(controller: Mapping[str, Any]) -> None:
    """Raise Malformed for a controller that the API server refuses: the field, its value and what is allowed."""
    kind = controller["kind"]
    path = "spec.jobTemplate.spec.template" if kind == "CronJob" else "spec.template"
    raw = next((raw for place, raw in manifests.templates(controller) if place == path), None)
    pod, _ = (None, "") if raw is None else manifests.read_pod(manifests.without_nulls(raw))
    if pod is None or raw is None:
        return  # expanding it says why
    if kind == "CronJob":
        _check_job_template(child(child(child(controller, "spec"), "jobTemplate"), "spec"))
    else:
        _check_selector(controller, child(child(raw, "metadata"), "labels") or {}, path)
    policy = child(child(raw, "spec"), "restartPolicy")
    if kind not in _OF_JOBS and policy not in {None, "", "Always"}:
        raise Malformed(f'{path}.spec.restartPolicy: Unsupported value: "{policy}": supported values: "Always"')
    refused = refusal_of_template(dict(with_claims(controller, manifests.without_nulls(raw))))
    if refused is not None:
        raise Malformed(f"{path}.{refused[0]}: {refused[1]}")


def _check_job_template(job: object) -> None:
    """Jobs of a CronJob get their selectors from the API server, and no others."""
    field, selector = "spec.jobTemplate.spec", child(job, "selector")
    if selector is not None:
        said = msgspec.json.encode(selector, order="sorted").decode()
        raise Malformed(f"{field}.selector: Invalid value: {said}: `selector` will be auto-generated")
    if child(job, "manualSelector") is True:
        raise Malformed(f'{field}.manualSelector: Unsupported value: true: supported values: "nil", "false"')


def _selector(controller: Mapping[str, Any]) -> tuple[object, bool]:
    """Return a controller's selector, and whether it has to be there.

    A Job that ``kubectl get`` shows has one that the API server has made.
    """
    kind, spec = controller["kind"], child(controller, "spec")
    selector = child(spec, "selector")
    if kind == "Job":
        return selector, child(spec, "manualSelector") is True
    is_plain = kind == _DEFAULTED and selector
    return {"matchLabels": selector} if is_plain else selector, kind != _DEFAULTED


def _check_selector(controller: Mapping[str, Any], labels: Mapping[str, str], path: str) -> None:
    kind, field = controller["kind"], "spec.selector"
    selector, is_required = _selector(controller)
    if selector is None:
        if is_required:
            raise Malformed(f"{field}: Required value")
        return
    if not _is_selector(selector):
        raise Malformed(
            f"{field} is {shown(repr(selector))}; an object with matchLabels or matchExpressions is allowed"
        )
    if kind != "Job" and not (selector.get("matchLabels") or selector.get("matchExpressions")):
        called = _CALLED.get(kind, kind.lower())
        raise Malformed(f"{field}: Invalid value: {{}}: empty selector is invalid for {called}")
    for where, why in selector_problems(field, selector):
        raise Malformed(f"{where}: {why}")
    if not _selects(selector, labels):
        said = msgspec.json.encode(labels, order="sorted").decode() if labels else "null"
        where = f"{path}.metadata.labels"
        raise Malformed(f"{where}: Invalid value: {said}: `selector` does not match template `labels`")


def _is_selector(value: object) -> TypeGuard[Mapping[str, Any]]:
    """Whether a value has the types of a selector: what the API server can't decode it refuses before all rules."""
    if not isinstance(value, Mapping):
        return False
    labels, expressions = value.get("matchLabels") or {}, value.get("matchExpressions") or []
    return (
        isinstance(labels, Mapping)
        and isinstance(expressions, list)
        and all(isinstance(each, Mapping) and isinstance(each.get("values") or [], list) for each in expressions)
    )


def _selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a selector without problems takes these labels."""
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_meets(each, labels.get(each["key"])) for each in selector.get("matchExpressions") or ())


def _meets(expression: Mapping[str, Any], value: str | None) -> bool:
    match expression["operator"]:
        case "In":
            return value in expression["values"]
        case "NotIn":
            return value not in expression["values"]
        case "Exists":
            return value is not None
        case _:
            return value is None
