"""Upstream's own test tables for scoring: Moorage gives each node the points that the row wants.

The rows are not in this repository: upstream's tests are run once, and what they ask is kept in the cache.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import pytest

from scheduler.core.model.settings import Settings
from tests.oracle.harvest.left_out import NOT_SCORED, SCORES_LEFT_OUT
from tests.oracle.harvest.scoring import SCORERS, ScoreRow, differences, score_rows
from tools.kubeoracle.harvest import making

pytestmark = pytest.mark.oracle
#: The list may only get shorter: who takes a row off it takes one off this number.
_LEFT_OUT: Final = 9
#: The fewest rows there are, by package.
_LEAST: Final = {
    "imagelocality": 8,
    "interpodaffinity": 30,
    "nodeaffinity": 9,
    "podtopologyspread": 30,
    "tainttoleration": 7,
}


@pytest.fixture(scope="module")
def table() -> list[ScoreRow]:
    return [row for row in score_rows(making.ensure()) if _test(row) not in NOT_SCORED]


def _test(row: ScoreRow) -> str:
    return f"{row.package}/{row.test}"


@pytest.mark.parametrize("package", sorted(SCORERS))
def test_moorage_gives_the_points_that_the_table_wants(table: list[ScoreRow], package: str) -> None:
    rows = [row for row in table if row.package == package and row.label not in SCORES_LEFT_OUT]
    assert {row.label: words for row in rows if (words := differences(row))} == {}


def test_no_row_is_left_out_that_moorage_answers_as_wanted(table: list[ScoreRow]) -> None:
    assert {row.label for row in table if row.failed or differences(row)} == SCORES_LEFT_OUT.keys()
    assert len(SCORES_LEFT_OUT) == _LEFT_OUT


def test_each_test_of_upstream_is_compared_or_named_with_a_reason(table: list[ScoreRow]) -> None:
    assert {row.package for row in table} == SCORERS.keys()
    assert {_test(row) for row in score_rows(making.ensure())} >= NOT_SCORED.keys()


def test_each_package_has_its_rows_and_such_as_tell_nodes_apart(table: list[ScoreRow]) -> None:
    found = Counter(row.package for row in table)
    assert {package: found[package] for package in _LEAST if found[package] < _LEAST[package]} == {}
    telling = Counter(row.package for row in table if len({*row.wanted.values()}) > 1)
    assert all(telling[package] >= 3 for package in SCORERS)


@pytest.mark.parametrize("package", sorted(SCORERS))
def test_a_scheduler_that_gives_no_points_is_found(table: list[ScoreRow], package: str) -> None:
    def mute(asked: Mapping[str, Any], among: frozenset[str], settings: Settings) -> Mapping[str, Mapping[str, int]]:
        del asked, among, settings
        return {}

    rows = [row for row in table if row.package == package and len({*row.wanted.values()}) > 1]
    assert all(differences(row, mute) for row in rows)


def test_points_of_another_weight_are_found(table: list[ScoreRow]) -> None:
    """Required affinity of others weighs what the row says, and no more."""
    rows = {row.name: row for row in table if row.test.endswith("HardPodAffinitySymmetricWeight")}
    assert differences(rows["with zero weight"]) == ""
    row = rows["with zero weight"]
    row.options["hardPodAffinityWeight"] = 1
    assert differences(row)
