"""Programs that are built from pinned Go modules, once, into a cache.

``label`` says whose build it is, in what is shown ("control plane", "helm").
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

_TTY_EVERY_S = 1.0
#: Back to the line's begin, and clear it.
_AFRESH = "\r\x1b[K"
_LOG_EVERY_S = 30.0


class BuildFailed(Exception):
    """Raised when ``go build`` fails; the text is the end of what it said."""


class Unavailable(Exception):
    """Raised when a program is not there and can't be built; the text says what to do."""


def told(ensure: Callable[[], Path]) -> int:
    """Print the path of a program that is ensured, or say what to do; the exit code."""
    try:
        print(ensure())
    except Unavailable as unavailable:
        print(unavailable, file=sys.stderr)
        return 1
    return 0


def cache_root(environ: Mapping[str, str]) -> Path:
    """Return ``$MOORAGE_CACHE``, by default ``~/.cache/moorage``."""
    named = environ.get("MOORAGE_CACHE")
    return Path(named).absolute() if named else Path(environ.get("HOME") or Path.home()) / ".cache" / "moorage"


def key(module: Path, version: str, *, recipe: str) -> str:
    """Name the cache folder of a module: a version, a hash of all that decides the build, the platform.

    ``recipe`` is raised when the way of building changes.
    """
    digest = hashlib.sha256(recipe.encode())
    for name in ("go.mod", "go.sum"):
        digest.update((module / name).read_bytes())
    return f"{version}-{digest.hexdigest()[:12]}-{sys.platform}-{platform.machine()}"


def required(module: Path, path: str) -> str:
    """Return the version of the Go module ``path`` that go.mod of ``module`` requires, as ``v4.2.4``."""
    found = re.search(rf"{re.escape(path)} (v\d+\.\d+\.\d+)", (module / "go.mod").read_text())
    if found is None:
        raise ValueError(f"{module / 'go.mod'}: no line '{path} vX.Y.Z'")
    return found[1]


def build(go: str, module: Path, package: str, target: Path, *, ldflags: str, label: str) -> None:
    """Build one program, showing the time it takes. Raises BuildFailed."""
    command = [go, "build", "-trimpath", "-buildvcs=false", "-ldflags", ldflags, "-o", str(target), package]
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command,
            cwd=module,
            env={**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            _watch(process, target.name, label)
        finally:
            process.kill()
            process.wait()
        if process.returncode != 0:
            output.seek(0)
            raise BuildFailed("\n  ".join(output.read().decode(errors="replace").strip().splitlines()[-15:]))


def ensure(target: Path, module: Path, package: str, *, ldflags: str, label: str) -> Path:
    """Return the program at ``target``, building it if it is not there. Raises Unavailable.

    It is built beside the target and moved there at once, so that a broken-off build leaves nothing that looks done.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with locked(target.parent / ".lock", label=label):
        if is_program(target):
            return target
        go = shutil.which("go")
        if go is None:
            raise Unavailable(f"{target.name} is built from Go modules, and there is no `go` on PATH: install Go 1.26")
        say(f"{label}: {target.name} is built from Go modules, once")
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".build-") as scratch:
            made = Path(scratch) / target.name
            try:
                build(go, module, package, made, ldflags=ldflags, label=label)
            except BuildFailed as error:
                raise Unavailable(f"{target.name} can't be built: `go build` failed:\n  {error}") from error
            made.replace(target)
    return target


def is_program(path: Path) -> bool:
    """Whether there is something that can be run."""
    return path.is_file() and os.access(path, os.X_OK)


@contextlib.contextmanager
def locked(path: Path, *, label: str) -> Iterator[None]:
    """Hold a file lock, so that two test runs don't build the same thing; it falls with the process."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"{label}: waiting for another build ({path})")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def say(line: str, *, end: str = "\n") -> None:
    """Wake the callers that wait."""
    print(line, end=end, file=sys.stderr, flush=True)


def _watch(process: subprocess.Popen[bytes], program: str, label: str) -> None:
    """Show a progress line until the process ends: in place on a terminal, now and then in a log."""
    started, terminal = time.monotonic(), sys.stderr.isatty()
    while True:
        try:
            process.wait(_TTY_EVERY_S if terminal else _LOG_EVERY_S)
        except subprocess.TimeoutExpired:
            line = f"{label}: building {program}, {_elapsed(started)}"
            say(_AFRESH + line if terminal else line, end="" if terminal else "\n")
        else:
            line = f"{label}: {program} took {_elapsed(started)}"
            say(_AFRESH + line if terminal else line)
            return


def _elapsed(started_s: float) -> str:
    minutes, seconds = divmod(round(time.monotonic() - started_s), 60)
    return f"{minutes} min {seconds:02d} s"
