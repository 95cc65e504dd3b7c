"""Output formats: one group, in which a command refuses what has no meaning for it."""

from __future__ import annotations

import argparse

import pytest

from cli.main import main
from runtime.options import output

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
