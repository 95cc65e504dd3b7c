"""``moorage`` as it is called: without words, with an output that is full."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from cli.commands import ADMIN, PROGRAM, plugin_parser, program_parser
from cli.main import main
from kube.client.config import plain
from runtime.client import Reached
from runtime.version import VERSION
from tests.cli.checks.told import Told
from tests.runtime.test_replicas import lease, pod
from ui.commands import version
from wire import names

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


# ``moorage admin``: one group of commands for those who run a cluster.

_COMMANDS = ("check", "check-kai", "clean-nodes", "upgrade-crds")


def test_without_a_command_it_lists_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["admin"]) == 0
    usage, _, listed = capsys.readouterr().out.partition("  COMMAND\n")
    assert usage.startswith("usage: moorage admin ")
    named = {line.split()[0] for line in listed.splitlines() if line.startswith("    ") and line[4] != " "}
    assert named == set(_COMMANDS)


@pytest.mark.parametrize("command", _COMMANDS)
def test_each_command_has_the_same_options_in_the_group_as_without_it(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    helps = []
    for words in ([command], ["admin", command]):
        with pytest.raises(SystemExit) as ended:
            main([*words, "--help"])
        assert ended.value.code == 0
        helps.append(capsys.readouterr().out.partition("options:")[2])
    assert helps[0]
    assert helps[0] == helps[1]


@pytest.mark.parametrize("parser", [program_parser(), plugin_parser()], ids=["moorage", "kubectl moorage"])
def test_no_list_shows_the_old_names(parser: argparse.ArgumentParser) -> None:
    listed = {line.split()[0] for line in parser.format_help().partition("COMMAND\n")[2].splitlines() if line.strip()}
    assert "admin" in listed
    assert not listed & set(_COMMANDS)


OLD = ("check", "check-kai", "clean-nodes", "upgrade-crds")


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main([*words])
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_the_commands_that_help_lists_are_named_and_no_old_ones(capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(capsys, "frob")
    told, _, rest = line.partition("allowed: ")
    assert told == "moorage: frob: no such command; "
    named = rest.partition(" (see moorage --help)")[0].split(", ")
    assert {"inspect", "explain", "admin", "simulate", "scheduler"} <= set(named)
    assert not set(OLD) & set(named)


def test_within_a_group_its_own_commands_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    named = refused(capsys, "admin", "frob").partition("allowed: ")[2].partition(" (see ")[0]
    assert tuple(named.split(", ")) == OLD


@pytest.mark.parametrize(("typed", "meant"), [("inspct", "inspect"), ("simulat", "simulate"), ("exlpain", "explain")])
def test_a_command_that_is_nearly_written_is_named_alone(
    typed: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused(capsys, typed) == f"moorage: {typed}: no such command; did you mean {meant}? (see moorage --help)"


def test_what_does_not_print_is_written_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert "\\x1b[2J" in refused(capsys, "\x1b[2J")


def test_values_of_options_are_refused_as_before(capsys: pytest.CaptureFixture[str]) -> None:
    assert "'frob': allowed are table, wide" in refused(capsys, "inspect", "-o", "frob")


def test_helps_of_commands_have_sixty_characters_at_most() -> None:
    assert [each.help for each in (*PROGRAM, *ADMIN) if len(each.help) > 60] == []


# The version of this program, and those of a cluster.

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
@pytest.mark.parametrize(
    ("command", "printed"), [(["version"], f"moorage {VERSION}\n"), (["inspect"], ""), (["explain", "queue", "a"], "")]
)
def test_a_cluster_that_does_not_answer_is_one_line_and_ends_with_one_as_for_kubectl(
    command: list[str], printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--server", "http://127.0.0.1:1"]) == 1
    told = capsys.readouterr()
    assert told.out == printed
    (line,) = told.err.splitlines()
    assert line.startswith("moorage: GET /")


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
