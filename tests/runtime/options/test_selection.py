"""Namespaces and labels are named alike wherever pods are shown."""

from __future__ import annotations

import argparse

import pytest

from cli.main import main
from runtime.options import selection

COMMANDS = ("inspect", "top", "ui")


def given(*words: str) -> tuple[str, ...]:
    parser = argparse.ArgumentParser()
    selection.add(parser, default="all", labels="pods")
    return selection.namespaces(parser.parse_args(words))


@pytest.mark.parametrize(
    ("words", "expected"),
    [([], ()), (["-A"], ()), (["-n", "a"], ("a",)), (["-na", "--namespace=b", "-n", "a"], ("a", "b"))],
)
def test_namespaces_are_those_named_each_once(words: list[str], expected: tuple[str, ...]) -> None:
    assert given(*words) == expected


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["-n", "a", "-A"], "-n and -A: allowed is one of the two"),
        (["-n", "A_b"], "--namespace A_b: allowed is the name of a namespace"),
        ([word for at in range(65) for word in ("-n", f"n{at}")], "--namespace: 65 are given; allowed are 64, or all"),
    ],
)
@pytest.mark.parametrize("command", COMMANDS)
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
