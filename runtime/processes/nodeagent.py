"""The process of ``moorage node-agent``: one on each node, which elects nobody.

It has no right to read tenants' pods and sends no traces of them.
"""

from __future__ import annotations

import functools
import random
import socket
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import anyio

from kube.client.api import Api
from kube.client.clock import SystemClock
from kube.client.retry import Retry
from kube.events import EventRecorder
from kube.lead.lease import incarnation
from kube.serving import serve
from nodeagent.app import Agent, AgentSettings, back_ends
from nodeagent.enforcement.memory import EnforcerLink
from nodeagent.enforcement.view import LONGEST_FOLDER
from nodeagent.kubeletapi.client import PodResources
from nodeagent.report.cards import read_aside
from runtime import connections, process
from runtime.health import Health
from runtime.metrics.nodeagent import SYSTEMS, AgentMetrics, show_cards, show_compat, show_tenants
from runtime.metrics.registry import CountedTransport, Registry, count_watches, measured_lag, show
from runtime.process import listening
from runtime.settings.nodeagent import NodeAgentOptions
from runtime.text import BadInput
from runtime.version import VERSION
from wire import names
from wire.crds.gpunode import PLUGIN_OWN


def settings(options: NodeAgentOptions) -> AgentSettings:
    """Return the agent's settings. Raises BadInput for what it can't do without, and for what it does not do."""
    if not options.node_name:
        raise BadInput("--node-name: missing; give the name of the Node that the agent runs on")
    if options.traces_endpoint:
        raise BadInput("--traces-endpoint: the node agent sends no traces; take it out")
    if options.cap_all and not options.memory_enforcer_socket:
        raise BadInput(
            "--cap-all: nobody caps without a memory enforcer; give --memory-enforcer-socket, or take it out"
        )
    if options.mig_on_demand and options.device_plugin != PLUGIN_OWN:
        raise BadInput("--mig-on-demand: only its own device plug-in can withdraw a slice; give --device-plugin=own")
    if compat_systems(options.compat_metrics) and not options.memory_enforcer_socket:
        raise BadInput(
            "--compat-metrics: only a memory enforcer measures use; give --memory-enforcer-socket, or take it out"
        )
    if options.tenant_view and not options.memory_enforcer_socket:
        raise BadInput(
            "--tenant-view: use is known from a memory enforcer; give --memory-enforcer-socket, or take it out"
        )
    _check_folders(options)
    _check_back_ends(options)
    return AgentSettings(
        node=options.node_name,
        version=VERSION,
        pod_resources_socket=Path(options.pod_resources_socket),
        cap_all=options.cap_all,
        mig_on_demand=options.mig_on_demand,
        tenant_view=Path(options.tenant_view) if options.tenant_view else None,
        tenant_view_cdi=Path(options.tenant_view_cdi),
        hami_core=Path(options.hami_core) if options.hami_core else None,
        hami_core_seen_at=Path(options.hami_core_seen_at) if options.hami_core_seen_at else None,
        remove_limits=options.remove_limits,
        mps_daemon=Path(options.mps_daemon) if options.mps_daemon else None,
        mps_pipes=Path(options.mps_pipes),
        limits=Path(options.limits),
        limits_cdi=Path(options.limits_cdi),
    )


def _check_folders(options: NodeAgentOptions) -> None:
    """Raise BadInput for paths that containers could not mount."""
    if (size := len(options.tenant_view.encode())) > LONGEST_FOLDER:
        raise BadInput(
            f"--tenant-view: {size} bytes; use a path of {LONGEST_FOLDER} at most, as that of a socket is short"
        )
    mounted = {"--hami-core": options.hami_core, "--limits": options.limits, "--mps-pipes": options.mps_pipes}
    for flag, path in mounted.items():
        if path and not PurePosixPath(path).is_absolute():
            raise BadInput(f"{flag} {path}: containers mount it; give an absolute path")


def _check_back_ends(options: NodeAgentOptions) -> None:
    """Raise BadInput where tenants can't be limited in the way that was chosen."""
    if options.hami_core and options.mps_daemon:
        raise BadInput("--mps-daemon: a tenant is limited by one back end; take it or --hami-core out")
    if options.hami_core_seen_at and not options.hami_core:
        raise BadInput("--hami-core-seen-at: there is no library; give --hami-core, or take it out")
    for flag, back_end in (("--hami-core", options.hami_core), ("--mps-daemon", options.mps_daemon)):
        if options.remove_limits and back_end:
            raise BadInput(f"--remove-limits: {flag} makes them; give one of both")


async def run(options: NodeAgentOptions, stop: anyio.Event) -> None:
    """Run the agent until told to stop. Each step can be taken again, so nothing has to be ended well."""
    chosen, compat = settings(options), compat_systems(options.compat_metrics)
    rng, registry, health = process.rng(), Registry(), Health()
    listener = listening("--health-probe-bind-address", options.health_probe_bind_address)
    shown = listening("--metrics-bind-address", options.metrics_bind_address)
    replica = incarnation(socket.gethostname(), rng)
    opened = connections.transport(options, "node-agent", replica=replica)
    async with (
        opened as transport,
        PodResources(chosen.pod_resources_socket) as kubelet,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(show, registry, shown)
        if listener is not None:
            tasks.start_soon(serve, health.app(), listener)
            tasks.start_soon(health.end_with, stop)
        counted = CountedTransport(transport, registry)
        api = Api(counted, retry=Retry(rng), lag=measured_lag(registry))
        events = _events(counted, rng, node=chosen.node)
        agent = Agent(
            api,
            kubelet,
            read_aside,
            settings=chosen,
            rng=rng,
            emit=AgentMetrics(registry).take,
            enforcer=(functools.partial(EnforcerLink, Path(path)), events)
            if (path := options.memory_enforcer_socket)
            else None,
            back_ends=back_ends(chosen),
        )
        agent.warn_by(events)
        if options.device_plugin == PLUGIN_OWN:
            from runtime.processes.device_plugin import own_plugin  # with NVML it takes 15 MiB, which others are spared

            agent.plugin = own_plugin(options, agent, api, kubelet, events=events, clock=SystemClock(), rng=rng)
        tasks.start_soon(events.run)
        count_watches(registry, agent.reflectors)
        show_cards(registry, agent)
        if agent.limiting is not None:
            show_tenants(registry, agent.limiting.measures, agent.limiting.kills)
            index = _indexes(agent)
            show_compat(registry, compat, agent.limiting.measures, node=chosen.node, index_of=index)

        async def work() -> None:
            await agent.run(task_status=health)

        tasks.start_soon(work)
        await stop.wait()
        tasks.cancel_scope.cancel()


def compat_systems(text: str) -> tuple[str, ...]:
    """Read ``--compat-metrics``. Raises BadInput."""
    named = tuple(name for part in text.split(",") if (name := part.strip()))
    unknown = sorted(set(named) - set(SYSTEMS))
    if unknown:
        raise BadInput(f"--compat-metrics {unknown[0]}: allowed are {' and '.join(SYSTEMS)}")
    return named


def _indexes(agent: Agent) -> Callable[[str], int | None]:
    def index_of(uuid: str) -> int | None:
        return next((card.index for card in agent.cards.cards if card.uuid == uuid), None)

    return index_of


def _events(transport: CountedTransport, rng: random.Random, *, node: str) -> EventRecorder:
    """Return what makes its Events. It tries again itself, and has to see what was turned away."""
    once = Api(transport, retry=Retry(rng, tries=1))
    return EventRecorder(once, clock=SystemClock(), controller=names.NODE_AGENT_SERVICE_ACCOUNT, instance=node)
