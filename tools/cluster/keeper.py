"""The process that keeps a background cluster: the control plane, and Moorage with simulated nodes on it.

It does for Moorage's components what Kubernetes does for pods: one that ends is started again, later each time. A
program of the control plane that ends is the end of the cluster.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import NoReturn

from tools.cluster.deployment import GROUPING, Deployment, Options
from tools.cluster.plane import ControlPlane
from tools.cluster.state import AS_TOLD, Description, Program, State
from tools.processes import Child, ProcessDied
from tools.rest import RestError

_LOOK_EVERY_S = 0.5
_RENEW_EVERY_S = 3600.0
_LONGEST_PAUSE_S = 30.0
#: A component that has run for so long is well: its next end is again the first.
_WELL_AFTER_S = 60.0


class _Ended(Exception):
    """Raised in the keeper by SIGTERM and SIGINT."""


@dataclass(slots=True)
class _Record:
    """One component's ends."""

    started_at: float
    ends: int = 0
    #: Ends in a row, each soon after the start.
    quick_ends: int = 0
    last_code: int = 0
    again_at: float | None = None


@dataclass(slots=True)
class Watch:
    """Looks after a deployment's components; ``now`` is a monotonic time in seconds."""

    deployment: Deployment
    _records: dict[str, _Record] = field(default_factory=dict)

    def look(self, now: float) -> None:
        """Note what has ended, and start again what is due."""
        for name, child in list(self.deployment.running.items()):
            record = self._records.setdefault(name, _Record(now))
            if child.process.poll() is None:
                continue
            if record.again_at is None:
                self._note(child, record, now)
            elif now >= record.again_at:
                record.again_at, record.started_at = None, now
                self.deployment.restart(name)

    def programs(self) -> list[Program]:
        """How the components are."""
        return [self._program(name, child) for name, child in sorted(self.deployment.running.items())]

    def _note(self, child: Child, record: _Record, now: float) -> None:
        record.ends += 1
        record.quick_ends = 1 if now - record.started_at >= _WELL_AFTER_S else record.quick_ends + 1
        record.last_code = child.process.returncode
        pause_s = min(_LONGEST_PAUSE_S, 2.0 ** (record.quick_ends - 1))
        record.again_at = now + pause_s
        print(f"{child.name} ended with {record.last_code}; its log ends:\n{child.tail()}", flush=True)
        print(f"{child.name} starts again in {pause_s:.0f} s", flush=True)

    def _program(self, name: str, child: Child) -> Program:
        record = self._records.get(name)
        if record is None or not record.ends:
            return Program(name, child.process.pid)
        waits = record.again_at is not None
        log = self.deployment.folder / (f"{name}.log" if waits else f"{name}.previous.log")
        times = "once" if record.ends == 1 else f"{record.ends} times"
        trouble = f"ended {times}, last with {record.last_code}: {log}"
        return Program(name, child.process.pid, is_running=not waits, trouble=trouble)


def run(state: State, nodes: Sequence[str]) -> int:
    """Keep a cluster until SIGTERM or SIGINT, or until a program of the control plane ends; return the exit code."""
    for ending in (signal.SIGTERM, signal.SIGINT):
        signal.signal(ending, _end)
    try:
        with state.keep() as folder:
            return _serve(state, folder, nodes)
    except BlockingIOError:
        print("a cluster is up already: `make cluster-down` ends it", file=sys.stderr)
    except _Ended:
        pass  # before there was anything to end
    return 1


def _serve(state: State, folder: Path, nodes: Sequence[str]) -> int:
    """Run the cluster and, before anybody else may keep one, say why it ended."""
    try:
        with ControlPlane(folder=folder) as plane, _moorage(plane, nodes) as deployment:
            plane.write_kubeconfig(state.kubeconfig, plane.token)
            print(f"serving at {plane.url}; KUBECONFIG={state.kubeconfig}", flush=True)
            _keep(state, plane, deployment, nodes)
    except _Ended:
        state.end(AS_TOLD)
        return 0
    except (ProcessDied, TimeoutError) as died:
        state.end(str(died))
        return 1


@contextlib.contextmanager
def _moorage(plane: ControlPlane, nodes: Sequence[str]) -> Iterator[Deployment | None]:
    if not nodes:
        yield None
        return
    with Deployment(plane, Options(nodes=nodes, components=GROUPING)) as deployment:
        yield deployment


def _keep(state: State, plane: ControlPlane, deployment: Deployment | None, nodes: Sequence[str]) -> NoReturn:
    watch = Watch(deployment) if deployment else None
    ours = [Program(child.name, child.process.pid) for child in plane.programs]
    renew_at = time.monotonic() + _RENEW_EVERY_S
    said: Description | None = None
    while True:
        plane.check()
        programs = list(ours)
        if deployment and watch:
            watch.look(time.monotonic())
            programs += watch.programs()
            if time.monotonic() >= renew_at:
                # One that fails is tried again soon; the old tokens live for hours.
                with contextlib.suppress(RestError, OSError):
                    deployment.renew_tokens()
                    renew_at = time.monotonic() + _RENEW_EVERY_S
        description = Description(os.getpid(), plane.url, str(plane.folder), list(nodes), programs)
        if description != said:
            state.publish(description)
            said = description
        time.sleep(_LOOK_EVERY_S)


def _end(number: int, frame: FrameType | None) -> None:
    raise _Ended
