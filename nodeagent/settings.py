"""What the agent is told about its node."""

from __future__ import annotations

from pathlib import Path

import msgspec

from nodeagent.kubeletapi.podresources import SOCKET


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``node``: the name of the Node that it runs on. ``pod_resources``: kubelet's socket. Times in seconds."""

    node: str
    version: str = ""
    pod_resources: Path = Path(SOCKET)
    #: Folder of tenants' sockets, on which they read their own shares; None: they have none. Needs a warden.
    view: Path | None = None
    #: Where the container runtime looks for CDI files.
    view_cdi: Path = Path("/var/run/cdi")
    #: What the container runtime reads of tenants' limits: the folder of CDI files.
    limits_cdi: Path = Path("/var/run/cdi")
    #: A tenant whose entry has no memory cap is capped at its share.
    cap_all: bool = False
    #: MIG slices are made and destroyed as the GpuNode asks for.
    mig_on_demand: bool = False
    #: Between two looks at the machine's cards: they change when slices are made or a card fails.
    cards_every_s: float = 300.0
    #: Between two looks at which kubelet listens.
    kubelet_every_s: float = 1.0
