"""Jobs that ask for several pods at once, on the real control plane: their metadata is read."""

from __future__ import annotations

import pytest
from kubernetes_asyncio import client

from tests.e2e.cluster import share
from tests.e2e.conftest import SetScene

pytestmark = pytest.mark.cluster


async def test_pods_of_a_job_with_a_least_number_are_not_started_alone_and_those_of_a_plain_one_are(
    set_scene: SetScene,
) -> None:
    async with set_scene(["1x4x80GiB"]) as scene:
        jobs = client.BatchV1Api(scene.core.api_client)
        for name, annotations in (("plain", {}), ("six", {"kai.scheduler/batch-min-member": "6"})):
            template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "app"}]}}
            job = {
                "metadata": {"name": name, "annotations": annotations},
                "spec": {"suspend": True, "template": template},
            }
            made = await jobs.create_namespaced_job(scene.namespace, job)
            owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": made.metadata.uid}
            await scene.create(share(f"{name}-0", "0.5", ownerReferences=[owner]))
        await scene.says("six-0", "annotation kai.scheduler/batch-min-member of Job six")
        found = await scene.running(1)
        assert [name for name, pod in found.items() if "nodeName" in pod["spec"]] == ["plain-0"]
