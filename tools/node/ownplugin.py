"""Our own device plug-in (nodeagent/plugin/device_plugin.py) on a real node with emulated GPUs.

``python -m tools.node.ownplugin GPUS [--config FILE] [--wanted UUID] [--look-s S] [--rival-s S]``
NVML is the stub, whose state is the node's file of devices (tools/node/gpus.py); it may have further statements, such
as ``event UUID XID``. Each line of the output begins with the wall clock's nanoseconds.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio

from nodeagent.core.plugin.health import Health
from nodeagent.core.plugin.settings import Mistake
from nodeagent.kubeletapi import client, deviceplugin
from nodeagent.kubeletapi.client import PodResources
from nodeagent.plugin.device_plugin import serve
from nodeagent.plugin.nvml import NvmlDevices
from nodeagent.plugin.ports import Intervals, Pace, Places, Sources
from tools.node.settings import registered


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

    def withdrawn(self, resource: str) -> None:
        """Print it."""
        _say(f"{resource} is withdrawn")

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

    def labelled(self, labels: Mapping[str, str]) -> None:
        """Print how many there are."""
        _say(f"labels: {len(labels)}")

    def unreadable(self, why: str) -> None:
        """Print it."""
        if why:
            _say(f"unreadable: {why}")


def _say(what: str) -> None:
    print(time.time_ns(), what, flush=True)


async def _serve(given: argparse.Namespace) -> None:
    places = Places(
        plugins=Path(deviceplugin.FOLDER),
        state=given.machine / "own-plugin-state",
        cdi=given.machine / "cdi",
    )
    intervals = Intervals(look_s=given.look_s, life=Pace(rival_s=given.rival_s))
    async with PodResources(Path(client.SOCKET)) as kubelet:
        sources = Sources(file=lambda: given.config, allocatable=kubelet.resources, wanted=lambda: given.wanted)
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
