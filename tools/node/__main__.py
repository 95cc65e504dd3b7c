"""``python -m tools.node check`` says what this machine lacks for a real node; ``install`` gets it from Debian.

``make`` makes everything that its tests take, before several of their processes would at once. ``ready`` does so, too,
and ends with 3 and one line that says why where they are left out.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence

from tools.controlplane import KUBE_PROXY, KUBELET, ControlPlaneUnavailable, ensure
from tools.images import build
from tools.node import debian, node
from tools.node.debian import Unavailable

#: Exit code of ``ready`` where tests of a real node are left out; any other but 0 is an error.
LEFT_OUT = 3


def check() -> int:
    """Say what is missing. 0: a node can be tried."""
    lacks = debian.missing()
    for one in lacks:
        print(f"missing: {one}", file=sys.stderr)
    return 1 if lacks else 0


def install() -> int:
    """Install what is missing. 0: a node can be tried."""
    try:
        debian.install()
    except Unavailable as why:
        print(f"{why}\nWithout it, real nodes are left out: make test-all does not need them", file=sys.stderr)
        return 1
    return check()


def make() -> int:
    """Make the images, kubelet and kube-proxy. Raises Unavailable, ControlPlaneUnavailable."""
    node.pause_archive()
    node.reservation_archive()
    build.archive("components")
    ensure(wanted=(KUBELET, KUBE_PROXY))
    return 0


def ready() -> int:
    """Make them where they can be used. 0: tests can begin."""
    lacks = debian.missing() or debian.refused()
    if not lacks:
        try:
            make()
        except (Unavailable, ControlPlaneUnavailable) as why:
            lacks = [str(why).splitlines()[0]]
    if lacks:
        print(f"LEFT OUT: the tests of a real node (CONTRIBUTING.md, Real nodes). {'; '.join(lacks)}", flush=True)
        return LEFT_OUT
    return 0


_COMMANDS: Mapping[str, Callable[[], int]] = {"check": check, "install": install, "make": make, "ready": ready}


def main(arguments: Sequence[str]) -> int:
    """Do one of them."""
    if len(arguments) != 1 or arguments[0] not in _COMMANDS:
        print(f"usage: python -m tools.node {'|'.join(_COMMANDS)}", file=sys.stderr)
        return 2
    return _COMMANDS[arguments[0]]()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
