"""A defect that a test notices is killed, one that no test notices survives, and one that hangs is ended."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tools.mutants.__main__ import all_mutants, equivalents, keys, killed_percent, line, report, sample
from tools.mutants.mutant import End, Mutant, Stage, copied, stages, tried

pytestmark = pytest.mark.thorough

SOURCE = """
def is_small(number):
    return number < 10


def count(until):
    number = 0
    while number < until:
        number += 1
    return number
"""
TEST = """
from pack.module import count, is_small

def test_small():
    assert is_small(3) and not is_small(30)

def test_count():
    assert count(3) == 3
"""
CONFIGURATION = "[pytest]\nmarkers =\n    cluster:\n    node:\n    helm:\n    browser:\n    thorough:\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    for path, text in {
        "pack/__init__.py": "",
        "pack/module.py": SOURCE,
        "tests/pack/test_module.py": TEST,
        "conftest.py": "",
        "pytest.ini": CONFIGURATION,
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    subprocess.run(["git", "init", "-q", str(root)], check=True)  # noqa: S607 - whichever git the machine has
    return copied(root, tmp_path / "copy")


def found(tree: Path, before: str) -> Mutant:
    return next(mutant for mutant in all_mutants(tree, ["pack"])["pack"] if mutant.before == before)


@pytest.mark.parametrize(
    ("before", "end"), [("number < until", End.FAILED), ("number < 10", End.SURVIVED), ("1", End.FAILED)]
)
def test_a_mutant_is_killed_by_the_tests_of_its_module_or_survives(tree: Path, before: str, end: End) -> None:
    run = stages(tree, "pack/module.py", with_simulation=False)
    outcome = tried(tree, found(tree, before), run)
    killer = outcome.test.partition("::")[0]
    expected = ("module", "tests/pack/test_module.py") if end is End.FAILED else ("", "")
    assert (outcome.end, outcome.stage, killer) == (end, *expected)
    assert (tree / "pack/module.py").read_text() == SOURCE, "the tree is as it was"


def test_tests_that_hang_are_ended(tree: Path) -> None:
    (tree / "tests/pack/test_module.py").write_text("import time\n\ndef test_it():\n    time.sleep(600)\n")
    stage = Stage(name="module", paths=("tests/pack/test_module.py",), limit_s=3.0)
    assert tried(tree, found(tree, "number < 10"), [stage]).end is End.HUNG


@pytest.mark.parametrize(
    ("text", "test"),
    [
        (
            "import pytest\n\n@pytest.mark.parametrize('a', ['two words'])\ndef test_a(a):\n    assert a == 'x - y'\n",
            "test_module.py::test_a[two words]",
        ),
        ("import pack.absent\n", "test_module.py"),
    ],
)
def test_who_killed_a_mutant_is_named(tree: Path, text: str, test: str) -> None:
    (tree / "tests/pack/test_module.py").write_text(text)
    outcome = tried(tree, found(tree, "number < 10"), stages(tree, "pack/module.py", with_simulation=False))
    assert line(outcome).endswith(f": a test failed (module, tests/pack/{test})")


def test_a_draw_is_the_same_for_the_same_seed(tree: Path) -> None:
    every = all_mutants(tree, ["pack"])
    assert sample(every, count=3, seed=1) == sample(every, count=3, seed=1)
    assert sample(every, count=100, seed=1) != every["pack"]
    assert sorted(sample(every, count=100, seed=1)) == sorted(every["pack"])


def test_a_draw_is_divided_evenly_between_folders_and_a_folder_in_another_one_has_its_own_part(tree: Path) -> None:
    for path in ("pack/inner/__init__.py", "pack/inner/deep.py", "small/__init__.py", "small/tiny.py"):
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_text("" if path.endswith("__init__.py") else SOURCE)
    (tree / "small/tiny.py").write_text("def is_small(number):\n    return number < 10\n")
    every = all_mutants(tree, ["pack", "pack/inner", "small"])
    assert {folder: {mutant.path for mutant in found} for folder, found in every.items()} == {
        "pack": {"pack/module.py"},
        "pack/inner": {"pack/inner/deep.py"},
        "small": {"small/tiny.py"},
    }
    assert {folder: len(found) for folder, found in every.items()} == {"pack": 5, "pack/inner": 5, "small": 2}
    drawn = Counter(mutant.path for mutant in sample(every, count=8, seed=3))
    assert drawn == {"pack/module.py": 3, "pack/inner/deep.py": 3, "small/tiny.py": 2}


def test_survivors_are_listed_and_counted(tree: Path) -> None:
    run = stages(tree, "pack/module.py", with_simulation=False)
    outcomes = [tried(tree, found(tree, before), run) for before in ("number < until", "number < 10")]
    assert killed_percent(outcomes) == 50.0
    assert report(outcomes, skipped=1).splitlines() == [
        "2 mutants, 50.0 % killed: 1 by the tests of the module",
        "1 left out as equivalent",
        "1 survived",
        "pack/module.py:3: number < 10 -> (number <= 10): SURVIVED",
    ]


def test_an_equivalent_mutant_is_known_by_its_code_not_by_its_line(tmp_path: Path, tree: Path) -> None:
    entry = '[[equivalent]]\npath = "pack/module.py"\nbefore = "number < 10"\nafter = "(number <= 10)"\nwhy = "w"\n'
    (tmp_path / "e.toml").write_text(entry)
    assert keys(found(tree, "number < 10")) & equivalents(tmp_path / "e.toml")
