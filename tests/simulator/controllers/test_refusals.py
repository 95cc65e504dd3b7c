"""Controllers that the API server refuses are refused in a simulation, with field, value and what is allowed."""

from __future__ import annotations

from typing import Any

import pytest

from gpu.translation import shown
from simulator.controllers.pods import Malformed
from simulator.controllers.refusals import check

CONTAINER: dict[str, Any] = {"name": "main", "image": "work"}
OF_APP = {"matchLabels": {"app": "a"}}
SERVING = ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet")
NO_MATCH = 'spec.template.metadata.labels: Invalid value: {"app":"a"}: `selector` does not match template `labels`'
DATA = [{"name": "data", "mountPath": "/data"}]


def controller(kind: str, *, labels: dict[str, str] | None = None, pod: Any = (), **spec: Any) -> dict[str, Any]:
    of_job = {"restartPolicy": "Never"} if kind == "Job" else {}
    template = {
        "metadata": {"labels": labels or {"app": "a"}},
        "spec": {"containers": [CONTAINER], **of_job, **dict(pod)},
    }
    return {"kind": kind, "metadata": {"name": "work"}, "spec": {"template": template, **spec}}


def expression(operator: str, *values: str, key: str = "app") -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, **({"values": [*values]} if values else {})}]}


@pytest.mark.parametrize(
    "obj",
    [
        *(controller(kind, selector=OF_APP) for kind in SERVING),
        controller("ReplicationController"),
        controller("ReplicationController", selector={"app": "a"}),
        controller("Job"),
        controller("Job", selector=OF_APP, manualSelector=True),
        controller("Deployment", selector=expression("In", "a", "b")),
        controller("Deployment", selector=expression("NotIn", "b")),
        controller("Deployment", selector=expression("Exists")),
        controller("Deployment", selector=expression("DoesNotExist", key="other")),
        controller("Deployment", selector=OF_APP, pod={"restartPolicy": "Always"}),
        controller(
            "StatefulSet",
            selector=OF_APP,
            pod={"containers": [{**CONTAINER, "volumeMounts": DATA}]},
            volumeClaimTemplates=[{"metadata": {"name": "data"}}],
        ),
    ],
)
def test_what_the_api_server_takes_is_taken(obj: dict[str, Any]) -> None:
    check(obj)


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        *((controller(kind), "spec.selector: Required value") for kind in SERVING),
        (controller("Job", manualSelector=True), "spec.selector: Required value"),
        (
            {"kind": "CronJob", "spec": {"jobTemplate": controller("Job", manualSelector=True)}},
            'spec.jobTemplate.spec.manualSelector: Unsupported value: true: supported values: "nil", "false"',
        ),
        (
            {"kind": "CronJob", "spec": {"jobTemplate": controller("Job", selector=OF_APP)}},
            'spec.jobTemplate.spec.selector: Invalid value: {"matchLabels":{"app":"a"}}: '
            "`selector` will be auto-generated",
        ),
        (
            controller("StatefulSet", selector={}),
            "spec.selector: Invalid value: {}: empty selector is invalid for statefulset",
        ),
        (
            controller("Deployment", selector="app=a"),
            "spec.selector is 'app=a'; an object with matchLabels or matchExpressions is allowed",
        ),
        *(
            (
                controller("Deployment", selector=selector),
                f"spec.selector is {shown(repr(selector))}; an object with matchLabels or matchExpressions is allowed",
            )
            for selector in (
                {"matchLabels": ["app"]},
                {"matchExpressions": "app"},
                {"matchExpressions": ["app"]},
                {"matchExpressions": [{"key": "app", "operator": "In", "values": "a"}]},
            )
        ),
        (
            controller("Deployment", selector=expression("Equals", "a")),
            'spec.selector.matchExpressions[0].operator: Invalid value: "Equals": not a valid selector operator',
        ),
        *(
            (
                controller(kind, selector={"matchLabels": {"app": "b"}}),
                NO_MATCH,
            )
            for kind in SERVING
        ),
        (
            controller("Deployment", selector=expression("NotIn", "a")),
            NO_MATCH,
        ),
        (
            controller("Deployment", selector=OF_APP, pod={"restartPolicy": "Never"}),
            'spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"',
        ),
        (
            controller("Job", pod={"containers": [{**CONTAINER, "volumeMounts": DATA}]}),
            'spec.template.spec.containers[0].volumeMounts[0].name: Not found: "data"',
        ),
        (
            controller("Deployment", selector=OF_APP, replicas=0, pod={"containers": [{"name": "main"}]}),
            "spec.template.spec.containers[0].image: Required value",
        ),
    ],
)
def test_what_the_api_server_refuses_is_refused_in_its_words(obj: dict[str, Any], message: str) -> None:
    with pytest.raises(Malformed) as caught:
        check(obj)
    assert str(caught.value) == message
