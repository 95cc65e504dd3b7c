from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import pytest

from cli import main
from runtime import process as becoming

ROOT = Path(__file__).parents[2]


class Become(Exception):
    """Raised in place of becoming another program."""


def test_the_process_becomes_the_enforcer_with_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "")
    became: list[Sequence[str]] = []

    def become(program: str, words: list[str]) -> NoReturn:
        became.append(words)
        raise Become(program)

    with pytest.raises(Become, match=sys.executable):
        becoming.run("nodeagent.enforcement.memory_enforcer.main", ["--dry-run=false"], become=become)
    assert became == [[sys.executable, "-m", "nodeagent.enforcement.memory_enforcer.main", "--dry-run=false"]]


def test_options_that_can_not_be_are_refused_before(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main.main(["memory-enforcer", "--interval-s", "0"])
    assert "0.25 to 10 seconds are allowed" in capsys.readouterr().err


def test_it_is_the_enforcer_and_nothing_more(tmp_path: Path) -> None:
    """Of what the command line imports, nothing is left."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "cli.main", "memory-enforcer", "--socket", str(tmp_path / "memory-enforcer.sock")]
    process = subprocess.Popen(command, cwd=tmp_path, env=environ, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        assert process.stderr.readline() == f"begun: dry run, socket {tmp_path}/memory-enforcer.sock\n"
        mapped = Path(f"/proc/{process.pid}/maps").read_text()
        assert "msgspec" not in mapped
        assert b"nodeagent.enforcement.memory_enforcer.main" in Path(f"/proc/{process.pid}/cmdline").read_bytes()
        process.terminate()
        process.communicate(timeout=30)
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate()
