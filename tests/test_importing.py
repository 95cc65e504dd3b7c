from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.importing import names, part

pytestmark = pytest.mark.thorough

_ROOT = Path(__file__).parents[1]


def _written(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    return root


def test_modules_with_tests_are_named_as_pytest_names_them(tmp_path: Path) -> None:
    root = _written(tmp_path, {"a/test_y.py": "", "a/test_x.py": "", "a/y.py": "", "a/conftest.py": ""})
    assert names(root / "a", root) == ["a.test_x", "a.test_y"]


def test_files_that_the_run_passes_over_are_not_imported() -> None:
    assert "tests.test_importing" in names(_ROOT / "tests", _ROOT)
    found = names(_ROOT / "tests", _ROOT, "node")
    assert "tests.test_importing" not in found
    assert any(each.startswith("tests.node.") for each in found)


@pytest.mark.parametrize("of", [1, 2, 3])
def test_each_module_is_in_one_part(of: int) -> None:
    modules = [*"abcdefg"]
    parts = [part(modules, f"gw{number}", of) for number in range(of)]
    assert sorted(module for each in parts for module in each) == modules
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_workers_run_all_tests_and_report_a_file_that_can_not_be_imported(tmp_path: Path) -> None:
    root = _written(
        tmp_path,
        {
            "pytest.ini": "[pytest]\naddopts = --import-mode=importlib\n",
            "a/test_broken.py": "1 / 0",
            "a/test_left_out.py": "import pytest\npytest.skip('no', allow_module_level=True)",
            **{f"a/test_{name}.py": "def test_it():\n    one = 1\n    assert one == 2\n" for name in "xyz"},
        },
    )
    command = (sys.executable, "-m", "pytest", "-n", "2", "-p", "tests.importing", "--continue-on-collection-errors")
    environ = {**os.environ, "PYTHONPATH": f"{_ROOT}:{root}"}
    done = subprocess.run([*command, "a"], cwd=root, env=environ, capture_output=True, text=True, check=False)
    assert re.search(r"3 failed, 1 skipped, [12] errors? in", done.stdout), done.stdout
    assert done.stdout.count("assert 1 == 2") >= 3, "a file was imported whose asserts are not rewritten"
