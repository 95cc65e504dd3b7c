"""Owner references that a tenant makes up: as paths, of kinds that do not exist, with the UIDs of others' objects.

The API server takes any name and any UID there. What the component that groups pods reads for them is judged by the
API server's audit log, and by what honest Jobs of another namespace get meanwhile.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import pytest
from kubernetes_asyncio import client

from tests.attacks.audited import AUDITED, Request, groups_written, requests
from tests.e2e.cluster import PATIENCE_S, Pod, eventually, pod, scene
from tests.e2e.grouped import Workloads, group_of
from tests.e2e.tenant import MERGE, Identity, tenant
from tests.e2e.workloads import Json
from tools.cluster.deployment import GROUPING, PODGROUPER, Deployment, Options
from tools.cluster.plane import ControlPlane
from wire import names

pytestmark = pytest.mark.cluster

#: What only objects of the other namespace say.
CANARY: Final = "canary"
#: Of no API server, so that the garbage collector finds no owner that is missing, and leaves the pod.
NO_KIND: Final = {"apiVersion": "example.com/v1", "kind": "Nothing"}
JOB: Final = {"apiVersion": "batch/v1", "kind": "Job"}
POD: Final = {"apiVersion": "v1", "kind": "Pod"}
READS: Final = {"get", "list", "watch"}


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with ControlPlane(audit_policy=AUDITED) as started:
        yield started


@pytest.fixture(scope="module")
def grouping(plane: ControlPlane) -> Iterator[Deployment]:
    with Deployment(plane, Options(components=GROUPING)) as deployment:
        yield deployment
        deployment.check()


@dataclass(slots=True)
class Neighbours:
    """``team`` has honest Jobs; ``intruder`` is the tenant of another namespace."""

    plane: ControlPlane
    team: Workloads
    intruder: Identity

    async def intrude(self, *owners: Json) -> list[str]:
        """Create a pod of the intruder's for each owner reference, and return their names."""
        wanted = [_owned(each) for each in owners]
        for each in wanted:
            await self.intruder.create(each, scene=self.team.on.namespace)
        return [each["metadata"]["name"] for each in wanted]

    def copies(self) -> list[Json]:
        """PodGroups in the intruder's namespace with what is the team's: the garbage collector may have had them."""
        written = groups_written(self.plane, PODGROUPER, self.intruder.namespace)
        return [each for each in written if CANARY in str(each)]

    async def is_grouped(self, name: str, count: int = 1) -> None:
        """Create an honest Job, and wait until its pods are grouped: what came before has had its turn."""
        made = await self.team.job(name, count)
        await self.has_group(made, count)

    async def has_group(self, job: Json, count: int) -> None:
        """Wait until the pods of a Job name the PodGroup that is theirs, and it is there: admission names it before."""
        name, uid = job["metadata"]["name"], job["metadata"]["uid"]
        wanted = f"pg-{name}-{uid}"

        async def has_it() -> bool | None:
            pods = [each for own, each in (await self.team.on.pods()).items() if own.startswith(f"{name}-")]
            found = [each for each in pods if group_of(each) == wanted]
            return (len(found) == count and wanted in await self.team.groups()) or None

        await eventually(has_it, f"{count} pods of Job {name} to be grouped", within_s=PATIENCE_S)


def _owned(owner: Json) -> Pod:
    return pod(f"of-{uuid.uuid4().hex[:8]}", ownerReferences=[owner])


def _reference(kind: Json, name: str, uid: str = "") -> Json:
    return {**kind, "name": name, "uid": uid or str(uuid.uuid4())}


@asynccontextmanager
async def _neighbours(plane: ControlPlane, grouping: Deployment, name: str) -> AsyncIterator[Neighbours]:
    grouping.check()
    intruder = f"{name}-intruder"
    plane.rest().call("POST", "/api/v1/namespaces", {"metadata": {"name": intruder}})
    async with scene(plane, name, ["1x4x80GiB"]) as on, tenant(plane, intruder) as whoever:
        made = Neighbours(plane, Workloads(on), whoever)
        try:
            yield made
        finally:
            await made.team.end_owners()
            plane.rest().call("DELETE", f"/api/v1/namespaces/{intruder}")


@pytest.fixture
async def at(request: pytest.FixtureRequest, plane: ControlPlane, grouping: Deployment) -> AsyncIterator[Neighbours]:
    async with _neighbours(plane, grouping, f"owners-{uuid.uuid4().hex[:6]}") as made:
        yield made


def _read(plane: ControlPlane, since: int) -> set[Request]:
    return {each for each in requests(plane, PODGROUPER)[since:] if each.verb in READS}


async def _quiet_job(at: Neighbours, name: str, **annotations: str) -> Json:
    """A Job of the team that has no pods yet: nobody has a reason to read it."""
    body = {
        **JOB,
        "metadata": {"name": name, "labels": {"secret": CANARY}, "annotations": {"secret": CANARY, **annotations}},
        "spec": {"suspend": True, "parallelism": 2, "completions": 2, "template": _template(at.team.on.namespace)},
    }
    return await at.team.make(body)


def _template(scene_name: str) -> Json:
    container = {"name": "main", "image": "cuda-app"}
    return {
        "metadata": {"annotations": {names.GPU_FRACTION: "0.5"}},
        "spec": {
            "schedulerName": names.SCHEDULER_NAME,
            "restartPolicy": "Never",
            "nodeSelector": {"scene": scene_name},
            "containers": [container],
            "terminationGracePeriodSeconds": 1,
        },
    }


async def _starts(at: Neighbours, job: Json) -> None:
    """Let the pods of a suspended Job come."""
    patch = [{"op": "replace", "path": "/spec/suspend", "value": False}]
    await at.team.on.custom.patch_namespaced_custom_object(
        "batch", "v1", at.team.on.namespace, "jobs", job["metadata"]["name"], patch
    )


# --- names as paths ----------------------------------------------------------------------------------------------


async def test_a_name_of_an_owner_leads_into_no_other_namespace(at: Neighbours) -> None:
    quiet = await _quiet_job(at, "quiet")
    since = len(requests(at.plane, PODGROUPER))
    path = f"../../{at.team.on.namespace}/jobs/quiet"
    await at.intrude(*(_reference(JOB, path, quiet["metadata"]["uid"]) for _ in range(4)))
    await at.is_grouped("honest")
    read = _read(at.plane, since)
    assert any(each.path.endswith("/jobs/honest") for each in read)
    assert not [each for each in read if each.path.endswith("quiet")]
    assert at.copies() == []


async def test_a_name_of_an_owner_lists_nothing(at: Neighbours) -> None:
    before = set(requests(at.plane, PODGROUPER))
    since = len(requests(at.plane, PODGROUPER))
    await at.intrude(
        *(_reference(JOB, "../../../../../../api/v1/pods") for _ in range(16)),
        *(_reference(JOB, name) for name in (".", "..", "./", "../jobs", "a/../../jobs", "%2e%2e/jobs", "..%2fjobs")),
    )
    await at.is_grouped("honest")
    assert {each for each in _read(at.plane, since) if each.verb == "list"} <= before


async def test_a_name_of_an_owner_opens_no_watch(at: Neighbours) -> None:
    before = set(requests(at.plane, PODGROUPER))
    since = len(requests(at.plane, PODGROUPER))
    await at.intrude(*(_reference(POD, "?watch=true") for _ in range(48)))
    await at.is_grouped("honest")
    assert {each for each in _read(at.plane, since) if each.verb in {"list", "watch"}} <= before


# --- UIDs of others ----------------------------------------------------------------------------------------------


async def test_the_uid_of_anothers_job_brings_nothing_of_it_along(at: Neighbours) -> None:
    loud = await _quiet_job(at, "loud")
    await _starts(at, loud)
    await at.has_group(loud, 2)
    await at.intrude(
        _reference(NO_KIND, "loud", loud["metadata"]["uid"]), _reference(JOB, "loud", loud["metadata"]["uid"])
    )
    await at.is_grouped("honest")
    assert at.copies() == []


async def test_the_uid_of_anothers_job_under_a_kind_that_does_not_exist_keeps_it_from_no_group(at: Neighbours) -> None:
    late = await _quiet_job(at, "late", **{"kai.scheduler/batch-min-member": "2"})
    await at.intrude(*(_reference(NO_KIND, "late", late["metadata"]["uid"]) for _ in range(4)))
    await at.is_grouped("honest")
    await _starts(at, late)
    await at.has_group(late, 2)
    await at.team.on.running(3)


# --- circles -----------------------------------------------------------------------------------------------------


async def test_a_deployment_that_owns_itself_stops_nobody(at: Neighbours) -> None:
    apps = client.AppsV1Api(at.intruder.core.api_client)
    template = {**_template(at.team.on.namespace), "metadata": {"labels": {"app": "circle"}}}
    template["spec"] = {**template["spec"], "restartPolicy": "Always"}
    spec = {"replicas": 0, "selector": {"matchLabels": {"app": "circle"}}, "template": template}
    body = {"metadata": {"name": "circle"}, "spec": spec}
    made = await apps.create_namespaced_deployment(at.intruder.namespace, body)
    itself = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "circle", "uid": made.metadata.uid}
    change = {"metadata": {"ownerReferences": [itself]}, "spec": {"replicas": 1}}
    await apps.patch_namespaced_deployment("circle", at.intruder.namespace, change, _content_type=MERGE)

    async def says() -> str | None:
        found = await at.team.on.core.list_namespaced_pod(at.intruder.namespace)
        told = [each.message for pod in found.items for each in pod.status.conditions or () if each.message]
        return next((text for text in told if "Deployment" in text), None)

    await eventually(says, "the pod of the Deployment to say what it waits for", within_s=PATIENCE_S)
    await at.is_grouped("honest")
    await at.team.on.running(1)
