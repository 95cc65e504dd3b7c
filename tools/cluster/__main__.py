"""``python -m tools.cluster up|down|status|run``: a real control plane in the background (background.py)."""

from __future__ import annotations

import sys

from tools.cluster.background import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
