"""One suite, two servers: the in-memory one in virtual time, and a real kube-apiserver."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest

from kube.client.clock import SystemClock
from kube.client.config import plain
from kube.client.http import HttpTransport
from simulator.apiserver.server import MemoryApiServer
from tests.contract.cluster import WIDGETS, WIDGETS_CRD, Cluster
from tools.cluster.plane import ControlPlane

AnyioBackend = tuple[str, dict[str, Any]]

_counter = itertools.count(1)


@pytest.fixture(scope="module", params=["memory", pytest.param("real", marks=pytest.mark.cluster)])
def backend(request: pytest.FixtureRequest) -> str:
    """Which server the test asks."""
    return str(request.param)


@pytest.fixture(scope="module")
def anyio_backend(backend: str, virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    """Virtual time for the server in memory; a real one answers in real time only."""
    return virtual_anyio_backend if backend == "memory" else ("asyncio", {})


@pytest.fixture(scope="session")
def real_server(request: pytest.FixtureRequest) -> ControlPlane:
    """The shared control plane, with the suite's custom resource."""
    plane: ControlPlane = request.getfixturevalue("control_plane")
    _install(plane)
    return plane


@pytest.fixture(scope="module")
def server_without_binding_labels() -> Iterator[ControlPlane]:
    """A real server as before Kubernetes 1.35: a Binding's labels are dropped."""
    with ControlPlane(feature_gates={"PodTopologyLabelsAdmission": False}) as plane:
        _install(plane)
        yield plane


def _install(plane: ControlPlane) -> None:
    # YAML takes JSON as it is.
    plane.apply(json.dumps(WIDGETS_CRD))


#: Makes a cluster for one test.
NewCluster = Callable[[], Awaitable[Cluster]]


@pytest.fixture(scope="module")
async def new_cluster(
    backend: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[NewCluster]:
    """One connection to the server under test for all tests of a module (and so one event loop)."""
    if backend == "memory":
        yield in_memory(pod_topology_labels=True)
    else:
        plane: ControlPlane = request.getfixturevalue("real_server")
        async with on(plane, tmp_path_factory.mktemp("ca")) as new:
            yield new


@pytest.fixture
async def api_server(new_cluster: NewCluster) -> Cluster:
    """The server under test, with a namespace of the test's own."""
    return await new_cluster()


def in_memory(*, pod_topology_labels: bool) -> NewCluster:
    async def new() -> Cluster:
        server = MemoryApiServer(
            clock=SystemClock(), rng=random.Random(7), extra_types=[WIDGETS], pod_topology_labels=pod_topology_labels
        )

        async def compact() -> None:
            server.compact()

        return await _with_namespace(Cluster(server.transport(), "contract", compact=compact, memory=server))

    return new


@asynccontextmanager
async def on(plane: ControlPlane, folder: Path) -> AsyncIterator[NewCluster]:
    ca_file = folder / "ca.pem"
    ca_file.write_text(plane.ca_pem)
    credentials = plain(plane.url, ca_file=str(ca_file), token=plane.token)
    async with HttpTransport(credentials) as transport:

        async def new() -> Cluster:
            cluster = Cluster(transport, f"contract-{next(_counter)}", compact=_etcd_compaction(plane))
            return await _with_namespace(cluster)

        yield new
    # Watches that were left early say good-bye to the server (TLS); the loop must not be closed before.
    await anyio.sleep(0.2)


def _etcd_compaction(plane: ControlPlane) -> Callable[[], Awaitable[None]]:
    async def compact() -> None:
        async with aiohttp.ClientSession(trust_env=False) as session:
            async with session.post(f"{plane.etcd_url}/v3/kv/range", json={"key": "eA=="}) as reply:
                revision = (await reply.json())["header"]["revision"]
            async with session.post(f"{plane.etcd_url}/v3/kv/compaction", json={"revision": revision}) as reply:
                assert reply.status == 200, await reply.text()

    return compact


async def _with_namespace(cluster: Cluster) -> Cluster:
    await cluster.made("/api/v1/namespaces", {"metadata": {"name": cluster.namespace}})
    # kube-controller-manager makes it, too, a moment later; pods need it at once.
    accounts = f"/api/v1/namespaces/{cluster.namespace}/serviceaccounts"
    answer = await cluster.send("POST", accounts, {"metadata": {"name": "default"}})
    assert answer.code in (201, 409), answer.body
    return cluster
