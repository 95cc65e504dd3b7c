"""Where upstream's tables come from: ``python -m tools.kubeoracle.harvest.making`` prints the folder that has them.

The tests of kube-scheduler's plug-ins lie in the Go module that the control plane is built from. Copies of them are run
once, rewritten so that each row of their tables is written down as JSON (tools/controlplane/harvest). The cases
go into the cache, one file a package, with upstream's licence beside them; another version of Kubernetes has others.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from tools import controlplane, goprogram
from tools.goprogram import Unavailable, cache_root, locked, say

SOURCE: Final = controlplane.MODULE / "harvest"
#: Packages of plug-ins that have tables for filtering or scoring.
PACKAGES: Final = (
    "imagelocality",
    "interpodaffinity",
    "nodeaffinity",
    "nodedeclaredfeatures",
    "nodename",
    "nodeports",
    "noderesources",
    "nodeunschedulable",
    "nodevolumelimits",
    "podtopologyspread",
    "tainttoleration",
    "volumebinding",
    "volumerestrictions",
    "volumezone",
)
_KUBERNETES: Final = "k8s.io/kubernetes"
_PLUGINS: Final = "pkg/scheduler/framework/plugins"
#: Part of the key: raise it when the way of making the cases changes.
_RECIPE: Final = "1"
_LABEL: Final = "upstream's tables"
_LICENCE: Final = "LICENSE"


def ensure(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of the cases, making them if the cache has none. Raises Unavailable."""
    folder = cache_root(environ) / "upstream-tables" / key()
    return once(folder / "cases", _LABEL, lambda go, scratch: _make(go, scratch, environ), environ)


def once(made: Path, label: str, make: Callable[[str, Path], Path], environ: Mapping[str, str]) -> Path:
    """Return a folder of the cache; if it does not exist, make it with Go in a scratch folder. Raises Unavailable."""
    folder = made.parent
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / ".lock", label=label):
        if made.is_dir():
            return made
        go = shutil.which("go", path=environ.get("PATH", ""))
        if go is None:
            raise Unavailable(f"{label} are made with Go, and there is no `go` on PATH: install Go 1.26")
        say(f"{label}: Kubernetes' own tests run, once")
        with tempfile.TemporaryDirectory(dir=folder, prefix=".build-") as scratch:
            make(go, Path(scratch)).replace(made)
    return made


def key(source: Path = SOURCE) -> str:
    """Name the cache folder: the module, and the texts of the rewriter."""
    digest = hashlib.sha256("\n".join((_RECIPE, *PACKAGES)).encode())
    for path in sorted(source.rglob("*.go")):
        digest.update(path.read_bytes())
    return goprogram.key(controlplane.MODULE, controlplane.version(), recipe=digest.hexdigest())


def _make(go: str, scratch: Path, environ: Mapping[str, str]) -> Path:
    """Run the rewritten tests in a module of their own, which has the sums of ours; return the folder of the cases."""
    module, cases = scratch / "module", scratch / "cases"
    cases.mkdir()
    shutil.copytree(SOURCE / "record", module / "harvest" / "record")
    for name in ("go.mod", "go.sum"):
        shutil.copy(controlplane.MODULE / name, module / name)
    told = {**environ, "CGO_ENABLED": "0", "GOWORK": "off"}
    run([go, "mod", "download", _KUBERNETES], controlplane.MODULE, told)
    kubernetes = Path(run([go, "list", "-m", "-f", "{{.Dir}}", _KUBERNETES], controlplane.MODULE, told).strip())
    run(
        [go, "run", "./harvest", str(kubernetes / _PLUGINS), str(module / "harvested"), *PACKAGES],
        controlplane.MODULE,
        told,
    )
    # Tests take modules that the programs don't, so go.mod of the copy may grow; what is downloaded is in go.sum.
    flags = ["-mod=mod", "-trimpath", "-vet=off", "-count=1", "-ldflags=-s -w", "-run=^Test"]
    run([go, "test", *flags, "./harvested/..."], module, {**told, "MOORAGE_HARVEST": str(cases)})
    if (module / "go.sum").read_bytes() != (controlplane.MODULE / "go.sum").read_bytes():
        raise Unavailable(
            f"{_LABEL}: the tests need modules that tools/controlplane/go.sum does not have: `go mod tidy`"
        )
    shutil.copy(kubernetes / _LICENCE, cases / _LICENCE)
    return cases


def run(command: Sequence[str], folder: Path, environ: Mapping[str, str]) -> str:
    """Run a command and return what it prints. Raises Unavailable with the end of its output."""
    done = subprocess.run(
        command, cwd=folder, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        said = "\n  ".join([*done.stderr.splitlines(), *done.stdout.splitlines()][-20:])
        raise Unavailable(f"{_LABEL}: `{' '.join(command[:2])}` failed:\n  {said}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(goprogram.told(ensure))
