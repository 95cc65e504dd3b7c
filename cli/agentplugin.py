"""The device plug-in of ``moorage node-agent --device-plugin=own``, loaded for that alone: NVML takes 15 MiB."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Final

import anyio

from cli.settings.nodeagent import NodeAgentOptions
from kube.client.api import Api
from kube.client.clock import Clock
from kube.events import EventRecorder
from nodeagent.app import Agent
from nodeagent.kubeletapi.client import PodResources
from nodeagent.labelling import Labelling
from nodeagent.nvmldevices import NvmlDevices
from nodeagent.ownplugin import OwnPlugin
from nodeagent.pluginports import Observer, Places, Sources
from nodeagent.pluginreports import Reports
from nodeagent.pluginsources import NodeSources
from nodeagent.serving import serve

#: The agent waits for a driver that does not answer, and reports it; the file's ``failOnInitError`` has no effect.
_ENVIRONMENT: Final = {"FAIL_ON_INIT_ERROR": "false"}


def own_plugin(
    options: NodeAgentOptions,
    agent: Agent,
    api: Api,
    kubelet: PodResources,
    *,
    events: EventRecorder,
    clock: Clock,
    rng: random.Random,
) -> OwnPlugin:
    """Return the plug-in of an agent, by its settings and the variables of NVIDIA's plugin in its environment."""
    machine, one_question = NvmlDevices(), anyio.CapacityLimiter(1)
    state = Path(options.device_plugin_state)
    places = Places(
        plugins=Path(options.device_plugin_sockets), state=state / "devices", cdi=Path(options.device_plugin_cdi)
    )
    environment = {**os.environ, **_ENVIRONMENT}

    async def own(sources: Sources, observer: Observer) -> None:
        await serve(machine, sources, observer, places=places, environment=environment, one_question=one_question)

    node, files = options.node_name, options.device_plugin_files
    publishing = agent.publishing
    return OwnPlugin(
        own,
        said=NodeSources(lambda: publishing.node, folder=Path(files) if files else None, kept=state / "node"),
        node_read=publishing.nodes.synced,
        allocatable=kubelet.resources,
        reports=Reports(events, clock, node=node, seen=lambda: publishing.node),
        labelling=Labelling(api, node=node, seen=lambda: publishing.node, rng=rng),
    )
