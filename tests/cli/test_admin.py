"""``moorage admin``: one group of commands for those who run a cluster."""

from __future__ import annotations

import argparse

import pytest

from cli.main import _parser, main, plugin_parser

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


@pytest.mark.parametrize("parser", [_parser(), plugin_parser()], ids=["moorage", "kubectl moorage"])
def test_no_list_shows_the_old_names(parser: argparse.ArgumentParser) -> None:
    listed = {line.split()[0] for line in parser.format_help().partition("COMMAND\n")[2].splitlines() if line.strip()}
    assert "admin" in listed
    assert not listed & set(_COMMANDS)
