"""Kueue in front of Moorage: the real Kueue (tools/controllers/kueue), a real control plane, simulated nodes.

Kueue holds a workload back until its quota has room for all of it. Moorage places the pods of a workload that runs.
"""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.controllers import stories
from tests.controllers.conftest import SetWorkloads
from tests.controllers.workloads import Json, Workloads, bound, busy, uids
from tests.e2e.cluster import PATIENCE_S, Pod, eventually, pod
from tests.e2e.grouped import GROUPS
from tools.controllers.catalogue import JOBSET, KUEUE
from wire import names

pytestmark = [pytest.mark.cluster, pytest.mark.controllers]

CONTROLLERS = (JOBSET, KUEUE)
NAME_LABEL = "batch.kubernetes.io/job-name"
_API: Final = ("kueue.x-k8s.io", "v1beta2")
_QUEUE: Final = {"kueue.x-k8s.io/queue-name": "team"}
_PRIORITY: Final = "kueue.x-k8s.io/priority-class"
_RACK: Final = "example.com/rack"
_MERGE: Final = "application/merge-patch+json"


async def make(at: Workloads, kind: str, plural: str, name: str, **fields: Any) -> None:
    """Create an object of Kueue's that is in no namespace."""
    body = {"apiVersion": "/".join(_API), "kind": kind, "metadata": {"name": name}, **fields}
    await at.on.custom.create_cluster_custom_object(*_API, plural, body)


async def quota(at: Workloads, *flavors: tuple[dict[str, str], int], topology: str = "", **spec: Any) -> None:
    """Make the queue "team" of the scene. ``flavors``: labels of nodes, and the number of GPUs on them."""
    named = {f"{at.on.namespace}-{number}": each for number, each in enumerate(flavors)}
    for name, (labels, _) in named.items():
        of_topology = {"topologyName": topology} if topology else {}
        node_labels = {"scene": at.on.namespace, **labels}
        await make(at, "ResourceFlavor", "resourceflavors", name, spec={"nodeLabels": node_labels, **of_topology})
    await make(at, "ClusterQueue", "clusterqueues", at.on.namespace, spec={**groups_of(named), **spec})
    local = {
        "apiVersion": "/".join(_API),
        "kind": "LocalQueue",
        "metadata": {"name": "team"},
        "spec": {"clusterQueue": at.on.namespace},
    }
    await at.on.custom.create_namespaced_custom_object(*_API, at.on.namespace, "localqueues", local)


def groups_of(flavors: dict[str, tuple[dict[str, str], int]]) -> Json:
    """The part of a ClusterQueue's spec that has its quotas."""
    quotas = [
        {"name": name, "resources": [{"name": names.GPU_RESOURCE, "nominalQuota": str(gpus)}]}
        for name, (_, gpus) in flavors.items()
    ]
    return {"namespaceSelector": {}, "resourceGroups": [{"coveredResources": [names.GPU_RESOURCE], "flavors": quotas}]}


async def job(at: Workloads, name: str, pods: int, template: Json | None = None, **metadata: dict[str, str]) -> None:
    """A Job in the queue "team" whose pods start together, by default with a GPU each."""
    spec = {
        "parallelism": pods,
        "completions": pods,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": template or never(at, gpus=1),
    }
    labels = {**_QUEUE, **metadata.get("labels", {})}
    annotations = {names.BATCH_MIN_MEMBER: str(pods), **metadata.get("annotations", {})}
    await at.create(name, spec, labels=labels, annotations=annotations)


def never(at: Workloads, **asked: Any) -> Json:
    """A pod template of a Job."""
    return at.pod(**{"restartPolicy": "Never", **asked})


async def workload_of(at: Workloads, name: str) -> str:
    """Wait for Kueue's Workload of a Job, and return its name."""
    selector = f"kueue.x-k8s.io/job-uid={(await at.get(name))['metadata']['uid']}"

    async def made() -> str | None:
        listed = await at.on.custom.list_namespaced_custom_object(*_workloads(at), label_selector=selector)
        return next((each["metadata"]["name"] for each in listed["items"]), None)

    return await eventually(made, f"Kueue's Workload of {name}", within_s=PATIENCE_S)


async def no_quota(at: Workloads, workload: str) -> None:
    """Wait until Kueue says that a Workload has no quota."""

    async def said() -> bool | None:
        listed = await at.on.custom.list_namespaced_custom_object(*_workloads(at))
        found = [each.get("status", {}) for each in listed["items"] if each["metadata"]["name"] == workload]
        conditions = [each for status in found for each in status.get("conditions", [])]
        return any((each["type"], each["status"]) == ("QuotaReserved", "False") for each in conditions) or None

    await eventually(said, f"{workload} to have no quota", within_s=PATIENCE_S)


async def held_back(at: Workloads, name: str) -> None:
    """Wait until a Job has no quota. It is suspended, without a pod or a PodGroup."""
    await no_quota(at, await workload_of(at, name))
    assert (await at.get(name))["spec"]["suspend"]
    assert not await at.pods_of(name)
    assert not [group for group in await at.groups() if group.startswith(f"pg-{name}-")]


async def activate(at: Workloads, name: str, active: bool) -> None:
    """Let Kueue evict a Job, or admit it again."""
    await at.on.custom.patch_namespaced_custom_object(
        *_workloads(at), await workload_of(at, name), {"spec": {"active": active}}, _content_type=_MERGE
    )


def _workloads(at: Workloads) -> tuple[str, str, str, str]:
    return *_API, at.on.namespace, "workloads"


async def test_jobs_over_quota_wait_suspended_and_start_whole_one_after_the_other(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x8x80GiB") as at:
        await quota(at, ({}, 4))
        await job(at, "large", 5)
        await job(at, "first", 4)
        first = await at.run_whole("first", 4)
        (group,) = (await at.groups()).values()
        assert group["spec"]["minMember"] == 4
        await job(at, "second", 4)
        await held_back(at, "large")
        await held_back(at, "second")
        at.kill(next(iter(first.values())))
        await at.condition("first", "Failed")
        await at.run_whole("second", 4)
        await held_back(at, "large")


async def test_one_with_quota_and_without_free_gpus_waits_whole(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x4x80GiB") as at:
        await quota(at, ({}, 4))
        await busy(at, 1)
        await job(at, "train", 4)
        await stories.starts_whole(at, "train", 4)


async def test_a_deactivated_job_of_shares_gives_all_back_and_activated_it_starts_whole(
    set_workloads: SetWorkloads,
) -> None:
    async with set_workloads("1x2x80GiB") as at:
        await quota(at, ({}, 2))
        await job(at, "small", 4, never(at, fraction="0.5"))
        before = await at.run_whole("small", 4)
        assert sorted(len(sharers) for sharers in at.on.sharers(before).values()) == [2, 2]
        await activate(at, "small", False)
        await at.until("small", lambda pods: not pods, "the pods of an evicted Job to go")
        await busy(at, 2)
        assert not await at.on.reservations()
        await activate(at, "small", True)
        await stories.starts_whole(at, "small", 4, without=uids(before))


async def test_one_of_higher_priority_takes_the_quota_of_another_which_starts_whole_after_it(
    set_workloads: SetWorkloads,
) -> None:
    async with set_workloads("1x4x80GiB") as at:
        urgent = f"{at.on.namespace}-urgent"
        await make(at, "WorkloadPriorityClass", "workloadpriorityclasses", urgent, value=1000, description="urgent")
        await quota(at, ({}, 4), preemption={"withinClusterQueue": "LowerPriority"})
        await job(at, "low", 4)
        before = await at.run_whole("low", 4)
        await job(at, "high", 3, labels={_PRIORITY: urgent})
        high = await at.run_whole("high", 3)
        assert not await at.pods_of("low")
        await no_quota(at, await workload_of(at, "low"))
        at.kill(next(iter(high.values())))
        await at.run_whole("low", 4, without=uids(before))


async def test_pods_go_to_the_nodes_of_the_flavor_that_has_quota(set_workloads: SetWorkloads) -> None:
    async with set_workloads("2x4x80GiB") as at:
        first, second = ({names.HOSTNAME_LABEL: f"{at.on.namespace}-{number}"} for number in (0, 1))
        await quota(at, (first, 1), (second, 2))
        await job(at, "train", 2)
        assert nodes_of(at, await at.run_whole("train", 2)) == {1}


async def test_pods_run_on_the_nodes_that_kueue_chose_in_a_topology(set_workloads: SetWorkloads) -> None:
    async with set_workloads("4x2x80GiB") as at:
        await label_nodes(at, _RACK, "abbc")
        levels = [{"nodeLabel": _RACK}, {"nodeLabel": names.HOSTNAME_LABEL}]
        await make(at, "Topology", "topologies", at.on.namespace, spec={"levels": levels})
        await quota(at, ({}, 8), topology=at.on.namespace)
        template = never(at, gpus=1)
        template["metadata"]["annotations"][names.KUEUE_REQUIRED] = _RACK
        await job(at, "train", 4, template)
        pods = await at.run_whole("train", 4)
        assert nodes_of(at, pods) == {1, 2}
        chosen = {name: each["spec"]["nodeSelector"][names.HOSTNAME_LABEL] for name, each in pods.items()}
        assert chosen == {name: each["spec"]["nodeName"] for name, each in pods.items()}
        gates = (await at.get("train"))["spec"]["template"]["spec"]["schedulingGates"]
        assert gates == [{"name": names.KUEUE_TOPOLOGY_GATE}]


async def test_a_group_of_plain_pods_has_gates_until_it_is_admitted_and_starts_whole(
    set_workloads: SetWorkloads,
) -> None:
    async with set_workloads("1x4x80GiB") as at:
        await quota(at, ({}, 2))
        labels = {**_QUEUE, "kueue.x-k8s.io/pod-group-name": "three"}
        total = {"kueue.x-k8s.io/pod-group-total-count": "3"}
        members = [pod(f"member-{i}", gpus=1, labels=dict(labels), annotations=dict(total)) for i in range(3)]
        await at.on.create_gang("three", 3, *members)
        await no_quota(at, "three")
        found = await at.on.pods()
        gate = {"name": "kueue.x-k8s.io/admission"}
        assert [gate in each["spec"].get("schedulingGates", []) for each in found.values()] == [True] * 3
        assert bound(found) == []
        flavors: dict[str, tuple[dict[str, str], int]] = {f"{at.on.namespace}-0": ({}, 3)}
        await at.on.custom.patch_cluster_custom_object(
            *_API, "clusterqueues", at.on.namespace, {"spec": groups_of(flavors)}, _content_type=_MERGE
        )
        await at.on.running(3)
        await at.on.delete(*found)
        # Kueue keeps pods of a group that have ended until the group is over. They hold no GPU.
        await busy(at, 4)
        assert set(await at.on.pods()) == {*found, "other"}
        await at.on.core.patch_namespaced_pod(
            "member-0", at.on.namespace, {"metadata": {"annotations": {"kueue.x-k8s.io/retriable-in-group": "false"}}}
        )
        await at.on.gone(list(found))
        await at.on.delete("other")
        await at.on.custom.delete_namespaced_custom_object(*GROUPS, at.on.namespace, "podgroups", "three")


async def test_a_job_that_kueue_admits_with_fewer_pods_starts_with_these(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x8x80GiB") as at:
        await quota(at, ({}, 3))
        await job(at, "train", 4, annotations={"kueue.x-k8s.io/job-min-parallelism": "2"})
        await at.run_whole("train", 3)


async def test_a_jobset_waits_suspended_for_quota_of_all_its_jobs_and_starts_whole(set_workloads: SetWorkloads) -> None:
    async with set_workloads("1x8x80GiB") as at:
        of_jobsets = at.of(JOBSET.kinds[0], name_label="jobset.sigs.k8s.io/jobset-name")
        await quota(at, ({}, 4))
        await job(at, "first", 2)
        await at.run_whole("first", 2)
        template = {"spec": {"parallelism": 2, "completions": 2, "backoffLimit": 0, "template": never(at, gpus=1)}}
        roles = [{"name": "driver", "replicas": 1, "template": template}]
        roles.append({"name": "workers", "replicas": 1, "template": template})
        await of_jobsets.create("train", {"replicatedJobs": roles}, labels=_QUEUE)
        await of_jobsets.condition("train", "Suspended")
        assert not await of_jobsets.pods_of("train")
        await at.delete("first")
        await of_jobsets.run_whole("train", 4)


async def label_nodes(at: Workloads, label: str, values: str) -> None:
    """Give each node of a scene a label, in their order."""
    for number, value in enumerate(values):
        await at.on.core.patch_node(f"{at.on.namespace}-{number}", {"metadata": {"labels": {label: value}}})


def nodes_of(at: Workloads, pods: dict[str, Pod]) -> set[int]:
    """The numbers of the nodes that pods have."""
    return {int(each["spec"]["nodeName"].removeprefix(f"{at.on.namespace}-")) for each in pods.values()}
