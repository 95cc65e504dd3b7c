"""What is said of adoption; what is said of the other webhooks is asked of a real cluster (tests/e2e/test_check.py)."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from admission.manifests import ServiceEndpoint, adoption_manifest, webhook_manifests
from cli.checks.reader import Level, Reader
from cli.checks.webhooks import webhooks_check
from kube.client.clock import SystemClock
from tests.cli.checks.told import Told
from wire import names

ROOT = "/apis/admissionregistration.k8s.io/v1"
MUTATING, VALIDATING = webhook_manifests(ServiceEndpoint(), ca=b"")
ADOPTION = adoption_manifest(ServiceEndpoint(), ca=b"")


def changed(name: str = "moorage-adoption", **fields: Any) -> dict[str, Any]:
    made = copy.deepcopy(ADOPTION)
    made["metadata"]["name"] = name
    made["webhooks"][0] |= fields
    return made


async def said(adoption: dict[str, Any] | None, label: str | None) -> list[tuple[Level, str]]:
    """What is found of adoption, where one namespace has the label."""
    labels = {"kubernetes.io/metadata.name": "team"} | ({names.ADOPT: label} if label else {})
    namespaces = [{"metadata": {"name": "team", "labels": labels}}, {"metadata": {"name": "other"}}]
    told = Told(
        {
            "/api/v1/namespaces": {"items": namespaces},
            f"{ROOT}/mutatingwebhookconfigurations": {"items": [MUTATING, *([adoption] if adoption else [])]},
            f"{ROOT}/validatingwebhookconfigurations": {"items": [VALIDATING]},
        }
    )
    findings = await webhooks_check(SystemClock())(Reader(told))
    return [(each.level, each.said) for each in findings if "adopt" in each.said]


async def test_adoption_that_is_in_force_is_told() -> None:
    expected = (Level.OK, "adopt.admission.moorage.dev is asked first, where a namespace says so")
    assert await said(ADOPTION, "true") == [expected]
    assert await said(ADOPTION, None) == [expected]


async def test_nobody_misses_adoption_where_no_namespace_says_so() -> None:
    assert await said(None, None) == []
    assert await said(None, "false") == []


@pytest.mark.parametrize(
    ("adoption", "words"),
    [
        pytest.param(None, "pods are not adopted in team", id="not there"),
        pytest.param(changed("zz-last"), "is asked after pods.admission.moorage.dev in moorage-pods", id="too late"),
        pytest.param(changed(failurePolicy="Ignore"), "failurePolicy is Ignore; allowed: Fail", id="fails open"),
        pytest.param(changed(objectSelector={"matchLabels": {"a": "b"}}), "objectSelector", id="narrowed"),
        pytest.param(changed(matchConditions=[]), "matchConditions are not those", id="another condition"),
        pytest.param(changed(rules=[]), "not asked about CREATE pods", id="not asked"),
    ],
)
async def test_adoption_that_does_not_hold_fails(adoption: dict[str, Any] | None, words: str) -> None:
    ((level, text),) = await said(adoption, "true")
    assert level is Level.FAILED
    assert words in text


async def test_a_namespace_that_is_left_out_though_it_says_so_is_told() -> None:
    selector = {"matchLabels": {"a": "b"}}
    ((level, text),) = await said(changed(namespaceSelector=selector), "true")
    assert (level, text) == (
        Level.WARNING,
        "adopt.admission.moorage.dev is not asked in team, whose label says so",
    )


async def test_a_label_that_means_nothing_is_told() -> None:
    (level, text), _ = await said(ADOPTION, "yes")
    assert (level, text) == (Level.WARNING, "the label moorage.dev/adopt means nothing in team; allowed: true")
