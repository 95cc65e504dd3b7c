"""Scenes in which pods are grouped: workloads of other projects, and what Moorage makes of them."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Final

from kubernetes_asyncio import client

from tests.e2e.cluster import PATIENCE_S, Pod, Scene, eventually
from tests.e2e.workloads import PLURALS, Json, definition
from wire import names

GROUPS: Final = ("scheduling.run.ai", "v2alpha2")


class Workloads:
    """A scene in which controllers of other projects are played."""

    def __init__(self, on: Scene) -> None:
        self.on = on
        self._definitions = client.ApiextensionsV1Api(on.core.api_client)

    async def define(self, group: str, kind: str, plural: str, *versions: str) -> None:
        """Make a CRD, and wait until it is served."""
        with contextlib.suppress(client.ApiException):  # an earlier test has made it
            await self._definitions.create_custom_resource_definition(definition(group, kind, plural, *versions))

        async def served() -> bool | None:
            try:
                await self.on.custom.list_namespaced_custom_object(group, versions[-1], self.on.namespace, plural)
            except client.ApiException:
                return None
            return True

        await eventually(served, f"{plural}.{group} to be served", within_s=PATIENCE_S)

    async def make(self, body: Json, above: Json | None = None) -> Json:
        """Create an object, owned by another one; return it with its UID."""
        if above is not None:
            body = {**body, "metadata": {**body["metadata"], "ownerReferences": [reference(above)]}}
        group, _, version = body["apiVersion"].rpartition("/")
        plural = PLURALS[group, body["kind"]]
        made: Json = await self.on.custom.create_namespaced_custom_object(
            group, version, self.on.namespace, plural, body
        )
        return {**made, "apiVersion": body["apiVersion"], "kind": body["kind"]}

    async def groups(self) -> dict[str, Json]:
        """All PodGroups of the scene, by name."""
        listed = await self.on.custom.list_namespaced_custom_object(*GROUPS, self.on.namespace, "podgroups")
        return {item["metadata"]["name"]: item for item in listed["items"]}

    async def grouped(self, *pod_names: str) -> dict[str, str]:
        """Wait until these pods name PodGroups that are there; return the names by those of the pods."""
        named: dict[str, str] = {}

        async def found() -> bool | None:
            pods, groups = await self.on.pods(), await self.groups()
            named.update({name: group_of(pods[name]) for name in pod_names if name in pods})
            missing = [name for name in pod_names if named.get(name) not in groups]
            return None if missing else True

        try:
            await eventually(found, f"{len(pod_names)} pods to be grouped", within_s=PATIENCE_S)
        except AssertionError as waited:
            raise AssertionError(f"{waited}: {named}") from None
        return named

    async def job(
        self, name: str, count: int, *, above: Json | None = None, completions: int | None = None, **meta: Any
    ) -> Json:
        """A batch Job of pods with half a GPU each; Kubernetes' own controller makes them."""
        labels = meta.pop("pod_labels", {})
        template = {
            "metadata": {"annotations": {names.GPU_FRACTION: "0.5"}, "labels": labels},
            "spec": {
                "schedulerName": names.SCHEDULER_NAME,
                "restartPolicy": "Never",
                "nodeSelector": {"scene": self.on.namespace},
                "containers": [{"name": "main", "image": "cuda-app"}],
                "terminationGracePeriodSeconds": 1,
            },
        }
        spec = {
            "parallelism": count,
            "completions": count if completions is None else completions,
            "template": template,
        }
        body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, **meta}, "spec": spec}
        return await self.make(body, above)

    async def end_job(self, name: str) -> None:
        """Delete a Job and its pods."""
        jobs = client.BatchV1Api(self.on.core.api_client)
        await jobs.delete_namespaced_job(name, self.on.namespace, propagation_policy="Background")

    async def end_set(self, kind: str, name: str) -> None:
        """Delete a Deployment, ReplicaSet or StatefulSet and its pods."""
        apps = client.AppsV1Api(self.on.core.api_client)
        delete = {
            "Deployment": apps.delete_namespaced_deployment,
            "ReplicaSet": apps.delete_namespaced_replica_set,
            "StatefulSet": apps.delete_namespaced_stateful_set,
        }[kind]
        await delete(name, self.on.namespace, propagation_policy="Background")

    async def end_owners(self) -> None:
        """Delete all Jobs, Deployments, ReplicaSets and StatefulSets, which would make their pods anew."""
        jobs, apps = client.BatchV1Api(self.on.core.api_client), client.AppsV1Api(self.on.core.api_client)
        for delete in (
            jobs.delete_collection_namespaced_job,
            apps.delete_collection_namespaced_deployment,
            apps.delete_collection_namespaced_replica_set,
            apps.delete_collection_namespaced_stateful_set,
        ):
            await delete(self.on.namespace, propagation_policy="Background")


def reference(of: Mapping[str, Any]) -> dict[str, str]:
    meta = of["metadata"]
    return {"apiVersion": of["apiVersion"], "kind": of["kind"], "name": meta["name"], "uid": meta["uid"]}


def group_of(found: Pod) -> str:
    return str(found["metadata"].get("annotations", {}).get(names.POD_GROUP_NAME, ""))
