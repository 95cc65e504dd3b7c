"""A tenant that writes owner references as it likes gets nothing of others, and takes nothing from them.

The API server checks of a reference only that none of its parts is empty.
"""

from __future__ import annotations

from typing import Any

import pytest

from kube.client.resources import PODS
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import Fault
from tests.podgrouper.cluster import LEAST, USER, Cluster, cluster, is_read_of
from tests.podgrouper.objects import NAMESPACE, obj, pod, reference
from wire import names

ATTACKER = "attacker"
SECRET = {"secret": "of-the-team"}


def job(name: str = "quiet", *, namespace: str = NAMESPACE, **meta: Any) -> dict[str, Any]:
    return obj("batch/v1", "Job", name, spec={"parallelism": 4}, namespace=namespace, **meta)


def forged(of: dict[str, Any], **parts: str) -> dict[str, Any]:
    return {**reference(of), **parts}


async def attack(on: Cluster, *references: dict[str, Any], name: str = "evil", namespace: str = ATTACKER) -> None:
    await on.pod(pod(name=name, namespace=namespace, ownerReferences=list(references)))


def asked(on: Cluster) -> set[tuple[str, str, str]]:
    """Reads of objects: verb, resource and namespace."""
    return {
        (entry.verb, entry.resource, entry.namespace)
        for entry in on.server.audit
        if entry.user == USER and entry.resource not in {"", "events"} and entry.verb in {"get", "list", "watch"}
    }


@pytest.mark.parametrize(
    "name",
    [
        "../../team/jobs/quiet",
        "../../../../../../api/v1/pods",
        "..",
        "../../../../../../api/v1/namespaces/team/secrets",
        "%2e%2e/%2e%2e/team/jobs/quiet",
        "%2E%2E",
    ],
)
async def test_a_name_that_is_a_path_is_refused_on_the_pod_and_nothing_is_asked_for(name: str) -> None:
    async with cluster() as on:
        await on.namespace(ATTACKER)
        quiet = await on.owner(job(labels=SECRET))
        await on.settle()
        before = asked(on)
        await attack(on, forged(quiet, name=name))
        await on.settle(600)
        assert asked(on) == before
        assert await on.groups() == {}
        (note,) = await on.notes()
        assert "metadata.ownerReferences[0].name is" in note
        assert note.endswith("allowed: a name other than . and .., without / and %")


@pytest.mark.parametrize("name", ["?watch=true", "quiet?watch=true", "?limit=500", "quiet#", "a&watch=true"])
async def test_a_name_that_is_a_query_is_the_name_of_nothing(name: str) -> None:
    async with cluster() as on:
        await on.namespace(ATTACKER)
        quiet = await on.owner(job(labels=SECRET))
        await on.settle()
        before = asked(on)
        await attack(on, forged(quiet, name=name))
        await on.settle(60)
        assert asked(on) - before == {("get", "jobs", ATTACKER)}
        assert await on.groups() == {}
        (note,) = await on.notes()
        assert note == f"Job {name} does not exist"


async def test_many_pods_with_queries_as_names_hold_up_nobody() -> None:
    async with cluster() as on:
        await on.namespace(ATTACKER)
        quiet = await on.owner(job())
        for number in range(48):
            await attack(on, forged(quiet, name=f"?watch=true&n={number}"), name=f"evil{number}")
        await on.pod(pod(quiet, name="honest"))
        await on.settle(1)
        assert await on.group_of("honest") == f"pg-quiet-{quiet['metadata']['uid']}"
        lists = {("list", each.resource) for each in on.server.audit if each.user == USER and each.verb == "list"}
        # Jobs are followed: the honest pod is of one.
        assert lists == {("list", each) for each in ("jobs", "podgroups", "pods", "priorityclasses")}


async def test_a_namespace_whose_owners_answer_never_holds_no_more_than_its_share_of_places() -> None:
    def silent(call: Call) -> Fault | None:
        return Fault(lost="answer") if is_read_of("Job")(call) and call.namespace == ATTACKER else None

    async with cluster() as on:
        await on.namespace(ATTACKER)
        on.server.faults.on_request.append(silent)
        for number in range(48):
            await on.pod(
                pod(await on.owner(job(f"j{number}", namespace=ATTACKER)), name=f"evil{number}", namespace=ATTACKER)
            )
        await on.settle(1)
        for number in range(20):
            await on.pod(pod(await on.owner(job(f"honest{number}")), name=f"p{number}"))
            await on.settle(1)
            assert await on.is_grouped(f"p{number}")


async def test_labels_and_annotations_of_another_namespace_are_not_copied_by_the_uid_of_an_owner() -> None:
    async with cluster() as on:
        await on.namespace(ATTACKER)
        quiet = await on.owner(job(labels={**SECRET, "kai.scheduler/queue": "team"}, annotations={"token": "t"}))
        await on.pod(pod(quiet, name="honest"))
        await on.settle()
        # It is read, and in the memo.
        await attack(on, reference(quiet))
        await on.owner(job("mine", namespace=ATTACKER))
        await attack(on, forged(quiet, name="mine"), name="evil2")
        await on.settle(60)
        (group,) = (await on.groups()).values()
        assert group.metadata.namespace == NAMESPACE
        assert {name: await on.group_of(name, ATTACKER) for name in ("evil", "evil2")} == {"evil": "", "evil2": ""}


@pytest.mark.parametrize(
    "parts",
    [{"kind": "Nothing"}, {"apiVersion": "nothing.dev/v1"}, {"apiVersion": "nothing.dev/v1", "kind": "Nothing"}],
)
@pytest.mark.parametrize("namespace", [ATTACKER, NAMESPACE])
async def test_a_kind_that_does_not_exist_makes_no_other_owner_unreadable(
    parts: dict[str, str], namespace: str
) -> None:
    async with cluster() as on:
        await on.namespace(ATTACKER)
        quiet = await on.owner(job(annotations={LEAST: "4"}))
        for number in range(3):
            await attack(on, forged(quiet, **parts), name=f"evil{number}", namespace=namespace)
        await on.settle(5)
        await on.pod(pod(quiet, name="honest"))
        await on.settle(1)
        name = f"pg-quiet-{quiet['metadata']['uid']}"
        assert await on.group_of("honest") == name
        assert (await on.groups())[name].spec.min_member == 4


@pytest.mark.parametrize("namespace", [ATTACKER, NAMESPACE])
async def test_a_pod_that_can_not_be_grouped_has_no_pod_of_the_owner_that_it_names_first_wait(namespace: str) -> None:
    async with cluster() as on:
        await on.namespace(ATTACKER)
        quiet = await on.owner(job())
        await attack(on, reference(quiet), forged(quiet, name="other", uid="other"), namespace=namespace)
        # Its back-off is at its longest.
        await on.settle(600)
        for number in range(3):
            await on.pod(pod(quiet, name=f"honest{number}"))
            await on.settle(0.5)
            assert await on.is_grouped(f"honest{number}")


async def test_a_pod_with_thousands_of_labels_is_grouped_after_it_is_read_again() -> None:
    labels = {f"{'k' * 50}-{number}": "v" * 63 for number in range(9_000)}
    async with cluster() as on:
        quiet = await on.owner(job())
        await on.pod(pod(quiet, name="large", labels=labels))
        await on.pod(pod(quiet, name="small"))
        await on.settle()
        assert await on.group_of("large") == await on.group_of("small") == f"pg-quiet-{quiet['metadata']['uid']}"
        assert on.did().count("get pods") == 1


async def test_an_owner_that_is_too_long_to_be_read_is_reported_on_its_pod_and_holds_up_nobody() -> None:
    async with cluster() as on:
        long = {**job("long"), "spec": {"text": "x" * (3 << 20)}}
        await on.pod(pod(await on.owner(long), name="large"))
        await on.pod(pod(await on.owner(job()), name="honest"))
        await on.settle(1)
        assert await on.is_grouped("honest")
        await on.settle(600)
        assert not await on.is_grouped("large")
        (note,) = await on.notes()
        assert note.endswith("/jobs/long: the answer is longer than 2097152 bytes, and was not read")


async def test_a_name_of_a_gang_that_is_a_path_is_refused() -> None:
    async with cluster() as on:
        for number, name in enumerate(("../../other/podgroups/g", "..", "g?watch=true")):
            await on.pod(pod(name=f"evil{number}", annotations={"scheduling.volcano.sh/group-name": name}))
        await on.settle(30)
        assert {each.verb for each in on.server.audit if each.user == USER and each.resource == "podgroups"} <= {
            "list",
            "watch",
        }
        assert len(await on.notes()) == 3


async def test_pods_of_other_namespaces_are_never_written() -> None:
    async with cluster() as on:
        await on.namespace(ATTACKER)
        quiet = await on.owner(job())
        await on.pod(pod(name="quiet", namespace=NAMESPACE))
        await attack(on, {"apiVersion": "v1", "kind": "Pod", "name": "../../team/pods/quiet", "uid": "pod-quiet"})
        await attack(on, reference(quiet), name="evil2")
        await on.settle(60)
        written = await on.api.get(PODS, "quiet", namespace=NAMESPACE)
        assert names.POD_GROUP_NAME not in (written.metadata.annotations or {})


def _watched(on: Cluster) -> set[str]:
    return {entry.resource for entry in on.server.audit if entry.user == USER and entry.verb == "watch"}


async def test_versions_that_do_not_exist_keep_no_workload_from_being_followed() -> None:
    async with cluster() as on:
        await on.namespace(ATTACKER)
        for number in range(300):
            made_up = {"apiVersion": f"run.ai/v{number}", "kind": "TrainingWorkload", "name": "t", "uid": f"u{number}"}
            name = f"evil-{number}"
            mine = {names.POD_GROUP_NAME: "mine"}
            await on.pod(pod(name=name, namespace=ATTACKER, ownerReferences=[made_up], annotations=mine))
        await on.settle()
        owner = await on.owner(job(annotations={LEAST: "1"}))
        await on.pod(pod(owner, name="honest"))
        await on.settle()
        await on.edit(owner, {"metadata": {"annotations": {LEAST: "3"}}})
        await on.settle(3)
        assert (await on.group()).spec.min_member == 3
        assert "jobs" in _watched(on)


async def test_an_owner_of_pods_that_can_not_be_grouped_is_read_once_for_all_of_them() -> None:
    """The next time they are looked at it is read again, since it may have been mended."""
    async with cluster() as on:
        owner = await on.owner(job(annotations={LEAST: "many"}))
        for number in range(20):
            await on.pod(pod(owner, name=f"p{number}"))
        await on.settle(1)
        rounds = 12
        await on.settle(60 * rounds)
        reads = [each for each in on.server.audit if (each.user, each.verb, each.resource) == (USER, "get", "jobs")]
        assert 5 < len(reads) < 3 * rounds
        await on.edit(owner, {"metadata": {"annotations": {LEAST: "20"}}})
        await on.settle(120)
        assert {await on.group_of(f"p{number}") for number in range(20)} == {(await on.group()).metadata.name}
