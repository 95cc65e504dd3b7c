"""Where upstream's table of allocations comes from: ``python -m tools.kubeoracle.harvest.making_allocations``.

The table lies in the tests of the package that allocates devices for kube-scheduler. A copy of its module is run once
with a test file of ours in place of one of them, which writes down what each row asks and gets. The rows go into the
cache with upstream's licence beside them.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tools import controlplane, goprogram
from tools.goprogram import cache_root
from tools.kubeoracle.harvest.making import once, run

SOURCE: Final = controlplane.MODULE / "harvest" / "allocator_test.go.txt"
_MODULE: Final = "k8s.io/dynamic-resource-allocation"
_PACKAGE: Final = "structured/internal/incubating"
_LABEL: Final = "upstream's allocations"
#: Part of the key: raise it when the way of making the rows changes.
_RECIPE: Final = "1"
FILE: Final = "allocator.jsonl"


def ensure(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the file of the rows, making it if the cache has none. Raises Unavailable."""
    digest = hashlib.sha256(_RECIPE.encode() + SOURCE.read_bytes()).hexdigest()
    key = goprogram.key(controlplane.MODULE, controlplane.version(), recipe=digest)
    folder = cache_root(environ) / "upstream-allocations" / key
    rows = once(folder / "rows", _LABEL, lambda go, scratch: _make(go, scratch, environ), environ)
    return rows / FILE


def _make(go: str, scratch: Path, environ: Mapping[str, str]) -> Path:
    """Run the table in a module of its own, which has the sums of ours; return the folder of the rows."""
    told = {**environ, "CGO_ENABLED": "0", "GOWORK": "off"}
    run([go, "mod", "download", _MODULE], controlplane.MODULE, told)
    upstream = Path(run([go, "list", "-m", "-f", "{{.Dir}}", _MODULE], controlplane.MODULE, told).strip())
    copy, module, rows = scratch / "copy", scratch / "module", scratch / "rows"
    shutil.copytree(upstream, copy)
    # The cache of modules can't be written to.
    for path in (copy, *copy.rglob("*")):
        path.chmod(path.stat().st_mode | stat.S_IWUSR)
    shutil.copy(SOURCE, copy / _PACKAGE / "allocator_test.go")
    module.mkdir()
    rows.mkdir()
    for name in ("go.mod", "go.sum"):
        shutil.copy(controlplane.MODULE / name, module / name)
    run([go, "mod", "edit", "-replace", f"{_MODULE}=../copy"], module, told)
    flags = ["-mod=mod", "-trimpath", "-vet=off", "-count=1", "-ldflags=-s -w", "-run=^TestAllocator$"]
    run([go, "test", *flags, f"{_MODULE}/{_PACKAGE}"], module, {**told, "MOORAGE_HARVEST": str(rows)})
    shutil.copy(upstream / "LICENSE", rows / "LICENSE")
    return rows


if __name__ == "__main__":
    sys.exit(goprogram.told(ensure))
