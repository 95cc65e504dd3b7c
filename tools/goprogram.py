"""Programs that are built from pinned Go modules, once, into a cache.

``label`` says whose build it is, in what is shown ("control plane", "chart"). ``python -m tools.goprogram NAME...``
prints the paths of those of ``PINNED``; the control plane, the oracle and controllers have modules of their own.
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
from typing import Final, NamedTuple

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


def build(go: str, module: Path, package: str, target: Path, *, ldflags: str, label: str, tags: str = "") -> None:
    """Build one program, showing the time it takes. Raises BuildFailed."""
    command = [go, "build", "-trimpath", "-buildvcs=false", "-ldflags", ldflags, "-tags", tags]
    command += ["-o", str(target), package]
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


def ensure(target: Path, module: Path, package: str, *, ldflags: str, label: str, tags: str = "") -> Path:
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
                build(go, module, package, made, ldflags=ldflags, label=label, tags=tags)
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
    """Print a line for people at once."""
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


class Pinned(NamedTuple):
    """A program of one Go module, whose go.mod in tools/NAME has the version of ``requires``.

    ``has_source``: the program's own text lies there, too.
    """

    name: str
    requires: str
    package: str
    label: str
    ldflags: str = "-s -w"
    has_source: bool = False

    @property
    def module(self) -> Path:
        """The folder of go.mod."""
        return Path(__file__).parent / self.name

    @property
    def version(self) -> str:
        """The version that go.mod requires, as ``v4.2.4``."""
        return required(self.module, self.requires)

    def ensure(self, environ: Mapping[str, str] = os.environ) -> Path:
        """Return the program's path, building it if the cache has none for this source. Raises Unavailable."""
        texts = sorted(self.module.glob("*.go")) if self.has_source else ()
        recipe = hashlib.sha256(b"".join(path.read_bytes() for path in texts)).hexdigest() if texts else "1"
        folder = cache_root(environ) / self.name / key(self.module, self.version, recipe=recipe)
        ldflags = self.ldflags.format(version=self.version)
        return ensure(folder / self.name, self.module, self.package, ldflags=ldflags, label=self.label)


#: Helm's Kubernetes modules have the versions of tools/controlplane/go.mod: a machine that has just built those
#: compiles little more.
HELM: Final = Pinned(
    "helm",
    requires="helm.sh/helm/v4",
    package="helm.sh/helm/v4/cmd/helm",
    label="chart",
    ldflags="-s -w -X helm.sh/helm/v4/internal/version.version={version}",
)
#: Evaluates alert rules: Prometheus' own PromQL engine and templates, and what `promtool test rules` does besides.
#: promtool itself is not taken: all service discoveries and clouds' clients are in it.
ALERTTEST: Final = Pinned(
    "alerttest", requires="github.com/prometheus/prometheus", package=".", label="alerts", has_source=True
)
#: Restores a snapshot of etcd; of the version of the etcd of the control plane.
ETCDUTL: Final = Pinned(
    "etcdutl", requires="go.etcd.io/etcd/etcdutl/v3", package="go.etcd.io/etcd/etcdutl/v3", label="restore"
)
PINNED: Final = (HELM, ALERTTEST, ETCDUTL)


if __name__ == "__main__":
    sys.exit(max(told(program.ensure) for program in PINNED if program.name in sys.argv[1:]))
