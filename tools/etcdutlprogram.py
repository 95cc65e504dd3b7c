"""Where etcdutl comes from, which restores a snapshot of etcd: ``python -m tools.etcdutlprogram`` prints its path.

Built once from pinned Go modules (tools/etcdutl/go.mod), as the programs of the control plane are and for the same
reasons (CONTRIBUTING.md); of the version of the etcd that these have.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tools import goprogram
from tools.goprogram import cache_root

MODULE: Final = Path(__file__).parent / "etcdutl"
_PACKAGE: Final = "go.etcd.io/etcd/etcdutl/v3"
_LABEL: Final = "restore"
#: Part of the key: raise it when the way of building changes.
_RECIPE: Final = "1"


def version(module: Path = MODULE) -> str:
    """Return the version of etcdutl that go.mod requires, as ``v3.6.8``."""
    return goprogram.required(module, _PACKAGE)


def ensure(environ: Mapping[str, str] = os.environ) -> Path:
    """Return etcdutl's path, building it if the cache has none. Raises Unavailable."""
    folder = cache_root(environ) / "etcdutl" / goprogram.key(MODULE, version(), recipe=_RECIPE)
    return goprogram.ensure(folder / "etcdutl", MODULE, _PACKAGE, ldflags="-s -w", label=_LABEL)


if __name__ == "__main__":
    sys.exit(goprogram.told(ensure))
