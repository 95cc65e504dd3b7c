"""Creating, reading, replacing and deleting objects of any type."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from kube.client.clock import SystemClock
from kube.client.resources import CONFIG_MAPS
from kube.client.server_time import ServerClock
from tests.contract.cluster import MERGE, Cluster, config_map, event
from wire.rfc3339 import parse_ns

S = 1_000_000_000


async def test_a_new_object_gets_identity_version_and_time(api_server: Cluster) -> None:
    created = await api_server.made(api_server.config_maps, config_map("a", {"k": "v"}))
    meta = created.body["metadata"]
    assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", meta["uid"])
    assert int(meta["resourceVersion"]) > 0
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", meta["creationTimestamp"])
    assert meta["namespace"] == api_server.namespace
    assert created.body["kind"] == "ConfigMap"
    assert created.body["apiVersion"] == "v1"
    assert "generation" not in meta


@pytest.mark.parametrize("name", ["a?watch=true", "a#b", "two words", "ä", "...", "a&b=c", "a;b", "a+b", ".a", "a,b"])
async def test_a_quoted_name_is_looked_up_as_it_is(api_server: Cluster, name: str) -> None:
    await api_server.made(api_server.config_maps, config_map("a"))
    answer = await api_server.get(CONFIG_MAPS.path(api_server.namespace, name))
    assert answer.failure == (404, "NotFound")
    assert answer.body["details"]["name"] == name
    assert answer.body["message"] == f'configmaps "{name}" not found'


async def test_a_name_that_would_be_another_path_reaches_no_server(api_server: Cluster) -> None:
    await api_server.made(api_server.config_maps, config_map("quiet"))
    for path in (f"{api_server.pods}/../configmaps/quiet", f"{api_server.config_maps}?watch=true"):
        with pytest.raises(ValueError, match="not a path of quoted segments"):
            await api_server.get(path)


async def test_each_answer_has_the_date_of_the_clock_that_dates_objects(api_server: Cluster) -> None:
    path, timeout_s = api_server.config_maps, 10.0
    clock = ServerClock(api_server.transport, fallback=SystemClock())
    body = msgspec.json.encode(config_map("a"))
    answer = await clock.request("POST", path, query={}, body=body, timeout_s=timeout_s)
    created_ns = parse_ns(msgspec.json.decode(answer.body)["metadata"]["creationTimestamp"])
    assert created_ns is not None
    assert 0 <= clock.now_ns() - created_ns <= 2 * S
    for failing in ("/api/v1/nowhere", path + "/b"):
        refused = await clock.request("GET", failing, query={}, timeout_s=timeout_s)
        assert refused.status == 404
        assert refused.headers["date"]
    async with clock.stream(path, query={"watch": "true"}, timeout_s=timeout_s) as (head, _):
        assert head.headers["date"]


async def test_what_was_created_is_read_back(api_server: Cluster) -> None:
    created = await api_server.made(api_server.config_maps, config_map("a", {"k": "v"}))
    assert (await api_server.get(f"{api_server.config_maps}/a")).body == created.body


async def test_versions_grow_over_all_types(api_server: Cluster) -> None:
    first = await api_server.made(api_server.config_maps, config_map("a"))
    second = await api_server.made(api_server.leases, {"metadata": {"name": "l"}, "spec": {}})
    assert int(second.rv) > int(first.rv)


async def test_a_client_cannot_choose_the_uid(api_server: Cluster) -> None:
    created = await api_server.made(api_server.config_maps, config_map("a", uid="mine"))
    assert created.uid != "mine"


async def test_generate_name_appends_five_characters(api_server: Cluster) -> None:
    body = {"metadata": {"generateName": "gen-"}}
    created = await api_server.made(api_server.config_maps, body)
    assert re.fullmatch(r"gen-[bcdfghjklmnpqrstvwxz2456789]{5}", created.body["metadata"]["name"])
    assert created.body["metadata"]["generateName"] == "gen-"


async def test_a_long_generate_name_is_cut_so_that_the_name_has_63_characters(api_server: Cluster) -> None:
    prefix = "a" * 60
    created = await api_server.made(api_server.config_maps, {"metadata": {"generateName": prefix}})
    name = created.body["metadata"]["name"]
    assert (len(name), name[:58]) == (63, prefix[:58])
    assert created.body["metadata"]["generateName"] == prefix


async def test_an_object_lives_once_by_its_name(api_server: Cluster) -> None:
    await api_server.made(api_server.config_maps, config_map("a"))
    again = await api_server.send("POST", api_server.config_maps, config_map("a"))
    assert again.failure == (409, "AlreadyExists")
    assert again.body["message"] == 'configmaps "a" already exists'
    assert again.body["details"] == {"name": "a", "kind": "configmaps"}


async def test_a_namespace_must_exist(api_server: Cluster) -> None:
    answer = await api_server.send("POST", "/api/v1/namespaces/nowhere/configmaps", config_map("a"))
    assert answer.failure == (404, "NotFound")
    assert answer.body["message"] == 'namespaces "nowhere" not found'


async def test_a_namespace_carries_its_name_as_label(api_server: Cluster) -> None:
    namespace = await api_server.get(f"/api/v1/namespaces/{api_server.namespace}")
    assert namespace.body["metadata"]["labels"]["kubernetes.io/metadata.name"] == api_server.namespace
    assert namespace.body["status"]["phase"] == "Active"


@pytest.mark.parametrize(
    ("body", "failure"),
    [
        ({"metadata": {}}, (422, "Invalid")),
        ({"metadata": {"name": "Upper"}}, (422, "Invalid")),
        ({"metadata": {"name": "a" * 254}}, (422, "Invalid")),
        ({"metadata": {"name": "a", "namespace": "elsewhere"}}, (400, "BadRequest")),
        ({"metadata": {"name": "a", "resourceVersion": "5"}}, (500, "")),
        ({"metadata": {"name": "a", "labels": {"a": "-x-"}}}, (422, "Invalid")),
        ({"metadata": {"name": "a", "labels": {"a b": "x"}}}, (422, "Invalid")),
        ({"metadata": {"name": "a", "labels": {"a": "x" * 64}}}, (422, "Invalid")),
        ({"metadata": {"name": "a", "annotations": {"a b": "x"}}}, (422, "Invalid")),
        ({"metadata": {"name": "a", "finalizers": ["bare"]}}, (422, "Invalid")),
        (
            {"metadata": {"name": "a", "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p"}]}},
            (422, "Invalid"),
        ),
        ({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}, (400, "BadRequest")),
        (b"{nope", (400, "BadRequest")),
    ],
)
async def test_a_bad_object_is_refused(api_server: Cluster, body: Any, failure: tuple[int, str]) -> None:
    assert (await api_server.send("POST", api_server.config_maps, body)).failure == failure


async def test_an_object_is_not_replaced_by_one_of_another_kind(api_server: Cluster) -> None:
    made = await api_server.made(api_server.config_maps, config_map("a"))
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}
    path = f"{api_server.config_maps}/a"
    assert (await api_server.send("PUT", path, body)).failure == (400, "BadRequest")
    assert (await api_server.send("GET", path)).body["metadata"]["uid"] == made.uid


@pytest.mark.parametrize("name", ["a.b-c", "a" * 253, "0"])
async def test_subdomains_are_names(api_server: Cluster, name: str) -> None:
    await api_server.made(api_server.config_maps, config_map(name))


@pytest.mark.parametrize(
    ("method", "path", "failure"),
    [
        ("GET", "/api/v1/namespaces/default/configmaps/none", (404, "NotFound")),
        ("GET", "/api/v1/namespaces/default/nothings", (404, "NotFound")),
        ("DELETE", "/api/v1/namespaces/default/configmaps/none", (404, "NotFound")),
        ("POST", "/api/v1/namespaces/default/configmaps/none", (405, "MethodNotAllowed")),
        ("POST", "/api/v1/configmaps", (405, "MethodNotAllowed")),
    ],
)
async def test_what_is_not_there_is_said(api_server: Cluster, method: str, path: str, failure: tuple[int, str]) -> None:
    body = {"metadata": {"name": "none"}} if method == "POST" else None
    assert (await api_server.send(method, path, body)).failure == failure


@pytest.mark.parametrize("path", ["/apis/no.such.group/v1/things", "/elsewhere", "/elsewhere/v1/things/a"])
async def test_a_path_below_no_group_is_not_even_answered_in_json(api_server: Cluster, path: str) -> None:
    answer = await api_server.transport.request("GET", path, query={}, timeout_s=10)
    assert answer.status == 404
    if path.startswith("/apis"):
        assert answer.body == b"404 page not found\n"


async def test_a_put_replaces_the_whole_object(api_server: Cluster) -> None:
    created = await api_server.made(api_server.config_maps, config_map("a", {"old": "1"}, labels={"l": "1"}))
    replaced = await api_server.send("PUT", f"{api_server.config_maps}/a", config_map("a", {"new": "2"}))
    assert replaced.code == 200
    assert replaced.body["data"] == {"new": "2"}
    assert "labels" not in replaced.body["metadata"]
    assert replaced.uid == created.uid
    assert replaced.body["metadata"]["creationTimestamp"] == created.body["metadata"]["creationTimestamp"]


@pytest.mark.parametrize(
    ("meta", "failure"),
    [
        ({"name": "a", "resourceVersion": "1"}, (409, "Conflict")),
        ({"name": "a", "uid": "another"}, (409, "Conflict")),
        ({"name": "b"}, (400, "BadRequest")),
        ({}, (400, "BadRequest")),
    ],
)
async def test_a_put_for_another_state_or_object_is_refused(
    api_server: Cluster, meta: dict[str, str], failure: tuple[int, str]
) -> None:
    created = await api_server.made(api_server.config_maps, config_map("a"))
    answer = await api_server.send("PUT", f"{api_server.config_maps}/a", {"metadata": meta, "data": {"x": "y"}})
    assert answer.failure == failure
    assert (await api_server.get(f"{api_server.config_maps}/a")).rv == created.rv


async def test_a_put_of_nothing_is_not_found(api_server: Cluster) -> None:
    answer = await api_server.send("PUT", f"{api_server.config_maps}/a", config_map("a"))
    assert answer.failure == (404, "NotFound")


async def test_a_put_of_a_lease_creates_it_but_replaces_only_with_a_version(api_server: Cluster) -> None:
    path = f"{api_server.leases}/l"
    created = await api_server.send("PUT", path, {"metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}})
    assert created.code == 201
    blind = await api_server.send("PUT", path, {"metadata": {"name": "l"}, "spec": {"holderIdentity": "b"}})
    assert blind.failure == (422, "Invalid")
    assert '"l" is invalid: metadata.resourceVersion: ' in blind.body["message"]
    assert "coordination.k8s.io" in blind.body["message"]
    meta = {"name": "l", "resourceVersion": created.rv}
    seen = await api_server.send("PUT", path, {"metadata": meta, "spec": {"holderIdentity": "b"}})
    assert (seen.code, seen.body["spec"]["holderIdentity"]) == (200, "b")


@pytest.mark.parametrize("time", ["2026-01-01T00:00:00Z", "yesterday"])
async def test_a_lease_time_without_six_digits_is_refused(api_server: Cluster, time: str) -> None:
    body = {"metadata": {"name": "l"}, "spec": {"renewTime": time}}
    assert (await api_server.send("POST", api_server.leases, body)).failure == (400, "BadRequest")
    await api_server.made(api_server.leases, {"metadata": {"name": "l"}, "spec": {}})
    assert (await api_server.send("PUT", f"{api_server.leases}/l", body)).failure == (400, "BadRequest")
    bad_event = {**event("e"), "eventTime": time}
    assert (await api_server.send("POST", api_server.events, bad_event)).failure == (400, "BadRequest")


async def test_delete_says_what_is_gone(api_server: Cluster) -> None:
    created = await api_server.made(api_server.config_maps, config_map("a"))
    gone = await api_server.delete(f"{api_server.config_maps}/a")
    assert gone.code == 200
    assert gone.body["status"] == "Success"
    assert gone.body["details"] == {"name": "a", "kind": "configmaps", "uid": created.uid}
    assert (await api_server.get(f"{api_server.config_maps}/a")).code == 404


@pytest.mark.parametrize("field", ["uid", "resourceVersion"])
async def test_delete_holds_to_its_preconditions(api_server: Cluster, field: str) -> None:
    created = await api_server.made(api_server.config_maps, config_map("a"))
    path = f"{api_server.config_maps}/a"
    wrong = await api_server.delete(path, {"preconditions": {field: "1"}})
    assert wrong.failure == (409, "Conflict")
    assert (await api_server.get(path)).rv == created.rv
    right = await api_server.delete(path, {"preconditions": {field: created.body["metadata"][field]}})
    assert right.code == 200


async def test_a_collection_is_deleted_by_selector(api_server: Cluster) -> None:
    for name in ("a", "b", "c"):
        labels = {"keep": "yes"} if name == "b" else {"keep": "no"}
        await api_server.made(api_server.config_maps, config_map(name, labels=labels))
    gone = await api_server.delete(api_server.config_maps, labelSelector="keep=no")
    assert gone.names == ["a", "c"]
    left = await api_server.get(api_server.config_maps, labelSelector="keep")
    assert left.names == ["b"]


async def test_an_immutable_config_map_refuses_edits_of_its_data(api_server: Cluster) -> None:
    created = await api_server.made(api_server.config_maps, {**config_map("a", {"k": "v"}), "immutable": True})
    path = f"{api_server.config_maps}/a"
    for patch in ({"data": {"k": "w"}}, {"data": None}, {"immutable": None}):
        assert (await api_server.patch(path, patch)).failure == (422, "Invalid")
    same = await api_server.patch(path, {"data": {"k": "v"}})
    assert (same.code, same.rv) == (200, created.rv)
    labelled = await api_server.patch(path, {"metadata": {"labels": {"a": "b"}}}, MERGE)
    assert labelled.code == 200


async def test_an_object_with_finalizers_stays_until_the_last_is_gone(api_server: Cluster) -> None:
    path = f"{api_server.config_maps}/a"
    await api_server.made(api_server.config_maps, config_map("a", {"k": "v"}, finalizers=["x.dev/f", "x.dev/g"]))
    marked = await api_server.delete(path)
    assert marked.code == 200
    assert marked.body["metadata"]["deletionGracePeriodSeconds"] == 0
    assert "deletionTimestamp" in marked.body["metadata"]
    assert (await api_server.delete(path)).rv == marked.rv
    again = await api_server.send("POST", api_server.config_maps, config_map("a"))
    assert again.failure == (409, "AlreadyExists")
    assert again.body["message"].startswith("object is being deleted")
    more = await api_server.patch(path, {"metadata": {"finalizers": ["x.dev/f", "x.dev/g", "x.dev/h"]}})
    assert more.failure == (422, "Invalid")
    assert (await api_server.patch(path, {"data": {"k": "w"}})).code == 200
    assert (await api_server.patch(path, {"metadata": {"finalizers": ["x.dev/g"]}})).code == 200
    assert (await api_server.get(path)).code == 200
    assert (await api_server.patch(path, {"metadata": {"finalizers": None}})).code == 200
    assert (await api_server.get(path)).code == 404


async def test_a_bad_time_out_in_the_query_is_refused(api_server: Cluster) -> None:
    answer = await api_server.send("POST", api_server.config_maps, config_map("a"), timeout="soon")
    assert answer.failure == (400, "BadRequest")
    assert (await api_server.send("POST", api_server.config_maps, config_map("a"), timeout="9500ms")).code == 201
