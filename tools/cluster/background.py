"""``python -m tools.cluster up|down|status|run``: one cluster in the background, kept by a process of its own.

Its state lies in ``${MOORAGE_CACHE}/cluster``. The keeper holds a lock there as long as it lives, so a crash, a reboot
or a reused process id can't be taken for a running cluster. With ``--nodes 4x8x80GiB`` Moorage runs on it, with
simulated nodes; without, it is a bare control plane. ``run`` is the keeper itself, in the foreground.

The keeper does for Moorage's components what Kubernetes does for pods: one that ends is started again, later each time.
A program of the control plane that ends is the end of the cluster.
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
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import NoReturn

import yaml

from simulator import installation
from simulator.nodes import shape
from tools.cluster.deployment import GROUPING, Deployment, Options
from tools.cluster.plane import ControlPlane
from tools.controlplane import ControlPlaneUnavailable, ensure
from tools.goprogram import cache_root
from tools.processes import Child, ProcessDied, resident_kib
from tools.rest import RestError

_POLL_S = 0.01
#: A command that looks whether there is a keeper holds the lock for a moment; the keeper outlasts that.
_LOCK_WITHIN_S = 1.0
_LAST_WORDS = "the cluster ended: "
#: What a keeper says that was told to end.
AS_TOLD = "as it was told to"


@dataclass(frozen=True, slots=True)
class Program:
    """One program of the cluster; ``trouble`` is what is to be known of its ends, "" for nothing."""

    name: str
    pid: int
    is_running: bool = True
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Description:
    """A cluster that serves. ``nodes`` are the simulated ones; without any there is no Moorage on it either."""

    pid: int
    url: str
    logs: str
    nodes: Sequence[str] = ()
    programs: Sequence[Program] = ()


@dataclass(frozen=True, slots=True)
class State:
    """The folder, and what is written in it."""

    folder: Path

    def describe(self) -> Description | None:
        """Return what the keeper wrote since it serves, None when no cluster is up."""
        if not self.kept():
            return None
        try:
            plain = json.loads(self._description.read_text())
        except FileNotFoundError:
            return None
        programs = [Program(**program) for program in plain.pop("programs")]
        return Description(**plain, programs=programs)

    def kept(self) -> bool:
        """Whether a keeper lives, serving or not."""
        try:
            with self._locked():
                return False
        except BlockingIOError:
            return True

    def keeper(self) -> int | None:
        """Return the process id of the keeper, serving or not."""
        return int(self._lock.read_text() or 0) or None if self.kept() else None

    @contextlib.contextmanager
    def keep(self) -> Iterator[Path]:
        """Be the keeper; hands out the folder for the run. Raises BlockingIOError when there is one."""
        with self._locked(within_s=_LOCK_WITHIN_S):
            self._forget()
            self._lock.write_text(str(os.getpid()))
            try:
                # A name of its own: the guard of a killed keeper may still be removing that one's folder.
                yield self.folder / f"run-{os.getpid()}"
            finally:
                self._forget()

    def publish(self, description: Description) -> None:
        """Say that the cluster serves, and how it is."""
        fresh = self._description.with_suffix(".new")
        fresh.write_text(json.dumps(asdict(description)))
        fresh.replace(self._description)

    def end(self, why: str) -> None:
        """Write the keeper's last words."""
        print(f"{_LAST_WORDS}{why}", flush=True)

    def last_words(self) -> str:
        """Return why the last cluster ended if nobody stopped it, else ""."""
        if self.kept() or not self.log.exists():
            return ""
        _, said, why = self.log.read_text().rpartition(_LAST_WORDS)
        if not said:
            return "its keeper was killed"
        return "" if why.strip() == AS_TOLD else why.strip()

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

    @property
    def _lock(self) -> Path:
        return self.folder / "lock"

    def _forget(self) -> None:
        self._description.unlink(missing_ok=True)
        self.kubeconfig.unlink(missing_ok=True)
        for left in self.folder.glob("run-*"):
            shutil.rmtree(left, ignore_errors=True)

    @contextlib.contextmanager
    def _locked(self, *, within_s: float = 0.0) -> Iterator[None]:
        self.folder.mkdir(parents=True, exist_ok=True)
        give_up_at = time.monotonic() + within_s
        with self._lock.open("a") as file:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= give_up_at:
                        raise
                    time.sleep(_POLL_S)
            yield


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
    except _Ended:  # before there was anything to end
        state.end(AS_TOLD)
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
        plane.apply(yaml.safe_dump_all([*installation.priority_classes(), *installation.queues()]))
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


_UP_WITHIN_S = 120.0
_DOWN_WITHIN_S = 20.0
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
            return run(state, nodes)
