"""What goes with an owner or a namespace, in the background."""

from __future__ import annotations

from typing import Any

from tests.contract.cluster import Answer, Cluster, config_map, pod


def _owned_by(owner: Answer, *others: str) -> dict[str, Any]:
    first = {"apiVersion": "v1", "kind": "ConfigMap", "name": owner.body["metadata"]["name"], "uid": owner.uid}
    return {"ownerReferences": [first, *({**first, "name": name, "uid": f"{name}-uid"} for name in others)]}


async def test_dependents_go_with_their_owner(api_server: Cluster) -> None:
    owner = await api_server.made(api_server.config_maps, config_map("owner"))
    await api_server.made(api_server.config_maps, config_map("child", **_owned_by(owner)))
    await api_server.made(api_server.config_maps, config_map("bystander"))
    await api_server.delete(f"{api_server.config_maps}/owner")
    await api_server.until_code(f"{api_server.config_maps}/child", 404)
    assert (await api_server.get(f"{api_server.config_maps}/bystander")).code == 200


async def test_dependents_stay_when_their_owner_changes(api_server: Cluster) -> None:
    owner = await api_server.made(api_server.config_maps, config_map("owner"))
    await api_server.made(api_server.config_maps, config_map("child", **_owned_by(owner)))
    await api_server.patch(f"{api_server.config_maps}/owner", {"data": {"k": "v"}})
    gone = {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "another"}
    await api_server.made(api_server.config_maps, config_map("witness", ownerReferences=[gone]))
    await api_server.until_code(f"{api_server.config_maps}/witness", 404)
    assert (await api_server.get(f"{api_server.config_maps}/child")).code == 200


async def test_dependents_go_down_the_chain(api_server: Cluster) -> None:
    owner = await api_server.made(api_server.config_maps, config_map("owner"))
    child = await api_server.made(api_server.config_maps, config_map("child", **_owned_by(owner)))
    await api_server.made(api_server.config_maps, config_map("grandchild", **_owned_by(child)))
    await api_server.delete(f"{api_server.config_maps}/owner")
    await api_server.until_code(f"{api_server.config_maps}/grandchild", 404)


async def test_an_owner_of_the_name_but_not_the_uid_is_none(api_server: Cluster) -> None:
    await api_server.made(api_server.config_maps, config_map("owner"))
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "another"}
    await api_server.made(api_server.config_maps, config_map("child", ownerReferences=[reference]))
    await api_server.until_code(f"{api_server.config_maps}/child", 404)


async def test_a_dependent_stays_as_long_as_one_owner_does(api_server: Cluster) -> None:
    first = await api_server.made(api_server.config_maps, config_map("first"))
    second = await api_server.made(api_server.config_maps, config_map("second"))
    owners = _owned_by(first)["ownerReferences"] + _owned_by(second)["ownerReferences"]
    await api_server.made(api_server.config_maps, config_map("child", ownerReferences=owners))
    await api_server.delete(f"{api_server.config_maps}/first")
    await api_server.made(api_server.config_maps, config_map("witness", **_owned_by(first)))
    await api_server.until_code(f"{api_server.config_maps}/witness", 404)
    assert (await api_server.get(f"{api_server.config_maps}/child")).code == 200
    await api_server.delete(f"{api_server.config_maps}/second")
    await api_server.until_code(f"{api_server.config_maps}/child", 404)


async def test_orphans_stay(api_server: Cluster) -> None:
    owner = await api_server.made(api_server.config_maps, config_map("owner"))
    await api_server.made(api_server.config_maps, config_map("child", **_owned_by(owner)))
    await api_server.delete(f"{api_server.config_maps}/owner", {"propagationPolicy": "Orphan"})
    await api_server.until_code(f"{api_server.config_maps}/owner", 404)
    child = await api_server.get(f"{api_server.config_maps}/child")
    assert child.code == 200
    assert "ownerReferences" not in child.body["metadata"]


async def test_a_bound_pod_goes_gracefully_with_its_owner(api_server: Cluster) -> None:
    owner = await api_server.made(api_server.config_maps, config_map("owner"))
    body = pod("p", nodeName="n1")
    body["metadata"].update(_owned_by(owner))
    created = await api_server.made(api_server.pods, body)
    await api_server.delete(f"{api_server.config_maps}/owner")
    (marked,) = await api_server.watch(api_server.pods, 1, resourceVersion=created.rv)
    assert marked.object["metadata"]["deletionGracePeriodSeconds"] == 30


async def test_a_namespace_takes_its_content_along(api_server: Cluster) -> None:
    await api_server.made(api_server.config_maps, config_map("a"))
    namespace = f"/api/v1/namespaces/{api_server.namespace}"
    going = await api_server.delete(namespace)
    assert going.body["status"]["phase"] == "Terminating"
    late = await api_server.send("POST", api_server.config_maps, config_map("b"))
    assert late.code in (403, 404)
    if late.code == 403:
        assert late.body["details"]["name"] == "b"
        assert [cause["reason"] for cause in late.body["details"]["causes"]] == ["NamespaceTerminating"]
    await api_server.until_code(f"{api_server.config_maps}/a", 404)
    await api_server.until_code(namespace, 404)


async def test_a_namespace_waits_for_the_last_that_a_finalizer_holds(api_server: Cluster) -> None:
    await api_server.made(api_server.config_maps, config_map("held", finalizers=["x.dev/f"]))
    await api_server.made(api_server.config_maps, config_map("other"))
    namespace = f"/api/v1/namespaces/{api_server.namespace}"
    await api_server.delete(namespace)
    await api_server.until_code(f"{api_server.config_maps}/other", 404)
    held = await api_server.get(f"{api_server.config_maps}/held")
    assert "deletionTimestamp" in held.body["metadata"]
    assert (await api_server.get(namespace)).body["status"]["phase"] == "Terminating"
    await api_server.patch(f"{api_server.config_maps}/held", {"metadata": {"finalizers": []}})
    await api_server.until_code(namespace, 404)
