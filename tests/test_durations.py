from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.durations import keep, slowest


def test_durations_of_tests_that_did_not_run_stay(tmp_path: Path) -> None:
    kept_in = tmp_path / "build" / "durations.json"
    keep(kept_in, {"tests/test_a.py::test_x": 5, "tests/test_a.py::test_y": 6})
    keep(kept_in, {"tests/test_a.py::test_y": 7})
    assert json.loads(kept_in.read_text()) == {"tests/test_a.py::test_x": 5, "tests/test_a.py::test_y": 7}


@pytest.mark.thorough
def test_runs_side_by_side_lose_nothing_of_each_other(tmp_path: Path) -> None:
    kept_in, runs, rounds = tmp_path / "durations.json", 3, 50
    code = "import sys; from pathlib import Path; from tests.durations import keep\n"
    code += f"for n in range({rounds}): keep(Path(sys.argv[1]), {{f'{{sys.argv[2]}}-{{n}}': n}})"
    started = [subprocess.Popen([sys.executable, "-c", code, kept_in, str(each)]) for each in range(runs)]
    assert [each.wait() for each in started] == [0] * runs
    assert len(json.loads(kept_in.read_text())) == runs * rounds


def test_files_are_printed_slowest_first_with_the_sum_of_their_tests() -> None:
    took_ms = {"a.py::test_x": 1500, "a.py::test_y[1]": 700, "b.py::test_z": 2000, "c.py::test_w": 1}
    lines = [line.split() for line in slowest(took_ms, 2)]
    assert lines == [["2.2", "s", "2", "tests", "a.py"], ["2.0", "s", "1", "tests", "b.py"]]
