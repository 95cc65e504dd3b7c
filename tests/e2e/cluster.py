"""What the end-to-end tests see and do: simulated nodes on the real API server, and kubernetes-asyncio as a client.

The client is not ours on purpose: what Moorage writes is checked by code that does not share our decoding.
"""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import anyio
import msgspec
from kubernetes_asyncio import client

from kube.client import config
from kube.client.api import Api
from kube.client.clock import SystemClock
from kube.client.http import HttpTransport
from kube.client.retry import Retry
from simulator.nodes import shape
from simulator.nodes.api_access import PodTokens
from simulator.nodes.ground_truth import GroundTruth, Refused
from simulator.nodes.node_set import NodeSet
from simulator.nodes.shape import KubeletSettings
from tests.pauses import pause_s
from tools.cluster.plane import ControlPlane
from wire import names

Pod = dict[str, Any]
#: How long something may take whose time is not what a test is about: a busy machine is no failure.
PATIENCE_S = 180.0
#: A share whose pod went unseen is kept for up to three minutes (sharing/entries.py), and its reservation with it.
EMPTY_WITHIN_S = 240.0
#: After a test that failed.
AFTER_FAILURE_S = 20.0
T = TypeVar("T")

#: Machines that start containers quickly, so that tests wait for Moorage and not for them.
QUICK = KubeletSettings(sandbox_s=0.02, start_s=0.01, init_run_s=0.05, stop_s=0.02, config_retry_s=0.2, writers=32)


def pod(name: str, *, annotations: dict[str, str] | None = None, gpus: int = 0, **metadata: Any) -> Pod:
    """A pod as a user writes it."""
    container: dict[str, Any] = {"name": "main", "image": "cuda-app"}
    if gpus:
        container["resources"] = {"limits": {names.GPU_RESOURCE: str(gpus)}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations or {}, **metadata},
        "spec": {"schedulerName": names.SCHEDULER_NAME, "containers": [container], "terminationGracePeriodSeconds": 1},
    }


def share(name: str, fraction: str, **metadata: Any) -> Pod:
    """A pod that asks for a fraction of one GPU."""
    return pod(name, annotations={names.GPU_FRACTION: fraction}, **metadata)


def memory(name: str, mib: int) -> Pod:
    """A pod that asks for memory of one GPU."""
    return pod(name, annotations={names.GPU_MEMORY: str(mib)})


class Scene:
    """A namespace, some simulated nodes and a client. Pods of a scene go to its nodes only."""

    def __init__(self, api: client.ApiClient, namespace: str, nodes: NodeSet) -> None:
        self.core = client.CoreV1Api(api)
        self.custom = client.CustomObjectsApi(api)
        self.namespace = namespace
        self.nodes = nodes

    @property
    def ground_truth(self) -> GroundTruth:
        """What really happened on the machines."""
        return self.nodes.ground_truth

    async def create(self, *pods: Pod) -> None:
        """Create pods, all at once."""
        async with anyio.create_task_group() as tasks:
            for wanted in pods:
                wanted["spec"]["nodeSelector"] = {"scene": self.namespace}
                tasks.start_soon(self._create, wanted)

    async def _create(self, wanted: Pod) -> None:
        await self.core.create_namespaced_pod(self.namespace, wanted)

    async def create_gang(self, name: str, minimum: int, *pods: Pod, **spec: Any) -> None:
        """Create a PodGroup, with further fields of its ``spec``, and its pods."""
        group = {
            "apiVersion": "scheduling.run.ai/v2alpha2",
            "kind": "PodGroup",
            "metadata": {"name": name},
            "spec": {"minMember": minimum, "queue": "default", **spec},
        }
        await self.custom.create_namespaced_custom_object(
            "scheduling.run.ai", "v2alpha2", self.namespace, "podgroups", group
        )
        for wanted in pods:
            wanted["metadata"]["annotations"][names.POD_GROUP_NAME] = name
        await self.create(*pods)

    async def pods(self) -> dict[str, Pod]:
        """All pods of the scene by name, as plain JSON."""
        listed = await self.core.list_namespaced_pod(self.namespace, _preload_content=False)
        return {item["metadata"]["name"]: item for item in json.loads(await listed.read())["items"]}

    async def pod(self, name: str) -> Pod:
        """One pod."""
        return (await self.pods())[name]

    async def delete(self, *pod_names: str) -> None:
        """Delete pods gracefully."""
        for name in pod_names:
            await self.core.delete_namespaced_pod(name, self.namespace)

    async def running(self, count: int, *, within_s: float = PATIENCE_S) -> dict[str, Pod]:
        """Wait until ``count`` pods run, and return all pods."""

        async def enough() -> dict[str, Pod] | None:
            found = await self.pods()
            return found if sum(p["status"]["phase"] == "Running" for p in found.values()) >= count else None

        return await eventually(enough, f"{count} pods of {self.namespace} to run", within_s=within_s)

    async def says(self, name: str, text: str, *, within_s: float = PATIENCE_S) -> str:
        """Wait until a pod's PodScheduled condition holds ``text``, and return its message."""

        async def said() -> str | None:
            message = scheduled_message(await self.pod(name))
            return message if text in message else None

        return await eventually(said, f"pod {name} to say {text!r}", within_s=within_s)

    async def empty(self, *, within_s: float = EMPTY_WITHIN_S) -> None:
        """Delete all pods and wait until they, and the reservations of the scene's nodes, are gone."""
        for name in await self.pods():
            with contextlib.suppress(client.ApiException):  # it may have ended meanwhile
                await self.core.delete_namespaced_pod(name, self.namespace)
        await eventually(self._is_empty, f"{self.namespace} to be empty", within_s=within_s)

    async def gone(self, pod_names: Sequence[str], *, within_s: float = PATIENCE_S) -> None:
        """Wait until these pods are gone."""

        async def all_gone() -> bool | None:
            return not set(pod_names) & set(await self.pods()) or None

        await eventually(all_gone, f"{len(pod_names)} pods of {self.namespace} to go", within_s=within_s)

    def refusals(self) -> list[Refused]:
        """Pods that a machine of the scene refused."""
        return [record for record in self.ground_truth.history if isinstance(record, Refused)]

    async def _is_empty(self) -> bool | None:
        return (not await self.pods() and not await self.reservations()) or None

    async def reservations(self) -> list[Pod]:
        """Reservation pods on the scene's nodes."""
        listed = await self.core.list_namespaced_pod(names.RESERVATION_NAMESPACE, _preload_content=False)
        items = json.loads(await listed.read())["items"]
        return [item for item in items if item["spec"].get("nodeName") in self.nodes.kubelets]

    def seen(self, wanted: Pod) -> Mapping[str, tuple[str, ...]]:
        """Devices that each container of a pod really saw."""
        return self.ground_truth.seen_by(wanted["metadata"]["uid"])

    def sharers(self, pods: dict[str, Pod]) -> dict[str, list[str]]:
        """Device UUID -> names of the pods whose containers saw it."""
        by_device: dict[str, list[str]] = {}
        for name, found in sorted(pods.items()):
            for devices in self.seen(found).values():
                for uuid in devices:
                    by_device.setdefault(uuid, []).append(name)
        return by_device


def scheduled_message(found: Pod) -> str:
    """The message of PodScheduled=False, or ""."""
    conditions = found["status"].get("conditions") or []
    return next(
        (c.get("message", "") for c in conditions if c["type"] == "PodScheduled" and c["status"] == "False"), ""
    )


async def eventually(probe: Callable[[], Awaitable[T | None]], what: str, *, within_s: float) -> T:
    """Wait until ``probe`` answers with something, asking the real API server again and again (tests/pauses.py)."""
    began_at = anyio.current_time()
    try:
        with anyio.fail_after(within_s):
            while True:
                if (found := await probe()) is not None:
                    return found
                await anyio.sleep(pause_s(anyio.current_time() - began_at))
    except TimeoutError:
        raise AssertionError(f"waited {within_s} s for {what}") from None


@asynccontextmanager
async def scene(
    plane: ControlPlane, namespace: str, shapes: Sequence[str], *, seed: int = 1, is_emptied: bool = True
) -> AsyncIterator[Scene]:
    """Set a scene: its namespace, its nodes, its client; take everything away afterwards.

    ``is_emptied`` false: its pods stay, on a control plane that ends with it.
    """
    ca_file = plane.folder / "e2e-ca.pem"
    ca_file.write_text(plane.ca_pem)
    configuration = client.Configuration(host=plane.url)
    configuration.ssl_ca_cert = str(ca_file)
    configuration.api_key = {"authorization": f"Bearer {plane.token}"}
    configuration.api_key_prefix = {}
    configuration.api_key["BearerToken"] = f"Bearer {plane.token}"
    simulator = plane.service_account_token(names.SYSTEM_NAMESPACE, "moorage-simulator")
    kubelet = HttpTransport(config.plain(plane.url, ca_file=str(ca_file), token=simulator), user_agent="moorage-nodes")
    inside = HttpTransport(config.plain(plane.url, ca_file=str(ca_file)), user_agent="moorage-reservation")
    async with kubelet, inside, client.ApiClient(configuration) as api:
        nodes = NodeSet(
            kubelet,
            _named(shape.parse(shapes), namespace),
            clock=SystemClock(),
            seed=seed,
            reservation_identity=PodTokens(api=Api(kubelet, retry=Retry(random.Random(seed))), under=inside.under),
            settings=msgspec.structs.replace(QUICK, lease_period_s=10.0),
        )
        core = client.CoreV1Api(api)
        await core.create_namespace({"metadata": {"name": namespace}})
        await eventually(lambda: _default_account(core, namespace), "the default service account", within_s=PATIENCE_S)
        # Also after a test that failed: what it leaves would fail those that look at the whole cluster.
        try:
            async with anyio.create_task_group() as tasks:
                await tasks.start(nodes.run)
                made = Scene(api, namespace, nodes)
                try:
                    yield made
                except BaseException:
                    with contextlib.suppress(AssertionError):  # it would hide what failed first
                        await made.empty(within_s=AFTER_FAILURE_S)
                    raise
                if is_emptied:
                    await made.empty()
                tasks.cancel_scope.cancel()
        finally:
            await nodes.remove()
    # Connections of cancelled watches close a moment after their sessions; a loop that ends before warns of them.
    await anyio.sleep(0.1)


async def _default_account(core: client.CoreV1Api, namespace: str) -> Any:
    accounts = await core.list_namespaced_service_account(namespace)
    return accounts.items or None


def _named(shapes: Sequence[shape.NodeShape], namespace: str) -> list[shape.NodeShape]:
    """Nodes that no other scene has, for pods of this one only."""
    return [
        msgspec.structs.replace(one, name=f"{namespace}-{i}", labels={"scene": namespace}, pods=1200)
        for i, one in enumerate(shapes)
    ]
