"""A real control plane on this machine, without a container engine: etcd, kube-apiserver, kube-controller-manager.

It listens on loopback only, on free ports, keeps everything in one folder and forgets it when stopped; several run
side by side. ``with ControlPlane() as plane:`` is serving after about three seconds. There are no nodes: simulated
ones (simulator/) or a real kubelet join through ``plane.kubeconfig_path``.

``python -m tools.cluster up|down|status`` keeps one in the background (tools/cluster/background.py).
"""

from __future__ import annotations

import base64
import functools
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import yaml
from trustme import CA

from tools import rights
from tools.certificates import serving_pair, signing_pair
from tools.controlplane import ensure
from tools.flags import (
    CONTROLLER_MANAGER,
    LOOPBACK,
    PROXY,
    SCHEDULER,
    egress_selection,
    egress_socket,
    etcd,
    kube_apiserver,
    kube_controller_manager,
    kube_scheduler,
    kubeconfig,
)
from tools.ports import free_port
from tools.processes import Child, Family, ProcessDied, wait_until
from tools.rest import Connections, Rest

#: libyaml's, ten times as fast.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_START_WITHIN_S = 180.0
_TRIES = 3
_ADMIN = "admin"
#: Identity of each program -> its groups. Their rights are what the API server's own bootstrap roles give them.
_USERS: Mapping[str, str] = {
    _ADMIN: "system:masters",
    CONTROLLER_MANAGER: "",
    SCHEDULER: "",
    PROXY: "",
}
#: What the Node authorizer knows a kubelet by.
_NODE_USER, _NODES = "system:node:", "system:nodes"


class ControlPlane:
    """One control plane: ``start`` it, use ``url``, ``ca_pem`` and ``token`` (of the administrator), ``stop`` it.

    ``feature_gates`` are those of API server, controller manager and nodes. ``audit_policy`` is the text of a Policy;
    what it selects is written to ``audit_log_path``; without one, what the components use of their rights is audited
    where the environment asks for it (tools/rights.py). ``scheduler`` adds the stock kube-scheduler. Without
    ``node_lifecycle`` nobody judges nodes by their leases: for nodes that are only objects. With ``egress`` the API
    server goes to Services and pods through ``egress_path``, which a node serves. ``nodes`` names machines that may
    join with a token of their own (``node_token``). ``folder`` must not exist or be empty; by default a temporary one.
    """

    def __init__(
        self,
        *,
        feature_gates: Mapping[str, bool] | None = None,
        audit_policy: str | None = None,
        scheduler: bool = False,
        node_lifecycle: bool = True,
        nodes: Sequence[str] = (),
        egress: bool = False,
        folder: Path | None = None,
    ) -> None:
        self.feature_gates = dict(feature_gates or {})
        self._rights_folder = os.environ.get(rights.FOLDER, "")
        self._audit_policy = audit_policy or (rights.POLICY if self._rights_folder else None)
        self._scheduler = scheduler
        self._node_lifecycle = node_lifecycle
        self._egress = egress
        self._wanted_folder = folder.absolute() if folder else None
        self._users = {**_USERS, **{f"{_NODE_USER}{node}": _NODES for node in nodes}}
        self._tokens = {user: secrets.token_urlsafe(24) for user in self._users}
        self._family: Family | None = None
        self._killed: dict[str, Child] = {}
        self._connections: Connections | None = None
        self.url = ""
        self.ca_pem = ""
        #: Plain HTTP, no credentials: for tests that compact the history.
        self.etcd_url = ""

    @property
    def folder(self) -> Path:
        """Where the run's files and logs are. Raises RuntimeError when not started."""
        return self._running().folder

    @property
    def token(self) -> str:
        """The administrator's bearer token (group system:masters)."""
        return self._tokens[_ADMIN]

    def node_token(self, node: str) -> str:
        """Return the bearer token of a machine's kubelet. Raises KeyError for one that was not named at the start."""
        return self._tokens[f"{_NODE_USER}{node}"]

    @property
    def kubeconfig_path(self) -> Path:
        """A kubeconfig of the administrator."""
        return kubeconfig(self.folder, _ADMIN)

    @property
    def proxy_kubeconfig_path(self) -> Path:
        """A kubeconfig of kube-proxy."""
        return kubeconfig(self.folder, PROXY)

    @property
    def egress_path(self) -> Path | None:
        """Where the API server looks for a way into the cluster; None where it needs none."""
        return egress_socket(self.folder) if self._egress else None

    @property
    def audit_log_path(self) -> Path:
        """Audit events, a JSON object a line, if an audit policy was given."""
        return self.folder / "audit.log"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start all programs and return once they serve.

        Raises ProcessDied when one ends, TimeoutError when they don't serve within three minutes,
        ControlPlaneUnavailable when the programs can't be had.
        """
        if self._family is not None:
            raise RuntimeError("the control plane is running")
        programs = ensure()
        for tries_left in reversed(range(_TRIES)):
            try:
                self._start_once(programs)
            except ProcessDied as died:
                self.stop()
                # Somebody took a port between its choice and its use.
                if "address already in use" not in str(died) or not tries_left:
                    raise
            except BaseException:
                self.stop()
                raise
            else:
                return

    def stop(self) -> None:
        """End all programs and remove the folder. Does nothing when not started."""
        if self._family is None:
            return
        if self._connections is not None:
            self._connections.close()
        self._family.stop()
        if self._rights_folder:
            # The port tells it from others of this run, also where the folder's name is always the same.
            name = f"{self._family.folder.name}-{urlsplit(self.url).port}"
            rights.keep(self._family.folder.glob("audit*.log"), Path(self._rights_folder), name=name)
        shutil.rmtree(self._family.folder, ignore_errors=True)
        self._family = None
        self._killed.clear()

    def check(self) -> None:
        """Raise ProcessDied if a program has ended."""
        self._running().check()

    @property
    def programs(self) -> Sequence[Child]:
        """The programs that run."""
        return self._running().children

    def kill(self, name: str) -> None:
        """End one program as a crash does; ``check`` does not miss it until it is started again.

        What was written is not lost with it: without fsync it is in the kernel's memory, which outlives the process.
        """
        self._killed[name] = child = self._program(name)
        self._running().kill(child)

    def start_again(self, name: str) -> None:
        """Start a killed program as it was, and return before it serves."""
        self._running().again(self._killed.pop(name))

    def pause(self, name: str) -> None:
        """Stop a program at any point (SIGSTOP)."""
        os.killpg(self._program(name).process.pid, signal.SIGSTOP)

    def go_on(self, name: str) -> None:
        """Let a paused program go on."""
        os.killpg(self._program(name).process.pid, signal.SIGCONT)

    def resident_kib(self) -> dict[str, int]:
        """Resident memory of each program, in KiB."""
        return {child.name: child.resident_kib() for child in self._running().children}

    def rest(self, token: str = "") -> Rest:
        """Return calls on the API server, by default the administrator's."""
        return Rest(self.url, self.ca_pem, token or self.token, self._connections)

    def service_account_token(self, namespace: str, name: str, *, lifetime_s: int = 3600) -> str:
        """Ask for a token of a service account (TokenRequest). Raises RestError when there is no such account."""
        answer = self.rest().call(
            "POST",
            f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token",
            {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"expirationSeconds": lifetime_s},
            },
        )
        return str(answer["status"]["token"])

    def write_kubeconfig(self, path: Path, token: str) -> Path:
        """Write a kubeconfig (JSON, which is YAML) for any token."""
        cluster = {"server": self.url, "certificate-authority-data": base64.b64encode(self.ca_pem.encode()).decode()}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "moorage", "cluster": cluster}],
            "users": [{"name": "user", "user": {"token": token}}],
            "contexts": [{"name": "moorage", "context": {"cluster": "moorage", "user": "user"}}],
            "current-context": "moorage",
        }
        path.touch(mode=0o600)
        path.write_text(json.dumps(config, indent=2))
        return path

    def apply(self, manifests: str) -> None:
        """Apply YAML documents on the server's side, and wait until CRDs among them are served.

        Raises subprocess.CalledProcessError with what kubectl said, TimeoutError when a CRD is not served in time.
        """
        self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=manifests)
        for path in _collections_of_crds(manifests):
            # Established comes a moment before the API server has the new paths.
            self._wait_until(functools.partial(self._finds, path), f"{path} to be served")

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        """Run kubectl as the administrator and return its output. Raises subprocess.CalledProcessError."""
        program = Path(sys.executable).with_name("kubectl")
        command = [str(program), f"--kubeconfig={self.kubeconfig_path}", f"--cache-dir={self.folder / 'kubectl'}"]
        done = subprocess.run([*command, *arguments], input=stdin, text=True, capture_output=True, check=False)
        if done.returncode:
            failed = subprocess.CalledProcessError(done.returncode, ["kubectl", *arguments], done.stdout, done.stderr)
            failed.add_note(done.stderr.strip())
            raise failed
        return done.stdout

    def _program(self, name: str) -> Child:
        return next(child for child in self.programs if child.name == name)

    def _running(self) -> Family:
        if self._family is None:
            raise RuntimeError("the control plane is not running")
        return self._family

    def _start_once(self, programs: Path) -> None:
        folder = self._wanted_folder or Path(tempfile.mkdtemp(prefix="moorage-"))
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        self._family = family = Family(folder)
        client_port, peer_port, api_port = free_port(), free_port(), free_port()
        self.url = f"https://{LOOPBACK}:{api_port}"
        self.etcd_url = f"http://{LOOPBACK}:{client_port}"
        self._write_files(folder)
        self._connections = Connections(self.url, self.ca_pem)
        etcd_flags = etcd(folder, client_port=client_port, peer_port=peer_port)
        family.start("etcd", [str(programs / "etcd"), *etcd_flags])
        api_flags = kube_apiserver(
            folder,
            port=api_port,
            etcd_port=client_port,
            feature_gates=self.feature_gates,
            audited=self._audit_policy is not None,
            node_lifecycle=self._node_lifecycle,
            has_egress=self._egress,
        )
        family.start("kube-apiserver", [str(programs / "kube-apiserver"), *api_flags])
        self._wait_until(self._serves, "kube-apiserver to serve")
        controller_flags = kube_controller_manager(
            folder, feature_gates=self.feature_gates, node_lifecycle=self._node_lifecycle
        )
        family.start("kube-controller-manager", [str(programs / "kube-controller-manager"), *controller_flags])
        if self._scheduler:
            family.start("kube-scheduler", [str(programs / "kube-scheduler"), *kube_scheduler(folder)])
        self._wait_until(self._controls, "kube-controller-manager to make the first service account")

    def _write_files(self, folder: Path) -> None:
        authority = CA()
        names = [LOOPBACK, "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "10.96.0.1"]
        server, signing = serving_pair(authority, *names), signing_pair()
        self.ca_pem = authority.cert_pem.bytes().decode()
        users = [f'{token},{user},{user},"{self._users[user]}"' for user, token in self._tokens.items()]
        files = {
            "ca.crt": authority.cert_pem.bytes(),
            "server.key": server.key_pem,
            "server.crt": server.public_pem,
            "service-accounts.key": signing.key_pem,
            "service-accounts.pub": signing.public_pem,
            "tokens.csv": "\n".join(users).encode(),
        }
        if self._egress:
            files["egress.yaml"] = egress_selection(folder).encode()
        if self._audit_policy is not None:
            files["audit-policy.yaml"] = self._audit_policy.encode()
        for name, content in files.items():
            (folder / name).write_bytes(content)
        for user, token in self._tokens.items():
            self.write_kubeconfig(kubeconfig(folder, user), token)

    def _wait_until(self, ready: Callable[[], bool], what: str) -> None:
        wait_until(ready, self._running(), what, within_s=_START_WITHIN_S)

    def _serves(self) -> bool:
        try:
            return self.rest().send("GET", "/readyz")[0] == 200
        except OSError:
            return False

    def _controls(self) -> bool:
        return self._finds("/api/v1/namespaces/default/serviceaccounts/default")

    def _finds(self, path: str) -> bool:
        return self.rest().send("GET", path)[0] == 200


def _collections_of_crds(manifests: str) -> list[str]:
    """Return the paths at which the CRDs among some YAML documents are served."""
    documents = yaml.load_all(manifests, Loader=_Loader)
    found = [each for each in documents if each and each["kind"] == "CustomResourceDefinition"]
    return [
        f"/apis/{crd['spec']['group']}/{version['name']}/{crd['spec']['names']['plural']}"
        for crd in found
        for version in crd["spec"]["versions"]
        if version["served"]
    ]
