"""Upstream's own test tables: each row of the plug-ins' filtering tests is answered by Moorage.

The rows are not in this repository: upstream's tests are run once, and what they ask is kept in the cache.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest

from tests.oracle.harvest.left_out import LEFT_OUT
from tests.oracle.harvest.rows import PLUGINS, Row, differences, question, rows
from tools.goprogram import Unavailable
from tools.kubeoracle.harvest import making
from tools.kubeoracle.ours import Ours

pytestmark = pytest.mark.oracle
#: The list may only get shorter: who takes a row off it takes one off this number.
_LEFT_OUT: Final = 23
#: The fewest rows there are, by package: a rewriter that misses a table is found.
_LEAST: Final = {
    "interpodaffinity": 44,
    "nodeaffinity": 31,
    "nodedeclaredfeatures": 10,
    "nodename": 3,
    "nodeports": 15,
    "noderesources": 63,
    "nodeunschedulable": 3,
    "nodevolumelimits": 33,
    "podtopologyspread": 42,
    "tainttoleration": 20,
    "volumebinding": 18,
    "volumerestrictions": 22,
    "volumezone": 24,
}


@pytest.fixture(scope="module")
def tables() -> Path:
    return making.ensure()


@pytest.fixture(scope="module")
def table(tables: Path) -> list[Row]:
    return rows(tables)


@pytest.mark.parametrize("package", sorted(PLUGINS))
def test_moorage_answers_as_the_table_wants(table: list[Row], package: str) -> None:
    wrong = {
        row.label: words
        for row in table
        if row.package == package and row.label not in LEFT_OUT and (words := [*differences(row)])
    }
    assert not wrong


def test_no_row_is_left_out_that_moorage_answers_as_wanted(table: list[Row]) -> None:
    differing = {row.label for row in table if row.failed or [*differences(row)]}
    assert differing == LEFT_OUT.keys()
    assert len(LEFT_OUT) == _LEFT_OUT


def test_each_package_has_its_rows_and_both_answers(table: list[Row]) -> None:
    found = Counter(row.package for row in table)
    assert {package: found[package] for package in _LEAST if found[package] < _LEAST[package]} == {}
    for package in _LEAST.keys() - {"volumebinding"}:
        said = {wanted is None for row in table if row.package == package for wanted in row.wanted}
        assert said == {True, False}, package


@pytest.mark.parametrize("package", sorted(PLUGINS.keys() - {"nodename", "nodedeclaredfeatures"}))
def test_a_scheduler_that_lets_every_node_in_is_found(table: list[Row], package: str) -> None:
    def lax(asked: dict[str, Any]) -> Ours:
        return Ours(frozenset(node["metadata"]["name"] for node in asked["nodes"]), {})

    assert any([*differences(row, lax)] for row in table if row.package == package)


def test_a_scheduler_that_lets_no_node_in_is_found(table: list[Row]) -> None:
    for package in PLUGINS:
        strict = [row for row in table if row.package == package and None in row.wanted]
        assert all([*differences(row, lambda _: Ours(frozenset(), {}))] for row in strict)


def test_amounts_are_taken_as_mib_and_names_are_filled_in(table: list[Row]) -> None:
    (row,) = (row for row in table if row.label == "noderesources/testEnoughRequests/one resource memory fits")
    asked = question(row)
    (node,) = asked["nodes"]
    assert node["metadata"]["name"] == "node-0"
    assert node["status"]["allocatable"]["memory"] == "20Mi"
    assert asked["pod"]["spec"]["containers"][0]["resources"]["requests"]["memory"] == "1Mi"
    assert asked["pods"][0]["spec"]["nodeName"] == "node-0"


def test_the_licence_lies_beside_the_cases(tables: Path) -> None:
    assert "Apache License" in (tables / "LICENSE").read_text()


def test_without_go_it_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="there is no `go` on PATH: install Go"):
        making.ensure({"MOORAGE_CACHE": str(tmp_path), "PATH": str(tmp_path)})


def test_the_cache_folder_changes_with_the_rewriter(tmp_path: Path) -> None:
    (tmp_path / "record").mkdir()
    (tmp_path / "record" / "record.go").write_text("package record\n")
    before = making.key(tmp_path)
    (tmp_path / "record" / "record.go").write_text("package record // another\n")
    assert making.key(tmp_path) != before
