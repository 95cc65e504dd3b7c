"""What a real node needs of this machine, and how to get it from Debian: ``python -m tools.node check|install``.

apt asks no question, and ends where no index answers.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

_WITHIN_S = 900.0
#: Who can't reach an index hears so within a minute, not after apt's many tries.
_OPTIONS = tuple(
    word
    for option in ("Acquire::Retries=1", "Acquire::http::Timeout=20", "Acquire::https::Timeout=20")
    for word in ("-o", option)
)
#: Packages may be fetched into a folder that apt's own user can't write; another apt may be at work for a moment.
_MORE = ("-o", "APT::Sandbox::User=root", "-o", "DPkg::Lock::Timeout=120")


class Unavailable(Exception):
    """Raised when apt can't do what it was told; the text is the command and its first error."""


def apt(program: str, *arguments: str, folder: Path | None = None) -> str:
    """Run ``apt-get`` or ``apt-cache`` and return its output. Raises Unavailable."""
    try:
        done = subprocess.run(
            [program, *_OPTIONS, *_MORE, *arguments],
            cwd=folder,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_WITHIN_S,
            check=False,
        )
    except FileNotFoundError:
        raise Unavailable(f"{program}: not there, so this is no Debian") from None
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{program} {arguments[0]}: no end within {_WITHIN_S:.0f} s") from None
    if done.returncode:
        wrong = [line for line in (done.stderr + done.stdout).splitlines() if line.startswith("E: ")]
        raise Unavailable(f"{program} {arguments[0]}: {wrong[0] if wrong else f'ended with {done.returncode}'}")
    return done.stdout


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
    "iptables": "iptables",
    "cc": "gcc",
    "apt-get": "apt",
    "dpkg-deb": "dpkg",
}
#: Of these there is no program on PATH: Debian keeps them apart, as CNI wants it.
CNI_FOLDER = Path("/usr/lib/cni")
_CNI_PROGRAMS, _CNI_PACKAGE = ("bridge", "host-local", "loopback"), "containernetworking-plugins"
#: gcc only recommends it; the pause program is linked statically.
_LIBC = "libc6-dev"
_INSTALL = "python -m tools.node install"
_CONTROL_GROUPS = Path("/sys/fs/cgroup")
#: What init.py, containerd and CNI do first, in namespaces that take it all with them.
_TRIAL = (
    'mount -t overlay -o "lowerdir=$1/lower,upperdir=$1/upper,workdir=$1/work" overlay "$1/merged"'
    " && ip link add name trial type bridge && ip link add name trial-a type veth peer name trial-b"
)
_TRIAL_WITHIN_S = 30.0
#: What kube-proxy asks of the kernel.
_SERVICE_TRIAL = (
    "iptables -t nat -A OUTPUT -d 10.96.0.2 -p tcp -m comment --comment trial -m statistic --mode random"
    " --probability 0.5 -j DNAT --to-destination 10.98.0.2:1 && iptables -t nat -A POSTROUTING -j MASQUERADE"
)


def missing(
    which: Callable[[str], str | None] = shutil.which, *, cni: Path = CNI_FOLDER, user: int | None = None
) -> list[str]:
    """Say what this machine lacks, a sentence each; nothing: a node can be tried."""
    lacks = [] if (os.geteuid() if user is None else user) == 0 else ["root: namespaces and mounts need it"]
    lacks += [f"{name}: {_INSTALL} gets the package {PROGRAMS[name]}" for name in PROGRAMS if not which(name)]
    if not all((cni / name).exists() for name in _CNI_PROGRAMS):
        lacks.append(f"CNI plug-ins in {cni}: {_INSTALL} gets the package {_CNI_PACKAGE}")
    return lacks


def service_trial() -> str:
    """Try what kube-proxy begins with. Returns why it did not work, "" if it did."""
    return _tried("unshare", "--net", "sh", "-c", _SERVICE_TRIAL)


def trial() -> str:
    """Try what a node begins with. Returns why it did not work, "" if it did."""
    flags = ["--mount", "--net", "--pid", "--ipc", "--fork", "--mount-proc", "--kill-child"]
    with tempfile.TemporaryDirectory(prefix="moorage-node-") as folder:
        for name in ("lower", "upper", "work", "merged"):
            (Path(folder) / name).mkdir()
        return _tried("unshare", *flags, "sh", "-c", _TRIAL, "trial", folder)


def _tried(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TRIAL_WITHIN_S, check=False)
    said = done.stderr.strip().splitlines()
    return (said[-1] if said else f"unshare ended with {done.returncode}") if done.returncode else ""


def refused(control_groups: Path = _CONTROL_GROUPS, try_out: Callable[[], str] = trial) -> list[str]:
    """Say what this machine does not let us do, a sentence each. Nothing may be ``missing``."""
    wrong = []
    if (control_groups / "cgroup.controllers").exists():
        wrong.append("control groups are of version 2, on which no node was tried yet (make node-test tries it)")
    elif not all(os.access(one, os.W_OK) for one in control_groups.iterdir()):
        wrong.append(f"control groups in {control_groups} can't be made")
    if why := try_out():
        wrong.append(f"namespaces with an overlay, a bridge and a pair of interfaces can't be made: {why}")
    return wrong


def install() -> None:
    """Install what is missing from Debian. Raises Unavailable."""
    if os.geteuid() != 0:
        raise Unavailable("packages are installed by root")
    lacking = {PROGRAMS[name] for name in PROGRAMS if not shutil.which(name)}
    # The images are made of packages that are only downloaded, so the index is wanted in any case.
    apt("apt-get", "update", "-qq")
    apt("apt-get", "install", "-y", "-qq", "--no-install-recommends", *sorted({*lacking, _CNI_PACKAGE, _LIBC}))
