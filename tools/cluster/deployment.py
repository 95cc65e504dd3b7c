"""Moorage on a control plane of this machine: manifests applied, components running as processes.

Each component is a process of its own with exactly its service account's token, as in a cluster, so what its role does
not allow fails here too. The webhooks' certificates are self-made, as with the chart. ``kill`` ends one as a crash
does; ``start`` starts it again. Further replicas of a component are named ``scheduler-2``, ``binder-2``...;
``nodes-2`` plays further nodes of the same shapes.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import signal
import socket
import ssl
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from typing_extensions import override

from admission.certificates.rotation import CONFIGURATIONS
from tools import manifests
from tools.cluster.plane import ControlPlane
from tools.flags import LOOPBACK
from tools.ports import free_port
from tools.processes import Child, Programs, wait_until
from wire import names

_ROOT = Path(__file__).parent.parent.parent
_READY_WITHIN_S = 120.0
_OK, _CREATED = 200, 201
#: A pod that is reviewed, and never stored.
_TRIAL = "/api/v1/namespaces/default/pods?dryRun=All"
SCHEDULER, BINDER, ADMISSION, PODGROUPER = "scheduler", "binder", "admission", "podgrouper"
COMPONENTS = (ADMISSION, BINDER, SCHEDULER)
#: Simulated nodes (cli/nodes.py): a process like the components, where there are any.
NODES = "nodes"
#: With the component that makes PodGroups of workloads; without it the author of the pods makes them.
GROUPING = (*COMPONENTS, PODGROUPER)
_ACCOUNTS = {**{component: f"moorage-{component}" for component in GROUPING}, NODES: "moorage-simulator"}
_TOKEN_LIFETIME_S = 36_000
#: Tells devices in the place of reservation processes, for benches that run none.
SIMULATED_TELLER = "simulated-reservation"


@dataclass(frozen=True, slots=True)
class Options:
    """``arguments``: further arguments of a component's command line, by component.

    ``nodes``: simulated nodes beside them, as in ``4x8x80GiB``. ``device_teller``: whether SIMULATED_TELLER may write
    which device a reservation pod holds; without it only the process in that pod may.
    ``delay_ms``: what the API server says to the components is held back by up to so much, each connection on its own.
    ``server``: where the components find the API server, if not at its own address: a proxy. Nodes go past it.
    ``keep_records``: simulated nodes write down what really happens on them, in ``NAME.records`` of the folder.
    ``apart``: replicas that reach the API server through a proxy of their own, so that they can be cut off.
    """

    hand_over: str = "annotations"
    arguments: Mapping[str, Sequence[str]] = field(default_factory=dict)
    components: Sequence[str] = COMPONENTS
    nodes: Sequence[str] = ()
    device_teller: bool = False
    delay_ms: int = 0
    apart: Sequence[str] = ()
    server: str = ""
    keep_records: bool = False
    seed: int = 1


class Deployment(Programs):
    """``with Deployment(plane) as moorage:`` is ready when the webhooks answer and the components have started."""

    def __init__(self, plane: ControlPlane, options: Options | None = None) -> None:
        self._plane = plane
        self._options = options or Options()
        super().__init__(TemporaryDirectory(prefix="components-", dir=plane.folder))
        self._running: dict[str, Child] = {}
        #: Replica -> its own proxy, and the address of that.
        self._proxies: dict[str, tuple[Child, str]] = {}
        self._port = free_port()
        #: Component -> where it shows its metrics; another port with each start.
        self._metrics: dict[str, int] = {}
        self._server = self._options.server or plane.url
        self._teller = SIMULATED_TELLER if self._options.device_teller else ""

    @override
    def _start(self) -> None:
        self._install()
        if self._options.delay_ms:
            self._server = self._proxy("proxy", self._options.delay_ms)[1]
        for component in self._options.components:
            self.start(component)
        if ADMISSION in self._options.components:
            self.wait_for_webhooks()
            url = f"https://{LOOPBACK}:{self._port}"
            self._plane.apply(manifests.guards(url, ends_pods=_ACCOUNTS[NODES], teller=self._teller))
            self._wait_until(self._is_trusted, "the API server to trust the webhooks")
        if self._options.nodes:
            self.start(NODES)
            self.wait_for_nodes()

    @property
    def teller_token(self) -> str:
        """Token of SIMULATED_TELLER, where the options have it."""
        return self._plane.service_account_token(
            names.RESERVATION_NAMESPACE, SIMULATED_TELLER, lifetime_s=_TOKEN_LIFETIME_S
        )

    @property
    def webhooks_port(self) -> int:
        """Where admission listens on loopback."""
        return self._port

    def webhooks_ca(self) -> str:
        """The CA by which the API server trusts admission now, in PEM."""
        return base64.b64decode(self._authorities()[0]).decode()

    @property
    def running(self) -> Mapping[str, Child]:
        """The processes by component, also such as have ended by themselves."""
        return self._running

    def renew_tokens(self) -> None:
        """Write new tokens for all components: they read them once a minute, and a token lives for ten hours."""
        for component, account in _ACCOUNTS.items():
            token = self._plane.service_account_token(names.SYSTEM_NAMESPACE, account, lifetime_s=_TOKEN_LIFETIME_S)
            fresh = self._file(f"{component}.token.new")
            fresh.write_text(token)
            fresh.replace(self._file(f"{component}.token"))

    def restart(self, component: str) -> None:
        """Start a component that has ended on its own; its log is kept as ``NAME.previous.log``."""
        self.kill(component)
        log = self._file(f"{component}.log")
        log.replace(log.with_suffix(".previous.log"))
        self.start(component)

    def start(self, component: str, *further: str) -> None:
        """Start a component, for the first time or again; ``further`` arguments are for this time only."""
        role = _role(component)
        command = [sys.executable, "-m", "cli.main", role, "--server", self._server_of(component)]
        command += ["--ca-file", str(self._file("ca.pem")), "--token-file", str(self._file(f"{role}.token"))]
        command += [
            *self._metrics_arguments(component),
            *self._own_arguments(component),
            *self._options.arguments.get(role, ()),
            *further,
        ]
        self._running[component] = self._family.start(component, [*_ENVIRONMENT, *command])

    def _server_of(self, component: str) -> str:
        """Where a replica finds the API server."""
        if self._options.server and _role(component) == NODES:
            return self._plane.url
        if component not in self._options.apart:
            return self._server
        if component not in self._proxies:
            self._proxies[component] = self._proxy(f"{component}.proxy", 0)
        return self._proxies[component][1]

    def _proxy(self, name: str, delay_ms: int) -> tuple[Child, str]:
        """Put a delaying proxy between components and the API server: the process, and where it is found."""
        port = free_port()
        target = self._plane.url.rpartition(":")[2]
        numbers = (port, target, self._options.seed, delay_ms)
        command = [sys.executable, "-m", "tools.lateproxy", *(str(number) for number in numbers)]
        child = self._family.start(name, [*_ENVIRONMENT, *command])
        _wait_for_port(port, "the proxy")
        return child, f"https://{LOOPBACK}:{port}"

    def stop(self, component: str) -> None:
        """Tell a component to end, as kubelet does, and wait until it has."""
        child = self._running.pop(component)
        child.process.terminate()
        child.process.wait(60.0)
        self._family.children.remove(child)

    def pause(self, component: str) -> None:
        """Stop a component at any point (SIGSTOP)."""
        os.killpg(self.pid(component), signal.SIGSTOP)

    def go_on(self, component: str) -> None:
        """Let a paused component go on."""
        os.killpg(self.pid(component), signal.SIGCONT)

    def cut_off(self, component: str) -> None:
        """Hold back all that one of the options' ``apart`` says to the API server and hears from it."""
        os.killpg(self._proxies[component][0].process.pid, signal.SIGSTOP)

    def mend(self, component: str) -> None:
        """Let through what was held back, and everything from now on."""
        os.killpg(self._proxies[component][0].process.pid, signal.SIGCONT)

    def kill(self, component: str) -> None:
        """End a component as a crash does: nothing is tidied up."""
        self._family.kill(self._running.pop(component))

    def resident_kib(self) -> dict[str, int]:
        """Resident memory of each component."""
        return {name: child.resident_kib() for name, child in self._running.items()}

    def pid(self, component: str) -> int:
        """Process id of a component."""
        return self._running[component].process.pid

    def log(self, component: str) -> str:
        """What a component has written since it was started last."""
        return self._file(f"{component}.log").read_text()

    def _install(self) -> None:
        """Apply everything but the webhooks, and write certificates and tokens."""
        leaders = [SCHEDULER, BINDER, *([PODGROUPER] if PODGROUPER in self._options.components else [])]
        # All in one: each kubectl takes 0.1 s of CPU time to look around.
        self._plane.apply("\n---\n".join(manifests.foundation(teller=self._teller, leaders=leaders)))
        self._file("ca.pem").write_text(self._plane.ca_pem)
        self.renew_tokens()

    def _is_trusted(self) -> bool:
        """Whether admission has written its CA everywhere, and the API server has seen it: a pod of ours is let in.

        Until then, and until the namespace has its service account, the API server refuses it.
        """
        if not all(self._authorities()):
            return False
        pod = {
            "metadata": {"name": "trial"},
            "spec": {"schedulerName": names.SCHEDULER_NAME, "containers": [{"name": "main", "image": "none"}]},
        }
        code, _ = self._plane.rest().send("POST", _TRIAL, json.dumps(pod).encode())
        return code == _CREATED

    def _authorities(self) -> list[str]:
        """The ``caBundle`` of each of our configurations, in base64; "" where there is none yet."""
        rest = self._plane.rest()
        found = [rest.call("GET", f"{resource.path()}/{name}") for resource, name in CONFIGURATIONS]
        return [webhook["clientConfig"].get("caBundle", "") for one in found for webhook in one["webhooks"]]

    def metrics_url(self, component: str) -> str:
        """Where a component shows its metrics."""
        return f"http://{LOOPBACK}:{self._metrics[component]}/metrics"

    def _metrics_arguments(self, component: str) -> list[str]:
        if _role(component) == NODES:
            return []
        if component not in self._metrics:
            self._metrics[component] = free_port()
        port = self._metrics[component]
        return ["--metrics-bind-address", f"{LOOPBACK}:{port}"]

    def _own_arguments(self, component: str) -> list[str]:
        if _role(component) == NODES:
            return [
                *("--no-taint", "--prefix", component.replace(NODES, "simulated")),
                *("--state", str(self._file(component))),
                *(("--record", str(self.records(component))) if self._options.keep_records else ()),
                *(word for text in self._options.nodes for word in ("--nodes", text)),
            ]
        if _role(component) == BINDER:
            return ["--reservation-priority-class", "moorage-reservation"]
        grouped = ["--workloads-are-grouped"] if PODGROUPER in self._options.components else []
        if _role(component) == SCHEDULER:
            return grouped
        if component != ADMISSION:
            return []
        return [
            *grouped,
            *("--host", LOOPBACK, "--port", str(self._port), "--hand-over", self._options.hand_over),
            *("--self-made-certificates", "--certificate-name", LOOPBACK),
        ]

    def wait_for_webhooks(self) -> None:
        """Wait until admission says that it is ready. Raises TimeoutError."""
        self._wait_until(self._is_ready, "the webhooks")

    def _is_ready(self) -> bool:
        """Ask as kubelet does, which trusts anything."""
        trust = ssl.create_default_context()
        trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection(LOOPBACK, self._port, timeout=5, context=trust)
        with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
            connection.request("GET", "/readyz")
            return connection.getresponse().status == _OK
        return False

    def _wait_until(self, holds: Callable[[], bool], what: str) -> None:
        wait_until(holds, self._family, what, within_s=_READY_WITHIN_S)

    def records(self, component: str) -> Path:
        """Where simulated nodes write down what happens on them, if the options have it."""
        return self._file(f"{component}.records")

    def wait_for_nodes(self, component: str = NODES) -> None:
        """Wait until the simulated nodes of a process are ready. Raises ProcessDied and TimeoutError."""
        self._wait_until(lambda: "are ready" in self.log(component), "the simulated nodes to be ready")

    def _file(self, name: str) -> Path:
        return self.folder / name


#: SIGABRT has a process write where it stands.
_ENVIRONMENT = ("/usr/bin/env", f"PYTHONPATH={_ROOT}", "PYTHONFAULTHANDLER=1")


def _wait_for_port(port: int, what: str) -> None:
    deadline = time.monotonic() + _READY_WITHIN_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, port), timeout=1):
            return
        time.sleep(0.05)
    raise TimeoutError(f"{what} did not start within {_READY_WITHIN_S:.0f} s")


def _role(component: str) -> str:
    """What a replica is one of: ``scheduler`` of ``scheduler-2``."""
    name, _, number = component.rpartition("-")
    return name if number.isdecimal() else component
