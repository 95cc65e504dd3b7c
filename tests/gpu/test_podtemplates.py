from __future__ import annotations

from typing import Any

import pytest

from gpu import manifests

SPEC: dict[str, Any] = {"containers": [{"name": "main", "image": "work"}]}


@pytest.mark.parametrize(
    ("obj", "paths"),
    [
        ({"kind": "Pod", "spec": SPEC}, [""]),
        ({"kind": "Service", "spec": {"ports": []}}, []),
        ({"kind": "Deployment", "spec": {"template": {"spec": SPEC}}}, ["spec.template"]),
        (
            {"kind": "CronJob", "spec": {"jobTemplate": {"spec": {"template": {"spec": SPEC}}}}},
            ["spec.jobTemplate.spec.template"],
        ),
        (
            {"kind": "Job", "spec": {"tasks": [{"template": {"spec": SPEC}}, {"template": {"spec": dict(SPEC)}}]}},
            ["spec.tasks[0].template", "spec.tasks[1].template"],
        ),
    ],
)
def test_templates_are_known_by_their_form(obj: dict[str, Any], paths: list[str]) -> None:
    assert [path for path, _ in manifests.templates(obj)] == paths


@pytest.mark.parametrize(("levels", "is_found"), [(63, True), (64, False)])
def test_templates_are_looked_for_as_deep_as_objects_are(levels: int, is_found: bool) -> None:
    value: dict[str, Any] = {"spec": SPEC}
    for _ in range(levels):
        value = {"of": value}
    assert bool(list(manifests.templates(value))) is is_found


def test_what_aliases_repeat_is_looked_at_once() -> None:
    value: dict[str, Any] = {"template": {"spec": SPEC}}
    for _ in range(40):
        value = {"left": value, "right": value}
    assert len(list(manifests.templates(value))) == 1


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        ({"spec": SPEC}, ""),
        ({"metadata": None, "spec": None}, ""),
        (
            {"metadata": {"annotations": {"gpu-fraction": 0.5}}, "spec": SPEC},
            "metadata.annotations[gpu-fraction] is 0.5 and has to be text: put it in quotes",
        ),
        (
            {"metadata": {"labels": {"new": True}}, "spec": SPEC},
            "metadata.labels[new] is True and has to be text: put it in quotes",
        ),
        ({"spec": {"containers": [{"image": 5}]}}, "Expected `str`, got `int` - at `$.spec.containers[0].image`"),
    ],
)
def test_a_pod_that_the_api_server_would_not_read_says_why(raw: dict[str, Any], why: str) -> None:
    pod, found = manifests.read_pod(raw)
    assert found == why
    assert (pod is None) == bool(why)
