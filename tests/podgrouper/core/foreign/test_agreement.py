from __future__ import annotations

from typing import Any

import pytest

from podgrouper.core import answers, patches
from podgrouper.core.answers import Code
from podgrouper.core.foreign import gangs
from tests.podgrouper.core.foreign.objects import made, of_koordinator
from tests.podgrouper.objects import pod


def said(least: str = "4", **meta: Any) -> str:
    return patches.gang_of(made(pod(**of_koordinator(least), **meta)).pod_group)


def queue(name: str) -> dict[str, Any]:
    return {"labels": {"kai.scheduler/queue": name}}


@pytest.mark.parametrize(
    ("own", "first", "told"),
    [
        (
            said("2"),
            said("4"),
            "metadata.annotations[gang.scheduling.koordinator.sh/min-available] is 2; allowed: 4",
        ),
        (said(**queue("b")), said(**queue("a")), "queue is b; allowed: a"),
        (said(), said(**queue("a")), "queue is absent; allowed: a"),
        (said(spec={"containers": [], "priorityClassName": "high"}), said(), "priorityClass is high; allowed: absent"),
    ],
)
def test_a_pod_that_says_something_else_is_refused_by_field(own: str, first: str, told: str) -> None:
    refusal = gangs.difference(pod(**of_koordinator()), own, first)
    assert refusal is not None
    assert refusal.code is Code.GANG_DIFFERS
    expected = f"Pod p differs from the other pods of its gang: {told}, as the gang's first pod says"
    assert answers.told(refusal) == expected


def test_it_does_not_matter_by_which_word_they_say_it() -> None:
    light = {"pod-group.scheduling.sigs.k8s.io/name": "llm", "pod-group.scheduling.sigs.k8s.io/min-available": "4"}
    assert patches.gang_of(made(pod(labels=light)).pod_group) == said("4")


def test_pods_that_agree_are_of_one_gang() -> None:
    assert gangs.difference(pod(), said(**queue("a")), said(**queue("a"))) is None


@pytest.mark.parametrize("spoilt", ["", "{", "[]", "7"])
def test_a_text_that_somebody_has_spoilt_agrees_with_nothing(spoilt: str) -> None:
    assert gangs.difference(pod(), said(), spoilt) is not None
