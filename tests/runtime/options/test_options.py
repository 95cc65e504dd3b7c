"""Options of every command: connections, manifests, output and selection."""

from __future__ import annotations

import argparse
import io
import json
from pathlib import Path

import pytest

from cli.commands import program_parser
from cli.main import main
from runtime.options import connection, manifests, output, selection
from runtime.options.connection import Where
from runtime.text import BadInput

# All commands that read a cluster name it by the same options, and read their values alike.

COMMANDS = ("inspect", "explain", "top", "check", "check-kai", "clean-nodes", "upgrade-crds", "ui", "version")
OPTIONS = {
    "--kubeconfig", "--context", "--cluster", "-s", "--server", "--ca-file", "--certificate-authority", "--token-file",
    "--as", "--as-group", "--request-timeout",
}  # fmt: skip


def group_of(command: str) -> dict[str, str]:
    """The options of the group, with their help."""
    (commands,) = [each for each in program_parser()._actions if isinstance(each, argparse._SubParsersAction)]
    parser: argparse.ArgumentParser = commands.choices[command].filled()
    (group,) = [each for each in parser._action_groups if each.title == "connection"]
    return {
        name: str(action.help)
        for action in group._group_actions
        for name in action.option_strings
        if action.help != argparse.SUPPRESS
    }


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_that_reads_a_cluster_has_the_whole_group(command: str) -> None:
    assert group_of(command) == group_of("inspect")
    assert set(group_of(command)) == OPTIONS


def given(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    connection.add(parser)
    return parser.parse_args(words)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], Where()),
        (["-s", "https://h:1/p"], Where(server="https://h:1/p")),
        (["--certificate-authority=/ca"], Where(ca_file="/ca")),
        (["--as=jane", "--as-group=a", "--as-group", "b"], Where(act_as="jane", act_as_groups=("a", "b"))),
        (["--request-timeout=5s"], Where(request_timeout_s=5.0)),
        (["--request-timeout=5"], Where(request_timeout_s=5.0)),
        (["--request-timeout=1m30s"], Where(request_timeout_s=90.0)),
        (["--request-timeout=0"], Where(request_timeout_s=float("inf"))),
        (["--request-timeout=0s"], Where(request_timeout_s=float("inf"))),
        (["--log-level=debug"], Where()),
    ],
)
def test_values_are_written_as_for_kubectl(words: list[str], expected: Where) -> None:
    assert connection.chosen(given(*words)) == expected


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--request-timeout=soon"], "--request-timeout soon: allowed is a time as in 500ms, 5s, 2m, 1h or 1m30s"),
        (["--request-timeout=-1s"], "--request-timeout -1s: allowed is a time"),
        (["--server=h:1"], "--server h:1: not a URL of an API server; write https://HOST:PORT"),
        (["--server=https://user:pw@h:1"], "not a URL"),
        (["--as=a\nb"], "--as 'a\\nb': allowed is printable text"),
        (["--as-group=a"], "--as-group: allowed with --as"),
    ],
)
@pytest.mark.parametrize("command", ["inspect", "check"])
def test_a_value_that_can_not_be_is_refused(
    command: str, words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line


POD = """
apiVersion: v1
kind: Pod
metadata: {name: NAME, annotations: {gpu-fraction: "0.5"}}
spec: {schedulerName: kai-scheduler, containers: [{name: main, image: x}]}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """a.yaml, and deeper b.yml and c.json beside what is no manifest."""
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "a.yaml").write_text(POD.replace("NAME", "a"))
    (tmp_path / "deep" / "b.yml").write_text(POD.replace("NAME", "b"))
    (tmp_path / "deep" / "er" / "c.json").write_text(
        json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "c"}, "spec": {"containers": [{}]}})
    )
    (tmp_path / "deep" / "notes.txt").write_text("no manifest")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["{0}/a.yaml"], ["{0}/a.yaml"]),
        (["-f", "{0}/a.yaml"], ["{0}/a.yaml"]),
        (["x", "-f", "y", "--filename=z"], ["x", "y", "z"]),
        (["-"], ["-"]),
        (["-f", "-"], ["-"]),
        (["{0}"], ["{0}"]),
        (["-R", "{0}"], ["{0}/a.yaml", "{0}/deep/b.yml", "{0}/deep/er/c.json"]),
        (["-R", "-f", "{0}/deep", "-"], ["-", "{0}/deep/b.yml", "{0}/deep/er/c.json"]),
    ],
)
def test_files_are_positional_or_named_as_in_kubectl(words: list[str], expected: list[str], folder: Path) -> None:
    parser = argparse.ArgumentParser()
    manifests.add_arguments(parser)
    arguments = parser.parse_args([word.format(folder) for word in words])
    assert manifests.named(arguments) == [name.format(folder) for name in expected]


def test_a_command_line_without_files_says_how_to_name_them() -> None:
    parser = argparse.ArgumentParser()
    manifests.add_arguments(parser)
    with pytest.raises(BadInput, match="no manifests given; name files or folders, or - for stdin: FILE or -f FILE"):
        manifests.named(parser.parse_args([]))


def test_a_folder_is_read_without_its_folders_unless_recursive(folder: Path) -> None:
    assert manifests.expanded(str(folder)) == [folder / "a.yaml"]
    (folder / "a.yaml").unlink()
    with pytest.raises(BadInput, match=r"a folder without manifests .*; -R reads folders within it"):
        manifests.expanded(str(folder))


@pytest.mark.parametrize("command", [["lint"], ["translate"], ["simulate", "--nodes", "1x1x24GiB"]])
def test_commands_that_read_manifests_take_them_as_kubectl_does(
    command: list[str], folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "deep" / "er" / "c.json").unlink()
    assert main([*command, "-R", "-f", str(folder)]) == 0
    told = capsys.readouterr()
    assert "2 pods" in told.out or all(f"default/{name}" in told.out for name in "ab")
    monkeypatch.setattr("sys.stdin", io.StringIO(POD.replace("NAME", "typed")))
    assert main([*command, "-f", "-"]) == 0
    told = capsys.readouterr()
    assert "1 pod:" in told.out or "default/typed" in told.out
    assert main(command) == 2
    assert "no manifests given" in capsys.readouterr().err


# Output formats: one group, in which a command refuses what has no meaning for it.

GROUPS = {
    "version": "table, wide, json and yaml",
    "inspect": "table, wide, json, yaml and name",
    "explain": "table, wide, json and yaml",
    "top": "table; programs and -o wide: moorage inspect",
    "check": "table, json and yaml",
    "check-kai": "table, wide, json and yaml",
    "clean-nodes": "table, json and yaml",
    "upgrade-crds": "table, json and yaml",
}


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize("given", ["jsonpath={.items}", "custom-columns=A:.b", "lines "])
@pytest.mark.parametrize("command", GROUPS)
def test_a_form_that_a_command_has_not_is_refused_with_those_that_it_has(
    command: str, given: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [command, "queue", "q", "-o", given] if command == "explain" else [command, "-o", given]
    assert f"{given!r}: allowed {'is' if command == 'top' else 'are'} {GROUPS[command]} (see" in refused(words, capsys)


@pytest.mark.parametrize("command", [command for command in GROUPS if command not in {"inspect", "version"}])
def test_what_prints_no_header_refuses_to_leave_it_out(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = [command, *(["queue", "q"] if command == "explain" else []), "--no-headers"]
    assert f"--no-headers: moorage {command} prints no header lines" in refused(words, capsys)


@pytest.mark.parametrize("form", ["json", "yaml", "name"])
def test_a_form_without_header_refuses_to_leave_it_out(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "--no-headers", "-o", form]) == 2
    assert "--no-headers: allowed with -o table and -o wide" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "form"), [([], "table"), (["-ojson"], "json"), (["-o=yaml"], "yaml"), (["--output", "lines"], "table")]
)
def test_forms_are_written_as_for_kubectl_and_as_of_old(words: list[str], form: str) -> None:
    parser = argparse.ArgumentParser()
    output.add(parser)
    assert parser.parse_args(words).output == form


# Namespaces and labels are named alike wherever pods are shown.

SELECTION_COMMANDS = ("inspect", "top", "ui")


def selection_given(*words: str) -> tuple[str, ...]:
    parser = argparse.ArgumentParser()
    selection.add(parser, default="all", labels="pods")
    return selection.namespaces(parser.parse_args(words))


@pytest.mark.parametrize(
    ("words", "expected"),
    [([], ()), (["-A"], ()), (["-n", "a"], ("a",)), (["-na", "--namespace=b", "-n", "a"], ("a", "b"))],
)
def test_namespaces_are_those_named_each_once(words: list[str], expected: tuple[str, ...]) -> None:
    assert selection_given(*words) == expected


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["-n", "a", "-A"], "-n and -A: allowed is one of the two"),
        (["-n", "A_b"], "--namespace A_b: allowed is the name of a namespace"),
        ([word for at in range(65) for word in ("-n", f"n{at}")], "--namespace: 65 are given; allowed are 64, or all"),
    ],
)
@pytest.mark.parametrize("command", SELECTION_COMMANDS)
def test_what_can_not_be_is_refused(
    command: str, words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, *words]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("command", ["top", "ui"])
def test_labels_are_refused_where_all_pods_count(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "-l", "a=b"]) == 2
    assert f"-l: not with {command}, which counts all pods on a GPU" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["pod", "p", "-l", "a=b"], "-l: not with names"),
        (["queue", "-f", "x", "-l", "a=b"], "-l: not with -f; a cluster selects by labels"),
        (["pod", "p", "-n", "a", "-n", "b"], "-n: pods that are named are of one namespace; name it by one -n"),
    ],
)
def test_an_inspection_refuses_what_selects_twice(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", *words]) == 2
    assert told in capsys.readouterr().err
