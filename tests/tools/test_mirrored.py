"""Test files without a module of their name, and modules without tests, are found."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tools.mirrored import wrong

A, TEST_A = "core/a.py", "tests/core/test_a.py"


@pytest.mark.parametrize(
    ("files", "by", "expected"),
    [
        ([A, "core/__init__.py", TEST_A, "tests/core/objects.py"], {}, []),
        (["core/deep/a.py", "tests/core/deep/test_a.py"], {}, []),
        ([A], {}, ["core/a.py: has no tests"]),
        ([A, "tests/core/deep/test_a.py"], {}, ["core/a.py: has no tests", "test_a.py: no module core/deep/a.py"]),
        ([A, "tests/core/stories/test_a.py"], {}, ["core/a.py: has no tests"]),
        ([A, TEST_A, "tests/core/test_b.py"], {}, ["tests/core/test_b.py: no module core/b.py"]),
        ([A, TEST_A, "tests/core/stories/test_b.py"], {}, []),
        ([A, "tests/core/stories/test_b.py"], {A: "tests/core/stories/test_b.py"}, []),
        ([A], {A: "tests/core/test_gone.py"}, ["core/a.py: has no tests"]),
        ([A, TEST_A], {A: TEST_A}, ["core/a.py: has tests/core/test_a.py"]),
        ([A, TEST_A], {"core/gone.py": TEST_A}, ["core/gone.py: no such module"]),
    ],
)
def test_of_a_tree(tmp_path: Path, files: list[str], by: Mapping[str, str], expected: list[str]) -> None:
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    found = list(wrong(tmp_path, ("core",), by))
    assert [part in sentence for part, sentence in zip(expected, found, strict=True)] == [True] * len(expected), found
