"""Self-made certificates on a real API server: two replicas with the rights of rbac.yaml, and steady reviews."""

from __future__ import annotations

import base64
import contextlib
import random
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from admission.app import run
from admission.certificates.rotation import CONFIGURATIONS, Rotation, SelfMade
from admission.manifests import UrlEndpoint, adoption_manifest, queue_manifest, webhook_manifests
from admission.server import Endpoint
from admission.settings import Settings
from kube.client.api import Api
from kube.client.clock import SystemClock
from kube.client.config import plain
from kube.client.http import HttpTransport
from kube.client.retry import Retry
from kube.client.server_time import ServerClock
from tests.admission.pods import half
from tests.cluster.doors import Door, opened
from tools.cluster.plane import ControlPlane
from wire import names

pytestmark = pytest.mark.cluster

SPACE = "certified"
#: Renewed after 22 s and followed within 2 s.
LIFETIME_S = 30
SECRET = f"/api/v1/namespaces/{names.SYSTEM_NAMESPACE}/secrets/{names.CERTIFICATES_SECRET}"
PATHS = [f"{resource.path()}/{name}" for resource, name in CONFIGURATIONS]


@asynccontextmanager
async def replica(plane: ControlPlane, folder: Path, seed: int) -> AsyncIterator[tuple[int, Rotation]]:
    """One as it is deployed: under its own service account, with the rights of its rbac.yaml."""
    (folder / "ca.crt").write_text(plane.ca_pem)
    token = plane.service_account_token(names.SYSTEM_NAMESPACE, "moorage-admission")
    rng, stop = random.Random(seed), anyio.Event()
    async with HttpTransport(plain(plane.url, ca_file=str(folder / "ca.crt"), token=token)) as transport:
        clock = ServerClock(transport, fallback=SystemClock())
        api = Api(clock, retry=Retry(rng))
        made = SelfMade(names=frozenset({"127.0.0.1"}), lifetime_s=LIFETIME_S)
        shown = Rotation(api, made, clock=clock, rng=rng)

        async def component(*, task_status: Any) -> None:
            await run(
                api,
                settings=Settings(),
                endpoint=Endpoint(host="127.0.0.1", port=0, drain_s=0.1),
                shown=shown,
                rng=rng,
                stop=stop,
                task_status=task_status,
            )

        async with anyio.create_task_group() as tasks:
            yield await tasks.start(component), shown
            stop.set()


async def register(door: Door, ports: tuple[int, int]) -> None:
    """Have the two replicas asked in one namespace, without any CA: they bring that."""
    first, second = (UrlEndpoint(f"https://127.0.0.1:{port}") for port in ports)
    only = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": [SPACE]}
    manifests = [
        adoption_manifest(first, ca=b""),
        webhook_manifests(first, ca=b"")[0],
        webhook_manifests(second, ca=b"")[1],
        queue_manifest(second, ca=b""),
    ]
    for manifest, path in zip(manifests, PATHS, strict=True):
        # Queues have no namespace.
        if selector := manifest["webhooks"][0].get("namespaceSelector"):
            selector["matchExpressions"].append(only)
        status, answer, _ = await door.call("POST", path.rpartition("/")[0], manifest)
        assert status == 201, answer


async def until_ready(*replicas: Rotation) -> None:
    with anyio.fail_after(120):
        while any(each.unready() for each in replicas):  # noqa: ASYNC110 - nothing tells when
            await anyio.sleep(0.05)


async def reviewed(door: Door) -> str:
    """Ask for a pod, which both replicas review; why it was not made, "" if it was."""
    raw = half()
    raw["metadata"] = {"name": "asked", "annotations": raw["metadata"]["annotations"]}
    raw["spec"]["automountServiceAccountToken"] = False
    status, answer, _ = await door.call("POST", f"/api/v1/namespaces/{SPACE}/pods?dryRun=All", raw)
    return "" if status == 201 else str(answer)


async def shaken(door: Door, port: int, path: str) -> str:
    """Make a new connection, as the API server would by this configuration. Returns the CA's bundle."""
    _, found, _ = await door.call("GET", path)
    bundle = base64.b64decode(found["webhooks"][0]["clientConfig"]["caBundle"]).decode()
    context = ssl.create_default_context(cadata=bundle)
    stream = await anyio.connect_tcp("127.0.0.1", port, tls=True, ssl_context=context, tls_hostname="127.0.0.1")
    with contextlib.suppress(OSError, anyio.BrokenResourceError):
        await stream.aclose()
    return bundle


@pytest.fixture
async def door(control_plane: ControlPlane) -> AsyncIterator[Door]:
    control_plane.apply(f"{{apiVersion: v1, kind: Namespace, metadata: {{name: {names.SYSTEM_NAMESPACE}}}}}")
    control_plane.apply((Path(__file__).parents[2] / "admission" / "rbac.yaml").read_text())
    async with opened(control_plane, {SPACE: {}}) as made:
        yield made
        for path in PATHS:
            await made.call("DELETE", path)
        await made.call("PATCH", SECRET, {"data": None}, content_type="application/merge-patch+json")


async def test_no_review_fails_over_rotations_and_what_is_taken_away_comes_back(
    control_plane: ControlPlane, door: Door, tmp_path: Path
) -> None:
    async with replica(control_plane, tmp_path, 1) as (port, one), replica(control_plane, tmp_path, 2) as (other, two):
        await until_ready(one, two)
        await register(door, (port, other))
        with anyio.fail_after(120):
            while await reviewed(door):  # noqa: ASYNC110 - nothing tells when
                await anyio.sleep(0.1)
        await until_ready(one, two)
        bundles: set[str] = set()
        keys: set[str] = set()
        reviews = 0
        with anyio.fail_after(240):
            while len(keys) < 3 or one.unready() or two.unready():
                bundles |= {await shaken(door, port, PATHS[1]), await shaken(door, other, PATHS[2])}
                assert await reviewed(door) == ""
                _, secret, _ = await door.call("GET", SECRET)
                keys.add(secret["data"]["tls.crt"])
                reviews += 1
        assert len(bundles) >= 3
        print(f"{reviews} reviews by both replicas, {len(keys)} certificates")
        await _taken_away(door, one, two)


async def _taken_away(door: Door, one: Rotation, two: Rotation) -> None:
    """Both the Secret's content and a bundle."""
    empty = [{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": ""}]
    await door.call("PATCH", SECRET, {"data": None}, content_type="application/merge-patch+json")
    for path in PATHS:
        await door.call("PATCH", path, empty, content_type="application/json-patch+json")  # type: ignore[arg-type]
    with anyio.fail_after(120):
        while await reviewed(door):  # noqa: ASYNC110 - nothing tells when
            await anyio.sleep(0.1)
    await until_ready(one, two)
    _, secret, _ = await door.call("GET", SECRET)
    assert secret["data"]["tls.crt"]
