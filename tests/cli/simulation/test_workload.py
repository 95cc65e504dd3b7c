"""``moorage simulate --workload`` from its command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from cli.main import main
from tests.simulator.week.small import written

pytestmark = pytest.mark.thorough


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "teams.yaml"
    path.write_text(yaml.safe_dump(written()), encoding="utf-8")
    return str(path)


def test_both_runs_have_the_same_jobs_and_a_seed_gives_the_same_result(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    outs = []
    for _ in range(2):
        assert main(["simulate", "--workload", file, "--days", "1", "--seed", "2", "-o", "json"]) == 0
        outs.append(capsys.readouterr().out)
    assert outs[0] == outs[1]
    off, on = json.loads(outs[0])["runs"]
    assert (off["preemption"], on["preemption"], off["seed"]) == (False, True, 2)
    assert off["jobs"] == on["jobs"]
    assert (off["nominations"], off["differences"], on["differences"]) == (0, [], [])


def test_people_get_tables_and_a_picture(file: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    picture = tmp_path / "week.svg"
    arguments = ["--workload", file, "--days", "1", "--preemption", "off", "--plot", str(picture)]
    assert main(["simulate", *arguments]) == 0
    out = capsys.readouterr().out
    assert "on 8 GPUs, seed 0:" in out
    assert "Minutes until jobs start, by queue:" in out
    assert picture.read_text(encoding="utf-8").startswith("<svg")


@pytest.mark.parametrize(
    ("text", "arguments", "says"),
    [
        ("{}", [], "missing required field"),
        ("a: [", [], "not YAML"),
        ("a: 1\n---\na: 2", [], "has no or several documents; allowed: one"),
        ("", [], "has no or several documents; allowed: one"),
        ("{}", ["--days", "0"], "--days: 0; allowed: from 1 to 28"),
        ("{}", ["--nodes", "1x1x1GiB"], "--workload: not with manifests or --nodes"),
        ("{}", ["--trace", "csv:x"], "--workload: not with --trace"),
    ],
)
def test_bad_input_is_refused(
    text: str, arguments: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "w.yaml"
    path.write_text(text, encoding="utf-8")
    assert main(["simulate", "--workload", str(path), *arguments]) == 2
    assert says in capsys.readouterr().err
