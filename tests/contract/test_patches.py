"""PATCH in its kinds, its preconditions, and writes that change nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.cluster import JSON, MERGE, STRATEGIC, Cluster, config_map, pod, widget


async def _made(api_server: Cluster) -> tuple[str, str, str]:
    created = await api_server.made(api_server.config_maps, config_map("a", {"k": "v", "x": "y"}))
    return f"{api_server.config_maps}/a", created.rv, created.uid


@pytest.mark.parametrize(
    ("content_type", "patch", "data"),
    [
        (MERGE, {"data": {"k": "w"}}, {"k": "w", "x": "y"}),
        (MERGE, {"data": {"k": None}}, {"x": "y"}),
        (MERGE, {"data": {"new": "1", "k": None}}, {"x": "y", "new": "1"}),
        (STRATEGIC, {"data": {"k": None, "z": "0"}}, {"x": "y", "z": "0"}),
        (STRATEGIC, {"data": {"$patch": "replace", "z": "0"}}, {"z": "0"}),
        (STRATEGIC, {"data": {"$retainKeys": ["k"], "k": "w"}}, {"k": "w"}),
        (STRATEGIC, {"data": {"$retainKeys": ["x", "z"], "z": "0"}}, {"x": "y", "z": "0"}),
        (JSON, [{"op": "replace", "path": "/data/k", "value": "w"}], {"k": "w", "x": "y"}),
        (JSON, [{"op": "remove", "path": "/data/k"}], {"x": "y"}),
        (JSON, [{"op": "add", "path": "/data/a~1b", "value": "1"}], {"k": "v", "x": "y", "a/b": "1"}),
        # Not so in RFC 6902, but so in the server: a missing key of a map can be replaced.
        (JSON, [{"op": "replace", "path": "/data/z", "value": "0"}], {"k": "v", "x": "y", "z": "0"}),
        (JSON, [{"op": "move", "from": "/data/k", "path": "/data/m"}], {"x": "y", "m": "v"}),
        (JSON, [{"op": "copy", "from": "/data/k", "path": "/data/m"}], {"k": "v", "x": "y", "m": "v"}),
        (JSON, [{"op": "test", "path": "/data/k", "value": "v"}, {"op": "remove", "path": "/data/k"}], {"x": "y"}),
        (JSON, [{"op": "test", "path": "/data/none", "value": None}, {"op": "remove", "path": "/data/k"}], {"x": "y"}),
    ],
)
async def test_a_patch_changes_what_it_names(
    api_server: Cluster, content_type: str, patch: Any, data: dict[str, str]
) -> None:
    if "a~1b" in str(patch):
        # Keys of a ConfigMap have no slash; annotations do.
        patch = [{"op": "add", "path": "/metadata/annotations", "value": {}}]
        patch.append({"op": "add", "path": "/metadata/annotations/a.dev~1b", "value": "1"})
        path, _, _ = await _made(api_server)
        patched = await api_server.patch(path, patch, content_type)
        assert patched.body["metadata"]["annotations"] == {"a.dev/b": "1"}
        return
    path, rv, _ = await _made(api_server)
    patched = await api_server.patch(path, patch, content_type)
    assert (patched.code, patched.body["data"]) == (200, data)
    assert int(patched.rv) > int(rv)


@pytest.mark.parametrize(
    ("content_type", "patch", "failure"),
    [
        (MERGE, b"{", (400, "BadRequest")),
        (MERGE, [], (400, "BadRequest")),
        (MERGE, {"metadata": {"name": "b"}}, (400, "BadRequest")),
        (MERGE, {"metadata": {"resourceVersion": "1"}, "data": {"k": "w"}}, (409, "Conflict")),
        (MERGE, {"metadata": {"resourceVersion": "abc"}, "data": {"k": "w"}}, (500, "")),
        # Not 409: the uid in a patch is a change of what can't change.
        (MERGE, {"metadata": {"uid": "another"}, "data": {"k": "w"}}, (422, "Invalid")),
        (MERGE, {"metadata": {"uid": "another"}}, (422, "Invalid")),
        (MERGE, {"metadata": {"uid": "another", "resourceVersion": "1"}}, (409, "Conflict")),
        (MERGE, {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, (422, "Invalid")),
        (MERGE, {"metadata": {"labels": {"l": "-"}}}, (422, "Invalid")),
        (JSON, {}, (400, "BadRequest")),
        (JSON, [{"op": "test", "path": "/data/k", "value": "other"}], (422, "Invalid")),
        (JSON, [{"op": "test", "path": "/data/none", "value": "x"}], (422, "Invalid")),
        (JSON, [{"op": "remove", "path": "/data/none"}], (422, "Invalid")),
        (JSON, [{"op": "replace", "path": "/none/none", "value": "x"}], (422, "Invalid")),
        (JSON, [{"op": "add", "path": "/metadata/annotations/a", "value": "x"}], (422, "Invalid")),
        (JSON, [{"op": "dance", "path": "/data/k"}], (422, "Invalid")),
        (JSON, [{"op": "replace", "path": "/metadata/resourceVersion", "value": "1"}], (409, "Conflict")),
        ("application/json", {"data": {"k": "w"}}, (415, "UnsupportedMediaType")),
    ],
)
async def test_a_patch_that_may_not_be_changes_nothing(
    api_server: Cluster, content_type: str, patch: Any, failure: tuple[int, str]
) -> None:
    path, rv, _ = await _made(api_server)
    assert (await api_server.patch(path, patch, content_type)).failure == failure
    assert (await api_server.get(path)).rv == rv


async def test_a_failed_operation_undoes_those_before_it(api_server: Cluster) -> None:
    path, _, _ = await _made(api_server)
    patch = [{"op": "remove", "path": "/data/k"}, {"op": "test", "path": "/data/x", "value": "no"}]
    assert (await api_server.patch(path, patch, JSON)).code == 422
    assert (await api_server.get(path)).body["data"] == {"k": "v", "x": "y"}


async def test_right_preconditions_let_a_patch_through(api_server: Cluster) -> None:
    path, rv, uid = await _made(api_server)
    patch = {"metadata": {"uid": uid, "resourceVersion": rv}, "data": {"k": "w"}}
    assert (await api_server.patch(path, patch)).code == 200
    assert (await api_server.patch(path, patch)).failure == (409, "Conflict")


async def test_a_stale_patch_that_would_change_nothing_is_refused_all_the_same(api_server: Cluster) -> None:
    path, rv, _ = await _made(api_server)
    await api_server.patch(path, {"data": {"k": "w"}})
    patch = {"metadata": {"resourceVersion": rv}, "data": {"k": "w"}}
    assert (await api_server.patch(path, patch)).failure == (409, "Conflict")


@pytest.mark.parametrize(
    ("content_type", "patch"),
    [
        (MERGE, {}),
        (MERGE, {"data": {"k": "v"}}),
        (MERGE, {"metadata": {"labels": {"none": None}}}),
        (MERGE, {"metadata": {"labels": {}, "finalizers": []}}),
        (MERGE, {"metadata": {"creationTimestamp": None, "generation": 7}}),
        (STRATEGIC, {"data": {"k": "v"}}),
        (JSON, [{"op": "replace", "path": "/data/k", "value": "v"}]),
        (JSON, []),
    ],
)
async def test_a_patch_that_changes_nothing_makes_no_version_and_no_event(
    api_server: Cluster, content_type: str, patch: Any
) -> None:
    path, rv, _ = await _made(api_server)
    answer = await api_server.patch(path, patch, content_type)
    assert (answer.code, answer.rv) == (200, rv)
    await api_server.made(api_server.config_maps, config_map("sentinel"))
    (seen,) = await api_server.watch(
        api_server.config_maps, 1, resourceVersion=rv, fieldSelector="metadata.name!=kube-root-ca.crt"
    )
    assert seen.brief == ("ADDED", "sentinel")


async def test_a_put_that_changes_nothing_makes_no_version(api_server: Cluster) -> None:
    path, rv, _ = await _made(api_server)
    answer = await api_server.send("PUT", path, config_map("a", {"k": "v", "x": "y"}))
    assert (answer.code, answer.rv) == (200, rv)


async def test_a_patch_of_nothing_is_not_found(api_server: Cluster) -> None:
    assert (await api_server.patch(f"{api_server.config_maps}/none", {"data": {}})).failure == (404, "NotFound")


async def test_a_strategic_patch_merges_lists_by_their_key(api_server: Cluster) -> None:
    await api_server.made(api_server.pods, pod("p"))
    path = f"{api_server.pods}/p/status"
    first = {"type": "Ready", "status": "False"}
    await api_server.patch(path, {"status": {"conditions": [first]}}, STRATEGIC)
    second = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    both = await api_server.patch(path, {"status": {"conditions": [second]}}, STRATEGIC)
    assert [each["type"] for each in both.body["status"]["conditions"]] == ["PodScheduled", "Ready"]
    changed = await api_server.patch(path, {"status": {"conditions": [{**first, "status": "True"}]}}, STRATEGIC)
    assert [(each["type"], each["status"]) for each in changed.body["status"]["conditions"]] == [
        ("PodScheduled", "False"),
        ("Ready", "True"),
    ]
    fewer = await api_server.patch(
        path, {"status": {"conditions": [{"type": "PodScheduled", "$patch": "delete"}]}}, STRATEGIC
    )
    assert [each["type"] for each in fewer.body["status"]["conditions"]] == ["Ready"]


async def test_a_strategic_patch_replaces_a_list_where_it_says_so(api_server: Cluster) -> None:
    await api_server.made(api_server.pods, pod("p"))
    path = f"{api_server.pods}/p/status"
    both = [{"type": "Ready", "status": "False"}, {"type": "PodScheduled", "status": "False"}]
    await api_server.patch(path, {"status": {"conditions": both}})
    only = [{"$patch": "replace"}, {"type": "Initialized", "status": "True"}]
    answer = await api_server.patch(path, {"status": {"conditions": only}}, STRATEGIC)
    assert [each["type"] for each in answer.body["status"]["conditions"]] == ["Initialized"]


A, B, C, Z = "x.dev/a", "x.dev/b", "x.dev/c", "x.dev/z"
LIST = "/metadata/finalizers"


@pytest.mark.parametrize(
    ("operations", "finalizers"),
    [
        ([{"op": "replace", "path": f"{LIST}/1", "value": Z}], [A, Z, C]),
        ([{"op": "replace", "path": f"{LIST}/2", "value": Z}], [A, B, Z]),
        ([{"op": "remove", "path": f"{LIST}/0"}], [B, C]),
        ([{"op": "remove", "path": f"{LIST}/2"}], [A, B]),
        ([{"op": "add", "path": f"{LIST}/0", "value": Z}], [Z, A, B, C]),
        ([{"op": "add", "path": f"{LIST}/1", "value": Z}], [A, Z, B, C]),
        ([{"op": "add", "path": f"{LIST}/3", "value": Z}], [A, B, C, Z]),
        ([{"op": "add", "path": f"{LIST}/-", "value": Z}], [A, B, C, Z]),
        ([{"op": "test", "path": f"{LIST}/1", "value": B}, {"op": "remove", "path": f"{LIST}/1"}], [A, C]),
        ([{"op": "test", "path": f"{LIST}/1", "value": A}, {"op": "remove", "path": f"{LIST}/1"}], None),
        ([{"op": "replace", "path": f"{LIST}/3", "value": Z}], None),
        ([{"op": "remove", "path": f"{LIST}/3"}], None),
        ([{"op": "add", "path": f"{LIST}/4", "value": Z}], None),
        ([{"op": "add", "path": f"{LIST}/x", "value": Z}], None),
        ([{"op": "remove", "path": f"{LIST}/x"}], None),
    ],
)
async def test_a_json_patch_names_elements_of_a_list_by_their_place(
    api_server: Cluster, operations: list[dict[str, Any]], finalizers: list[str] | None
) -> None:
    await api_server.made(api_server.config_maps, config_map("a", finalizers=[A, B, C]))
    path = f"{api_server.config_maps}/a"
    answer = await api_server.patch(path, operations, JSON)
    if finalizers is None:
        assert answer.failure == (422, "Invalid")
    assert (await api_server.get(path)).body["metadata"]["finalizers"] == (finalizers or [A, B, C])


async def test_a_json_patch_changes_a_part_of_one_element_of_a_list(api_server: Cluster) -> None:
    await api_server.made(api_server.pods, pod("p"))
    path = f"{api_server.pods}/p/status"
    types = ["Ready", "PodScheduled", "Initialized"]
    await api_server.patch(path, {"status": {"conditions": [{"type": each, "status": "False"} for each in types]}})
    answer = await api_server.patch(
        path, [{"op": "replace", "path": "/status/conditions/1/status", "value": "True"}], JSON
    )
    assert [each["status"] for each in answer.body["status"]["conditions"]] == ["False", "True", "False"]


async def test_a_merge_patch_replaces_lists(api_server: Cluster) -> None:
    await api_server.made(api_server.pods, pod("p"))
    path = f"{api_server.pods}/p/status"
    await api_server.patch(path, {"status": {"conditions": [{"type": "Ready", "status": "True"}]}})
    answer = await api_server.patch(path, {"status": {"conditions": [{"type": "PodScheduled", "status": "True"}]}})
    assert [each["type"] for each in answer.body["status"]["conditions"]] == ["PodScheduled"]


async def test_a_strategic_patch_of_finalizers_adds_to_them(api_server: Cluster) -> None:
    path, _, _ = await _made(api_server)
    await api_server.patch(path, {"metadata": {"finalizers": ["x.dev/a"]}}, STRATEGIC)
    both = await api_server.patch(path, {"metadata": {"finalizers": ["x.dev/b"]}}, STRATEGIC)
    assert sorted(both.body["metadata"]["finalizers"]) == ["x.dev/a", "x.dev/b"]
    one = await api_server.patch(path, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["x.dev/a"]}}, STRATEGIC)
    assert one.body["metadata"]["finalizers"] == ["x.dev/b"]


async def test_custom_resources_refuse_strategic_patches(api_server: Cluster) -> None:
    await api_server.made(api_server.widgets, widget("w"))
    answer = await api_server.patch(f"{api_server.widgets}/w", {"spec": {"a": 1}}, STRATEGIC)
    assert answer.failure == (415, "UnsupportedMediaType")


@pytest.mark.parametrize(
    ("content_type", "patch"),
    [
        (MERGE, {"spec": {"renewTime": "2026-01-01T00:00:00Z"}}),
        (STRATEGIC, {"spec": {"renewTime": "2026-01-01T00:00:00Z"}}),
        (JSON, [{"op": "add", "path": "/spec/renewTime", "value": "2026-01-01T00:00:00Z"}]),
        (MERGE, {"kind": "Pod"}),
        (MERGE, {"apiVersion": "v1"}),
    ],
)
async def test_a_patch_that_leaves_no_object_of_its_type_is_refused(
    api_server: Cluster, content_type: str, patch: Any
) -> None:
    body = {"metadata": {"name": "l"}, "spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}}
    made = await api_server.made(api_server.leases, body)
    path = f"{api_server.leases}/l"
    assert (await api_server.patch(path, patch, content_type)).failure == (422, "Invalid")
    assert (await api_server.get(path)).rv == made.rv
