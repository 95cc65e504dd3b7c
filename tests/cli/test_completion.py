"""What kubectl is told may come next."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

from cli.completion import suggested

ROOT = Path(__file__).parents[2]
KUBECTL = Path(sys.executable).with_name("kubectl")


#: All that kubectl moorage has.
COMMANDS = ("admin", "explain", "inspect", "lint", "simulate", "snapshot", "top", "translate", "ui", "version")


def names(kind: str, where: Sequence[str]) -> Sequence[str]:
    """A kubectl that knows two of each kind, and says where it was asked."""
    return [f"{kind}-1", f"{kind}-2", *where]


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ([""], [*COMMANDS, ":4"]),
        (["i"], ["inspect", ":4"]),
        (["-v", "l"], ["lint", ":4"]),
        (["inspect", ""], ["cluster", "node", "pod", "podgroup", "queue", ":4"]),
        (["inspect", "pg", ""], ["podgroups-1", "podgroups-2", ":4"]),
        (["inspect", "node", ""], ["nodes-1", "nodes-2", ":4"]),
        (["inspect", "no", "nodes-1", ""], ["nodes-2", ":4"]),
        (["inspect", "cluster", ""], [":4"]),
        (["inspect", "-n", "team", "pod", ""], ["pods-1", "pods-2", "--namespace=team", ":4"]),
        (["inspect", "--kubeconfig=f", "--context", "c", "pod", "--"], None),
        (["inspect", "--context=c", "node", ""], ["nodes-1", "nodes-2", "--context=c", ":4"]),
        (
            ["inspect", "-s", "https://h:1", "--cluster=c", "--as", "jane", "node", ""],
            ["nodes-1", "nodes-2", "--server=https://h:1", "--cluster=c", "--as=jane", ":4"],
        ),
        (["inspect", "--token-file", ""], [":0"]),
        (["check", "--log"], [":4"]),
        (["inspect", "-o", ""], ["table", "wide", "json", "yaml", "name", ":4"]),
        (["inspect", "-o", "w"], ["wide", ":4"]),
        (["inspect", "--output=j"], ["--output=json", ":4"]),
        (["inspect", "-n", "name"], ["namespace-1", "namespace-2", ":4"]),
        (["inspect", "--context", ""], ["context-1", "context-2", ":4"]),
        (["inspect", "--kubeconfig", ""], [":0"]),
        (["inspect", "--fo"], ["--format", ":4"]),
        (["inspect", "-A", "p"], ["pod", "podgroup", ":4"]),
        (["check", "-o", ""], ["table", "json", "yaml", ":4"]),
        (["admin", ""], ["check", "check-kai", "clean-nodes", "upgrade-crds", ":4"]),
        (["admin", "check", "-o", "j"], ["json", ":4"]),
        (["ch"], [":4"]),
        (["check-kai", "--out"], ["--output", ":4"]),
        (["ui", "--sim"], ["--simulate", ":4"]),
        (["translate", ""], [":0"]),
        (["translate", "--to", "v"], ["volcano", ":4"]),
        (["lint", "--dialects", ""], [":0"]),
        (["simulate", "-f", ""], [":0"]),
        (["simulate", "--from-snapshot", ""], [":0"]),
        (["nothing", ""], [*COMMANDS, ":4"]),
        (["inspect", "--nothing=", ""], ["cluster", "node", "pod", "podgroup", "queue", ":4"]),
        (["inspect", "--nothing="], [":4"]),
    ],
)
def test_what_may_come_next(typed: list[str], expected: list[str] | None) -> None:
    found = suggested(typed, ask=names)
    if expected is None:
        assert {"--kubeconfig", "--context", "--namespace", "--output", "--help"} <= set(found)
        assert found[-1] == ":4"
    else:
        assert found == expected


@pytest.mark.thorough
def test_kubectl_asks_the_program_that_is_installed(tmp_path: Path) -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    for name in ("kubectl-moorage", "kubectl_complete-moorage"):
        module, _, function = scripts[name].partition(":")
        load = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from {module} import {function}; sys.exit({function}())"
        (tmp_path / name).write_text(f"#!{sys.executable}\n{load}\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "KUBECONFIG": str(tmp_path / "none")}
    for typed, expected in ([["moorage", "ins"], ["inspect", ":4"]], [["moorage", "inspect", "n"], ["node", ":4"]]):
        ended = subprocess.run(
            [KUBECTL, "__complete", *typed], env=environment, capture_output=True, text=True, check=True
        )
        assert ended.stdout.split() == expected
