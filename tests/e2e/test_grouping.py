"""Gangs form by themselves on the real control plane: with nothing added to the manifests of workloads.

Two replicas that group run side by side without an election, so everything here holds for two leaders as well.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from kubernetes_asyncio import client

from gpu import grant
from simulator.nodes.ground_truth import Started
from tests.e2e.cluster import PATIENCE_S, Pod, Scene, eventually, pod, scene, share
from tests.e2e.grouped import GROUPS, Workloads, group_of, reference
from tests.e2e.workloads import DEFINED, Json, chains, owner
from tools.cluster.deployment import GROUPING, Deployment, Options
from tools.cluster.plane import ControlPlane
from wire import names

pytestmark = pytest.mark.cluster

_MERGE = "application/merge-patch+json"
_numbers = itertools.count()


@pytest.fixture(scope="module")
def grouping_plane() -> Iterator[ControlPlane]:
    with ControlPlane() as plane:
        yield plane


@pytest.fixture(scope="module")
def grouping(grouping_plane: ControlPlane) -> Iterator[Deployment]:
    arguments = {"binder": ["--idle-s", "1"], "podgrouper": ["--no-leader-election"]}
    options = Options(arguments=arguments, components=(*GROUPING, "podgrouper-2"))
    with Deployment(grouping_plane, options) as deployment:
        yield deployment
        deployment.check()


@pytest.fixture(scope="module")
async def torn(grouping_plane: ControlPlane, grouping: Deployment) -> AsyncIterator[Workloads]:
    """A pod of two owners, which can't be grouped, from the start on: it is told again a minute later."""
    grouping.check()
    async with scene(grouping_plane, "grouping-torn", ["1x4x80GiB"]) as on:
        made = Workloads(on)
        jobs = [await made.make(owner("batch/v1", "Job", name, _SUSPENDED)) for name in ("one", "two")]
        await on.create(share("torn", "0.5", ownerReferences=[reference(each) for each in jobs]))
        yield made
        await made.end_owners()


@pytest.fixture
def set_workloads(grouping_plane: ControlPlane, grouping: Deployment, torn: Workloads) -> Any:
    assert torn.on.namespace == "grouping-torn"
    grouping.check()

    @asynccontextmanager
    async def make(*shapes: str) -> AsyncIterator[Workloads]:
        async with scene(grouping_plane, f"grouping-{next(_numbers)}", shapes) as on:
            made = Workloads(on)
            try:
                yield made
            finally:
                await made.end_owners()

    return make


def bound(pods: Mapping[str, Pod]) -> list[str]:
    return [name for name, found in pods.items() if found["spec"].get("nodeName")]


async def test_a_job_with_a_least_number_waits_whole_and_starts_whole(set_workloads: Any) -> None:
    async with set_workloads("1x2x80GiB") as at:
        await at.on.create(share("other", "0.5"))
        await at.on.running(1)
        made = await at.job("train", 4, annotations={"kai.scheduler/batch-min-member": "4"})

        async def all_wait() -> list[str] | None:
            found = [name for name, each in (await at.on.pods()).items() if name != "other" and group_of(each)]
            return found if len(found) == 4 else None

        members = await eventually(all_wait, "four grouped pods", within_s=PATIENCE_S)
        await at.on.says(members[0], "required for gang scheduling")
        assert bound(await at.on.pods()) == ["other"]
        (group,) = (await at.groups()).values()
        assert (group["metadata"]["name"], group["spec"]["minMember"]) == (f"pg-train-{made['metadata']['uid']}", 4)
        await at.on.delete("other")
        await at.on.running(4)


async def test_pods_of_a_plain_job_are_grouped_before_they_start(set_workloads: Any) -> None:
    async with set_workloads("1x4x80GiB") as at:
        await at.job("plain", 6)
        pods = await at.on.running(6)
        (group,) = (await at.groups()).values()
        assert {group_of(each) for each in pods.values()} == {group["metadata"]["name"]}
        assert group["spec"]["minMember"] == 1


async def test_pods_of_every_kind_are_grouped(set_workloads: Any) -> None:
    """Each right of the role is used here: ``make test-all`` fails for one that is not (tools/rights.py)."""
    async with set_workloads("1x1x80GiB") as at:
        async with anyio.create_task_group() as tasks:
            for defined in DEFINED:
                tasks.start_soon(at.define, *defined)
        pods = []
        for chain in chains():
            above: Json | None = None
            if chain.beside is not None:
                await at.make(chain.beside)
            for each in reversed(chain.owners):
                above = await at.make(each, above)
            assert above is not None
            pods.append(pod(chain.name, labels=chain.labels, ownerReferences=[reference(above)]))
        assert len({each["metadata"]["name"] for each in pods}) == len(pods)
        await at.on.create(*pods)
        await at.grouped(*(each["metadata"]["name"] for each in pods))
        groups = await at.groups()
        assert {group["spec"]["queue"] for group in groups.values()} == {"kinds"}
        # The pods of the two kinds of Grove name the same PodGang.
        assert len(groups) == len(pods) - 1


def _ray(is_autoscaled: bool, workers: int) -> Json:
    group = {"groupName": "gpu", "replicas": workers, "minReplicas": 0, "maxReplicas": 4}
    return {"enableInTreeAutoscaling": is_autoscaled, "workerGroupSpecs": [group]}


@pytest.mark.parametrize("is_autoscaled", [True, False], ids=["autoscaled", "scaled by hand"])
async def test_the_head_of_a_ray_cluster_that_is_scaled_down_and_up_runs_on(
    set_workloads: Any, is_autoscaled: bool
) -> None:
    """Its workers go to zero, then there is no room for those that come. Its grace time is so short that it shows."""
    async with set_workloads("1x2x80GiB") as at:
        await at.define("ray.io", "RayCluster", "rayclusters", "v1")
        grace = {names.STALENESS_GRACE_PERIOD: "3s"}
        made = await at.make(owner("ray.io/v1", "RayCluster", "auto", _ray(is_autoscaled, 2), annotations=grace))

        def member(name: str, group: str, gpus: int) -> Pod:
            labels = {"ray.io/cluster": "auto", "ray.io/group": group}
            return pod(name, gpus=gpus, labels=labels, ownerReferences=[reference(made)])

        async def scale(workers: int) -> None:
            patch, place = {"spec": _ray(is_autoscaled, workers)}, ("ray.io", "v1", at.on.namespace, "rayclusters")
            await at.on.custom.patch_namespaced_custom_object(*place, "auto", patch, _content_type=_MERGE)

        async def needs(minimum: int) -> None:
            async def says_so() -> bool | None:
                (group,) = (await at.groups()).values()
                return group["spec"]["minMember"] == minimum or None

            await eventually(says_so, f"minMember {minimum}", within_s=PATIENCE_S)

        await at.on.create(member("head", "headgroup", 0), member("w1", "gpu", 1), member("w2", "gpu", 1))
        await at.on.running(3)
        await needs(1 if is_autoscaled else 3)
        await scale(0)
        await at.on.delete("w1", "w2")
        await needs(1)
        await at.on.create(pod("other", gpus=2))
        await at.on.running(2)
        await scale(2)
        await at.on.create(member("w3", "gpu", 1), member("w4", "gpu", 1))
        await needs(1 if is_autoscaled else 3)
        await at.grouped("w3", "w4")
        await anyio.sleep(8)
        pods = await at.on.pods()
        assert bound(pods) == ["head", "other"]
        assert "deletionTimestamp" not in pods["head"]["metadata"]
        await at.on.delete("other")
        await at.on.running(3)


@pytest.mark.parametrize(
    ("api_version", "words", "system"),
    [
        ("scheduling.x-k8s.io/v1alpha1", {"labels": {"scheduling.x-k8s.io/pod-group": "llm"}}, "coscheduling"),
        ("scheduling.sigs.k8s.io/v1alpha1", {"labels": {"pod-group.scheduling.sigs.k8s.io": "llm"}}, "koordinator"),
        ("scheduling.volcano.sh/v1beta1", {"annotations": {"scheduling.k8s.io/group-name": "llm"}}, "volcano"),
    ],
)
async def test_pods_that_name_a_pod_group_of_another_scheduler_start_as_its_gang(
    set_workloads: Any, api_version: str, words: dict[str, Any], system: str
) -> None:
    async with set_workloads("1x2x80GiB") as at:
        group, _, version = api_version.partition("/")
        half = {**words, "annotations": {names.GPU_FRACTION: "0.5", **words.get("annotations", {})}}
        await at.on.create(pod("w0", **half))
        # Its PodGroup, and even the kind of that, come later.
        await at.on.says("w0", "names no PodGroup yet: moorage-podgrouper makes it")
        await at.define(group, "PodGroup", "podgroups", version)
        await at.make(owner(api_version, "PodGroup", "llm", {"minMember": 2}))
        await at.grouped("w0")
        await at.on.says("w0", "Waiting for 2 pods, currently 1 exist")
        await at.on.create(pod("w1", **half))
        pods = await at.on.running(2)
        assert {group_of(each) for each in pods.values()} == {f"pg-{system}-llm"}


async def test_a_gang_whose_pods_kueue_gates_is_grouped_and_waits_until_kueue_admits_enough(set_workloads: Any) -> None:
    words = {"gang.scheduling.koordinator.sh/name": "llm", "gang.scheduling.koordinator.sh/min-available": "2"}
    gates = [{"name": "kueue.x-k8s.io/admission"}, {"name": "kueue.x-k8s.io/topology"}]
    async with set_workloads("1x2x80GiB") as at:
        for name in ("w0", "w1"):
            made = pod(name, annotations={names.GPU_FRACTION: "0.5", **words})
            await at.on.create({**made, "spec": {**made["spec"], "schedulingGates": gates}})
        await at.grouped("w0", "w1")

        async def admit(name: str) -> None:
            """Take the gates off, as Kueue does."""
            body = {"spec": {"schedulingGates": None}}
            await at.on.core.patch_namespaced_pod(name, at.on.namespace, body, _content_type=_MERGE)

        await admit("w0")
        await at.on.says("w0", "Waiting for 2 pods, currently 1 exist, 1 are gated")
        assert not bound(await at.on.pods())
        await admit("w1")
        pods = await at.on.running(2)
        assert {group_of(each) for each in pods.values()} == {"pg-koordinator-llm"}


async def test_bare_pods_and_those_of_plain_replica_sets_cost_no_write(set_workloads: Any) -> None:
    async with set_workloads("1x4x80GiB") as at:
        apps = client.AppsV1Api(at.on.core.api_client)
        template = {
            "metadata": {"labels": {"app": "web"}},
            "spec": {
                "schedulerName": names.SCHEDULER_NAME,
                "nodeSelector": {"scene": at.on.namespace},
                "containers": [{"name": "main", "image": "app"}],
            },
        }
        spec = {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template}
        await apps.create_namespaced_deployment(at.on.namespace, {"metadata": {"name": "web"}, "spec": spec})
        await at.on.create(share("alone", "0.5"))
        pods = await at.on.running(4)
        assert {group_of(each) for each in pods.values()} == {""}
        assert await at.groups() == {}
        await apps.delete_namespaced_deployment("web", at.on.namespace)


def _template(on: Scene, *, gpus: int, **spec: Any) -> Json:
    """The spec of a set of three pods."""
    container = {"name": "main", "image": "app", "resources": {"limits": {names.GPU_RESOURCE: str(gpus)}}}
    template = {
        "metadata": {"labels": {"app": "shard"}},
        "spec": {
            "schedulerName": names.SCHEDULER_NAME,
            "nodeSelector": {"scene": on.namespace},
            "containers": [container],
            "terminationGracePeriodSeconds": 1,
        },
    }
    return {"replicas": 3, "selector": {"matchLabels": {"app": "shard"}}, "template": template, **spec}


async def test_a_stateful_set_with_a_least_number_starts_whole_or_not_at_all(set_workloads: Any) -> None:
    async with set_workloads("1x12x80GiB") as at:
        await at.on.create(pod("other", gpus=4))
        await at.on.running(1)
        gang = {names.BATCH_MIN_MEMBER: "3", names.STALENESS_GRACE_PERIOD: "2s"}
        spec = _template(at.on, gpus=4, podManagementPolicy="Parallel")
        metadata = {"name": "shard", "annotations": gang}
        await at.make({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": spec})
        await at.grouped("shard-0", "shard-1", "shard-2")
        await at.on.says("shard-2", "Resources were found for 2 pods while 3 are required for gang scheduling")
        await anyio.sleep(5)
        started = [each.pod_uid for each in at.on.ground_truth.history if isinstance(each, Started)]
        assert started == [(await at.on.pod("other"))["metadata"]["uid"]]
        await at.on.delete("other")
        await at.on.running(3)
        await at.end_set("StatefulSet", "shard")


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet", "StatefulSet"])
async def test_pods_whose_queue_is_named_by_their_owner_only_are_bound_for_that_queue(
    set_workloads: Any, kind: str
) -> None:
    async with set_workloads("1x4x80GiB") as at:
        spec = _template(at.on, gpus=1)
        metadata = {"name": "web", "labels": {names.QUEUE_LABEL: "kinds"}}
        await at.make({"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec})
        pods = await at.on.running(3)
        charged = [grant.read_charged(each["metadata"]["annotations"]) for each in pods.values()]
        assert [each.queue for each in charged if each is not None] == ["kinds"] * 3
        await at.end_set(kind, "web")


async def test_segments_of_a_pytorch_job_have_the_topology_of_its_worker_template(set_workloads: Any) -> None:
    """KAI's documented example. A GPU of two racks is in use, so that a segment fits into the two others only."""
    async with set_workloads("4x2x80GiB") as at:
        await at.define("kubeflow.org", "PyTorchJob", "pytorchjobs", "v1")
        rack = "example.com/rack"
        for number in range(4):
            await at.on.core.patch_node(f"{at.on.namespace}-{number}", {"metadata": {"labels": {rack: f"r{number}"}}})
        topology = {
            "apiVersion": "kai.scheduler/v1alpha1",
            "kind": "Topology",
            "metadata": {"name": at.on.namespace},
            "spec": {"levels": [{"nodeLabel": rack}]},
        }
        await at.on.custom.create_cluster_custom_object("kai.scheduler", "v1alpha1", "topologies", topology)
        for number in range(2):
            other = pod(f"other-{number}", gpus=1)
            other["spec"]["affinity"] = _on(f"{at.on.namespace}-{number}")
            await at.on.create(other)
        await at.on.running(2)
        segments = {
            names.TOPOLOGY: at.on.namespace,
            names.SEGMENT_SIZE: "2",
            names.SEGMENT_TOPOLOGY_REQUIRED: rack,
        }
        roles = {
            "Master": {"replicas": 1},
            "Worker": {"replicas": 4, "template": {"metadata": {"annotations": segments}}},
        }
        made = await at.make(owner("kubeflow.org/v1", "PyTorchJob", "llm", {"pytorchReplicaSpecs": roles}))

        def member(role: str, number: int, gpus: int) -> Pod:
            labels = {"training.kubeflow.org/replica-type": role, "training.kubeflow.org/replica-index": str(number)}
            return pod(f"{role}-{number}", gpus=gpus, labels=labels, ownerReferences=[reference(made)])

        await at.on.create(member("master", 0, 0), *(member("worker", number, 1) for number in range(4)))
        pods = await at.on.running(7)
        nodes = [
            pods[f"worker-{number}"]["spec"]["nodeName"].removeprefix(f"{at.on.namespace}-") for number in range(4)
        ]
        assert sorted(nodes) == ["2", "2", "3", "3"]
        assert (nodes[0], nodes[2]) == (nodes[1], nodes[3])
        await at.on.custom.delete_cluster_custom_object("kai.scheduler", "v1alpha1", "topologies", at.on.namespace)


def _on(node: str) -> Json:
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


async def test_the_pod_group_of_kais_grouper_is_taken_over_and_one_that_is_deleted_is_made_again(
    set_workloads: Any,
) -> None:
    async with set_workloads("1x4x80GiB") as at:
        made = await at.make(
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {"name": "train", "annotations": {"kai.scheduler/batch-min-member": "3"}},
                "spec": {
                    "suspend": True,
                    "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "app"}]}},
                },
            }
        )
        name = f"pg-train-{made['metadata']['uid']}"
        theirs = {
            "apiVersion": "scheduling.run.ai/v2alpha2",
            "kind": "PodGroup",
            "metadata": {"name": name, "ownerReferences": [reference(made)]},
            "spec": {"minMember": 1, "queue": "theirs"},
        }
        await at.on.custom.create_namespaced_custom_object(*GROUPS, at.on.namespace, "podgroups", theirs)
        await at.on.create(share("p", "0.5", ownerReferences=[reference(made)]))

        async def follows() -> Json | None:
            found = (await at.groups()).get(name, {})
            return found if found.get("spec", {}).get("minMember") == 3 else None

        await at.grouped("p")
        assert (await eventually(follows, "the PodGroup to follow", within_s=PATIENCE_S))["spec"]["queue"] == "theirs"
        await at.on.custom.delete_namespaced_custom_object(*GROUPS, at.on.namespace, "podgroups", name)
        await eventually(follows, "the PodGroup to be made again", within_s=PATIENCE_S)


async def test_a_pod_of_several_owners_is_told_why_it_is_not_grouped_and_how_often(torn: Workloads) -> None:
    await torn.on.says("torn", "names no PodGroup yet: moorage-podgrouper makes it")
    events = client.EventsV1Api(torn.on.core.api_client)

    async def told() -> Json | None:
        answer = await events.list_namespaced_event(torn.on.namespace, _preload_content=False)
        found = [e for e in json.loads(await answer.read())["items"] if e["reason"] == "PodGrouperWarning"]
        return next((each for each in found if (each.get("series") or {}).get("count", 0) > 1), None)

    event = await eventually(told, "an event that is said again", within_s=PATIENCE_S)
    assert event["note"].startswith("Pod torn has several owners")
    assert event["regarding"]["name"] == "torn"


_SUSPENDED: dict[str, Any] = {
    "suspend": True,
    "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "app"}]}},
}
