"""``moorage simulate --workload`` from its command line."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
import yaml

from cli.main import main
from cli.simulation.workload import drawn_week
from scheduler.core.model.settings import Settings
from simulator.week.week import Week, simulated
from tests.simulator.week.small import single_gpus, written

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


# The picture of a week.

_SVG = "{http://www.w3.org/2000/svg}"


def _week() -> Week:
    return simulated(single_gpus(), seed=1, days=1, settings=Settings(preemption=False))


def _elements(text: str, kind: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(text).iter(f"{_SVG}{kind}"))  # noqa: S314 - our own


def test_each_queue_and_run_has_a_median_and_each_run_two_curves() -> None:
    off = _week()
    on = msgspec.structs.replace(off, preemption=True)
    text = drawn_week([off, on])
    curves = [path for path in _elements(text, "path") if path.get("d", "").count("L") == len(off.hours) - 1]
    assert len(curves) == 4
    assert len(_elements(text, "circle")) == 4
    names = {each.text for each in _elements(text, "text")}
    assert {"quiet", "busy", "preemption off", "preemption on", "day 0", "day 1"} <= names
    assert "prefers-color-scheme:dark" in text
    (described,) = _elements(text, "desc")
    assert f"{off.jobs} jobs in 1 days on 8 GPUs, seed 1" in (described.text or "")


def test_more_lost_is_higher_up() -> None:
    week = _week()
    hours = (msgspec.structs.replace(week.hours[0], lost_milli_s=week.capacity_milli * 100), *week.hours[1:])
    lost = _elements(drawn_week([msgspec.structs.replace(week, hours=hours)]), "path")[1].get("d", "")
    first, second = (float(point.split()[1]) for point in lost[1:].split("L")[:2])
    assert first < second
