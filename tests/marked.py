"""A run of only those tests that a mark has imports only files that can have some.

Collecting all tests takes a process half a minute of CPU time, and ``make test-all`` has seven processes for the few
hundred tests of the real control plane and of real nodes. A file can have tests with a mark where its own text, or that
of a conftest.py in one of its folders, has the mark. Whatever run collects a file compares that with the marks of its
tests, so no test is left out silently.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Final

import pytest

MARKS: Final = ("cluster", "node")
_TESTS: Final = Path(__file__).parent


def can_have(path: Path, mark: str, tests: Path = _TESTS) -> bool:
    """Whether a test file can have tests with a mark. ``tests``: the folder whose conftest.py is for all tests."""
    folders = [each for each in path.parents if tests in each.parents]
    return any(_has(each, mark) for each in (path, *(folder / "conftest.py" for folder in folders)))


def is_passed_over(path: Path, expression: str, tests: Path = _TESTS) -> bool:
    """Whether a run of the tests that ``expression`` (``pytest -m``) selects need not import a file."""
    return expression in MARKS and path.suffix == ".py" and not can_have(path, expression, tests)


def hidden(path: Path, marks: Collection[str], tests: Path = _TESTS) -> list[str]:
    """Those of a test's marks with which a run of them alone would not find its file."""
    return [mark for mark in MARKS if mark in marks and not can_have(path, mark, tests)]


@cache
def _has(path: Path, mark: str) -> bool:
    return path.exists() and f"mark.{mark}" in path.read_text()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Pass over files without a test of the one mark that is asked for."""
    return True if is_passed_over(collection_path, config.option.markexpr) else None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Refuse a test that a run of its mark alone would leave out."""
    for mark in hidden(item.path, {each.name for each in item.iter_markers()}):
        raise pytest.UsageError(f"{item.nodeid} has the mark {mark}: write pytest.mark.{mark} into its own file")
