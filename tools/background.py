"""``python -m tools.cluster up|down|status|run``: one control plane in the background, kept by a process of its own.

Its state lies in ``${MOORAGE_CACHE}/cluster``. The keeper holds a lock there as long as it lives, so a crash, a reboot
or a reused process id can't be taken for a running cluster. ``run`` is the keeper itself, in the foreground.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from tools.cluster import ControlPlane
from tools.controlplane import ControlPlaneUnavailable, cache_root, ensure
from tools.processes import ProcessDied

_UP_WITHIN_S = 90.0
_DOWN_WITHIN_S = 20.0
_POLL_S = 0.1
#: A command that looks whether there is a keeper holds the lock for a moment; the keeper outlasts that.
_LOCK_WITHIN_S = 1.0
#: Of ``status`` when nothing runs, as systemctl has it.
_NOT_RUNNING = 3


class _Ended(Exception):
    """Raised in the keeper by SIGTERM and SIGINT."""


@dataclass(frozen=True, slots=True)
class State:
    """The folder in which the keeper and the commands meet."""

    folder: Path

    def describe(self) -> dict[str, Any] | None:
        """Return what the keeper wrote once it served (pid, url, logs), None when no cluster is up."""
        if not self.kept():
            return None
        try:
            described: dict[str, Any] = json.loads(self._description.read_text())
        except FileNotFoundError:
            return None
        return described

    def kept(self) -> bool:
        """Whether a keeper lives, serving or not."""
        try:
            with self._locked():
                return False
        except BlockingIOError:
            return True

    @contextlib.contextmanager
    def keep(self) -> Iterator[Path]:
        """Be the keeper; hands out the folder for the run. Raises BlockingIOError when there is one."""
        with self._locked(within_s=_LOCK_WITHIN_S):
            self._forget()
            try:
                # A name of its own: the guard of a killed keeper may still be removing that one's folder.
                yield self.folder / f"run-{os.getpid()}"
            finally:
                self._forget()

    def publish(self, description: dict[str, Any]) -> None:
        """Say that the cluster serves."""
        fresh = self._description.with_suffix(".new")
        fresh.write_text(json.dumps(description))
        fresh.replace(self._description)

    @property
    def log(self) -> Path:
        """What the keeper says."""
        return self.folder / "keeper.log"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig: at the same place each time."""
        return self.folder / "kubeconfig"

    @property
    def _description(self) -> Path:
        return self.folder / "cluster.json"

    def _forget(self) -> None:
        self._description.unlink(missing_ok=True)
        self.kubeconfig.unlink(missing_ok=True)
        for left in self.folder.glob("run-*"):
            shutil.rmtree(left, ignore_errors=True)

    @contextlib.contextmanager
    def _locked(self, *, within_s: float = 0.0) -> Iterator[None]:
        self.folder.mkdir(parents=True, exist_ok=True)
        give_up_at = time.monotonic() + within_s
        with (self.folder / "lock").open("w") as file:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= give_up_at:
                        raise
                    time.sleep(_POLL_S / 10)
            yield


def up(state: State) -> int:
    """Start a keeper unless there is one, and wait until its cluster serves."""
    if state.describe() is None:
        ensure()
        state.folder.mkdir(parents=True, exist_ok=True)
        with state.log.open("wb") as log:
            keeper = subprocess.Popen(
                [sys.executable, "-m", "tools.cluster", "run"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        give_up_at = time.monotonic() + _UP_WITHIN_S
        while state.describe() is None:
            if keeper.poll() is not None or time.monotonic() > give_up_at:
                print(f"the cluster did not come up:\n{state.log.read_text()}", file=sys.stderr)
                return 1
            time.sleep(_POLL_S)
    return status(state)


def down(state: State) -> int:
    """End the keeper and with it the cluster and all that was in it."""
    described = state.describe()
    if described is None:
        print("no cluster is up")
        return 0
    os.kill(described["pid"], signal.SIGTERM)
    give_up_at = time.monotonic() + _DOWN_WITHIN_S
    while state.kept():
        if time.monotonic() > give_up_at:
            print(f"the keeper (process {described['pid']}) did not end; see {state.log}", file=sys.stderr)
            return 1
        time.sleep(_POLL_S)
    print("the cluster is down")
    return 0


def status(state: State) -> int:
    """Print where the cluster is and how to use it."""
    described = state.describe()
    if described is None:
        print("no cluster is up")
        return _NOT_RUNNING
    print(f"the cluster serves at {described['url']}; its logs are in {described['logs']}")
    print(f"export KUBECONFIG={state.kubeconfig}")
    return 0


def run(state: State) -> int:
    """Keep a cluster until SIGTERM or SIGINT, or until one of its programs ends."""
    for ending in (signal.SIGTERM, signal.SIGINT):
        signal.signal(ending, _end)
    try:
        with state.keep() as folder, ControlPlane(folder=folder) as plane:
            plane.write_kubeconfig(state.kubeconfig, plane.token)
            state.publish({"pid": os.getpid(), "url": plane.url, "logs": str(plane.folder)})
            print(f"serving at {plane.url}; KUBECONFIG={state.kubeconfig}", flush=True)
            while True:
                plane.check()
                time.sleep(1)
    except _Ended:
        return 0
    except BlockingIOError:
        print("a cluster is up already: `make cluster-down` ends it", file=sys.stderr)
    except ProcessDied as died:
        print(died, file=sys.stderr)
    return 1


def _end(number: int, frame: FrameType | None) -> None:
    raise _Ended


def main(arguments: Sequence[str]) -> int:
    """Run one command; returns the exit code."""
    commands = {"up": up, "down": down, "status": status, "run": run}
    parser = argparse.ArgumentParser(prog="python -m tools.cluster", description="A real control plane to play with.")
    parser.add_argument("command", choices=commands)
    chosen = parser.parse_args(arguments)
    try:
        return commands[chosen.command](State(cache_root(os.environ) / "cluster"))
    except ControlPlaneUnavailable as unavailable:
        print(unavailable, file=sys.stderr)
        return 1
