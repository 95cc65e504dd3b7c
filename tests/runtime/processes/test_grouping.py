"""What grouping counts while it works."""

from __future__ import annotations

import pytest

from runtime.metrics.registry import Registry
from runtime.processes.workloads import GroupingCounted, show_waiting
from tests.conftest import AnyioBackend
from tests.podgrouper.cluster import LEAST, cluster
from tests.podgrouper.objects import obj, pod
from tests.runtime.metrics.exposed import every_sample_once, value, values


@pytest.fixture(scope="module")
def anyio_backend(virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    return virtual_anyio_backend


async def test_pod_groups_pods_and_what_waits_are_counted() -> None:
    registry = Registry()
    async with cluster(started=False, reread_s=1) as on:
        replica = await on.start(GroupingCounted(registry))
        show_waiting(registry, replica.app)
        assert set(values(registry, "moorage_pod_groups_written_total").values()) == {0.0}
        job = await on.owner(obj("batch/v1", "Job", "j", spec={}, annotations={LEAST: "2"}))
        await on.pod(pod(job, name="first"))
        await on.pod(pod(name="alone"))
        await on.settle()
        await on.edit(job, {"metadata": {"annotations": {LEAST: "3"}}})
        await on.pod(pod(job, name="second"))
        await on.settle()
        assert values(registry, "moorage_pod_groups_written_total") == {("created",): 1.0, ("changed",): 1.0}
        counted = values(registry, "moorage_grouped_pods_total")
        assert {outcome: number for outcome, number in counted.items() if number} == {
            ("grouped",): 2.0,
            ("alone",): 1.0,
        }
        assert value(registry, "moorage_ungrouped_workloads") == 0.0
        await on.pod(pod(job, await on.owner(obj("batch/v1", "Job", "other", spec={})), name="torn"))
        await on.settle()
        assert value(registry, "moorage_ungrouped_workloads") == 1.0
        assert every_sample_once(registry)
