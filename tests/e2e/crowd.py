"""A scene shared by many tests, with a tenant on it and healthy neighbours beside whatever is tried."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from kubernetes_asyncio import client

from tests.e2e.cluster import PATIENCE_S, Pod, Scene, eventually, scheduled_message, share
from tests.e2e.tenant import Identity
from tools.cluster.deployment import COMPONENTS, Deployment
from wire import names


@dataclass(slots=True)
class Crowd:
    """``scene`` sees as the administrator, ``tenant`` writes as the tenant of its namespace."""

    scene: Scene
    tenant: Identity
    moorage: Deployment
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    async def runs(self, created: Pod, *, within_s: float = PATIENCE_S) -> Pod:
        """Wait until a pod runs with all that was written about it, and return it.

        A pod runs from its first container on; here all of them have to.
        """
        name, uid = created["metadata"]["name"], created["metadata"]["uid"]
        containers = {container["name"] for container in created["spec"]["containers"]}

        async def is_running() -> Pod | None:
            found = await self.scene.pod(name)
            assert found["metadata"]["uid"] == uid
            is_whole = containers <= set(self.scene.seen(found))
            return found if found["status"]["phase"] == "Running" and is_whole else None

        found: Pod = await eventually(is_running, f"pod {name[:80]} to run", within_s=within_s)
        return found

    async def waits(self, namespace: str, name: str, *, within_s: float = PATIENCE_S) -> Pod:
        """Wait until a pod of any namespace says why it waits, and return it."""

        async def says_something() -> Pod | None:
            answer = await self.scene.core.read_namespaced_pod(name, namespace, _preload_content=False)
            found: Pod = json.loads(await answer.read())
            return found if scheduled_message(found) else None

        found: Pod = await eventually(says_something, f"pod {namespace}/{name} to say why", within_s=within_s)
        return found

    def is_given_what_it_sees(self, found: Pod) -> None:
        """Check that a pod's one container sees the one device that its protected keys speak of."""
        (uuid,) = self.scene.seen(found)["main"]
        annotations = found["metadata"]["annotations"]
        grant = json.loads(annotations[names.GRANT])
        assert [device["uuid"] for device in grant["devices"]] == [uuid]
        assert annotations[names.VISIBLE_DEVICES_PREFIX + "c0"] == uuid
        assert annotations[names.RECEIVED_RESOURCE_TYPE] == names.RECEIVED_FRACTION
        assert found["metadata"]["labels"][names.GPU_GROUP_LABEL] == grant["devices"][0]["group"]

    @asynccontextmanager
    async def with_a_neighbour(self) -> AsyncIterator[None]:
        """Let something be tried beside a healthy pod; take all pods away afterwards."""
        written = {component: len(self.moorage.log(component)) for component in COMPONENTS}
        neighbour = await self.tenant.create(share(f"neighbour-{next(self._numbers)}", "0.25"))
        yield
        self.is_given_what_it_sees(await self.runs(neighbour))
        self.moorage.check()
        for component, length in written.items():
            news = self.moorage.log(component)[length:]
            assert "Traceback" not in news, news
        await self._clear()

    async def _clear(self) -> None:
        for name in await self.scene.pods():
            with contextlib.suppress(client.ApiException):  # it may have ended meanwhile
                await self.scene.core.delete_namespaced_pod(name, self.scene.namespace)

        async def is_clear() -> bool | None:
            return not await self.scene.pods() or None

        await eventually(is_clear, "the pods to go", within_s=PATIENCE_S)
