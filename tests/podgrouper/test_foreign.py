"""Gangs that pods ask for in the words of other schedulers, as a process: one PodGroup each, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from kube.client.resources import JOBS, POD_GROUPS, PODS
from simulator.apiserver.faults import Fault, once
from simulator.apiserver.types import custom
from tests.podgrouper.cluster import USER, Cluster, cluster, is_read_of
from tests.podgrouper.core.foreign.objects import BY_COSCHEDULING, BY_SIGS, BY_VOLCANO, of_koordinator, pod_group
from tests.podgrouper.objects import NAMESPACE, obj, pod
from wire import names

COSCHEDULING = custom("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup", namespaced=True)
VOLCANO = custom("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup", namespaced=True)
SIGS = custom("scheduling.sigs.k8s.io", "v1alpha1", "podgroups", "PodGroup", namespaced=True)

SYSTEMS = [
    pytest.param(COSCHEDULING, BY_COSCHEDULING, "coscheduling", id="coscheduling"),
    pytest.param(VOLCANO, BY_VOLCANO, "volcano", id="Volcano"),
    pytest.param(SIGS, BY_SIGS, "koordinator", id="Koordinator"),
]


async def groups_of(on: Cluster, *pods: str) -> set[str]:
    return {await on.group_of(name) for name in pods}


async def owners_of(on: Cluster) -> list[str]:
    return [owner.name for owner in (await on.group()).metadata.owner_references or ()]


@pytest.mark.parametrize(("kind", "words", "system"), SYSTEMS)
async def test_pods_that_name_a_pod_group_of_another_scheduler_share_one_of_ours(
    kind: Any, words: dict[str, Any], system: str
) -> None:
    async with cluster(types=(kind,)) as on:
        api_version = f"{kind.group}/{kind.version}"
        await on.owner(pod_group(api_version, minMember=3))
        job = await on.owner(obj("batch/v1", "Job", "j", spec={}))
        await on.pod(pod(job, name="of-job", **words))
        for name in ("a", "b"):
            await on.pod(pod(name=name, **words))
        await on.settle()
        group = await on.group()
        assert (group.metadata.name, group.spec.min_member) == (f"pg-{system}-llm", 3)
        assert await groups_of(on, "of-job", "a", "b") == {group.metadata.name}
        # The PodGroup is read once for all of them, and the Job for its pod.
        assert sorted(on.did()) == ["create podgroups", "get jobs", "get podgroups", *["patch pods"] * 3]


@pytest.mark.parametrize(("kind", "words", "system"), SYSTEMS)
async def test_a_kind_that_is_not_there_yet_is_found_when_it_appears(
    kind: Any, words: dict[str, Any], system: str
) -> None:
    async with cluster() as on:
        await on.pod(pod(**words))
        await on.settle(60)
        assert on.writes() == []
        assert any("does not exist" in note for note in await on.notes())
        on.server.define(kind)
        await on.owner(pod_group(f"{kind.group}/{kind.version}", minMember=1))
        await on.settle(120)
        assert await on.group_of("p") == f"pg-{system}-llm"


async def test_a_pod_waits_for_a_pod_group_that_comes_later() -> None:
    async with cluster(types=(COSCHEDULING,)) as on:
        await on.pod(pod(**BY_COSCHEDULING))
        await on.settle(5)
        assert await on.group_of("p") == ""
        await on.owner(pod_group(minMember=2))
        await on.settle(60)
        assert (await on.group()).spec.min_member == 2


async def test_a_pod_of_another_gang_of_the_same_name_neither_joins_nor_shrinks_it() -> None:
    async with cluster() as on:
        for name in ("b", "c"):
            await on.pod(pod(name=name, **of_koordinator("4")))
        await on.settle()
        # Sorted before the others, and asking for less.
        await on.pod(pod(name="a", **of_koordinator("1")))
        await on.settle(120)
        assert (await on.group()).spec.min_member == 4
        assert await groups_of(on, "a", "b", "c") == {"", "pg-koordinator-llm"}
        assert await on.group_of("a") == ""
        assert [note for note in await on.notes() if "is 1; allowed: 4" in note]


async def test_a_pod_of_another_gang_of_the_same_name_holds_nobody_up() -> None:
    async with cluster() as on:
        await on.pod(pod(name="b", **of_koordinator("4")))
        await on.settle()
        await on.pod(pod(name="a", **of_koordinator("1")))
        await on.settle(600)
        await on.pod(pod(name="c", **of_koordinator("4")))
        await on.settle()
        assert await on.group_of("c") == "pg-koordinator-llm"
        # It is still told of, and joins when it says the same.
        words = of_koordinator("4")["annotations"]
        await on.api.patch(PODS, "a", {"metadata": {"annotations": words}}, namespace=NAMESPACE)
        await on.settle()
        assert await on.group_of("a") == "pg-koordinator-llm"


async def test_a_pod_that_a_person_has_put_into_another_pod_group_is_left_there_in_silence() -> None:
    async with cluster() as on:
        job = await on.owner(obj("batch/v1", "Job", "j", spec={}))
        await on.pod(pod(name="a", **of_koordinator("4")))
        await on.settle()
        words = {**of_koordinator("1")["annotations"], names.POD_GROUP_NAME: "mine"}
        await on.pod(pod(job, name="b", annotations=words))
        await on.settle(60)
        assert (await on.group_of("b"), await on.notes()) == ("mine", [])


async def test_pods_that_come_together_and_differ_are_not_merged() -> None:
    async with cluster(started=False) as on:
        for name, least in (("a", "4"), ("b", "1"), ("c", "4")):
            await on.pod(pod(name=name, **of_koordinator(least)))
        await on.start()
        await on.settle(10)
        assert (await on.group()).spec.min_member == 4
        assert [await on.group_of(name) for name in ("a", "b", "c")] == ["pg-koordinator-llm", "", "pg-koordinator-llm"]


async def test_a_gang_is_defined_again_when_the_workload_of_its_first_pod_is_gone() -> None:
    async with cluster() as on:
        owners = [await on.owner(obj("batch/v1", "Job", name, spec={})) for name in ("old", "new")]
        await on.pod(pod(owners[0], name="a", **of_koordinator("4")))
        await on.settle()
        await on.pod(pod(owners[1], name="b", **of_koordinator("2")))
        await on.settle(60)
        assert (await on.group()).spec.min_member == 4
        await on.api.delete(JOBS, "old", namespace=NAMESPACE)
        await on.settle(120)
        assert ((await on.group()).spec.min_member, await on.group_of("b")) == (2, "pg-koordinator-llm")


async def test_pods_that_stay_have_their_pod_group_made_again_when_the_first_pod_is_gone() -> None:
    async with cluster() as on:
        await on.pod(pod(name="a", **of_koordinator("2")))
        await on.settle()
        await on.pod(pod(name="b", **of_koordinator("2")))
        await on.settle()
        assert await owners_of(on) == ["a"]
        await on.api.delete(PODS, "a", namespace=NAMESPACE, grace_s=0)
        await on.settle(120)
        assert (await owners_of(on), (await on.group()).spec.min_member) == (["b"], 2)


async def test_a_pod_group_that_a_person_has_taken_over_is_not_written() -> None:
    async with cluster(types=(COSCHEDULING,)) as on:
        await on.owner(pod_group(minMember=2))
        await on.pod(pod(name="a", **BY_COSCHEDULING))
        await on.settle()
        taken = {"metadata": {"annotations": {names.FOREIGN_GANG: None}}, "spec": {"minMember": 3}}
        await on.api.patch(POD_GROUPS, "pg-coscheduling-llm", taken, namespace=NAMESPACE)
        await on.pod(pod(name="b", **BY_COSCHEDULING))
        await on.settle()
        assert ((await on.group()).spec.min_member, await on.group_of("b")) == (3, "pg-coscheduling-llm")


async def test_a_pod_group_that_is_deleted_is_made_again() -> None:
    async with cluster() as on:
        await on.pod(pod(**of_koordinator("4")))
        await on.settle()
        await on.api.delete(POD_GROUPS, "pg-koordinator-llm", namespace=NAMESPACE)
        await on.settle()
        assert (await on.group()).spec.min_member == 4


async def test_of_two_replicas_that_see_different_pods_first_the_pod_group_that_is_made_first_decides() -> None:
    """Both create the PodGroup; the one that comes second finds that its pod is of another gang."""
    async with cluster(started=False) as on:
        await on.pod(pod(name="b", **of_koordinator("4")))
        slow = once(Fault(delay_s=3.0), when=lambda call: call.user == USER and call.verb == "create")
        on.server.faults.on_request.append(slow)
        first = await on.start()
        await on.settle(1)
        # The first has decided on b alone, and is slow; the second sees a, which says something else.
        await on.pod(pod(name="a", **of_koordinator("1")))
        await on.start()
        await on.settle(60)
        first.kill()
        await on.settle(120)
        group = await on.group()
        marked = {name for name in ("a", "b") if await on.group_of(name)}
        assert (group.spec.min_member, marked) in [(4, {"b"}), (1, {"a"})]


async def test_a_pod_that_was_bound_alone_is_not_pulled_into_a_gang() -> None:
    async with cluster(types=(COSCHEDULING,)) as on:
        on.server.faults.on_request.append(once(Fault(delay_s=5.0), when=is_read_of("APIResourceList")))
        await on.owner(pod_group(minMember=2))
        await on.pod(pod(**BY_COSCHEDULING))
        await on.settle(1)
        await on.bind("p")
        await on.settle(30)
        assert await on.group_of("p") == ""


async def test_a_pod_of_a_job_is_named_no_other_pod_group_before() -> None:
    async with cluster(types=(COSCHEDULING,)) as on:
        job = await on.owner(obj("batch/v1", "Job", "j", spec={}))
        await on.pod(pod(job, annotations={names.POD_GROUP_NAME: f"pg-j-{job['metadata']['uid']}"}, **BY_COSCHEDULING))
        await on.settle(30)
        # Somebody has said so: that counts.
        assert on.writes() == []
