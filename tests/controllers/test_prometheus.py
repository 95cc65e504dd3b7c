"""Moorage and a real Prometheus: what it scrapes, the rules of the chart, queues' use over time.

The components are processes and no pods, so they are named by address; what else the chart's PodMonitor asks for is
set. kube-state-metrics can't be built here (its module is not served): its one series is made of the same Nodes.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import anyio.to_thread
import pytest
import yaml
from aiohttp import web
from kubernetes_asyncio import client

from cli.main import main
from runtime.metrics.declared import COMPONENTS
from tests.controllers.prometheus_server import PrometheusServer
from tests.e2e.cluster import PATIENCE_S, eventually
from tests.e2e.shown import total
from tests.e2e.teams import Teams, teams
from tests.helm.chart import Object, only, rendered
from tools import metricspage
from tools.cluster.deployment import BINDER, GROUPING, SCHEDULER, Deployment, Options
from tools.cluster.plane import ControlPlane
from tools.controllers.catalogue import PROMETHEUS
from tools.flags import LOOPBACK
from tools.ports import free_port
from wire.quantity import NANO, parse_nano

pytestmark = [pytest.mark.cluster, pytest.mark.controllers, pytest.mark.nightly, pytest.mark.timeout(300)]

CONTROLLERS = (PROMETHEUS,)

#: Of kube-state-metrics: in which unit it writes an amount.
_UNITS: Final = {"cpu": "core", "memory": "byte", "nvidia.com/gpu": "integer"}

_numbers = itertools.count()


@pytest.fixture(scope="module")
def monitoring(tmp_path_factory: pytest.TempPathFactory) -> Sequence[Object]:
    """The chart with all that it has for Prometheus."""
    values = {"metrics": {"podMonitor": {"enabled": True}, "rules": {"enabled": True}}}
    return rendered(tmp_path_factory.mktemp("chart"), values)


@pytest.fixture(scope="module")
def port() -> int:
    """Where Prometheus listens; the scheduler is told before there is one."""
    return free_port()


@pytest.fixture(scope="module")
def moorage(plane: ControlPlane, port: int) -> Iterator[Deployment]:
    use = [
        f"--queue-use-prometheus=http://{LOOPBACK}:{port}",
        "--queue-use-window=60s",
        "--queue-use-fetch-interval=1s",
    ]
    use += ["--queue-use-query-resolution=1s", "--queue-use-staleness-period=5s"]
    arguments = {"binder": ["--idle-s", "1"], "scheduler": ["--preemption=false", *use]}
    with Deployment(plane, Options(arguments=arguments, components=GROUPING)) as deployment:
        yield deployment
        deployment.check()


class Monitored:
    """Moorage and the Prometheus that scrapes it."""

    def __init__(self, moorage: Deployment, monitoring: Sequence[Object], folder: Path, port: int) -> None:
        self.moorage = moorage
        (self._endpoint,) = only(monitoring, "PodMonitor", "moorage")["spec"]["podMetricsEndpoints"]
        self._rules = only(monitoring, "PrometheusRule", "moorage")["spec"]
        self._folder = folder
        self._port = port

    def server(self, *further: str) -> PrometheusServer:
        """A Prometheus for all components, and further addresses; it starts as a context."""
        rules = self._folder / "rules.yml"
        rules.write_text(yaml.safe_dump(self._rules))
        jobs = {component: urlsplit(self.moorage.metrics_url(component)).netloc for component in GROUPING}
        jobs |= {f"further-{number}": address for number, address in enumerate(further)}
        configuration = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(rules)],
            "scrape_configs": [self._job(name, address) for name, address in jobs.items()],
        }
        return PrometheusServer(self._folder, configuration, port=self._port)

    def _job(self, name: str, address: str) -> dict[str, Any]:
        honor = self._endpoint["honorLabels"]
        return {"job_name": name, "honor_labels": honor, "static_configs": [{"targets": [address]}]}


@pytest.fixture
def monitored(moorage: Deployment, monitoring: Sequence[Object], tmp_path: Path, port: int) -> Monitored:
    moorage.check()
    return Monitored(moorage, monitoring, tmp_path, port)


async def scraped(server: PrometheusServer, count: int) -> None:
    """Wait until so many targets are up, by Prometheus' own word."""

    async def all_up() -> bool | None:
        targets = server.get("targets")["activeTargets"]
        return [each["health"] for each in targets] == ["up"] * count or None

    await eventually(all_up, f"{count} targets to be up", within_s=PATIENCE_S)


async def alerting(server: PrometheusServer, name: str, job: str, *, is_alerting: bool = True) -> None:
    """Wait until an alert about a component is pending or fires, or is over."""

    async def found() -> bool | None:
        alerts = [(each["labels"]["alertname"], each["labels"].get("job")) for each in server.get("alerts")["alerts"]]
        return ((name, job) in alerts) is is_alerting or None

    await eventually(found, f"{name} about {job}: {is_alerting}", within_s=PATIENCE_S)


async def test_it_scrapes_every_metric_that_is_declared_of_every_component(monitored: Monitored) -> None:
    with monitored.server() as server:
        await scraped(server, len(GROUPING))
        for component in GROUPING:
            target = f'{{job="{component}"}}'
            told = server.get("targets/metadata", match_target=target)
            known = {each["metric"].removesuffix("_total") for each in told}
            assert known >= {metric.name.removesuffix("_total") for metric in COMPONENTS[component]}
            series = {each["__name__"] for each in server.get("series", **{"match[]": target})}
            # One with labels has no series before something is counted.
            plain = {name for metric in COMPONENTS[component] if not metric.labels for name in metric.series}
            assert series >= plain, component
        assert "level=WARN" not in (server.folder / "prometheus.log").read_text()


async def test_the_rules_of_the_chart_load_and_the_end_of_a_component_raises_its_alert(monitored: Monitored) -> None:
    with monitored.server() as server:
        await scraped(server, len(GROUPING))

        async def evaluated() -> list[dict[str, Any]] | None:
            rules = [rule for group in server.get("rules")["groups"] for rule in group["rules"]]
            return rules if all(rule["health"] != "unknown" for rule in rules) else None

        rules = await eventually(evaluated, "all rules to be evaluated", within_s=PATIENCE_S)
        assert [rule["name"] for rule in rules] == [rule["alert"] for rule in metricspage.rules()]
        assert [(rule["name"], rule["lastError"]) for rule in rules if rule["health"] != "ok"] == []
        await alerting(server, "MoorageNoLeader", BINDER, is_alerting=False)
        monitored.moorage.stop(BINDER)
        await alerting(server, "MoorageNoLeader", BINDER)
        monitored.moorage.start(BINDER)
        await alerting(server, "MoorageNoLeader", BINDER, is_alerting=False)


@asynccontextmanager
async def capacity(core: client.CoreV1Api) -> AsyncIterator[str]:
    """What kube-state-metrics says of nodes' capacity; the address where it is scraped."""

    async def shown(_: web.Request) -> web.Response:
        listed = await core.list_node(_preload_content=False)
        lines = ["# TYPE kube_node_status_capacity gauge"]
        for node in json.loads(await listed.read())["items"]:
            amounts = node["status"]["capacity"]
            lines += [_line(node["metadata"]["name"], resource, amounts[resource]) for resource in _UNITS]
        return web.Response(text="\n".join([*lines, ""]), content_type="text/plain")

    application = web.Application()
    application.router.add_get("/metrics", shown)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, LOOPBACK, port := free_port())
    await site.start()
    try:
        yield f"{LOOPBACK}:{port}"
    finally:
        await runner.cleanup()


def _line(node: str, resource: str, quantity: str) -> str:
    named, amount = resource.replace("/", "_").replace(".", "_"), parse_nano(quantity) / NANO
    return f'kube_node_status_capacity{{node="{node}",resource="{named}",unit="{_UNITS[resource]}"}} {amount:.17g}'


async def used_before(moorage: Deployment, at: Teams, queue: str, *, is_counted: bool = True) -> None:
    """Wait until the scheduler shows that a queue used more than half of all GPUs, or that use does not count."""

    async def shown() -> bool | None:
        there = await total(moorage, SCHEDULER, "kai_queue_gpu_usage", queue_name=at.name(queue))
        return ((there > 0.5) if is_counted else (there == 0)) or None

    await eventually(shown, f"use of {queue} to be counted: {is_counted}", within_s=PATIENCE_S)


async def test_the_queue_that_used_more_before_gets_less_and_without_an_answer_use_counts_for_none(
    monitored: Monitored, plane: ControlPlane, capsys: pytest.CaptureFixture[str]
) -> None:
    moorage = monitored.moorage
    async with teams(plane, f"used-{next(_numbers)}", ["1x4x80GiB"], moorage) as at, capacity(at.on.core) as address:
        with monitored.server(address) as server:
            await scraped(server, len(GROUPING) + 1)
            await at.queue("a")
            await at.queue("b")
            mine = await at.submit("a", 4)
            await at.on.running(4)
            await used_before(moorage, at, "a")
            assert (await explained(plane, at.name("a"), capsys))["useStaleSinceS"] is None
            await at.on.delete(*mine)
            await at.on.gone(mine)
            await at.fill(4)
            await at.submit("a", 4)
            await at.submit("b", 4)
            await at.make_way()
            served = await at.served(4)
            assert served["b"] > served["a"]
        await used_before(moorage, at, "a", is_counted=False)
        assert (await explained(plane, at.name("a"), capsys))["useStaleSinceS"] > 0
        with monitored.server(address):
            await used_before(moorage, at, "b")


async def explained(plane: ControlPlane, queue: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """What ``explain queue`` says of a queue."""
    command = ["explain", "queue", queue, "-o", "json", "--kubeconfig", str(plane.kubeconfig_path)]
    assert await anyio.to_thread.run_sync(main, command) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)["queue"]
    return found
