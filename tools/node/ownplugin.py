"""Our own device plug-in (nodeagent/serving.py) on a real node with emulated GPUs.

``python -m tools.node.ownplugin GPUS [--config FILE] [--wanted UUID] [--look-s S] [--rival-s S]``
NVML is the stub, whose state is the node's file of devices (tools/node/gpus.py); it may have further statements, such
as ``event UUID XID``. Each line of the output begins with the wall clock's nanoseconds.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import anyio
import anyio.to_thread
import grpc

from nodeagent.core.health import Health
from nodeagent.core.mistake import Mistake
from nodeagent.kubeletapi import deviceplugin
from nodeagent.lifeofresource import Pace
from nodeagent.nvmldevices import NvmlDevices
from nodeagent.pluginports import Intervals, Places, Sources
from nodeagent.serving import serve
from tools.node.registration import registered
from wire.protobuf import parts, strings

_POD_RESOURCES = "/var/lib/kubelet/pod-resources/kubelet.sock"
_ALLOCATABLE = "/v1.PodResourcesLister/GetAllocatableResources"


class Printed:
    """Prints what an observer hears."""

    def registered(self, resource: str, kubelet: tuple[int, int]) -> None:
        """Print what tools/node/node.py waits for."""
        _say(f"{resource} {registered(kubelet)}")

    def rival(self, resource: str, what: str) -> None:
        """Print it."""
        _say(f"{resource} rival: {what or 'none'}")

    def failed(self, resource: str, what: str) -> None:
        """Print it."""
        _say(f"{resource} failed: {what}")

    def refused(self, mistakes: Sequence[Mistake]) -> None:
        """Print it."""
        _say(f"refused: {'; '.join(map(str, mistakes)) or 'nothing'}")

    def noted(self, notes: Sequence[str]) -> None:
        """Print it."""
        _say(f"notes: {'; '.join(notes) or 'none'}")

    def health(self, states: Mapping[str, Health]) -> None:
        """Print it."""
        told = (f"{uuid} is {health.state.value} ({health.reason})" for uuid, health in states.items())
        _say(f"health: {'; '.join(told) or 'all well'}")

    def unreadable(self, why: str) -> None:
        """Print it."""
        if why:
            _say(f"unreadable: {why}")


def _say(what: str) -> None:
    print(time.time_ns(), what, flush=True)


def _known() -> Collection[str] | None:
    """Resources that kubelet has devices of. None: it does not answer."""
    options = [("grpc.default_authority", "localhost")]
    try:
        with grpc.insecure_channel(f"unix://{_POD_RESOURCES}", options) as channel:
            answer: bytes = channel.unary_unary(_ALLOCATABLE)(b"", timeout=2)
    except grpc.RpcError:
        return None
    return {name for devices in parts(answer, 1) for name in strings(devices, 1)}


async def _allocatable() -> Collection[str] | None:
    return await anyio.to_thread.run_sync(_known)


async def _serve(given: argparse.Namespace) -> None:
    sources = Sources(file=lambda: given.config, allocatable=_allocatable, wanted=lambda: given.wanted)
    places = Places(
        plugins=Path(deviceplugin.FOLDER),
        state=given.machine / "own-plugin-state",
        cdi=given.machine / "cdi",
    )
    intervals = Intervals(look_s=given.look_s, life=Pace(rival_s=given.rival_s))
    await serve(NvmlDevices(), sources, Printed(), places=places, environment=dict(os.environ), intervals=intervals)


def main(arguments: list[str]) -> None:
    """Read the command line and serve."""
    parser = argparse.ArgumentParser(prog="python -m tools.node.ownplugin")
    parser.add_argument("machine", type=Path, metavar="GPUS")
    parser.add_argument("--config", type=Path)
    parser.add_argument("--wanted", nargs="*", default=())
    parser.add_argument("--look-s", type=float, default=Intervals().look_s)
    parser.add_argument("--rival-s", type=float, default=Pace().rival_s)
    anyio.run(_serve, parser.parse_args(arguments))


if __name__ == "__main__":
    main(sys.argv[1:])
