"""What is said to help is done in a simulated cluster, where the group then runs; where nothing is said, nothing helps.

``MOORAGE_WHOLE=1`` judges 1,000 groups, as in ``make nightly``. ``make simulate-suggestions`` judges any number.
"""

from __future__ import annotations

from collections import Counter

import pytest

from scheduler.core.what_if.edits import Family
from tests.scheduler.what_if.planted import finders, silent
from tests.whole import IS_WHOLE
from verification.what_if.__main__ import lines, main
from verification.what_if.judging import Judged, judge

pytestmark = pytest.mark.thorough

#: Clusters; each has four or five groups that wait.
_CLUSTERS = 240 if IS_WHOLE else 2
#: The least part of the changes said to help that do, in thousandths.
_HELP_MILLI = 995
#: A mistake is found within this many clusters.
_UNTIL_FOUND = 30
#: Families in which a mistake is planted.
_PLANTED = tuple(Family) if IS_WHOLE else (Family.WAIT, Family.QUEUE, Family.MORE_NODES)
#: Families that are left out, so that it is said that nothing helps where they alone do.
_SILENT = tuple(Family)[1:] if IS_WHOLE else (Family.MORE_NODES,)
#: From this cluster on: the clusters before it take 60 s of CPU time until the first missing one is found.
_SILENT_FROM = 0 if IS_WHOLE else 6


@pytest.mark.timeout(36_000)
def test_what_is_said_to_help_helps_and_nothing_else_does() -> None:
    judged = Judged()
    for seed in range(_CLUSTERS):
        judge(seed, judged)
    assert judged.told > 4 * _CLUSTERS
    assert judged.helped * 1_000 >= judged.told * _HELP_MILLI, judged.wrong
    assert judged.tried > _CLUSTERS
    assert [each for each in judged.wrong if "nobody said so" in each] == []


def test_the_command_prints_what_came_true_by_family(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "1001", "--workers", "1"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "1 clusters, 2 groups that wait; told changes that help:"
    assert said[-2].split() == ["all", "3", "of", "3", "(100.00", "%)"]
    wrong = Judged(told=2, helped=1, families=Counter({Family.QUEUE: 2}), helped_families=Counter({Family.QUEUE: 1}))
    assert lines(1, wrong)[1].split() == ["queue", "1", "of", "2", "(50.00", "%)"]


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("family", _PLANTED)
def test_a_mistake_in_a_family_is_found(family: Family) -> None:
    judged = Judged()
    for seed in range(_UNTIL_FOUND):
        judge(seed, judged, finders=finders(family), most=0)
        if judged.wrong:
            break
    assert judged.wrong


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("family", _SILENT)
def test_a_family_that_says_nothing_is_found(family: Family) -> None:
    judged = Judged()
    for seed in range(_SILENT_FROM, _SILENT_FROM + _UNTIL_FOUND):
        judge(seed, judged, finders=silent(family), most=8, is_told_judged=False)
        if judged.wrong:
            break
    assert judged.wrong
