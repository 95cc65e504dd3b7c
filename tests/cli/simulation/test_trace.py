"""``moorage simulate --trace`` from its command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.main import main
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
