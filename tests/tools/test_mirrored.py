"""Folders of modules without tests, and folders of tests without modules, are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.mirrored import wrong

MODULE = "core/quota/tree.py"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([MODULE, "core/__init__.py", "core/quota/__init__.py", "tests/core/quota/test_fair_share.py"], []),
        ([MODULE], ["core/quota: has no tests; make tests/core/quota/test_quota.py"]),
        ([MODULE, "tests/core/quota/clusters.py"], ["core/quota: has no tests"]),
        ([MODULE, "tests/core/test_tree.py"], ["core/quota: has no tests", "tests/core: no folder core has modules"]),
        ([MODULE, "tests/core/stories/test_tree.py"], ["core/quota: has no tests"]),
        ([MODULE, "tests/core/quota/test_tree.py", "tests/core/quota/stories/test_reclaim.py"], []),
        ([MODULE, "tests/core/quota/test_a.py", "tests/core/old/test_b.py"], ["tests/core/old: no folder core/old"]),
    ],
)
def test_of_a_tree(tmp_path: Path, files: list[str], expected: list[str]) -> None:
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    found = list(wrong(tmp_path, ("core",)))
    assert [part in sentence for part, sentence in zip(expected, found, strict=True)] == [True] * len(expected), found
