from __future__ import annotations

from typing import Any

import pytest

from podgrouper.core.answers import Code
from tests.podgrouper.core.foreign.objects import BY_COSCHEDULING, made, pod_group, refused
from tests.podgrouper.objects import pod


@pytest.mark.parametrize(
    ("spec", "minimum"),
    [
        ({"minMember": 3}, 3),
        ({"minMember": 0}, 1),
        ({}, 1),
        # Other ways to wait, of which there is no need here.
        ({"minMember": 2, "minResources": {"cpu": "9"}, "scheduleTimeoutSeconds": 5}, 2),
    ],
)
def test_the_minimum_is_that_of_the_pod_group(spec: dict[str, Any], minimum: int) -> None:
    answer = made(pod(**BY_COSCHEDULING), pod_group(**spec))
    assert (answer.pod_group.spec.min_member, answer.pod_group.spec.sub_groups, answer.part) == (minimum, None, "")


@pytest.mark.parametrize("wrong", [-1, "3", 2**31, True])
def test_a_minimum_that_is_no_count_is_refused(wrong: object) -> None:
    refusal = refused(pod(**BY_COSCHEDULING), pod_group(minMember=wrong))
    assert (refusal.code, refusal.about, refusal.field) == (Code.MALFORMED, "PodGroup llm", "spec.minMember")
