from __future__ import annotations

import io
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from cli.main import main
from cli.simulation import demonstration
from simulator import manifests

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_begins_with_its_title_and_can_be_read(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# ")
    assert len(manifests.load(text)) == len(list(yaml.safe_load_all(text)))


def test_all_examples_together_run_but_for_the_one_that_cannot(capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(EXAMPLES[0].parent)
    assert main(["simulate", "--nodes", "2x4x80GiB", "--nodes", "1x2x24GiB", folder]) == 0
    shown = capsys.readouterr().out
    assert shown.count("Pending") == 1
    assert "lacks 12 GPU(s)" in shown


def test_a_refused_example_ends_the_demo_with_two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pod = "# Too much\napiVersion: v1\nkind: Pod\nmetadata: {name: p, annotations: {gpu-fraction: '7'}}\n"
    spec = "spec: {schedulerName: kai-scheduler, containers: [{name: main, image: work}]}\n"
    (tmp_path / "bad.yaml").write_text(pod + spec, encoding="utf-8")
    assert main(["demo", "--examples", str(tmp_path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == "Too much\n"
    assert "Pod default/p: admission webhook" in captured.err


def test_a_folder_without_examples_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--examples", str(tmp_path)]) == 2
    assert f"{tmp_path}: no *.yaml files" in capsys.readouterr().err


def test_the_demo_waits_for_nobody_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    pauses: list[float] = []
    assert demonstration.run(EXAMPLES[0].parent, seed=0, pause=pauses.append) == 0
    assert pauses == []
    shown = capsys.readouterr().out
    assert "All are there" in shown
    assert "26 invariants held" in shown


@pytest.mark.thorough
def test_on_a_terminal_each_example_can_be_read_and_what_stands_still_takes_no_time() -> None:
    drawn, pauses = io.StringIO(), dict[str, float]()
    console = Console(file=drawn, force_terminal=True, width=100, height=60, highlight=False)
    titles = [path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ") for path in EXAMPLES]
    ends = ["All are there; waiting until nothing changes any more", "Deleting all pods: nothing may be left"]

    def pause(seconds: float) -> None:
        text = drawn.getvalue()
        last = max((*titles, *ends), key=text.rfind)
        pauses[last] = pauses.get(last, 0.0) + seconds

    assert demonstration.run(EXAMPLES[0].parent, seed=0, console=console, pause=pause) == 0
    assert min(pauses[title] for title in titles) >= 0.5
    assert all(pauses[end] > 0 for end in ends)
    assert sum(pauses.values()) < 10
