"""Where Helm comes from: ``python -m tools.helmprogram`` prints its path.

Built once from pinned Go modules (tools/helm/go.mod), as the programs of the control plane are and for the same
reasons (CONTRIBUTING.md). Its Kubernetes modules have the versions of tools/controlplane/go.mod, so a machine that has
just built those compiles little more.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tools import goprogram
from tools.goprogram import BuildFailed, cache_root, is_program, locked, say

MODULE: Final = Path(__file__).parent / "helm"
_PACKAGE: Final = "helm.sh/helm/v4/cmd/helm"
_LABEL: Final = "chart"
#: Part of the key: raise it when the way of building changes.
_RECIPE: Final = "1"


class HelmUnavailable(Exception):
    """Raised when there is no Helm and none can be built; the text says what to do."""


def version(module: Path = MODULE) -> str:
    """Return the version of Helm that go.mod requires, as ``v4.2.4``."""
    found = re.search(r"helm\.sh/helm/v4 (v\d+\.\d+\.\d+)", (module / "go.mod").read_text())
    if found is None:
        raise ValueError(f"{module / 'go.mod'}: no line 'helm.sh/helm/v4 vX.Y.Z'")
    return found[1]


def ensure(environ: Mapping[str, str] = os.environ) -> Path:
    """Return Helm's path, building it if the cache has none. Raises HelmUnavailable."""
    folder = cache_root(environ) / "helm" / goprogram.key(MODULE, version(), recipe=_RECIPE)
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "helm"
    with locked(folder / ".lock", label=_LABEL):
        if not is_program(program):
            _build(program)
    return program


def _build(program: Path) -> None:
    """Build beside the target and move it there at once, so that a broken-off build leaves nothing that looks done."""
    go = shutil.which("go")
    if go is None:
        raise HelmUnavailable("Helm is built from Go modules, and there is no `go` on PATH: install Go 1.26 or newer")
    say(f"{_LABEL}: Helm {version()} is built from Go modules, once")
    with tempfile.TemporaryDirectory(dir=program.parent, prefix=".build-") as scratch:
        target = Path(scratch) / program.name
        try:
            ldflags = f"-s -w -X helm.sh/helm/v4/internal/version.version={version()}"
            goprogram.build(go, MODULE, _PACKAGE, target, ldflags=ldflags, label=_LABEL)
        except BuildFailed as error:
            raise HelmUnavailable(f"Helm can't be built: `go build` failed:\n  {error}") from error
        target.replace(program)


def main() -> int:
    """Print the path, or say what to do."""
    try:
        print(ensure())
    except HelmUnavailable as unavailable:
        print(unavailable, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
