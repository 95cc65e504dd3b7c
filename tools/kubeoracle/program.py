"""Where the oracle comes from: ``python -m tools.kubeoracle.program`` prints its path.

It is a Go program (tools/controlplane/kubeoracle) of the module that the control plane is built from, so its plug-ins
are of the same version and its build shares the compiled packages of kube-scheduler.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tools import controlplane, goprogram
from tools.goprogram import cache_root

SOURCE: Final = controlplane.MODULE / "kubeoracle"
_LABEL: Final = "oracle"
#: Part of the key: raise it when the way of building changes.
_RECIPE: Final = "1"


def ensure(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the oracle's path, building it if the cache has none. Raises Unavailable."""
    folder = cache_root(environ) / "kubeoracle" / key()
    return goprogram.ensure(folder / "kubeoracle", controlplane.MODULE, "./kubeoracle", ldflags="-s -w", label=_LABEL)


def key(source: Path = SOURCE) -> str:
    """Name the cache folder: the module, and the program's own text."""
    digest = hashlib.sha256(_RECIPE.encode())
    for path in sorted(source.glob("*.go")):
        digest.update(path.read_bytes())
    return goprogram.key(controlplane.MODULE, controlplane.version(), recipe=digest.hexdigest())


if __name__ == "__main__":
    sys.exit(goprogram.told(ensure))
