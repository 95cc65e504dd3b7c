"""Foreign gangs of pods in files."""

from __future__ import annotations

from typing import Any

import pytest

from podgrouper.core.answers import Code, Group, Json, Refusal
from podgrouper.core.files import Gangs
from tests.podgrouper.core.foreign.objects import BY_COSCHEDULING, of_koordinator, pod_group
from tests.podgrouper.objects import obj, pod
from wire import names


def asked(gangs: Gangs, meta: dict[str, Any], namespace: str = "team", owner: Json | None = None) -> object:
    answer = gangs.answer({"metadata": meta, "spec": {}}, namespace, owner=owner)
    if isinstance(answer, Group):
        return answer.pod_group.metadata.name, answer.pod_group.spec.min_member
    return answer.code if isinstance(answer, Refusal) else None


def test_a_pod_group_counts_in_its_own_namespace() -> None:
    gangs = Gangs()
    assert gangs.note(pod_group(minMember=3), "team")
    assert asked(gangs, BY_COSCHEDULING) == ("pg-coscheduling-llm", 3)
    assert asked(gangs, BY_COSCHEDULING, "other") is Code.NOT_FOUND


@pytest.mark.parametrize("other", [pod(), obj("scheduling.run.ai/v2alpha2", "PodGroup", "g"), {}])
def test_other_objects_are_not_noted(other: dict[str, Any]) -> None:
    assert not Gangs().note(other, "team")


def test_the_first_pod_of_a_gang_decides() -> None:
    gangs = Gangs()
    found = [asked(gangs, of_koordinator(least)) for least in ("4", "2", "4")]
    assert found == [("pg-koordinator-llm", 4), Code.GANG_DIFFERS, ("pg-koordinator-llm", 4)]


def test_the_queue_of_the_owner_counts() -> None:
    owner = obj("batch/v1", "Job", "j", labels={"kai.scheduler/queue": "research"})
    answer = Gangs().answer({"metadata": of_koordinator()}, "team", owner=owner)
    assert isinstance(answer, Group)
    assert answer.pod_group.spec.queue == "research"


@pytest.mark.parametrize(
    ("meta", "owner"),
    [
        ({}, None),
        ({"annotations": {**of_koordinator()["annotations"], names.POD_GROUP_NAME: "mine"}}, None),
        (of_koordinator(), obj("batch/v1", "Job", "j", annotations={names.BATCH_MIN_MEMBER: "2"})),
        ({"annotations": {**of_koordinator()["annotations"], names.SKIP_POD_GROUPER: "true"}}, None),
    ],
    ids=["no words", "names a PodGroup", "a Job with a minimum", "skipped"],
)
def test_other_pods_have_no_answer(meta: dict[str, Any], owner: Json | None) -> None:
    assert asked(Gangs(), meta, owner=owner) is None
