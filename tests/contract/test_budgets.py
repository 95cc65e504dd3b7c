"""PodDisruptionBudgets: what an eviction takes from one, and when it is refused."""

from __future__ import annotations

import uuid
from typing import Any

import anyio

from tests.contract.cluster import Answer, Cluster, pod

_LABELS = {"app": "a"}
_TRIES = 600


def _budgets(cluster: Cluster) -> str:
    return f"/apis/policy/v1/namespaces/{cluster.namespace}/poddisruptionbudgets"


def _budget(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": _LABELS}, **spec}}


async def _running(cluster: Cluster, name: str, *, is_ready: bool = True, labels: dict[str, str] | None = None) -> None:
    # A node of its own: pods of one that is not there are collected 40 s after it was first missed.
    made = pod(name, nodeName=f"n-{uuid.uuid4().hex[:8]}")
    made["metadata"]["labels"] = _LABELS if labels is None else labels
    await cluster.made(cluster.pods, made)
    conditions = [{"type": "Ready", "status": "True" if is_ready else "False"}]
    await cluster.patch(f"{cluster.pods}/{name}/status", {"status": {"phase": "Running", "conditions": conditions}})


async def _protected(cluster: Cluster, name: str, *, allowed: int, healthy: int, desired: int, **spec: Any) -> None:
    """Make a budget, and have it looked at by the disruption controller, whom the test plays where there is none."""
    await cluster.made(_budgets(cluster), _budget(name, minAvailable=desired, **spec))
    path = f"{_budgets(cluster)}/{name}"
    if cluster.memory is not None:
        counted = {
            "observedGeneration": 1,
            "disruptionsAllowed": allowed,
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": healthy,
        }
        await cluster.patch(f"{path}/status", {"status": counted})
    status: dict[str, Any] = {}
    for _ in range(_TRIES):
        status = (await cluster.get(path)).body["status"]
        if status.get("observedGeneration") == 1 and status["disruptionsAllowed"] == allowed:
            assert (status["currentHealthy"], status["desiredHealthy"]) == (healthy, desired)
            return
        await anyio.sleep(0.05)
    raise AssertionError(f"the budget was never counted: {status}")


async def _evicted(cluster: Cluster, name: str, **options: Any) -> Answer:
    body: dict[str, Any] = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    if options:
        body["deleteOptions"] = options
    return await cluster.send("POST", f"{cluster.pods}/{name}/eviction", body)


async def _status(cluster: Cluster, name: str) -> dict[str, Any]:
    status: dict[str, Any] = (await cluster.get(f"{_budgets(cluster)}/{name}")).body["status"]
    return status


async def test_a_new_budget_allows_nothing_yet(api_server: Cluster) -> None:
    made = await api_server.made(_budgets(api_server), {**_budget("b"), "status": {"disruptionsAllowed": 7}})
    assert made.body["status"] == {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}
    assert made.body["metadata"]["generation"] == 1


async def test_an_eviction_takes_one_disruption_and_the_next_one_is_refused(api_server: Cluster) -> None:
    await _running(api_server, "p")
    await _running(api_server, "q")
    await _protected(api_server, "b", allowed=1, healthy=2, desired=1)
    before = await api_server.now(_budgets(api_server))
    assert (await _evicted(api_server, "p")).code == 201
    # By a watch: the controller forgets the pod as soon as it sees it go.
    (written,) = await api_server.watch(_budgets(api_server), 1, resourceVersion=before)
    assert written.object["status"]["disruptionsAllowed"] == 0
    assert list(written.object["status"]["disruptedPods"]) == ["p"]
    refused = await _evicted(api_server, "q")
    assert refused.failure == (429, "TooManyRequests")
    assert refused.body["message"] == "Cannot evict pod as it would violate the pod's disruption budget."
    (cause,) = refused.body["details"]["causes"]
    assert cause["reason"] == "DisruptionBudget"
    assert cause["message"].startswith("The disruption budget b ")
    assert "deletionTimestamp" not in (await api_server.get(f"{api_server.pods}/q")).body["metadata"]


async def test_an_eviction_meant_for_another_pod_costs_the_budget_too(api_server: Cluster) -> None:
    await _running(api_server, "p")
    await _running(api_server, "q")
    await _protected(api_server, "b", allowed=1, healthy=2, desired=1)
    assert (await _evicted(api_server, "p", preconditions={"uid": "another"})).failure == (409, "Conflict")
    assert list((await _status(api_server, "b"))["disruptedPods"]) == ["p"]


async def test_a_pod_under_two_budgets_is_not_evicted(api_server: Cluster) -> None:
    await _running(api_server, "p")
    await _protected(api_server, "b", allowed=1, healthy=1, desired=0)
    await _protected(api_server, "c", allowed=1, healthy=1, desired=0)
    answer = await _evicted(api_server, "p")
    assert answer.failure == (500, "")
    assert "more than one PodDisruptionBudget" in answer.body["message"]
    assert "deletionTimestamp" not in (await api_server.get(f"{api_server.pods}/p")).body["metadata"]


async def test_a_pod_that_does_not_run_yet_is_evicted_without_a_look_at_budgets(api_server: Cluster) -> None:
    await _running(api_server, "ready")
    await _protected(api_server, "b", allowed=0, healthy=1, desired=1)
    await _running(api_server, "p")
    await api_server.patch(f"{api_server.pods}/p/status", {"status": {"phase": "Pending"}})
    assert (await _evicted(api_server, "p")).code == 201


async def test_a_pod_that_is_on_its_way_out_is_evicted_again_for_nothing(api_server: Cluster) -> None:
    await _running(api_server, "p")
    await _running(api_server, "q")
    await _protected(api_server, "b", allowed=1, healthy=2, desired=1)
    assert (await _evicted(api_server, "p")).code == 201
    assert (await _evicted(api_server, "p")).code == 201


async def test_a_pod_that_is_not_ready_goes_without_counting_while_enough_others_are(api_server: Cluster) -> None:
    await _running(api_server, "ready")
    await _running(api_server, "p", is_ready=False)
    await _protected(api_server, "b", allowed=0, healthy=1, desired=1)
    assert (await _evicted(api_server, "p")).code == 201
    assert "disruptedPods" not in await _status(api_server, "b")


async def test_a_pod_that_is_not_ready_is_kept_where_too_few_others_are(api_server: Cluster) -> None:
    await _running(api_server, "p", is_ready=False)
    await _protected(api_server, "b", allowed=0, healthy=0, desired=1)
    assert (await _evicted(api_server, "p")).failure == (429, "TooManyRequests")


async def test_a_budget_may_let_go_whoever_is_not_ready(api_server: Cluster) -> None:
    await _running(api_server, "p", is_ready=False)
    await _protected(api_server, "b", allowed=0, healthy=0, desired=1, unhealthyPodEvictionPolicy="AlwaysAllow")
    assert (await _evicted(api_server, "p")).code == 201


async def test_an_empty_selector_takes_all_pods_of_the_namespace(api_server: Cluster) -> None:
    await _running(api_server, "p", labels={})
    await _protected(api_server, "b", allowed=0, healthy=1, desired=1, selector={})
    assert (await _evicted(api_server, "p")).failure == (429, "TooManyRequests")


async def test_a_budget_without_a_selector_takes_no_pod(api_server: Cluster) -> None:
    await _running(api_server, "p", labels={})
    made = {"metadata": {"name": "b"}, "spec": {"minAvailable": 1}}
    await api_server.made(_budgets(api_server), made)
    assert (await _evicted(api_server, "p")).code == 201


async def test_a_selector_may_have_expressions(api_server: Cluster) -> None:
    await _running(api_server, "p")
    await _running(api_server, "other", labels={"app": "b"})
    chosen = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "c"]}]}
    await _protected(api_server, "b", allowed=0, healthy=1, desired=1, selector=chosen)
    assert (await _evicted(api_server, "p")).failure == (429, "TooManyRequests")
    assert (await _evicted(api_server, "other")).code == 201
