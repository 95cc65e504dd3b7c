"""The device plug-in of ``moorage node-agent --device-plugin=own``, loaded for that alone: NVML takes 15 MiB."""

from __future__ import annotations

import os
import random
from collections.abc import Collection
from pathlib import Path
from typing import Final

from kube.client.api import Api
from kube.client.clock import Clock
from kube.client.resources import NODES
from kube.events import EventRecorder, about
from nodeagent.app import Agent
from nodeagent.core.mig_partitioning import Outcome, State
from nodeagent.driver_thread import OneQuestion
from nodeagent.kubeletapi.client import PodResources
from nodeagent.mig.nvml import AskedAside, MigCards
from nodeagent.mig.partitioning import GpuPartitioner, Restoring, boot_id
from nodeagent.plugin.device_plugin import serve
from nodeagent.plugin.node import Labelling, NodeSources
from nodeagent.plugin.nvml import NvmlDevices
from nodeagent.plugin.ports import Observer, Places, Sources
from nodeagent.plugin.supervisor import OwnPlugin, Reports
from runtime.settings.nodeagent import NodeAgentOptions
from wire import names
from wire.api_groups import WARNING
from wire.core import Node, ObjectMeta
from wire.crds.gpunode import GpuNode

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
    machine, one_question = NvmlDevices(), OneQuestion()
    state = Path(options.device_plugin_state)
    places = Places(
        plugins=Path(options.device_plugin_sockets), state=state / "devices", cdi=Path(options.device_plugin_cdi)
    )
    environment = {**os.environ, **_ENVIRONMENT}

    async def own(sources: Sources, observer: Observer) -> None:
        await serve(machine, sources, observer, places=places, environment=environment, one_question=one_question)

    node, files = options.node_name, options.device_plugin_files
    publishing = agent.publishing
    partitioner = None
    if agent.books:
        kept = state / "restored"
        partitioner = _partitioner(agent, kubelet, events=events, node=node, one_question=one_question, kept=kept)
    return OwnPlugin(
        own,
        said=NodeSources(lambda: publishing.node, folder=Path(files) if files else None, kept=state / "node"),
        node_read=publishing.nodes.synced,
        allocatable=kubelet.resources,
        reports=Reports(events, clock, node=node, seen=lambda: publishing.node),
        labelling=Labelling(api, node=node, seen=lambda: publishing.node, rng=rng),
        partitioner=partitioner,
        wanted=agent.wanted,
    )


def _partitioner(
    agent: Agent,
    kubelet: PodResources,
    *,
    events: EventRecorder,
    node: str,
    one_question: OneQuestion,
    kept: Path,
) -> GpuPartitioner:
    """Return what makes MIG slices. The GpuNode says which, as long as the Node's label offers its GPUs for that."""
    publishing = agent.publishing

    def gpu_node() -> GpuNode | None:
        found = publishing.node
        if not agent.device_reporter.reflector.synced.is_set():
            return None  # what reservations have is not known yet
        is_offered = found is not None and (found.metadata.labels or {}).get(names.NODE_MIG) == names.MIG_DYNAMIC
        return publishing.gpu_node if is_offered else None

    def booked() -> Collection[str]:
        return [] if agent.books is None else [one.uuid for one in agent.books.reservations.values() if one.uuid]

    def heard(card: str, outcome: Outcome) -> None:
        if outcome.state is not State.UNDER_WAY:
            agent.cards.look_again()
        if outcome.state is State.FAILED:
            about_it = _metadata(publishing.node, node)
            note = f"MIG slices of {card}: {outcome.why}"
            reason = names.REASON_PARTITIONING_FAILED
            events.record(
                about(NODES, about_it), reason=reason, action="Partitioning", note=note, type=WARNING, is_final=True
            )

    def told() -> None:
        publishing.tell(slices=partitioner.reports)
        agent.tell()

    async def known() -> None:
        for each in agent.reflectors:
            await each.synced.wait()

    driver = AskedAside(MigCards(), one_question)
    partitioner = GpuPartitioner(
        driver,
        kubelet,
        gpu_node=gpu_node,
        booked=booked,
        told=told,
        heard=heard,
    )
    partitioner.restoring = Restoring(driver, kept=kept, boot=boot_id(), known=known)
    publishing.before_first = partitioner.seed
    return partitioner


def _metadata(seen: Node | None, node: str) -> ObjectMeta:
    """As kubelet names a Node that it has not read: kubectl describe shows events of either."""
    return ObjectMeta(name=node, uid=node) if seen is None else seen.metadata
