"""Where Helm comes from: ``python -m tools.helmprogram`` prints its path.

Built once from pinned Go modules (tools/helm/go.mod), as the programs of the control plane are and for the same
reasons (CONTRIBUTING.md). Its Kubernetes modules have the versions of tools/controlplane/go.mod, so a machine that has
just built those compiles little more.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tools import goprogram
from tools.goprogram import cache_root

MODULE: Final = Path(__file__).parent / "helm"
_PACKAGE: Final = "helm.sh/helm/v4/cmd/helm"
_LABEL: Final = "chart"
#: Part of the key: raise it when the way of building changes.
_RECIPE: Final = "1"


def version(module: Path = MODULE) -> str:
    """Return the version of Helm that go.mod requires, as ``v4.2.4``."""
    return goprogram.required(module, "helm.sh/helm/v4")


def ensure(environ: Mapping[str, str] = os.environ) -> Path:
    """Return Helm's path, building it if the cache has none. Raises Unavailable."""
    folder = cache_root(environ) / "helm" / goprogram.key(MODULE, version(), recipe=_RECIPE)
    ldflags = f"-s -w -X helm.sh/helm/v4/internal/version.version={version()}"
    return goprogram.ensure(folder / "helm", MODULE, _PACKAGE, ldflags=ldflags, label=_LABEL)


if __name__ == "__main__":
    sys.exit(goprogram.told(ensure))
