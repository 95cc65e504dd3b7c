"""The command lines of a control plane's programs, and the reasons for what is not obvious in them.

All paths lie in the run's folder; tools/cluster/plane.py writes the files that are named here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

LOOPBACK = "127.0.0.1"

#: The identities to which the API server's bootstrap roles give the rights of these programs.
CONTROLLER_MANAGER = "system:kube-controller-manager"
SCHEDULER = "system:kube-scheduler"
PROXY = "system:kube-proxy"

#: For programs whose own port nobody asks, and of which there is only one.
_UNSERVED: Mapping[str, str] = {"secure-port": "0", "leader-elect": "false"}


def kubeconfig(folder: Path, user: str) -> Path:
    """Return where the kubeconfig of an identity lies."""
    return folder / f"{user.rpartition(':')[2]}.kubeconfig"


def egress_socket(folder: Path) -> Path:
    """Return the Unix socket through which the API server reaches what has an address in the cluster only."""
    return folder / "egress.sock"


def egress_selection(folder: Path) -> str:
    """Return an EgressSelectorConfiguration (JSON, which is YAML): HTTP's CONNECT, to the server of that socket."""
    transport = {"uds": {"udsName": str(egress_socket(folder))}}
    selection = {"name": "cluster", "connection": {"proxyProtocol": "HTTPConnect", "transport": transport}}
    kind = {"apiVersion": "apiserver.k8s.io/v1beta1", "kind": "EgressSelectorConfiguration"}
    return json.dumps({**kind, "egressSelections": [selection]})


def etcd(folder: Path, *, client_port: int, peer_port: int) -> list[str]:
    """Return the flags of a single-member etcd."""
    client, peer = f"http://{LOOPBACK}:{client_port}", f"http://{LOOPBACK}:{peer_port}"
    return _flags(
        {
            "data-dir": folder / "etcd",
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"default={peer}",
            # What is in it is forgotten at the end anyway.
            "unsafe-no-fsync": "true",
            "quota-backend-bytes": 4 * 1024**3,
            "log-level": "warn",
        }
    )


#: Feature gate -> the group version of its kinds, where that is not served by default.
_SERVED_WITH: Final = {
    "GenericWorkload": "scheduling.k8s.io/v1alpha2",
    "DRADeviceTaintRules": "resource.k8s.io/v1beta2",
}


def kube_apiserver(
    folder: Path,
    *,
    port: int,
    etcd_port: int,
    feature_gates: Mapping[str, bool],
    audited: bool,
    node_lifecycle: bool,
    has_egress: bool,
) -> list[str]:
    """Return the flags of an API server with RBAC and the default admission plug-ins."""
    flags: dict[str, object] = {
        "secure-port": port,
        "bind-address": LOOPBACK,
        "advertise-address": LOOPBACK,
        # The service "kubernetes" can't have a loopback endpoint, so nobody keeps its endpoints.
        "endpoint-reconciler-type": "none",
        "etcd-servers": f"http://{LOOPBACK}:{etcd_port}",
        "cert-dir": folder / "certificates",
        "tls-cert-file": folder / "server.crt",
        "tls-private-key-file": folder / "server.key",
        "token-auth-file": folder / "tokens.csv",
        "authorization-mode": "Node,RBAC",
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-account-key-file": folder / "service-accounts.pub",
        "service-account-signing-key-file": folder / "service-accounts.key",
        "service-cluster-ip-range": "10.96.0.0/16",
        "allow-privileged": "true",
    }
    flags |= _gates(feature_gates)
    if served := [version for gate, version in _SERVED_WITH.items() if feature_gates.get(gate)]:
        flags["runtime-config"] = ",".join(f"{version}=true" for version in served)
    if has_egress:
        flags["egress-selector-config-file"] = folder / "egress.yaml"
    if audited:
        flags |= {"audit-policy-file": folder / "audit-policy.yaml", "audit-log-path": folder / "audit.log"}
    if not node_lifecycle:
        # It taints every new node as not ready, and the controller that would take the taint away is off, too.
        flags["disable-admission-plugins"] = "TaintNodesByCondition"
    return _flags(flags)


def kube_controller_manager(folder: Path, *, feature_gates: Mapping[str, bool], node_lifecycle: bool) -> list[str]:
    """Return the flags of a controller manager; its cloud and IP-address controllers are off where nobody asks."""
    flags: dict[str, object] = {
        "kubeconfig": kubeconfig(folder, CONTROLLER_MANAGER),
        "use-service-account-credentials": "true",
        "service-account-private-key-file": folder / "service-accounts.key",
        "root-ca-file": folder / "ca.crt",
        # The defaults (20 a second) would make namespaces and collection the slowest part of every test.
        "kube-api-qps": 300,
        "kube-api-burst": 600,
        **_UNSERVED,
    }
    flags |= _gates(feature_gates)
    if not node_lifecycle:
        flags["controllers"] = "*,-node-lifecycle-controller,-taint-eviction-controller"
    return _flags(flags)


def kube_scheduler(folder: Path) -> list[str]:
    """Return the flags of the stock scheduler with its default configuration."""
    return _flags({"kubeconfig": kubeconfig(folder, SCHEDULER), **_UNSERVED})


def _gates(feature_gates: Mapping[str, bool]) -> dict[str, object]:
    gates = ",".join(f"{gate}={str(on).lower()}" for gate, on in feature_gates.items())
    return {"feature-gates": gates} if gates else {}


def _flags(values: Mapping[str, object]) -> list[str]:
    return [f"--{name}={value}" for name, value in values.items()]
