"""``moorage`` as it is called: without words, with an output that is full."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cli.main import main

_FULL = Path("/dev/full")


def test_without_words_it_says_what_it_can_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    told = capsys.readouterr().out
    assert told.startswith("usage: moorage ")
    assert "simulate" in told


@pytest.mark.skipif(not _FULL.exists(), reason="/dev/full is Linux's")
@pytest.mark.parametrize("output", ["text", "json"])
def test_an_output_that_is_full_ends_it_in_one_line(output: str, tmp_path: Path) -> None:
    pod = tmp_path / "pod.yaml"
    pod.write_text("{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: i}]}}")
    program = [sys.executable, "-m", "cli.main", "translate", "-o", output, str(pod)]
    with _FULL.open("w") as full:
        ended = subprocess.run(program, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ended.returncode == 74
    assert ended.stderr == "moorage: the output could not be written: No space left on device\n"
