"""Nodes that are objects only, for tests of placement: no kubelet speaks for them; a pod is placed when it is bound.

The control plane has the stock kube-scheduler beside Moorage, so that the same pod can be given to either.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

import anyio
from kubernetes_asyncio import client

from tests.e2e.cluster import PATIENCE_S, eventually, scheduled_message
from tests.pauses import pause_s
from tools.cluster.deployment import BINDER, SCHEDULER, Deployment, Options
from tools.cluster.plane import ControlPlane
from wire import names

Object = dict[str, Any]
STOCK: Final = "default-scheduler"
_AT_ONCE: Final = client.V1DeleteOptions(grace_period_seconds=0)
_ERRORS: Final = 400
_SEEN_S: Final = 0.1
#: kube-scheduler's words, and Moorage's where they are others.
_SAME_WORDS: Final = {
    "node(s) pod number exceeded": "Too many pods",
    "node(s) didn't have enough resources: GPUs": f"Insufficient {names.GPU_RESOURCE}",
    "node(s) didn't have enough resources: CPU cores": "Insufficient cpu",
}
_LACKS: Final = "node(s) didn't have enough resources: "


@contextmanager
def two_schedulers() -> Iterator[ControlPlane]:
    """A control plane with kube-scheduler and with Moorage's scheduler and binder; both serve."""
    with ControlPlane(scheduler=True, node_lifecycle=False) as plane:
        alone = ("--no-leader-election",)
        # Images count as they do for kube-scheduler; by default they don't.
        arguments = {BINDER: alone, SCHEDULER: (*alone, "--image-locality-weight=1")}
        options = Options(components=(BINDER, SCHEDULER), arguments=arguments)
        with Deployment(plane, options) as deployment:
            yield plane
            deployment.check()


class Bare:
    """Objects of one cluster, as an administrator makes them."""

    def __init__(self, api: client.ApiClient) -> None:
        self.core = client.CoreV1Api(api)

    async def namespace(self, name: str, **labels: str) -> None:
        """Make a namespace, and wait until pods can be made in it."""
        await self.core.create_namespace({"metadata": {"name": name, "labels": labels}})

        async def has_account() -> bool | None:
            accounts = await self.core.list_namespaced_service_account(name)
            return bool(accounts.items) or None

        await eventually(has_account, f"the account of {name}", within_s=PATIENCE_S)

    async def nodes(self, nodes: Iterable[Object]) -> None:
        """Make nodes, all at once."""
        await _all_at_once(self._node(node) for node in nodes)

    async def seen(self) -> None:
        """Give schedulers a moment to see the nodes: they hear of pods by another watch."""
        await anyio.sleep(_SEEN_S)

    async def pods(self, pods: Iterable[Object]) -> None:
        """Make pods, all at once."""
        await _all_at_once(self.pod(pod) for pod in pods)

    async def pod(self, pod: Object) -> None:
        """Make a pod. Raises ApiException."""
        await _made(self.core.create_namespaced_pod(pod["metadata"]["namespace"], pod, _preload_content=False))

    async def end(self, namespace: str, pod: str, *, grace_s: int) -> None:
        """Begin to end a pod."""
        await self.core.delete_namespaced_pod(pod, namespace, body=client.V1DeleteOptions(grace_period_seconds=grace_s))

    async def verdict(self, namespace: str, pod: str) -> tuple[str, str]:
        """The node that a pod is bound to, and why it is bound to none: at most one of them is not empty."""
        found = await self._read(self.core.read_namespaced_pod(pod, namespace, _preload_content=False))
        node = found["spec"].get("nodeName", "")
        return node, "" if node else scheduled_message(found)

    async def clear(self, namespaces: Sequence[str]) -> None:
        """Delete all pods of these namespaces, and then all nodes."""
        for namespace in namespaces:
            listed = await self._read(self.core.list_namespaced_pod(namespace, _preload_content=False))
            gone = [pod["metadata"]["name"] for pod in listed["items"]]
            await _all_at_once(self._delete_pod(namespace, name) for name in gone)
        listed = await self._read(self.core.list_node(_preload_content=False))
        await _all_at_once(self._delete_node(node["metadata"]["name"]) for node in listed["items"])

    async def _node(self, node: Object) -> None:
        await _made(self.core.create_node(node, _preload_content=False))

    async def _delete_pod(self, namespace: str, name: str) -> None:
        await self.core.delete_namespaced_pod(name, namespace, body=_AT_ONCE, _preload_content=False)

    async def _delete_node(self, name: str) -> None:
        await self.core.delete_node(name, _preload_content=False)

    async def _read(self, asked: Awaitable[Any]) -> Any:
        return json.loads(await (await asked).read())


@asynccontextmanager
async def bare(plane: ControlPlane) -> AsyncIterator[Bare]:
    """A client of a control plane's administrator."""
    ca_file = plane.folder / "bare-ca.pem"
    ca_file.write_text(plane.ca_pem)
    configuration = client.Configuration(host=plane.url)
    configuration.ssl_ca_cert = str(ca_file)
    configuration.api_key = {"BearerToken": f"Bearer {plane.token}"}
    async with client.ApiClient(configuration) as api:
        yield Bare(api)
    await anyio.sleep(0.1)  # connections that are being closed would be warned of


def node(name: str, *, labels: Mapping[str, str] | None = None, **has: Any) -> Object:
    """A ready node. ``has``: allocatable amounts under ``allocatable``, the rest goes into its spec."""
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "10", **has.pop("allocatable", {})}
    ready = [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}]
    return {
        "metadata": {"name": name, "labels": {names.HOSTNAME_LABEL: name, **(labels or {})}},
        "spec": has,
        "status": {"allocatable": allocatable, "capacity": allocatable, "conditions": ready},
    }


def reasons(message: str) -> dict[str, int]:
    """How many nodes are out for what, in kube-scheduler's words, from either scheduler's message."""
    body = message.split("available: ", 1)[-1].split("were found: ", 1)[-1]
    body = body.split(" preemption: ", 1)[0].split(" no new claims to deallocate", 1)[0].split(" The best node ", 1)[0]
    found: dict[str, int] = {}
    for part in re.split(r", (?=\d)|\.(?:\s+|$)", body):
        counted = re.fullmatch(r"(\d+) (.+)", part.strip())
        if counted:
            words = _same(counted[2])
            found[words] = found.get(words, 0) + int(counted[1])
    return found


def _same(words: str) -> str:
    return _SAME_WORDS.get(words) or (
        f"Insufficient {words.removeprefix(_LACKS)}" if words.startswith(_LACKS) else words
    )


async def _made(asked: Awaitable[Any]) -> None:
    answer = await asked
    if answer.status >= _ERRORS:  # what is not decoded raises nothing
        raise client.ApiException(status=answer.status, reason=(await answer.read()).decode())


async def _all_at_once(calls: Iterable[Awaitable[None]]) -> None:
    async def run(call: Awaitable[None]) -> None:
        await call

    async with anyio.create_task_group() as tasks:
        for call in calls:
            tasks.start_soon(run, call)


async def settled(probe: Callable[[], Awaitable[Any]], *, within_s: float) -> Any:
    """What a probe finds within a time, else None."""
    began_at = anyio.current_time()
    with anyio.move_on_after(within_s):
        while True:
            if (found := await probe()) is not None:
                return found
            await anyio.sleep(pause_s(anyio.current_time() - began_at))
    return None
