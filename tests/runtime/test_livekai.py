from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import Any

import anyio
import pytest

from kube.client.api import Api
from kube.client.resources import LEASES, PODS, Resource
from kube.client.retry import Retry
from runtime.kai_beside import POD_GROUPER, Found, Lookout, look_for_kai, sentence
from simulator.apiserver.server import MemoryApiServer
from simulator.clock import VirtualClock
from tests.conftest import AnyioBackend
from wire.core import Namespace

BINDER = {"app": "binder"}
#: Pods can be made only where their service account is.
_ACCOUNTS = Resource(version="v1", plural="serviceaccounts", kind="ServiceAccount", namespaced=True, type=Namespace)
IMAGE = "registry:5000/team/kai-scheduler/binder:v0.14@sha256:00"


@pytest.fixture(scope="module")
def anyio_backend(virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    return virtual_anyio_backend


@pytest.fixture
async def api() -> Api:
    clock = VirtualClock(asyncio.get_running_loop())
    server = MemoryApiServer(clock=clock, rng=random.Random(1), auto_namespaces=True)
    api = Api(server.transport(), retry=Retry(random.Random(1)))
    for namespace in ("kai-scheduler", "kai", "team"):
        await api.create(_ACCOUNTS, {"metadata": {"name": "default"}}, namespace=namespace)
    return api


async def make(api: Api, *, labels: Mapping[str, str], image: str, namespace: str, phase: str = "Running") -> None:
    pod: dict[str, Any] = {"metadata": {"name": "one", "labels": labels}, "spec": {"containers": []}}
    pod["spec"]["containers"] = [{"name": "main", "image": image}]
    await api.create(PODS, pod, namespace=namespace)
    await api.patch(PODS, "one", {"status": {"phase": phase}}, namespace=namespace, subresource="status")


@pytest.mark.parametrize(
    ("labels", "image", "namespace", "phase", "at_work", "elsewhere"),
    [
        (BINDER, IMAGE, "kai-scheduler", "Running", True, False),
        (BINDER, IMAGE, "kai-scheduler", "Pending", True, False),
        (BINDER, IMAGE, "kai-scheduler", "Succeeded", False, False),
        (BINDER, IMAGE, "kai", "Running", False, True),
        (BINDER, "key-binder", "team", "Running", False, False),
        (BINDER, "team/bookshop:binder", "kai-scheduler", "Running", False, False),
        ({"app": "kai-operator"}, "kai/operator", "kai-scheduler", "Running", True, False),
        ({"app": "kai-scheduler-default"}, "kai/scheduler:v0.15", "kai-scheduler", "Running", True, False),
        ({"app": "kai-scheduler-pool-a"}, "kai/scheduler:v0.15", "kai-scheduler", "Running", True, False),
        ({"app": "pod-grouper"}, "kai/podgrouper", "kai-scheduler", "Running", False, False),
        ({}, "kai/binder", "kai-scheduler", "Running", False, False),
    ],
)
async def test_kai_is_known_by_its_pods_and_only_an_administrator_can_make_such(
    api: Api, labels: dict[str, str], image: str, namespace: str, phase: str, at_work: bool, elsewhere: bool
) -> None:
    await make(api, labels=labels, image=image, namespace=namespace, phase=phase)
    said = (f"pod {namespace}/one",)
    assert await look_for_kai(api) == Found(said if at_work else (), said if elsewhere else ())


BINDERS = "2ad35f9c.kai.scheduler"


@pytest.mark.parametrize(("namespace", "at_work"), [("kai-scheduler", True), ("kai", False)])
async def test_kais_pod_grouper_is_in_the_way_of_what_groups_workloads_alone(
    api: Api, namespace: str, at_work: bool
) -> None:
    await make(api, labels={"app": "pod-grouper"}, image="kai/podgrouper:v0.15", namespace=namespace)
    said = (f"pod {namespace}/one",)
    assert await look_for_kai(api) == Found()
    assert await look_for_kai(api, POD_GROUPER) == (Found(said) if at_work else Found((), said))


async def test_the_lease_of_kais_pod_grouper_counts_for_what_groups_workloads_alone(api: Api) -> None:
    grouper = "54dff599.kai.scheduler"
    await api.create(LEASES, lease("a", grouper), namespace="kai-scheduler")
    alone, others = Lookout(api, POD_GROUPER), Lookout(api)
    for lookout in (alone, others):
        await lookout.look()
    await api.patch(LEASES, grouper, {"spec": {"holderIdentity": "b"}}, namespace="kai-scheduler")
    assert (await alone.look()).at_work == (f"lease kai-scheduler/{grouper}",)
    assert (await others.look()).at_work == ()


def lease(holder: str, name: str = BINDERS) -> dict[str, Any]:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15}
    return {"metadata": {"name": name, "namespace": "kai-scheduler"}, "spec": spec}


@pytest.mark.parametrize(
    ("name", "holder", "renewed_after_s", "is_at_work", "looked_s"),
    [
        (BINDERS, "kai", 4.5, True, 5),
        (BINDERS, "kai", None, False, 15),
        (BINDERS, "", None, False, 0),
        ("41fce092.run.ai", "kai", 4.5, True, 5),
        ("kai-scheduler", "kai", 4.5, True, 5),
        # A shard's.
        ("kai-scheduler-pool-a", "kai", 4.5, True, 5),
        ("moorage-scheduler", "ours", 4.5, False, 0),
        # KAI's pod-grouper touches neither pods nor GPUs.
        ("54dff599.kai.scheduler", "kai", 4.5, False, 0),
    ],
)
async def test_a_lease_is_kais_while_somebody_renews_it(
    api: Api, name: str, holder: str, renewed_after_s: float | None, is_at_work: bool, looked_s: float
) -> None:
    await api.create(LEASES, lease(holder, name), namespace="kai-scheduler")

    async def renew(after_s: float) -> None:
        await anyio.sleep(after_s)
        await api.patch(LEASES, name, lease("kai-again", name), namespace="kai-scheduler")

    started_s = anyio.current_time()
    async with anyio.create_task_group() as tasks:
        if renewed_after_s is not None:
            tasks.start_soon(renew, renewed_after_s)
        found = await look_for_kai(api)
        took_s = anyio.current_time() - started_s
    assert found.at_work == ((f"lease kai-scheduler/{name}",) if is_at_work else ())
    assert took_s == pytest.approx(looked_s, abs=0.1)


@pytest.mark.parametrize(
    "edit",
    [
        {"metadata": {"labels": {"team": "a"}}},
        {"spec": {"leaseDurationSeconds": 20}},
    ],
)
async def test_an_edit_of_a_lease_that_a_kai_left_is_no_renewal(api: Api, edit: dict[str, Any]) -> None:
    await api.create(LEASES, lease("kai"), namespace="kai-scheduler")
    lookout = Lookout(api)
    assert await lookout.look_at_leases() == ()
    await api.patch(LEASES, BINDERS, edit, namespace="kai-scheduler")
    assert await lookout.look_at_leases() == ()


async def test_a_later_time_is_a_renewal_by_the_same_holder(api: Api) -> None:
    await api.create(LEASES, lease("kai"), namespace="kai-scheduler")
    lookout = Lookout(api)
    await lookout.look_at_leases()
    renewed = {"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}}
    await api.patch(LEASES, BINDERS, renewed, namespace="kai-scheduler")
    assert await lookout.look_at_leases() == (f"lease kai-scheduler/{BINDERS}",)


def test_the_sentence_says_what_was_found_and_what_to_do() -> None:
    assert sentence(["pod kai-scheduler/binder-1"]) == (
        "KAI Scheduler is at work in this cluster (pod kai-scheduler/binder-1), and two can't share pods and GPUs: "
        "stop it first (docs/migrating/kai.md)"
    )
