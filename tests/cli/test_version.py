from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
import yaml

from cli.main import main
from cli.version import VERSION

ROOT = Path(__file__).parents[2]


def test_package_and_chart_have_the_version_of_the_program() -> None:
    chart = yaml.safe_load((ROOT / "helm" / "moorage" / "Chart.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {project["version"], str(chart["version"]), str(chart["appVersion"])} == {VERSION}


def test_the_version_is_printed_by_a_command_and_by_an_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    assert capsys.readouterr().out == f"moorage {VERSION}\n"
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"moorage {VERSION}\n"
