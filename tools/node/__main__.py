"""``python -m tools.node check`` says what this machine lacks for a real node; ``install`` gets it from Debian."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from tools.node import needs, rootfs


def main(arguments: Sequence[str]) -> int:
    """Do one of the two. 0: a node can be started."""
    if arguments not in (["check"], ["install"]):
        print("usage: python -m tools.node check|install", file=sys.stderr)
        return 2
    try:
        if arguments == ["install"]:
            needs.install()
            print(rootfs.pause_archive(), rootfs.reservation_archive(), sep="\n")
    except (subprocess.CalledProcessError, OSError) as error:
        print(f"{error}\nWithout it, real nodes are left out: make test does not need them", file=sys.stderr)
        return 1
    lacks = needs.missing()
    for one in lacks:
        print(f"missing: {one}", file=sys.stderr)
    return 1 if lacks else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
