"""Which commands are named to somebody who has typed one that is not there."""

from __future__ import annotations

import pytest

from cli.main import main

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
