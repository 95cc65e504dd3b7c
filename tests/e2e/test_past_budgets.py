"""Reclaim from a queue that guards all its pods with a budget, on the real control plane (--disruption-budgets)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator

import pytest
from kubernetes_asyncio import client

from tests.e2e.cluster import PATIENCE_S, Scene, eventually, pod, scene
from tools.cluster.deployment import ADMISSION, BINDER, SCHEDULER, Deployment, Options
from tools.cluster.plane import ControlPlane
from wire import names

_FREE = {"quota": -1, "limit": -1, "overQuotaWeight": 1}

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane of its own: one cluster has one Moorage."""
    with ControlPlane() as started:
        yield started


@pytest.fixture(scope="module")
def deployed(plane: ControlPlane) -> Iterator[Deployment]:
    """A scheduler for which budgets protect what a queue has within its quota."""
    options = Options(
        arguments={SCHEDULER: ["--disruption-budgets=within-quota"]}, components=(ADMISSION, BINDER, SCHEDULER)
    )
    rbac, name = "rbac.authorization.k8s.io", "moorage-scheduler-past-budgets"
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["delete"]}]
    role = {"apiGroup": rbac, "kind": "ClusterRole", "name": name}
    account = {"kind": "ServiceAccount", "name": "moorage-scheduler", "namespace": names.SYSTEM_NAMESPACE}
    with Deployment(plane, options) as deployment:  # as the chart with scheduler.disruptionBudgets
        head = {"apiVersion": f"{rbac}/v1", "metadata": {"name": name}}
        plane.apply(json.dumps({**head, "kind": "ClusterRole", "rules": rules}))
        plane.apply(json.dumps({**head, "kind": "ClusterRoleBinding", "roleRef": role, "subjects": [account]}))
        yield deployment
        deployment.check()


@pytest.fixture
async def stage(plane: ControlPlane, deployed: Deployment) -> AsyncIterator[Scene]:
    async with scene(plane, "past-budgets", ["1x2x80GiB"]) as made:
        yield made


async def test_a_budget_over_all_pods_does_not_stop_reclaim_of_what_is_above_the_quota(stage: Scene) -> None:
    spec = {"minAvailable": 2, "selector": {"matchLabels": {"app": "guarded"}}}
    policy, metadata = client.PolicyV1Api(stage.core.api_client), {"name": "all"}
    await policy.create_namespaced_pod_disruption_budget(stage.namespace, {"metadata": metadata, "spec": spec})
    for queue in ("guards", "owed"):
        gpu = {"quota": 1, "limit": -1, "overQuotaWeight": 1}
        body = {"metadata": {"name": queue}, "spec": {"resources": {"cpu": _FREE, "memory": _FREE, "gpu": gpu}}}
        await stage.custom.create_cluster_custom_object(
            "scheduling.run.ai", "v2", "queues", {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", **body}
        )
    labels = {"app": "guarded", names.QUEUE_LABEL: "guards"}
    await stage.create(*(pod(name, gpus=1, labels=labels) for name in ("one", "two")))
    await stage.running(2)

    async def is_counted() -> bool | None:
        found = await policy.read_namespaced_pod_disruption_budget("all", stage.namespace)
        return found.status.current_healthy == 2 or None

    await eventually(is_counted, "the budget to be counted", within_s=PATIENCE_S)
    await stage.create(pod("mine", gpus=1, labels={names.QUEUE_LABEL: "owed"}))

    async def has_its_share() -> set[str] | None:
        phases = {name: found["status"]["phase"] for name, found in (await stage.pods()).items()}
        running = {name for name, phase in phases.items() if phase == "Running"}
        return running if "mine" in running else None

    running = await eventually(has_its_share, "the owed pod to run", within_s=60)
    assert len(running & {"one", "two"}) == 1  # what is within the quota stays
