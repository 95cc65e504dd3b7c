"""Settings of ``moorage node-agent``."""

from __future__ import annotations

from typing import Annotated

from cli.settings import kinds
from cli.settings.common import Address, Component
from cli.settings.declaring import Setting
from nodeagent.kubeletapi.podresources import SOCKET


class NodeAgentOptions(Component, frozen=True, kw_only=True):
    """What an administrator may choose about the agent of a node."""

    node_name: Annotated[
        str, Setting(help="the Node that it runs on; the chart sets it", kind=kinds.OBJECT, default="none: required")
    ] = ""
    pod_resources_socket: Annotated[str, Setting(help="socket of kubelet's pod-resources API", kind=kinds.FILE)] = (
        SOCKET
    )
    warden_socket: Annotated[
        str,
        Setting(help="socket of the node's warden; it is sent the memory caps", kind=kinds.FILE, default="no warden"),
    ] = ""
    cap_all: Annotated[
        bool,
        Setting(help="cap shares without a memory cap at what they ask of the GPU", kind=kinds.SWITCH),
    ] = False
    health_probe_bind_address: Annotated[
        Address | None, Setting(help="answer /healthz and /readyz there", kind=kinds.ADDRESS, default="nowhere")
    ] = None
