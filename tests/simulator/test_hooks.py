"""Which pods the webhooks of a simulated cluster are asked about."""

from __future__ import annotations

import random
from typing import Any

import pytest

from admission.objects.review import ObjectAdmission
from admission.review import PodAdmission
from admission.settings import Settings
from simulator.components import hooks, object_hooks
from tests.admission.pods import env, half, patched, review
from wire import names

OURS, OTHERS = half(), half(scheduler="other")
ADOPTS = {names.ADOPT: "true"}
OF_KUBERNETES = {"kubernetes.io/metadata.name": "kube-system"}

ADOPTION, MUTATION, VALIDATION = hooks(PodAdmission(Settings(), rng=random.Random(1)))


@pytest.mark.parametrize(
    ("pod", "labels", "asked"),
    [
        (OURS, {}, [MUTATION, VALIDATION]),
        (OURS, ADOPTS, [MUTATION, VALIDATION]),
        (OTHERS, ADOPTS, [ADOPTION]),
        (OTHERS, {names.ADOPT: "false"}, []),
        (OTHERS, {}, []),
        (OURS, OF_KUBERNETES, []),
        (OTHERS, OF_KUBERNETES | ADOPTS, []),
    ],
)
def test_a_webhook_is_asked_about(pod: dict[str, object], labels: dict[str, str], asked: list[object]) -> None:
    assert [hook for hook in (ADOPTION, MUTATION, VALIDATION) if hook.matches(pod, labels)] == asked


async def test_its_answer_is_the_real_one() -> None:
    assert env(patched(OURS, await MUTATION.review(review(OURS))))


def _of_object(operation: str, *, old: dict[str, Any] | None, new: dict[str, Any] | None) -> dict[str, Any]:
    named = {"metadata": {"name": "a"}}
    objects = {"oldObject": old and {**named, "spec": old}, "object": new and {**named, "spec": new}}
    request = {**review({})["request"], "uid": "u", "name": "a", "operation": operation, **objects}
    return {**review({}), "request": request}


async def test_a_queue_is_judged_where_its_spec_changes() -> None:
    queues, _ = object_hooks(ObjectAdmission())
    wrong: dict[str, Any] = {"resources": {"gpu": {"limit": -2}}}
    stored, refused = _of_object("UPDATE", old=wrong, new=wrong), _of_object("CREATE", old=None, new=wrong)
    assert (await queues.review(stored))["response"]["allowed"]
    assert "spec.resources.gpu.limit" in (await queues.review(refused))["response"]["status"]["message"]


async def test_a_pod_group_is_judged_but_in_namespaces_of_the_system() -> None:
    _, groups = object_hooks(ObjectAdmission())
    wrong = {"minMember": 1, "minSubGroup": 1}
    assert not (await groups.review(_of_object("CREATE", old=None, new=wrong)))["response"]["allowed"]
    assert groups.matches({}, {})
    assert not groups.matches({}, OF_KUBERNETES)
