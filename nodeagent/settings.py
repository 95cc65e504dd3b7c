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
    #: HAMi-core's library on the host, which limits tenants; None: it does not.
    hami_core: Path | None = None
    #: Where the agent sees it; None: at the same path.
    hami_core_seen_at: Path | None = None
    #: There are no back ends any more: what earlier ones made is removed when no pod needs it.
    remove_limits: bool = False
    #: Socket of the node's keeper of MPS, which limits tenants; None: it does not.
    mps_keeper: Path | None = None
    #: The keeper's pipe directory.
    mps_pipes: Path = Path("/run/moorage/mps")
    #: Folder of what tenants' containers mount for their limits.
    limits: Path = Path("/var/lib/moorage/limits")
    #: Where the container runtime looks for the CDI file of limits.
    limits_cdi: Path = Path("/var/run/cdi")
    #: A tenant whose entry has no memory cap is capped at its share.
    cap_all: bool = False
    #: MIG slices are made and destroyed as the GpuNode asks for.
    mig_on_demand: bool = False
    #: Between two looks at the machine's cards: they change when slices are made or a card fails.
    cards_every_s: float = 300.0
    #: Between two looks at which kubelet listens.
    kubelet_every_s: float = 1.0
