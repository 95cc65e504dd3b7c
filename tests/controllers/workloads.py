"""Workloads of one kind in a scene, and what their real controller and Moorage make of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from typing import Any, Final

from simulator.nodes.containers import EXIT_CODE, RUN_S
from tests.e2e.cluster import PATIENCE_S, Pod, Scene, eventually, pod, scheduled_message
from tests.e2e.grouped import GROUPS, group_of
from tools.controllers.catalogue import Kind
from wire import names

Json = dict[str, Any]
_MERGE: Final = "application/merge-patch+json"
_GANG: Final = "for gang scheduling"


class Workloads:
    """A scene, and the workloads in it; ``name_label``: by which their controller marks the pods of each."""

    def __init__(self, on: Scene, kind: Kind, *, name_label: str) -> None:
        self.on = on
        self._kind = kind
        self._name_label = name_label

    def of(self, kind: Kind, *, name_label: str = "") -> Workloads:
        """Those of another kind in the same scene."""
        return Workloads(self.on, kind, name_label=name_label or self._name_label)

    def pod(self, *, gpus: int = 0, fraction: str = "", ends: tuple[float, int] | None = None, **spec: Any) -> Json:
        """A pod template of the scene. ``ends``: after how many seconds its containers end, and with what code."""
        container: Json = {"name": "main", "image": "cuda-app"}
        if gpus:
            container["resources"] = {"limits": {names.GPU_RESOURCE: str(gpus)}}
        annotations = {names.GPU_FRACTION: fraction} if fraction else {}
        if ends is not None:
            annotations |= {RUN_S: str(ends[0]), EXIT_CODE: str(ends[1])}
        return {
            "metadata": {"annotations": annotations},
            "spec": {
                "schedulerName": names.SCHEDULER_NAME,
                "nodeSelector": {"scene": self.on.namespace},
                "terminationGracePeriodSeconds": 1,
                "containers": [container],
                **spec,
            },
        }

    async def create(self, name: str, spec: Json, **metadata: Any) -> Json:
        """Create a workload."""
        body = {
            "apiVersion": self._kind.api_version,
            "kind": self._kind.name,
            "metadata": {"name": name, **metadata},
            "spec": spec,
        }
        made: Json = await self.on.custom.create_namespaced_custom_object(*self._collection, body)
        return made

    async def patch(self, name: str, spec: Json) -> None:
        """Change fields of a workload."""
        await self.on.custom.patch_namespaced_custom_object(
            *self._collection, name, {"spec": spec}, _content_type=_MERGE
        )

    async def get(self, name: str) -> Json:
        """One workload."""
        found: Json = await self.on.custom.get_namespaced_custom_object(*self._collection, name)
        return found

    async def delete(self, name: str) -> None:
        """Delete a workload as kubectl does."""
        await self.on.custom.delete_namespaced_custom_object(*self._collection, name, propagation_policy="Background")

    async def delete_all(self) -> None:
        """Delete all workloads, also those that end meanwhile."""
        await self.on.custom.delete_collection_namespaced_custom_object(
            *self._collection, propagation_policy="Background"
        )

    async def pods_of(self, name: str) -> dict[str, Pod]:
        """The pods of a workload, those that are being deleted left out."""
        return {
            pod_name: found
            for pod_name, found in (await self.on.pods()).items()
            if found["metadata"].get("labels", {}).get(self._name_label) == name
            and "deletionTimestamp" not in found["metadata"]
        }

    async def groups(self) -> dict[str, Json]:
        """All PodGroups of the scene, by name."""
        listed = await self.on.custom.list_namespaced_custom_object(*GROUPS, self.on.namespace, "podgroups")
        return {item["metadata"]["name"]: item for item in listed["items"]}

    async def run_whole(self, name: str, count: int, *, without: Collection[str] = ()) -> dict[str, Pod]:
        """Wait until a workload has exactly ``count`` pods, all run and are grouped, none of the UIDs ``without``."""

        def runs(pods: dict[str, Pod]) -> bool:
            return (
                len(pods) == count
                and all(each["status"].get("phase") == "Running" and group_of(each) for each in pods.values())
                and not {each["metadata"]["uid"] for each in pods.values()} & set(without)
            )

        return await self.until(name, runs, f"{count} pods of {name} to run")

    async def wait_whole(self, name: str, count: int, *, says: str = _GANG) -> dict[str, Pod]:
        """Wait until ``count`` pods of a workload exist, none of them bound, and one says why."""

        def waits(pods: dict[str, Pod]) -> bool:
            return len(pods) == count and any(says in scheduled_message(each) for each in pods.values())

        pods = await self.until(name, waits, f"{count} pods of {name} to wait")
        assert bound(pods) == []
        return pods

    async def until(self, name: str, holds: Callable[[dict[str, Pod]], bool], what: str) -> dict[str, Pod]:
        """Wait until the pods of a workload are as wanted, and return them."""
        seen: dict[str, Pod] = {}

        async def probe() -> dict[str, Pod] | None:
            seen.clear()
            seen.update(await self.pods_of(name))
            return seen if holds(seen) else None

        try:
            return dict(await eventually(probe, what, within_s=PATIENCE_S))
        except AssertionError as waited:
            raise AssertionError(f"{waited}; its pods: {shown(seen)}") from None

    async def condition(self, name: str, wanted: str) -> Json:
        """Wait until a condition of a workload is true, and return it."""

        async def found() -> Json | None:
            conditions = (await self.get(name)).get("status", {}).get("conditions", [])
            return next((each for each in conditions if each["type"] == wanted and each["status"] == "True"), None)

        return await eventually(found, f"{name} to be {wanted}", within_s=PATIENCE_S)

    async def nothing_left(self) -> None:
        """Wait until nothing of deleted workloads is left: no pod, no PodGroup, no reservation and so no book."""

        async def is_empty() -> bool | None:
            left = {**await self.groups(), **await self.on.pods()}
            return (not left and not await self.on.reservations()) or None

        await eventually(is_empty, f"nothing of {self.on.namespace} to be left", within_s=PATIENCE_S)

    def kill(self, found: Pod) -> None:
        """Kill the processes of a pod's containers."""
        self.on.nodes[found["spec"]["nodeName"]].kill(found["metadata"]["uid"])

    @property
    def _collection(self) -> tuple[str, str, str, str]:
        group, _, version = self._kind.api_version.partition("/")
        return group, version, self.on.namespace, self._kind.plural


async def busy(at: Workloads, gpus: int) -> None:
    """Somebody else's pod on so many GPUs."""
    await at.on.create(pod("other", gpus=gpus))

    async def runs() -> Pod | None:
        found = await at.on.pod("other")
        return found if found["status"].get("phase") == "Running" else None

    await eventually(runs, "the other pod to run", within_s=PATIENCE_S)


def bound(pods: dict[str, Pod]) -> list[str]:
    """Those that have a node."""
    return [name for name, found in pods.items() if found["spec"].get("nodeName")]


def uids(pods: dict[str, Pod]) -> set[str]:
    """UIDs of pods."""
    return {found["metadata"]["uid"] for found in pods.values()}


def shown(pods: dict[str, Pod]) -> str:
    """For messages: phase, group and reason of each."""
    return json.dumps(
        {
            name: [found["status"].get("phase"), group_of(found), scheduled_message(found)]
            for name, found in sorted(pods.items())
        },
        indent=1,
    )
