"""``python -m tools.cluster up|down|status|run``: one cluster in the background, kept by a process of its own.

Its state lies in ``${MOORAGE_CACHE}/cluster`` (tools/cluster/state.py). With ``--nodes 4x8x80GiB`` Moorage runs on it,
with simulated nodes; without, it is a bare control plane. ``run`` is the keeper itself (tools/cluster/keeper.py), in
the foreground.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from simulator.nodes import shape
from tools.cluster import keeper
from tools.cluster.state import Description, Program, State
from tools.controlplane import ControlPlaneUnavailable, ensure
from tools.goprogram import cache_root
from tools.processes import resident_kib

_UP_WITHIN_S = 120.0
_DOWN_WITHIN_S = 20.0
_POLL_S = 0.1
#: Of ``status`` when nothing runs, as systemctl has it.
_NOT_RUNNING = 3
_BAD_INPUT = 2
_INTERRUPTED = 130


def up(state: State, nodes: Sequence[str]) -> int:
    """Start a keeper unless there is one, and wait until its cluster serves."""
    described = state.describe()
    if described is None:
        ensure()
        described = _start_keeper(state, nodes)
    elif nodes and list(nodes) != list(described.nodes):
        print(
            f"it is up already, with other nodes; `make cluster-down` before `make cluster NODES={' '.join(nodes)!r}`"
        )
    if described is None:
        return 1
    _tell(state, described)
    return 0


def down(state: State) -> int:
    """End the keeper and with it the cluster and all that was in it."""
    keeper_pid = state.keeper()
    if keeper_pid is None:
        print("no cluster is up")
        return 0
    os.kill(keeper_pid, signal.SIGTERM)
    give_up_at = time.monotonic() + _DOWN_WITHIN_S
    while state.kept() or resident_kib(keeper_pid) is not None:
        if time.monotonic() > give_up_at:
            print(f"the keeper (process {keeper_pid}) did not end; see {state.log}", file=sys.stderr)
            return 1
        time.sleep(_POLL_S)
    print("the cluster is down")
    return 0


def status(state: State) -> int:
    """Print where the cluster is, how its programs are, and how to use it; 1 when a component does not run."""
    described = state.describe()
    if described is None:
        print(_nothing(state))
        return _NOT_RUNNING
    _tell(state, described)
    print("programs:")
    for program in described.programs:
        print(f"  {_line(program)}")
    return 0 if all(program.is_running for program in described.programs) else 1


def _nothing(state: State) -> str:
    if state.kept():
        return f"a cluster is starting; see {state.log}"
    why = state.last_words()
    return f"no cluster is up; the last one ended: {why}" if why else "no cluster is up"


def _start_keeper(state: State, nodes: Sequence[str]) -> Description | None:
    """Return the description of a fresh cluster; None when it did not come up, after having said why."""
    state.folder.mkdir(parents=True, exist_ok=True)
    with state.log.open("wb") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "tools.cluster", "run", *(word for text in nodes for word in ("--nodes", text))],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        give_up_at = time.monotonic() + _UP_WITHIN_S
        while (described := state.describe()) is None:
            if child.poll() is not None or time.monotonic() > give_up_at:
                print(f"the cluster did not come up:\n{state.log.read_text()}", file=sys.stderr)
                return None
            time.sleep(_POLL_S)
    finally:
        if state.describe() is None:
            # Interrupted, or too slow: nothing is left half-way.
            child.terminate()
            child.wait(_DOWN_WITHIN_S)
    return described


def _tell(state: State, described: Description) -> None:
    print(f"the cluster serves at {described.url}; its logs are in {described.logs}")
    if described.nodes:
        print(f"Moorage runs on it, with simulated nodes: {' '.join(described.nodes)}")
    print("for your shell:")
    print(f"  export KUBECONFIG={state.kubeconfig}")
    if described.nodes:
        kubectl = _kubectl()
        print("try:")
        print(f"  {kubectl} apply -f examples/00-queue.yaml -f examples/01-fraction-pair.yaml")
        print(f"  {kubectl} get pods -o wide")
        print(f"  {kubectl} describe pod half-a")


def _kubectl() -> str:
    """How people call kubectl here: the one of the virtual environment unless they have their own."""
    own = Path(os.path.relpath(Path(sys.executable).with_name("kubectl")))
    return "kubectl" if shutil.which("kubectl") else str(own)


def _line(program: Program) -> str:
    kib = resident_kib(program.pid) if program.is_running else None
    how = f"{kib // 1024:5} MiB" if kib is not None else "not running"
    return f"{program.name:<24}{how:>11}  {program.trouble}".rstrip()


def main(arguments: Sequence[str]) -> int:
    """Run one command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.cluster", description="A real control plane to play with.")
    parser.add_argument("command", choices=("up", "down", "status", "run"))
    parser.add_argument(
        "--nodes", action="append", default=[], metavar="NxGxMEM", help="run Moorage, with simulated nodes: 4x8x80GiB"
    )
    chosen = parser.parse_args(arguments)
    state = State(cache_root(os.environ) / "cluster")
    try:
        shape.parse(chosen.nodes)
        return _run(chosen.command, state, chosen.nodes)
    except shape.MalformedShape as malformed:
        print(malformed, file=sys.stderr)
        return _BAD_INPUT
    except ControlPlaneUnavailable as unavailable:
        print(unavailable, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return _INTERRUPTED


def _run(command: str, state: State, nodes: Sequence[str]) -> int:
    match command:
        case "up":
            return up(state, nodes)
        case "down":
            return down(state)
        case "status":
            return status(state)
        case _:
            return keeper.run(state, nodes)
