"""The schedulers that are measured, each started and ended as a process: Moorage's, and the stock kube-scheduler."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
from pathlib import Path
from typing import Protocol

import anyio
import yaml

from bench.objects import STOCK
from tools import flags
from tools.cluster.deployment import BINDER, SCHEDULER, Deployment
from tools.cluster.plane import ControlPlane
from tools.controlplane import ensure
from tools.processes import Child, Family
from wire import names

#: Far above what it reaches, so that its own limiter (50 a second by default) decides nothing.
STOCK_QPS = 5_000
#: For a component to start and take its first lists.
_LISTS_S = 3.0
#: A single replica each, as kube-scheduler runs here, so that nobody waits for a lease.
ALONE = {SCHEDULER: ("--no-leader-election",), BINDER: ("--no-leader-election",)}


class Contender(Protocol):
    """A scheduler that can be started and ended."""

    name: str
    scheduler_name: str

    async def prepare(self) -> None:
        """Start what runs beside it."""
        ...

    def start(self) -> None:
        """Start its process."""
        ...

    def stop(self) -> None:
        """Kill it."""
        ...

    @property
    def pid(self) -> int:
        """Its process."""
        ...


class Moorage:
    """Moorage's scheduler; its binder runs beside it, as in a cluster, though whole GPUs don't need it."""

    scheduler_name = names.SCHEDULER_NAME

    def __init__(self, deployment: Deployment, *, name: str = "moorage") -> None:
        self.name = name
        self._deployment = deployment

    async def prepare(self) -> None:
        """Start the binder and let it list."""
        self._deployment.start(BINDER)
        await anyio.sleep(_LISTS_S)

    def start(self) -> None:
        """Start the scheduler."""
        self._deployment.start(SCHEDULER)

    def stop(self) -> None:
        """Kill both."""
        self._deployment.check()
        for component in (SCHEDULER, BINDER):
            self._deployment.kill(component)

    @property
    def pid(self) -> int:
        """The scheduler's process."""
        return self._deployment.pid(SCHEDULER)


class Stock:
    """kube-scheduler with its default plug-ins; only its client's rate limit is lifted."""

    name = "kube-scheduler"
    scheduler_name = STOCK

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._folder = tempfile.TemporaryDirectory(prefix="moorage-bench-")
        self._family = Family(Path(self._folder.name))
        self._child: Child | None = None

    async def prepare(self) -> None:
        """Nothing runs beside it. Wait as long as for the other, so that the rounds are alike."""
        await anyio.sleep(_LISTS_S)

    def start(self) -> None:
        """Start it."""
        config = Path(self._folder.name) / "config.yaml"
        config.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "kubescheduler.config.k8s.io/v1",
                    "kind": "KubeSchedulerConfiguration",
                    "leaderElection": {"leaderElect": False},
                    "clientConnection": {
                        "kubeconfig": str(flags.kubeconfig(self._plane.folder, flags.SCHEDULER)),
                        "qps": STOCK_QPS,
                        "burst": STOCK_QPS,
                    },
                }
            )
        )
        program = ensure() / "kube-scheduler"
        self._child = self._family.start("kube-scheduler", [program, f"--config={config}", "--secure-port=0"])

    def stop(self) -> None:
        """Kill it."""
        child = self._running()
        child.check()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.process.pid, signal.SIGKILL)
        child.process.wait()
        self._family.children.remove(child)
        self._child = None

    def close(self) -> None:
        """Leave nothing behind."""
        self._family.stop()
        self._folder.cleanup()

    @property
    def pid(self) -> int:
        """Its process."""
        return self._running().process.pid

    def _running(self) -> Child:
        if self._child is None:
            raise RuntimeError("kube-scheduler is not running")
        return self._child
