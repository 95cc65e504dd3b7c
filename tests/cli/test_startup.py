"""``kubectl moorage`` is to answer within 150 ms, and nearly all of that is what Python loads (bench/asking.py)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = "examples/01-fraction-pair.yaml"
SETTINGS = "examples/settings/dialects.yaml"
#: What talks to clusters, and what draws on terminals.
ELSEWHERE = frozenset({
    "admission", "aiohttp", "anyio", "asyncio", "binder", "cryptography", "kube", "kubernetes_asyncio", "logging",
    "numpy", "rich", "scheduler", "simulator",
})  # fmt: skip
#: What reads and translates pods.
READING = frozenset({"dataclasses", "gpu", "msgspec", "pathlib", "subprocess", "typing_extensions", "wire", "yaml"})
#: What lint asks about pods that are refused or never placed: no more of it than reads no clock and talks to nobody.
JUDGING = frozenset({"admission", "scheduler"})
KUBECTL = "from cli.main import kubectl as program"
COMPLETE = "from cli.completion import main as program"
PROBE = """
import atexit, sys
{program}
atexit.register(lambda: print(*sorted({{name.partition(".")[0] for name in sys.modules}})))
program()
"""


def loaded(program: str, *arguments: str) -> tuple[list[str], frozenset[str]]:
    """What a program prints, and the packages that it has loaded when it ends."""
    command = [sys.executable, "-c", PROBE.format(program=program), *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=180)
    *printed, packages = done.stdout.splitlines()
    return printed, frozenset(packages.split())


@pytest.mark.parametrize(
    ("program", "arguments", "begins"),
    [
        (KUBECTL, ["--help"], "usage: kubectl moorage"),
        (KUBECTL, ["inspect", "--help"], "usage: kubectl moorage inspect"),
        (KUBECTL, ["explain", "--help"], "usage: kubectl moorage explain"),
        (KUBECTL, ["translate", "--help"], "usage: kubectl moorage translate"),
        (KUBECTL, ["lint", "--help"], "usage: kubectl moorage lint"),
        (COMPLETE, ["tra"], "translate"),
        (COMPLETE, ["translate", "--to", "ha"], "hami"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else "",
)
def test_what_knows_only_the_options_loads_nothing_that_reads_or_talks(
    program: str, arguments: list[str], begins: str
) -> None:
    printed, packages = loaded(program, *arguments)
    assert printed[0].startswith(begins)
    assert "argparse" in packages
    assert not packages & (ELSEWHERE | READING)


@pytest.mark.parametrize(
    ("arguments", "begins"),
    [
        (["translate", EXAMPLE], f"{EXAMPLE} document 1: Pod default/half-a"),
        (["translate", "-o", "json", "--to", "hami", EXAMPLE], "["),
        (["translate", "--dialects", SETTINGS, EXAMPLE], f"{EXAMPLE} document 1: Pod default/half-a"),
        (["lint", EXAMPLE], "2 pods: 0 errors"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else "",
)
def test_what_reads_manifests_loads_nothing_that_talks_to_clusters_or_draws(arguments: list[str], begins: str) -> None:
    printed, packages = loaded(KUBECTL, *arguments)
    assert printed[0].startswith(begins)
    assert {"gpu", "wire", "yaml"} <= packages
    judged = JUDGING if arguments[0] == "lint" else frozenset()
    assert packages & ELSEWHERE == judged
