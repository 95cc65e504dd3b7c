"""A run imports only files that can have some of its tests: by the one mark that it asks for, or those it leaves out.

Collecting all tests takes a process half a minute of CPU time, and ``make test-all`` has seven processes for the few
hundred tests of the real control plane and of real nodes. A file can have tests with a mark where its own text, or that
of a conftest.py in one of its folders, has the mark. Whatever run collects a file compares that with the marks of its
tests, so no test is left out silently.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Final

import pytest

MARKS: Final = ("cluster", "node")
_TESTS: Final = Path(__file__).parent
#: The mark that all tests of a file have.
_WHOLE_FILE: Final = re.compile(r"^pytestmark = pytest\.mark\.(\w+)$", re.MULTILINE)
_NOT: Final = re.compile(r"not (\w+)")


def can_have(path: Path, mark: str, tests: Path = _TESTS) -> bool:
    """Whether a test file can have tests with a mark. ``tests``: the folder whose conftest.py is for all tests."""
    folders = [each for each in path.parents if tests in each.parents]
    return any(_has(each, mark) for each in (path, *(folder / "conftest.py" for folder in folders)))


def is_passed_over(path: Path, expression: str, tests: Path = _TESTS) -> bool:
    """Whether a run of the tests that ``expression`` (``pytest -m``) selects need not import a file."""
    if path.suffix != ".py":
        return False
    mark, _, others = expression.partition(" and ")
    if mark not in MARKS:
        return bool(_marked_whole(path) & left_out(expression))
    is_alone = not others or bool(left_out(others))
    return is_alone and not can_have(path, mark, tests)


def left_out(expression: str) -> frozenset[str]:
    """Return the marks whose tests an expression leaves out, if it does nothing else: ``not a and not b``."""
    found = [_NOT.fullmatch(term) for term in expression.split(" and ")]
    return frozenset(match[1] for match in found if match) if all(found) else frozenset()


def hidden(path: Path, marks: Collection[str], tests: Path = _TESTS) -> list[str]:
    """Those of a test's marks with which a run of them alone would not find its file."""
    return [mark for mark in MARKS if mark in marks and not can_have(path, mark, tests)]


@cache
def _has(path: Path, mark: str) -> bool:
    return path.exists() and f"mark.{mark}" in path.read_text()


@cache
def _marked_whole(path: Path) -> frozenset[str]:
    return frozenset(_WHOLE_FILE.findall(path.read_text())) if path.name.startswith("test_") else frozenset()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Pass over files without a test that is asked for, but for those that are named: pytest has to know of these."""
    is_named = any(collection_path == config.invocation_params.dir / each.partition("::")[0] for each in config.args)
    return True if not is_named and is_passed_over(collection_path, config.option.markexpr) else None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Refuse a test that a run of its mark alone would leave out."""
    for mark in hidden(item.path, {each.name for each in item.iter_markers()}):
        raise pytest.UsageError(f"{item.nodeid} has the mark {mark}: write pytest.mark.{mark} into its own file")
