"""Each worker first imports a part of the test files of its own, so that one worker rewrites the asserts of a file.

pytest rewrites the asserts of a file that it imports for the first time, and keeps the bytecode. That is 35 s of CPU
time for all files of a fresh checkout. Workers collect in one order, side by side, so each of them would meet each
file before any other has kept it. After its part a worker collects as always, and finds the others' bytecode.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.marked import is_passed_over


def names(folder: Path, root: Path, expression: str = "") -> list[str]:
    """Modules with tests in a folder, by name. Without those that a run of ``pytest -m expression`` passes over."""
    files = sorted(file for file in folder.rglob("test_*.py") if not is_passed_over(file, expression))
    return [".".join(file.relative_to(root).with_suffix("").parts) for file in files]


def part(modules: Sequence[str], worker: str, of: int) -> Sequence[str]:
    """Return those that a worker imports first. ``worker``: its name, ``gw`` and a number from 0."""
    return modules[int(worker.removeprefix("gw")) :: of]


def import_all(modules: Sequence[str]) -> None:
    """Import modules. One that fails is left to the collection, which reports it."""
    for module in modules:
        with contextlib.suppress(Exception, pytest.skip.Exception):
            importlib.import_module(module)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Import this worker's part of the folders that are collected."""
    config = session.config
    given = getattr(config, "workerinput", None)
    if given is None:
        return
    for folder in (config.rootpath / each for each in config.args):
        if folder.is_dir():
            found = names(folder, config.rootpath, config.option.markexpr)
            import_all(part(found, given["workerid"], given["workercount"]))
