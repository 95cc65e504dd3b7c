"""``moorage simulate --trace`` from its command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from cli.main import main
from cli.simulation import options
from cli.simulation.trace import drawn_loads
from runtime.text import BadInput
from simulator.traces.trace import Ask, Trace
from tests.simulator.traces.made_up import trace


def _fields(ask: Ask) -> list[str]:
    return [str(each) for each in (ask.cpu_milli, ask.mem_mib, ask.gpus, ask.gpu_milli, "|".join(ask.models))]


def _written(folder: Path, made: Trace) -> Path:
    nodes = [[n.name, str(n.cpu_milli), str(n.mem_mib), str(n.gpus), n.model] for n in made.nodes]
    pods = [[p.name, *_fields(p.ask)] for p in made.pods]
    for name, head, rows in (
        ("openb_node_list_gpu_node.csv", "sn,cpu_milli,memory_mib,gpu,model", nodes),
        ("openb_pod_list_default.csv", "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec", pods),
    ):
        (folder / name).write_text("\n".join([head, *(",".join(row) for row in rows)]) + "\n", encoding="utf-8")
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return _written(tmp_path, trace(20, 150))


def _json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["simulate", *arguments, "-o", "json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_strategies_are_compared_over_seeds(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compared = ["--strategy", "binpack", "--strategy", "binpack/priced", "--seeds", "1-2"]
    found = _json(capsys, "--trace", f"openb:{folder}", *compared)
    assert [one["strategy"] for one in found["summaries"]] == ["binpack", "binpack/priced"]
    assert [(run["strategy"], run["seed"]) for run in found["runs"]][1:3] == [("binpack", 2), ("binpack/priced", 1)]
    assert (found["nodes"], found["prices"]) == (20, "trace")
    for one in found["summaries"]:
        last = one["gpus_in_use"][-1]
        assert last["load_percent"] == 130
        assert 50 < last["worst"] <= last["mean"] <= last["best"] <= 100
    assert all(run["differences"] == [] for run in found["runs"])


def test_people_get_a_table_and_a_picture(folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    picture = tmp_path / "use.svg"
    assert main(["simulate", "--trace", f"openb:{folder}", "--load", "110", "--plot", str(picture)]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[1].split("  ")[0] == "STRATEGY"
    assert "AT 110 %" in out[1]
    assert out[2].startswith("priced ")
    assert picture.read_text(encoding="utf-8").startswith("<svg")


def test_a_part_in_full_is_the_same_as_on_records(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    part = ["--trace", f"openb:{folder}", "--part", "5"]
    assert _json(capsys, *part, "--full")["runs"] == _json(capsys, *part)["runs"]


def test_pods_of_ones_own_come_to_nodes_of_ones_own(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pods = folder / "openb_pod_list_default.csv"
    found = _json(capsys, "--trace", f"csv:{pods}", "--nodes", "5x8x80GiB", "--prices", "arrivals")
    assert (found["nodes"], found["gpus"], found["prices"]) == (5, 40, "arrivals")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--trace", "pods.csv"], "--trace: 'pods.csv'; allowed: openb:"),
        (["--trace", "openb:"], "allowed: openb:FOLDER or csv:FILE"),
        (["--trace", "openb:FOLDER", "--nodes", "1x8x80GiB"], "--nodes: not with --trace openb:FOLDER"),
        (["--trace", "openb:FOLDER", "--variant", "other"], "no openb_pod_list_other"),
        (["--trace", "csv:FOLDER/none.csv"], "give --nodes NxGxMEM"),
        (["--trace", "csv:FOLDER/none.csv", "--nodes", "1x8x80GiB"], "none.csv: not readable as CSV"),
        (["--trace", "csv:FOLDER/none.csv", "--nodes", "1x7x1g.10gb"], "has MIG slices"),
        (["--trace", "openb:FOLDER", "--full", "--prices", "arrivals"], "not with --full"),
        (["--trace", "openb:FOLDER", "pods.yaml"], "manifests: not with --trace"),
        (["--trace", "openb:FOLDER", "--adopt-all"], "--adopt-all: not with --trace"),
        (["--nodes", "1x8x80GiB", "--strategy", "priced", "pods.yaml"], "--strategy: only with --trace"),
        (["--nodes", "1x8x80GiB", "--plot", "use.svg", "pods.yaml"], "--plot: only with --trace"),
        (["--trace", "openb:FOLDER", "--plot", "FOLDER/no/use.svg"], "--plot: "),
        (["pods.yaml"], "--nodes: missing"),
    ],
)
def test_what_can_not_be_replayed_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    given = [each.replace("FOLDER", str(folder)) for each in arguments]
    assert main(["simulate", *given]) == 2
    assert says in capsys.readouterr().err


# The picture of GPUs in use.

_SVG = "{http://www.w3.org/2000/svg}"


def _lines(text: str) -> list[str]:
    paths = ElementTree.fromstring(text).iter(f"{_SVG}path")  # noqa: S314 - our own
    return [path.get("d", "") for path in paths]


def test_each_strategy_has_a_line_and_a_name() -> None:
    text = drawn_loads({"priced": [(90, 90.0), (100, 96.0)], "a < b": [(90, 88.0), (100, 89.0)]})
    names = [each.text for each in ElementTree.fromstring(text).iter(f"{_SVG}text")]  # noqa: S314 - our own
    assert {"priced", "a < b", "90", "100"} <= set(names)
    curves = [line for line in _lines(text) if "L" in line]
    assert len(curves) == 2
    assert curves[0] != curves[1]
    assert "prefers-color-scheme:dark" in text


def test_more_gpus_in_use_are_higher_up() -> None:
    (curve,) = [line for line in _lines(drawn_loads({"priced": [(100, 80.0), (130, 96.0)]})) if "L" in line]
    (x1, y1), (x2, y2) = (map(float, point.split()) for point in curve[1:].split("L"))
    assert x1 < x2
    assert y1 > y2


# What may stand behind the options of traces.


@pytest.mark.parametrize(
    ("text", "found"), [("42", [42]), ("42-44", [42, 43, 44]), ("1,3-4,3", [1, 3, 4]), ("0-999", list(range(1_000)))]
)
def test_seeds(text: str, found: list[int]) -> None:
    assert options.seeds(text) == found


@pytest.mark.parametrize("text", ["", "a", "4-2", "-1", "1,", "0-1000", "0-999,2000", "1" * 5_000, "٣"])
def test_seeds_that_mean_nothing_are_refused(text: str) -> None:
    with pytest.raises(BadInput, match=r"--seeds: .*allowed: whole numbers and ranges as in 42-51,60; 1000 at most"):
        options.seeds(text)


@pytest.mark.parametrize(
    ("text", "found"), [("priced", ("priced", "priced")), ("binpack/priced", ("binpack", "priced"))]
)
def test_strategies(text: str, found: tuple[str, str]) -> None:
    assert options.strategy_of(text) == found


@pytest.mark.parametrize("text", ["", "/", "priced/", "tight", "binpack/priced/spread"])
def test_strategies_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(BadInput, match=r"--strategy: .*allowed: one of binpack, spread, priced, best-fit, or two"):
        options.strategy_of(text)


def test_bounds_of_numbers() -> None:
    assert (options.load(1), options.load(1_000), options.part(10_000)) == (1, 1_000, 10_000)


@pytest.mark.parametrize("number", [0, -1, 10_001])
def test_numbers_out_of_bounds_are_refused(number: int) -> None:
    with pytest.raises(BadInput, match=r"--load: .*allowed: from 1 to 1000 percent"):
        options.load(number)
    with pytest.raises(BadInput, match=r"--part: .*allowed: from 1 to 10000"):
        options.part(number)
