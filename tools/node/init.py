"""The first process in a node's namespaces: sets them up, says ``ready``, and takes in orphans until the end.

``python init.py FOLDER NODE_ADDRESS SERVICE_ADDRESS``, started by unshare(1) with mount, network, process and IPC
namespaces of its own. When it ends, the kernel ends everything that the node has started, and nothing stays mounted.
It imports nothing of ours.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

#: Path of a real node -> folder of the run that takes its place. What is in them survives a "reboot".
_OWN = {
    "/var/lib/kubelet": "kubelet",
    "/var/lib/containerd": "containerd",
    "/var/lib/cni": "cni",
    "/var/log": "log",
}
#: Empty at each start, as on a machine that boots.
_EMPTY = ("/run", "/var/lib")


def set_up_mounts(folder: Path) -> None:
    """Put the run's folders where kubelet and containerd look, so that no other node of this machine is seen."""
    # kubelet wants a root from which mounts reach containers; this namespace's own.
    _run("mount", "--make-rshared", "/")
    for target in _EMPTY:
        _run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", target)
    for target, name in _OWN.items():
        source = folder / name
        source.mkdir(exist_ok=True)
        Path(target).mkdir(parents=True, exist_ok=True)
        _run("mount", "--bind", str(source), target)


def set_up_network(node_address: str, service_address: str) -> None:
    """A loopback, an interface that has the node's address, and the API server's service address on this machine."""
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "address", "add", f"{service_address}/32", "dev", "lo")
    # A bridge without ports: not every kernel has dummy interfaces, and pods need bridges anyway.
    _run("ip", "link", "add", "node0", "type", "bridge")
    _run("ip", "address", "add", f"{node_address}/24", "dev", "node0")
    _run("ip", "link", "set", "node0", "up")
    # kubelet looks for the interface of the default route; nothing is behind it.
    _run("ip", "route", "add", "default", "dev", "node0")


def reap_forever() -> None:
    """Wait for orphans: containers' first processes outlive the shims that started them."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        except ChildProcessError:
            pass
        signal.sigwait({signal.SIGCHLD})


def _run(*command: str) -> None:
    subprocess.run(command, check=True)


if __name__ == "__main__":
    set_up_mounts(Path(sys.argv[1]))
    set_up_network(*sys.argv[2:4])
    print("ready", flush=True)
    reap_forever()
