"""Custom resources: where they differ from built-in types."""

from __future__ import annotations

from tests.contract.cluster import Cluster, widget


async def test_spec_and_status_are_written_apart(api_server: Cluster) -> None:
    created = await api_server.made(api_server.widgets, widget("w", spec={"a": 1}, status={"s": 1}))
    assert "status" not in created.body
    path = f"{api_server.widgets}/w"
    main = await api_server.patch(path, {"spec": {"a": 2}, "status": {"s": 2}})
    assert (main.body["spec"], main.body.get("status")) == ({"a": 2}, None)
    status = await api_server.patch(
        f"{path}/status", {"metadata": {"labels": {"l": "x"}}, "spec": {"a": 3}, "status": {"s": 3}}
    )
    assert (status.body["spec"], status.body["status"]) == ({"a": 2}, {"s": 3})
    # Unlike with pods, metadata is left alone.
    assert "labels" not in status.body["metadata"]


async def test_generation_counts_changes_of_the_spec(api_server: Cluster) -> None:
    path = f"{api_server.widgets}/w"
    created = await api_server.made(api_server.widgets, widget("w", spec={"a": 1}))
    generations = [created.body["metadata"]["generation"]]
    for target, patch in (
        (path, {"metadata": {"labels": {"l": "x"}}}),
        (f"{path}/status", {"status": {"s": 1}}),
        (path, {"spec": {"a": 2}}),
    ):
        generations.append((await api_server.patch(target, patch)).body["metadata"]["generation"])
    assert generations == [1, 1, 1, 2]


async def test_kind_must_be_said(api_server: Cluster) -> None:
    answer = await api_server.send("POST", api_server.widgets, {"metadata": {"name": "w"}})
    assert answer.failure == (400, "BadRequest")


async def test_a_put_needs_a_version(api_server: Cluster) -> None:
    created = await api_server.made(api_server.widgets, widget("w", spec={"a": 1}))
    path = f"{api_server.widgets}/w"
    assert (await api_server.send("PUT", path, widget("w", spec={"a": 2}))).failure == (422, "Invalid")
    body = widget("w", spec={"a": 2}, metadata={"resourceVersion": created.rv})
    answer = await api_server.send("PUT", path, body)
    assert (answer.code, answer.body["metadata"]["generation"]) == (200, 2)


async def test_names_and_labels_are_checked(api_server: Cluster) -> None:
    assert (await api_server.send("POST", api_server.widgets, widget("W"))).failure == (422, "Invalid")
    bad = widget("w", metadata={"labels": {"l": "-"}})
    assert (await api_server.send("POST", api_server.widgets, bad)).failure == (422, "Invalid")


async def test_a_wrong_uid_in_a_patch_is_invalid(api_server: Cluster) -> None:
    await api_server.made(api_server.widgets, widget("w", spec={}))
    answer = await api_server.patch(f"{api_server.widgets}/w", {"metadata": {"uid": "x"}, "spec": {"a": 1}})
    assert answer.failure == (422, "Invalid")


async def test_a_finalizer_holds_and_deletion_counts_as_a_generation(api_server: Cluster) -> None:
    path = f"{api_server.widgets}/w"
    await api_server.made(api_server.widgets, widget("w", spec={}, metadata={"finalizers": ["x.dev/f"]}))
    marked = await api_server.delete(path)
    assert marked.body["metadata"]["generation"] == 2
    await api_server.patch(path, {"metadata": {"finalizers": []}})
    assert (await api_server.get(path)).code == 404


async def test_items_of_a_list_keep_their_kind(api_server: Cluster) -> None:
    await api_server.made(api_server.widgets, widget("w", spec={}))
    listed = await api_server.get(api_server.widgets, fieldSelector="metadata.name=w")
    assert [item["kind"] for item in listed.body["items"]] == ["Widget"]


async def test_deletion_names_group_and_uid(api_server: Cluster) -> None:
    created = await api_server.made(api_server.widgets, widget("w", spec={}))
    gone = await api_server.delete(f"{api_server.widgets}/w")
    assert gone.body["details"] == {"name": "w", "group": "contract.moorage.dev", "kind": "widgets", "uid": created.uid}


async def test_discovery_names_kinds_plurals_and_scopes(api_server: Cluster) -> None:
    for path, expected in (
        ("/apis/contract.moorage.dev/v1", {"Widget": ("widgets", True)}),
        ("/apis/batch/v1", {"Job": ("jobs", True)}),
        ("/api/v1", {"Pod": ("pods", True), "Node": ("nodes", False)}),
    ):
        answer = await api_server.send("GET", path)
        served = {
            each["kind"]: (each["name"], each["namespaced"])
            for each in answer.body["resources"]
            if "/" not in each["name"]
        }
        assert (answer.code, answer.body["kind"]) == (200, "APIResourceList")
        assert expected.items() <= served.items()
