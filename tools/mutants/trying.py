"""Run the tests against one mutant: of its module, its folder, its package, then the simulation.

Each try works in a copy of the tree, so the checkout and other tries never see a defect.
"""

from __future__ import annotations

import enum
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from tools.mutants.sites import Mutant

_MARKS: Final = "not cluster and not node and not helm and not browser"
#: pytest's line on a test that failed, or a module that could not be read.
_FAILED: Final = re.compile(rb"^(?:FAILED|ERROR) (.+?)(?: - |$)", re.MULTILINE)
#: pytest's exit code where nothing was collected.
_NO_TESTS: Final = 5
#: What is tested together with others, beside the tests of its own folder: the API server in memory answers as a real
#: one does, and admission asks every dialect.
_TESTED_IN: Final = {
    "simulator/apiserver": ("tests/contract",),
    "kube": ("tests/contract",),
    "gpu": ("tests/admission",),
}


class End(enum.Enum):
    """How a try ended."""

    FAILED = "a test failed"
    HUNG = "the tests did not end in time"
    SURVIVED = "survived"


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """Tests to run: their paths, what pytest selects by marks, and after which time they count as hung."""

    name: str
    paths: tuple[str, ...]
    marks: str = _MARKS
    limit_s: float


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a mutant, at which stage, and which test failed first; "" where it survived all.

    ``test`` is "" too where tests hung or could not be read.
    """

    mutant: Mutant
    end: End
    stage: str = ""
    test: str = ""


def stages(root: Path, path: str, *, with_simulation: bool = True, near: bool = False) -> list[Stage]:
    """Those of a module: each later one is slower, and finds defects that only show in the whole.

    ``near``: the module's and its folder's only.
    """
    matching = _matching(root, path)
    package = path.partition("/")[0]
    folder = next(str(folder) for folder in Path(path).parents if (root / "tests" / folder).exists())
    found = [Stage(name="module", paths=matching, limit_s=180.0)] if matching else []
    marks = f"{_MARKS} and not thorough"
    if folder != package:
        found.append(Stage(name="folder", paths=_within(root, folder), marks=marks, limit_s=300.0))
        if near:
            return found
    found.append(Stage(name="package", paths=_within(root, package), marks=marks, limit_s=900.0))
    if with_simulation and not near:
        found.append(Stage(name="simulation", paths=("tests/simulation",), limit_s=3600.0))
    return found


def _within(root: Path, folder: str) -> tuple[str, ...]:
    elsewhere = (other for other in _TESTED_IN.get(folder, ()) if (root / other).exists())
    return (f"tests/{folder}", *elsewhere)


def _matching(root: Path, path: str) -> tuple[str, ...]:
    """The module's test file, and those of its package that import it."""
    module = path.removesuffix(".py").replace("/", ".")
    parent, _, name = module.rpartition(".")
    imported = (f"from {module} import", f"import {module}\n", f"from {parent} import {name}\n")
    folder = root / "tests" / path.partition("/")[0]
    named = root / "tests" / Path(path).parent / f"test_{name}.py"
    found = [named] if named.is_file() else []
    found += [file for file in sorted(folder.rglob("test_*.py")) if any(i in file.read_text() for i in imported)]
    return tuple(dict.fromkeys(str(file.relative_to(root)) for file in found))


def copied(root: Path, to: Path) -> Path:
    """Copy what git tracks, and what it does not ignore, to a new folder."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=root, check=True, capture_output=True).stdout.decode().split("\0")
    for name in filter(None, names):
        source, target = root / name, to / name
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
    return to


def tried(tree: Path, mutant: Mutant, run: Sequence[Stage]) -> Outcome:
    """Put the defect into a copied tree, run stages until one fails, and take it out again."""
    with _mutated(tree / mutant.path, mutant):
        for stage in run:
            end, test = _run(tree, stage)
            if end is not End.SURVIVED:
                return Outcome(mutant=mutant, end=end, stage=stage.name, test=test)
    return Outcome(mutant=mutant, end=End.SURVIVED)


@contextmanager
def _mutated(file: Path, mutant: Mutant) -> Iterator[None]:
    source = file.read_bytes()
    file.write_bytes(mutant.applied(source))
    try:
        yield
    finally:
        file.write_bytes(source)


def _run(tree: Path, stage: Stage) -> tuple[End, str]:
    """How the tests end, and the one that failed."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n0", "-p", "no:cacheprovider", "-m", stage.marks]
    # A process group of its own: what hangs is ended with all that it started.
    with (
        tempfile.TemporaryFile() as printed,
        subprocess.Popen(
            [*command, *stage.paths],
            cwd=tree,
            env=_environment(os.environ),
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as process,
    ):
        try:
            code = process.wait(stage.limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return End.HUNG, ""
        printed.seek(0)
        failed = _FAILED.search(printed.read())
    if code in {0, _NO_TESTS}:
        return End.SURVIVED, ""
    return End.FAILED, failed[1].decode() if failed else ""


def _environment(given: Mapping[str, str]) -> dict[str, str]:
    """Hypothesis draws the same examples each time, and no compiled file of another mutant is taken for this one's."""
    return {**given, "CI": "true", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}
