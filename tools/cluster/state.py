"""Where the keeper of a background cluster (keeper.py) and the commands (tools/cluster/background.py) meet: a folder.

The keeper holds a lock there as long as it lives, so a crash, a reboot or a reused process id can't be taken for a
running cluster.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

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
