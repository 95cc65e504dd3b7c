from __future__ import annotations

from typing import Any

import pytest

from podgrouper.core.answers import Code
from tests.podgrouper.core.foreign.objects import BY_SIGS, SIGS, made, of_koordinator, pod_group, refused
from tests.podgrouper.objects import obj, pod

PREFIX = "gang.scheduling.koordinator.sh"


def test_pods_state_the_minimum_themselves() -> None:
    answer = made(pod(**of_koordinator("4", total_number="6", waiting_time="60s", mode="NonStrict")))
    assert (answer.pod_group.metadata.name, answer.pod_group.spec.min_member) == ("pg-koordinator-llm", 4)


def test_a_name_without_a_minimum_is_that_of_a_pod_group() -> None:
    bottom = pod(annotations={f"{PREFIX}/name": "llm"})
    assert made(bottom, pod_group(SIGS, minMember=5)).pod_group.spec.min_member == 5
    assert refused(bottom).code is Code.NOT_FOUND


def test_a_label_names_a_pod_group() -> None:
    assert made(pod(**BY_SIGS), pod_group(SIGS, minMember=2)).pod_group.spec.min_member == 2


ASKED = [
    pytest.param({"match-policy": "only-waiting"}, Code.NOT_CARRIED_OUT, id="only waiting pods count"),
    pytest.param({"groups": '["team/llm","team/other"]'}, Code.NOT_CARRIED_OUT, id="gangs that start together"),
    pytest.param({"groups": '{"a": 1}'}, Code.NOT_CARRIED_OUT, id="no list of gangs"),
    pytest.param({"groups": "["}, Code.MALFORMED, id="no JSON"),
    pytest.param(
        {"network-topology-spec": '{"gatherStrategy":[{"layer":"rack","strategy":"MustGather"}]}'},
        Code.NOT_CARRIED_OUT,
        id="one rack",
    ),
    pytest.param({"match-policy": "once-satisfied"}, None, id="the default"),
    pytest.param({"match-policy": "waiting-and-running"}, None, id="bound pods count"),
    pytest.param({"groups": '["team/llm"]'}, None, id="no other gang"),
    pytest.param({"groups": "[]"}, None, id="no gangs"),
    pytest.param(
        {"network-topology-spec": '{"gatherStrategy":[{"layer":"rack","strategy":"PreferGather"}]}'},
        None,
        id="one rack if possible",
    ),
]


@pytest.mark.parametrize("place", ["pod", "PodGroup"])
@pytest.mark.parametrize(("written", "code"), ASKED)
def test_what_annotations_ask_beyond_a_minimum_is_refused(
    written: dict[str, str], code: Code | None, place: str
) -> None:
    annotations = {f"{PREFIX}/{key}": text for key, text in written.items()}
    if place == "pod":
        bottom = pod(annotations={**of_koordinator("4")["annotations"], **annotations})
        there: list[dict[str, Any]] = []
    else:
        bottom = pod(**BY_SIGS)
        there = [obj(SIGS, "PodGroup", "llm", spec={"minMember": 4}, annotations=annotations)]
    if code is None:
        assert made(bottom, *there).pod_group.spec.min_member == 4
        return
    refusal = refused(bottom, *there)
    (name,) = annotations
    assert (refusal.code, refusal.field) == (code, f"metadata.annotations[{name}]")
