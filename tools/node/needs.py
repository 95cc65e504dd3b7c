"""What a real node needs of this machine, and how to get it: ``python -m tools.node check|install``."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

#: Program -> Debian package.
PROGRAMS: Mapping[str, str] = {
    "containerd": "containerd",
    "containerd-shim-runc-v2": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "mount": "mount",
    "ip": "iproute2",
    "apt-get": "apt",
    "dpkg-deb": "dpkg",
}
#: Of these there is no program on PATH: Debian keeps them apart, as CNI wants it.
CNI_FOLDER = Path("/usr/lib/cni")
_CNI_PROGRAMS, _CNI_PACKAGE = ("bridge", "host-local", "loopback"), "containernetworking-plugins"
_INSTALL = "python -m tools.node install"


def missing(
    which: Callable[[str], str | None] = shutil.which, *, cni: Path = CNI_FOLDER, user: int | None = None
) -> list[str]:
    """Say what this machine lacks, a sentence each; nothing: a node can be started."""
    lacks = [] if (os.geteuid() if user is None else user) == 0 else ["root: namespaces and mounts need it"]
    lacks += [f"{name}: {_INSTALL} gets the package {PROGRAMS[name]}" for name in PROGRAMS if not which(name)]
    if not all((cni / name).exists() for name in _CNI_PROGRAMS):
        lacks.append(f"CNI plug-ins in {cni}: {_INSTALL} gets the package {_CNI_PACKAGE}")
    return lacks


def install() -> None:
    """Install what is missing from Debian. Raises subprocess.CalledProcessError, FileNotFoundError without apt-get."""
    packages = sorted({*(package for name, package in PROGRAMS.items() if not shutil.which(name)), _CNI_PACKAGE})
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-qq"], check=True, env=environment)
    command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends"]
    subprocess.run([*command, *packages], check=True, env=environment)
