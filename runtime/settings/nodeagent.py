"""Settings of ``moorage node-agent``."""

from __future__ import annotations

from typing import Annotated, Final

from nodeagent.kubeletapi import deviceplugin
from nodeagent.kubeletapi.client import SOCKET
from runtime.settings import kinds
from runtime.settings.common import Address, Component
from runtime.settings.declaration import Setting
from wire.crds.gpunode import PLUGIN_OFF, PLUGIN_OWN

_MODES: Final = (PLUGIN_OFF, PLUGIN_OWN)


class NodeAgentOptions(Component, frozen=True, kw_only=True):
    """What an administrator may choose about the agent of a node."""

    node_name: Annotated[
        str, Setting(help="the Node that it runs on; the chart sets it", kind=kinds.OBJECT, default="none: required")
    ] = ""
    pod_resources_socket: Annotated[str, Setting(help="socket of kubelet's pod-resources API", kind=kinds.FILE)] = (
        SOCKET
    )
    memory_enforcer_socket: Annotated[
        str,
        Setting(
            help="socket of the memory enforcer, which gets the memory caps",
            kind=kinds.FILE,
            default="no memory enforcer",
        ),
    ] = ""
    cap_all: Annotated[
        bool,
        Setting(help="cap shares without a memory cap at their request", kind=kinds.SWITCH),
    ] = False
    compat_metrics: Annotated[
        str,
        Setting(
            help="show tenants under these systems' metric names, too",
            kind=kinds.text("NAMES", "hami, metagpu, or both with a comma"),
            default="none",
        ),
    ] = ""
    tenant_view: Annotated[
        str,
        Setting(
            help="folder of tenants' sockets, which show them their own shares", kind=kinds.FOLDER, default="no sockets"
        ),
    ] = ""
    tenant_view_cdi: Annotated[
        str, Setting(help="folder of the CDI file that mounts the sockets", kind=kinds.FOLDER)
    ] = "/var/run/cdi"
    hami_core: Annotated[
        str,
        Setting(help="HAMi-core's library on the host, which limits tenants", kind=kinds.FILE, default="not used"),
    ] = ""
    hami_core_seen_at: Annotated[
        str,
        Setting(help="where the agent sees HAMi-core's library", kind=kinds.FILE, default="at the host's path"),
    ] = ""
    remove_limits: Annotated[
        bool, Setting(help="remove limits of an earlier agent, once no pod needs them", kind=kinds.SWITCH)
    ] = False
    mps_daemon: Annotated[
        str,
        Setting(help="socket of the node's MPS daemon, which limits tenants", kind=kinds.FILE, default="not used"),
    ] = ""
    mps_pipes: Annotated[str, Setting(help="the MPS daemon's pipe directory, on the host", kind=kinds.FOLDER)] = (
        "/run/moorage/mps"
    )
    limits: Annotated[
        str, Setting(help="folder of what tenants' containers mount for their limits", kind=kinds.FOLDER)
    ] = "/var/lib/moorage/limits"
    limits_cdi: Annotated[
        str, Setting(help="folder of the CDI file that gives tenants their limits", kind=kinds.FOLDER)
    ] = "/var/run/cdi"
    device_plugin: Annotated[
        str,
        Setting(
            help="own: replace NVIDIA's device plug-in",
            kind=kinds.choice(_MODES),
        ),
    ] = PLUGIN_OFF
    device_plugin_files: Annotated[
        str, Setting(help="folder of device plug-in files; a Node's label names one", kind=kinds.FOLDER)
    ] = ""
    device_plugin_sockets: Annotated[
        str, Setting(help="kubelet's folder of device plug-ins' sockets", kind=kinds.FOLDER)
    ] = deviceplugin.FOLDER
    device_plugin_state: Annotated[
        str, Setting(help="folder of the device plug-in's state, until a reboot", kind=kinds.FOLDER)
    ] = "/run/moorage/device-plugin"
    device_plugin_cdi: Annotated[str, Setting(help="folder of the device plug-in's CDI file", kind=kinds.FOLDER)] = (
        "/var/run/cdi"
    )
    mig_on_demand: Annotated[
        bool,
        Setting(help="make and destroy MIG slices as the GpuNode asks for", kind=kinds.SWITCH),
    ] = False
    health_probe_bind_address: Annotated[
        Address | None, Setting(help="answer /healthz and /readyz there", kind=kinds.ADDRESS, default="nowhere")
    ] = None
