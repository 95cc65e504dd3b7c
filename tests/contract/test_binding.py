"""POST pods/NAME/binding: what the sharing protocol stands on (docs/design/protocol.md, facts of the API server)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.contract.cluster import Cluster, pod
from tests.contract.conftest import NewCluster, in_memory, on
from tools.cluster.plane import ControlPlane


def _binding(name: str, **meta: Any) -> dict[str, Any]:
    target = {"apiVersion": "v1", "kind": "Node", "name": "n1"}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, **meta}, "target": target}


@pytest.fixture(scope="module")
async def new_cluster_without_labels(
    backend: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[NewCluster]:
    """A server as before Kubernetes 1.35 (feature PodTopologyLabelsAdmission off)."""
    if backend == "memory":
        yield in_memory(pod_topology_labels=False)
    else:
        plane: ControlPlane = request.getfixturevalue("server_without_binding_labels")
        async with on(plane, tmp_path_factory.mktemp("ca")) as new:
            yield new


async def test_a_binding_sets_node_metadata_and_condition_in_one_write(api_server: Cluster) -> None:
    meta = {"labels": {"over": "old", "kept": "l"}, "annotations": {"over": "old", "kept": "a"}}
    created = await api_server.made(api_server.pods, {**pod("p"), "metadata": {"name": "p", **meta}})
    binding = _binding(
        "p",
        uid=created.uid,
        resourceVersion=created.rv,
        labels={"over": "new", "added": "l"},
        annotations={"over": "new", "added": "a"},
    )
    answer = await api_server.send("POST", f"{api_server.pods}/p/binding", binding)
    assert answer.code == 201
    assert (answer.body["kind"], answer.body["status"], answer.body["metadata"]) == ("Status", "Success", {})
    (change,) = await api_server.watch(api_server.pods, 1, resourceVersion=created.rv)
    bound = change.object
    assert bound == (await api_server.get(f"{api_server.pods}/p")).body
    assert bound["spec"]["nodeName"] == "n1"
    assert bound["metadata"]["labels"] == {"over": "new", "kept": "l", "added": "l"}
    assert bound["metadata"]["annotations"] == {"over": "new", "kept": "a", "added": "a"}
    assert bound["metadata"]["generation"] == created.body["metadata"]["generation"]
    (condition,) = bound["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")
    assert condition["lastTransitionTime"]
    assert bound["status"]["phase"] == "Pending"


async def test_before_1_35_labels_are_dropped_and_annotations_merged(new_cluster_without_labels: NewCluster) -> None:
    cluster = await new_cluster_without_labels()
    await cluster.made(cluster.pods, pod("p"))
    binding = _binding("p", labels={"l": "x"}, annotations={"a": "x"})
    assert (await cluster.send("POST", f"{cluster.pods}/p/binding", binding)).code == 201
    meta = (await cluster.get(f"{cluster.pods}/p")).body["metadata"]
    assert meta["annotations"] == {"a": "x"}
    assert "labels" not in meta


@pytest.mark.parametrize("precondition", [{"uid": "another"}, {"resourceVersion": "1"}, {"resourceVersion": "x"}])
async def test_a_binding_for_another_state_is_refused(api_server: Cluster, precondition: dict[str, str]) -> None:
    created = await api_server.made(api_server.pods, pod("p"))
    answer = await api_server.send("POST", f"{api_server.pods}/p/binding", _binding("p", **precondition))
    assert answer.failure == (409, "Conflict")
    assert "Precondition failed" in answer.body["message"]
    assert (await api_server.get(f"{api_server.pods}/p")).rv == created.rv


async def test_a_touched_pod_is_not_bound_by_its_old_version(api_server: Cluster) -> None:
    created = await api_server.made(api_server.pods, pod("p"))
    await api_server.patch(f"{api_server.pods}/p", {"metadata": {"annotations": {"moorage.dev/fenced": "a1"}}})
    answer = await api_server.send("POST", f"{api_server.pods}/p/binding", _binding("p", resourceVersion=created.rv))
    assert answer.failure == (409, "Conflict")


async def test_a_bound_pod_is_not_bound_again(api_server: Cluster) -> None:
    await api_server.made(api_server.pods, pod("p"))
    path = f"{api_server.pods}/p/binding"
    assert (await api_server.send("POST", path, _binding("p"))).code == 201
    again = await api_server.send("POST", path, _binding("p"))
    assert again.failure == (409, "Conflict")
    assert again.body["message"].endswith('pod p is already assigned to node "n1"')
    # The precondition is looked at first.
    other = await api_server.send("POST", path, _binding("p", uid="another"))
    assert "Precondition failed" in other.body["message"]


async def test_a_gated_pod_is_not_bound_until_it_is_ungated(api_server: Cluster) -> None:
    await api_server.made(api_server.pods, pod("p", schedulingGates=[{"name": "x.dev/g"}]))
    path = f"{api_server.pods}/p/binding"
    gated = await api_server.send("POST", path, _binding("p"))
    assert gated.failure == (409, "Conflict")
    assert gated.body["message"].endswith("pod p has non-empty .spec.schedulingGates")
    await api_server.patch(f"{api_server.pods}/p", {"spec": {"schedulingGates": None}})
    assert (await api_server.send("POST", path, _binding("p"))).code == 201
    (condition,) = (await api_server.get(f"{api_server.pods}/p")).body["status"]["conditions"]
    assert condition["status"] == "True"
    assert "reason" not in condition


async def test_a_pod_that_goes_is_not_bound(api_server: Cluster) -> None:
    await api_server.made(api_server.pods, pod("p", finalizers=("x.dev/f",)))
    await api_server.delete(f"{api_server.pods}/p")
    answer = await api_server.send("POST", f"{api_server.pods}/p/binding", _binding("p"))
    assert answer.failure == (409, "Conflict")
    assert answer.body["message"].endswith("pod p is being deleted, cannot be assigned to a host")


async def test_no_pod_is_not_bound(api_server: Cluster) -> None:
    answer = await api_server.send("POST", f"{api_server.pods}/p/binding", _binding("p"))
    assert answer.failure == (404, "NotFound")


@pytest.mark.parametrize(
    ("body", "failure"),
    [
        ({"metadata": {"name": "other"}, "target": {"name": "n1"}}, (400, "BadRequest")),
        ({"target": {"name": "n1"}}, (400, "BadRequest")),
        ({"metadata": {"name": "p"}, "target": {}}, (500, "")),
        ({"metadata": {"name": "p"}, "target": {"kind": "Pod", "name": "n1"}}, (500, "")),
    ],
)
async def test_a_binding_that_is_none_is_refused(
    api_server: Cluster, body: dict[str, Any], failure: tuple[int, str]
) -> None:
    await api_server.made(api_server.pods, pod("p"))
    assert (await api_server.send("POST", f"{api_server.pods}/p/binding", body)).failure == failure


async def test_bad_metadata_of_a_binding_is_stored_and_breaks_later_updates(api_server: Cluster) -> None:
    await api_server.made(api_server.pods, pod("p"))
    binding = _binding("p", labels={"l": "-no value-"}, annotations={"no key": "x"})
    assert (await api_server.send("POST", f"{api_server.pods}/p/binding", binding)).code == 201
    stored = (await api_server.get(f"{api_server.pods}/p")).body["metadata"]
    assert stored["labels"] == {"l": "-no value-"}
    patch = {"metadata": {"labels": {"other": "x"}}}
    assert (await api_server.patch(f"{api_server.pods}/p", patch)).failure == (422, "Invalid")
    status = {"status": {"phase": "Running"}}
    assert (await api_server.patch(f"{api_server.pods}/p/status", status)).failure == (422, "Invalid")


async def test_nobody_asks_whether_the_node_exists(api_server: Cluster) -> None:
    await api_server.made(api_server.pods, pod("p"))
    binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "no-such-node"}}
    assert (await api_server.send("POST", f"{api_server.pods}/p/binding", binding)).code == 201


async def test_a_nomination_is_cleared(api_server: Cluster) -> None:
    await api_server.made(api_server.pods, pod("p"))
    await api_server.patch(f"{api_server.pods}/p/status", {"status": {"nominatedNodeName": "n1"}})
    await api_server.send("POST", f"{api_server.pods}/p/binding", _binding("p"))
    assert "nominatedNodeName" not in (await api_server.get(f"{api_server.pods}/p")).body["status"]
