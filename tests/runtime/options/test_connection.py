"""All commands that read a cluster name it by the same options, and read their values alike."""

from __future__ import annotations

import argparse

import pytest

from cli.main import _parser, main
from runtime.options import connection
from runtime.options.connection import Where

COMMANDS = ("inspect", "explain", "top", "check", "check-kai", "clean-nodes", "upgrade-crds", "ui", "version")
OPTIONS = {
    "--kubeconfig", "--context", "--cluster", "-s", "--server", "--ca-file", "--certificate-authority", "--token-file",
    "--as", "--as-group", "--request-timeout",
}  # fmt: skip


def group_of(command: str) -> dict[str, str]:
    """The options of the group, with their help."""
    (commands,) = [each for each in _parser()._actions if isinstance(each, argparse._SubParsersAction)]
    parser: argparse.ArgumentParser = commands.choices[command]
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
