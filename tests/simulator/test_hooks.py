"""Which pods the webhooks of a simulated cluster are asked about."""

from __future__ import annotations

import random

import pytest

from admission.review import PodAdmission
from admission.settings import Settings
from simulator.hooks import hooks
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
