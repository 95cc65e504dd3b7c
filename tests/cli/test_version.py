"""The version of this program, and those of a cluster."""

from __future__ import annotations

import argparse
import json
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from cli.main import main, plugin_parser
from kube.client.config import plain
from runtime.client import Reached
from runtime.version import VERSION
from tests.cli.checks.told import Told
from tests.runtime.test_versions import lease, pod
from ui.commands import version
from wire import names

ROOT = Path(__file__).parents[2]


def test_package_and_chart_have_the_version_of_the_program() -> None:
    chart = yaml.safe_load((ROOT / "helm" / "moorage" / "Chart.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {project["version"], str(chart["version"]), str(chart["appVersion"])} == {VERSION}


CLUSTER = {
    "/version": {"gitVersion": "v1.37.1"},
    f"/api/v1/namespaces/{names.SYSTEM_NAMESPACE}/pods": {
        "metadata": {"resourceVersion": "1"},
        "items": [msgspec.to_builtins(pod("s-1", "scheduler", "0.1.0", is_ready=True))],
    },
    f"/apis/coordination.k8s.io/v1/namespaces/{names.SYSTEM_NAMESPACE}/leases": {
        "metadata": {"resourceVersion": "1"},
        "items": [msgspec.to_builtins(lease("scheduler", "s-1"))],
    },
}


@pytest.fixture
def _no_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.mark.usefixtures("_no_cluster")
@pytest.mark.parametrize("given", [[], ["--client"]])
def test_the_version_is_printed_by_a_command_and_by_an_option(
    given: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["version", *given]) == 0
    assert capsys.readouterr().out == f"moorage {VERSION}\n"
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"moorage {VERSION}\n"


@pytest.mark.usefixtures("_no_cluster")
def test_a_cluster_that_does_not_answer_is_one_line_and_ends_with_one_as_for_kubectl(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["version", "--server", "http://127.0.0.1:1"]) == 1
    told = capsys.readouterr()
    assert told.out == f"moorage {VERSION}\n"
    (line,) = told.err.splitlines()
    assert line.startswith("moorage: GET /version: ")


@pytest.mark.usefixtures("_no_cluster")
def test_a_kubeconfig_that_is_not_there_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version", "--kubeconfig", "/nowhere", "-o", "json"]) == 2
    told = capsys.readouterr()
    assert json.loads(told.out) == {"client": {"version": VERSION}}
    assert told.err == "moorage: --kubeconfig /nowhere: there is no such file\n"


def test_the_client_is_asked_of_no_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version", "--client", "--context", "c"]) == 2
    assert "--client: not with options of a connection" in capsys.readouterr().err


def given(*words: str) -> argparse.Namespace:
    return plugin_parser().parse_args(["version", *words])


async def looked(answers: dict[str, Any]) -> version.Versions:
    return await version.look(Reached(Told(answers), plain("told"), None))


async def test_a_cluster_says_what_it_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "reference" / "command-line.md").read_text(encoding="utf-8")
    documented = page.partition("$ moorage version\n")[2].partition("```")[0]
    version.show(await looked(CLUSTER), given())
    assert capsys.readouterr().out == documented
    assert documented.startswith(f"moorage {VERSION}\nKubernetes v1.37.1\nCOMPONENT")
    version.show(await looked(CLUSTER), given("-o", "yaml"))
    told = yaml.safe_load(capsys.readouterr().out)
    assert told["client"] == {"version": VERSION}
    assert (told["components"][0]["name"], told["components"][0]["leader"]) == ("scheduler", "s-1")


async def test_what_may_not_be_read_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    forbidden = (403, {"code": 403, "message": "no", "reason": "Forbidden"})
    seen = await looked({path: answer if path == "/version" else forbidden for path, answer in CLUSTER.items()})
    version.show(seen, given())
    told = capsys.readouterr()
    assert told.out.splitlines()[-1] == "no components in namespace kai-scheduler"
    assert [line.partition(" of ")[0] for line in told.err.splitlines()] == ["not read: pods", "not read: leases"]
