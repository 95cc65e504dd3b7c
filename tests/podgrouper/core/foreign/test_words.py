"""Which gang a pod names, and words that name none that is carried out."""

from __future__ import annotations

from typing import Any

import pytest

from podgrouper.core.answers import Code, Refused
from podgrouper.core.foreign import gangs
from tests.podgrouper.core.foreign.objects import BY_COSCHEDULING, BY_SIGS, BY_VOLCANO, of_koordinator
from tests.podgrouper.objects import pod

LIGHT = {"pod-group.scheduling.sigs.k8s.io/name": "llm", "pod-group.scheduling.sigs.k8s.io/min-available": "3"}
OWN = {"annotations": {"scheduling.volcano.sh/group-name": "llm"}}

NAMED = [
    pytest.param(BY_COSCHEDULING, "coscheduling", None, id="coscheduling"),
    pytest.param(BY_VOLCANO, "volcano", None, id="Volcano"),
    pytest.param(OWN, "volcano", None, id="Volcano's own annotation"),
    pytest.param(BY_SIGS, "koordinator", None, id="older coscheduling, Koordinator"),
    pytest.param({"labels": LIGHT}, "koordinator", 3, id="lightweight coscheduling"),
    pytest.param(of_koordinator("4"), "koordinator", 4, id="Koordinator"),
    pytest.param({**of_koordinator("4"), **BY_SIGS}, "koordinator", 4, id="Koordinator, by two words"),
    pytest.param(
        {"annotations": {**BY_VOLCANO["annotations"], "scheduling.volcano.sh/group-min-member": "2"}},
        "volcano",
        None,
        id="Volcano's minimum of owners says nothing on a pod",
    ),
]


@pytest.mark.parametrize(("meta", "system", "least"), NAMED)
def test_a_gang_is_read_from_the_words_of_each_system(meta: dict[str, Any], system: str, least: int | None) -> None:
    gang = gangs.gang_of(pod(**meta))
    assert gang is not None
    assert (gang.form.system, gang.name, gang.least) == (system, "llm", least)
    assert gangs.key_of(pod(**meta)) == f"{system} llm"


@pytest.mark.parametrize("meta", [{}, {"labels": {"scheduling.x-k8s.io/pod-group": ""}}, {"annotations": {"a": "b"}}])
def test_a_pod_without_such_words_is_of_no_gang(meta: dict[str, Any]) -> None:
    assert (gangs.gang_of(pod(**meta)), gangs.key_of(pod(**meta))) == (None, "")


REFUSED = [
    pytest.param(
        {**BY_COSCHEDULING, **BY_VOLCANO},
        Code.NOT_CARRIED_OUT,
        "metadata.annotations[scheduling.k8s.io/group-name]",
        id="two systems",
    ),
    pytest.param(
        {"annotations": {"yunikorn.apache.org/task-group-name": "g"}},
        Code.NOT_CARRIED_OUT,
        "metadata.annotations[yunikorn.apache.org/task-group-name]",
        id="YuniKorn",
    ),
    pytest.param(
        {"annotations": {"scheduling.x-k8s.io/pod-group": "g"}},
        Code.NOT_CARRIED_OUT,
        "metadata.annotations[scheduling.x-k8s.io/pod-group]",
        id="an annotation in place of a label",
    ),
    pytest.param(
        {"annotations": {"scheduling.volcano.sh/group-min-member": "2"}},
        Code.NOT_CARRIED_OUT,
        "metadata.annotations[scheduling.volcano.sh/group-min-member]",
        id="Volcano's minimum alone",
    ),
    pytest.param(
        {**of_koordinator("4", name="a"), **BY_SIGS},
        Code.MALFORMED,
        "metadata.labels[pod-group.scheduling.sigs.k8s.io]",
        id="two names",
    ),
    pytest.param(
        of_koordinator("4", name="Not A Name"),
        Code.MALFORMED,
        "metadata.annotations[gang.scheduling.koordinator.sh/name]",
        id="no name of an object",
    ),
    pytest.param(
        of_koordinator("4", name="a" * 254),
        Code.MALFORMED,
        "metadata.annotations[gang.scheduling.koordinator.sh/name]",
        id="a name that is too long",
    ),
    *(
        pytest.param(
            of_koordinator(least),
            Code.MALFORMED,
            "metadata.annotations[gang.scheduling.koordinator.sh/min-available]",
            id=f"min-available {least}",
        )
        for least in ("0", "-1", "four", "2147483648")
    ),
]


@pytest.mark.parametrize(("meta", "code", "field"), REFUSED)
def test_words_that_are_not_carried_out_are_refused_by_field(meta: dict[str, Any], code: Code, field: str) -> None:
    with pytest.raises(Refused) as caught:
        gangs.gang_of(pod(**meta))
    assert (caught.value.refusal.code, caught.value.refusal.field) == (code, field)
    assert gangs.key_of(pod(**meta)) == ""
