"""``moorage admin``: one group of commands for those who run a cluster."""

from __future__ import annotations

import pytest

from cli.main import main

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
