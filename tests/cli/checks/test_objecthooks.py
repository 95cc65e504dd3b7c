"""What ``moorage check`` says of the webhooks for Queues and PodGroups."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from admission.manifests import ServiceEndpoint, queue_manifest
from cli.checks.reader import Level
from cli.checks.webhooks import of_objects
from kube.client.clock import SystemClock

OURS = queue_manifest(ServiceEndpoint(), ca=b"")


def changed(**fields: Any) -> dict[str, Any]:
    """Our configuration with other fields in the webhook for Queues."""
    made = copy.deepcopy(OURS)
    made["webhooks"][0] |= fields
    return made


def test_webhooks_of_this_version_are_asked_as_the_api_server_stores_them() -> None:
    assert [(each.level, each.said) for each in of_objects([changed(objectSelector={})], SystemClock())] == [
        (Level.OK, "queues.admission.moorage.dev is asked about Queues"),
        (Level.OK, "podgroups.admission.moorage.dev is asked about PodGroups"),
    ]


def test_without_them_objects_are_stored_unchecked() -> None:
    queues, groups = of_objects([], SystemClock())
    assert queues.level is groups.level is Level.WARNING
    assert queues.said.endswith("has queues.admission.moorage.dev: Queues are stored unchecked")
    assert groups.said.endswith("has podgroups.admission.moorage.dev: PodGroups are stored unchecked")


@pytest.mark.parametrize(
    ("configuration", "words"),
    [
        (changed(failurePolicy="Fail"), "failurePolicy"),
        (changed(matchConditions=[]), "matchConditions"),
        (changed(objectSelector={"matchLabels": {"a": "b"}}), "objectSelector"),
        (
            changed(rules=[{"resources": ["queues"], "operations": ["CREATE"]}]),
            "rules: not asked about DELETE queues, UPDATE queues",
        ),
    ],
    ids=["fails closed", "asked of all", "narrowed", "not asked"],
)
def test_what_differs_is_named(configuration: dict[str, Any], words: str) -> None:
    queues, groups = of_objects([configuration], SystemClock())
    assert (queues.level, groups.level) == (Level.WARNING, Level.OK)
    assert f"differs from this version's in {words}: Queues may be stored unchecked" in queues.said
