"""Where the program comes from that evaluates alert rules: ``python -m tools.alertprogram`` prints its path.

Its source is tools/alerttest: Prometheus' own PromQL engine and templates, and what `promtool test rules` does besides.
promtool itself is not taken: all service discoveries and clouds' clients are in it.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tools import goprogram
from tools.goprogram import cache_root

MODULE: Final = Path(__file__).parent / "alerttest"
_LABEL: Final = "alerts"


def version(module: Path = MODULE) -> str:
    """Return the version of Prometheus that go.mod requires, as ``v0.312.0``."""
    return goprogram.required(module, "github.com/prometheus/prometheus")


def ensure(environ: Mapping[str, str] = os.environ) -> Path:
    """Return its path, building it if the cache has none for this source. Raises Unavailable."""
    source = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(MODULE.glob("*.go")))).hexdigest()
    folder = cache_root(environ) / "alerttest" / goprogram.key(MODULE, version(), recipe=source)
    return goprogram.ensure(folder / "alerttest", MODULE, ".", ldflags="-s -w", label=_LABEL)


if __name__ == "__main__":
    sys.exit(goprogram.told(ensure))
