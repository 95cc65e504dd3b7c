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

from tests.e2e.cluster import PATIENCE_S, Pod, eventually, pod, scene, share
from tests.e2e.grouped import GROUPS, Workloads, group_of, reference
from tests.e2e.workloads import DEFINED, Json, chains, of_role, owner, replicas
from tools.cluster.deployment import GROUPING, Deployment, Options
from tools.cluster.plane import ControlPlane
from wire import names

pytestmark = pytest.mark.cluster

_numbers = itertools.count()


@pytest.fixture(scope="module")
def grouping_plane() -> Iterator[ControlPlane]:
    with ControlPlane() as plane:
        yield plane


@pytest.fixture(scope="module")
def grouping(grouping_plane: ControlPlane) -> Iterator[Deployment]:
    arguments = {"binder": ["--idle-s", "1"], "workloads": ["--no-leader-election"]}
    options = Options(arguments=arguments, components=(*GROUPING, "workloads-2"))
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
        await made.end_jobs()


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
                await made.end_jobs()

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


async def test_a_pytorch_job_starts_as_a_gang_in_parts(set_workloads: Any) -> None:
    async with set_workloads("1x2x80GiB") as at:
        await at.define("kubeflow.org", "PyTorchJob", "pytorchjobs", "v1")
        spec = replicas("pytorchReplicaSpecs", Master=1, Worker=3)
        job = await at.make(owner("kubeflow.org/v1", "PyTorchJob", "llm", spec))
        await at.on.create(
            share("llm-master-0", "0.5", labels=of_role("llm", "master"), ownerReferences=[reference(job)])
        )
        await at.grouped("llm-master-0")
        await at.on.says("llm-master-0", "Waiting for 3 pods for SubGroup worker, currently 0 exist")
        workers = [f"llm-worker-{number}" for number in range(3)]
        of_workers = {"labels": of_role("llm", "worker"), "ownerReferences": [reference(job)]}
        await at.on.create(*(share(name, "0.5", **of_workers) for name in workers))
        pods = await at.on.running(4)
        parts = {name: each["metadata"]["labels"].get(names.SUBGROUP_LABEL) for name, each in pods.items()}
        assert parts == {"llm-master-0": "master", **dict.fromkeys(workers, "worker")}
        (group,) = (await at.groups()).values()
        assert (group["spec"]["minMember"], group["spec"]["queue"]) == (4, "kinds")


async def test_a_job_set_of_two_jobs_starts_as_one_gang(set_workloads: Any) -> None:
    async with set_workloads("1x2x80GiB") as at:
        await at.define("jobset.x-k8s.io", "JobSet", "jobsets", "v1alpha2")
        jobs = [{"name": name, "replicas": 1, "template": {"spec": {"parallelism": 2}}} for name in ("data", "model")]
        top = await at.make(owner("jobset.x-k8s.io/v1alpha2", "JobSet", "set", {"replicatedJobs": jobs}))

        def labels(name: str) -> dict[str, str]:
            prefix = "jobset.sigs.k8s.io"
            return {
                f"{prefix}/jobset-name": "set",
                f"{prefix}/replicatedjob-name": name,
                f"{prefix}/job-index": "0",
            }

        await at.job("set-data-0", 2, above=top, pod_labels=labels("data"))

        async def half_is_grouped() -> str | None:
            found = [name for name, each in (await at.on.pods()).items() if group_of(each)]
            return found[0] if len(found) == 2 else None

        first = await eventually(half_is_grouped, "the first Job's pods", within_s=PATIENCE_S)
        await at.on.says(first, "Waiting for 2 pods for SubGroup model-replica-0, currently 0 exist")
        assert not bound(await at.on.pods())
        await at.job("set-model-0", 2, above=top, pod_labels=labels("model"))
        pods = await at.on.running(4)
        assert {group_of(each) for each in pods.values()} == {f"pg-set-{top['metadata']['uid']}"}


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
        await at.on.says("w0", "names no PodGroup yet: moorage-workloads makes it")
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
            merge = "application/merge-patch+json"
            await at.on.core.patch_namespaced_pod(name, at.on.namespace, body, _content_type=merge)

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
                    "template": {
                        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "app"}]},
                    },
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
    await torn.on.says("torn", "names no PodGroup yet: moorage-workloads makes it")
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
