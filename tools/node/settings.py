"""The settings of a real node's kubelet, containerd and CNI, and the reasons for what is not obvious in them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nodeagent.kubeletapi.client import identity

RUNTIME_SOCKET = "/run/containerd/containerd.sock"
PAUSE_IMAGE = "moorage.test/pause:1"
_CRI = 'plugins."io.containerd.grpc.v1.cri"'


def kubelet(*, cgroup: str, folder: Path, max_pods: int, feature_gates: Mapping[str, bool]) -> dict[str, Any]:
    """Return a KubeletConfiguration; files of it are in ``folder``."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": False}},
        # Nobody has a credential for kubelet's own port, which is in the node's network only.
        "authorization": {"mode": "AlwaysAllow"},
        "containerRuntimeEndpoint": f"unix://{RUNTIME_SOCKET}",
        # Machines with control groups of version 1 are served too.
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroup}",
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "maxPods": max_pods,
        # The disk is a build machine's: how full it is says nothing about the node.
        "evictionHard": dict.fromkeys(("memory.available", "nodefs.available", "imagefs.available"), "0%"),
        "imageGCHighThresholdPercent": 100,
        # Devices come into the node's status with the next update of it: 10 s by default.
        "nodeStatusUpdateFrequency": "1s",
        # Negative ones need CAP_SYS_RESOURCE.
        "oomScoreAdj": 0,
        "makeIPTablesUtilChains": False,
        "resolvConf": str(folder / "resolv.conf"),
        "volumePluginDir": str(folder / "volume-plugins"),
        "clusterDomain": "cluster.local",
        "featureGates": dict(feature_gates),
    }


def containerd(*, folder: Path, nvidia_runtime: Path, default_runtime: str, may_raise_scores: bool) -> str:
    """Return containerd's configuration (TOML), with the runtimes ``runc`` and ``nvidia``.

    ``default_runtime``: which of them serves pods without a runtime class.
    Without ``may_raise_scores`` (CAP_SYS_RESOURCE) runc could not give a sandbox its negative oom_score_adj, and would
    fail in a way that says nothing about it.
    """
    return f"""\
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs", "io.containerd.internal.v1.opt"]
[grpc]
  address = "{RUNTIME_SOCKET}"
[{_CRI}]
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = {str(not may_raise_scores).lower()}
  [{_CRI}.cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{folder / "cni-conf"}"
  [{_CRI}.containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "{default_runtime}"
  [{_CRI}.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
  [{_CRI}.containerd.runtimes.nvidia]
    runtime_type = "io.containerd.runc.v2"
    [{_CRI}.containerd.runtimes.nvidia.options]
      BinaryName = "{nvidia_runtime}"
"""


def nvidia_runtime(*, create: str, runc: str) -> str:
    """Return the script that is the runtime handler ``nvidia``: runc, but ``create`` before it for new containers.

    That is in Python and takes 40 ms of CPU time to start, and containerd calls a runtime five times a container.
    """
    return f"""\
#!/bin/sh
case " $* " in
  *" create "*) {create} {runc} "$@" ;;
  *) exec {runc} "$@" ;;
esac
"""


def cni(subnet: str) -> str:
    """Return the network of the pods: a bridge, which is also their way to the node."""
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": subnet}]], "routes": [{"dst": "0.0.0.0/0"}]},
    }
    return json.dumps({"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]})


def kubelet_flags(*, name: str, address: str, folder: Path, labels: Mapping[str, str]) -> list[str]:
    """Return kubelet's command line."""
    flags = [
        f"--config={folder / 'kubelet.yaml'}",
        f"--kubeconfig={folder / 'kubeconfig'}",
        f"--hostname-override={name}",
        f"--node-ip={address}",
        f"--cert-dir={folder / 'kubelet-certificates'}",
    ]
    if labels:
        flags.append("--node-labels=" + ",".join(f"{key}={value}" for key, value in labels.items()))
    return flags


def kube_proxy_flags(*, name: str, kubeconfig: Path) -> list[str]:
    """Return kube-proxy's command line: by iptables, which Debian's containerd brings with its network plug-ins."""
    return [
        f"--kubeconfig={kubeconfig}",
        f"--hostname-override={name}",
        "--proxy-mode=iptables",
        "--oom-score-adj=0",
        # How many connections are followed is the machine's to say, and can't be set from a node's network.
        "--conntrack-max-per-core=0",
        "--conntrack-tcp-timeout-established=0",
        "--conntrack-tcp-timeout-close-wait=0",
    ]


__all__ = ["identity", "registered"]


def registered(kubelet: tuple[int, int]) -> str:
    """What the plug-in says on its output when this kubelet has taken it."""
    return f"is registered with {kubelet}"
