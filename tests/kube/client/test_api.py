from __future__ import annotations

import weakref
from collections import deque
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest

from kube.client import errors
from kube.client.api import Api, field_is, go_duration
from kube.client.fence import WriteFence
from kube.client.listing import PAGE_BYTES, PAGE_SIZE
from kube.client.resources import CONFIG_MAPS, NODES, PODS, Resource
from kube.client.transport import Response
from tests.kube.scripted import Answer, Request, ScriptedTransport, api_over, hang, ok, refusal
from wire.core import Binding, ConfigMap, ObjectMeta, ObjectReference, Pod

VIRTUAL_TIME = True


def scripted(*answers: Answer, **settings: Any) -> tuple[Api, ScriptedTransport]:
    transport = ScriptedTransport(deque(answers))
    return api_over(transport, **settings), transport


def pod(name: str, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "ns", **metadata}, "spec": {"containers": []}}


def page(*items: dict[str, Any], token: str = "", version: str = "10") -> Response:
    return ok({"metadata": {"resourceVersion": version, "continue": token}, "items": list(items)})


# --- names and sizes ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["", "..", "../../team/jobs/quiet", "a/b", "%2e%2e"])
async def test_an_object_by_what_is_no_name_is_refused_and_nothing_is_sent(name: str) -> None:
    api, transport = scripted()
    meta = ObjectMeta(name="p", uid="u")
    for call in (
        api.get(PODS, name, namespace="ns"),
        api.patch(PODS, name, {}, namespace="ns"),
        api.delete(PODS, name, namespace="ns"),
        api.bind("ns", name, Binding(metadata=meta, target=ObjectReference(kind="Node", name="n"))),
        api.evict("ns", name),
        api.token("ns", name, pod=meta, lifetime_s=600),
    ):
        with pytest.raises(errors.BadName):
            await call
    assert transport.requests == []


async def test_an_answer_has_the_limit_of_its_kind() -> None:
    small: Resource[Pod] = Resource(version="v1", plural="pods", kind="Pod", namespaced=True, type=Pod, most_bytes=7)
    api, transport = scripted(ok(pod("a")), ok(pod("a")), page())
    await api.get(small, "a", namespace="ns")
    await api.get(PODS, "a", namespace="ns")
    await api.list(PODS)
    assert transport.limits == [7, PODS.most_bytes, PAGE_BYTES]


async def test_an_answer_that_is_too_large_is_not_asked_for_again() -> None:
    api, transport = scripted(errors.TooLarge("GET /x: the answer is longer than 7 bytes"))
    with pytest.raises(errors.TooLarge):
        await api.get(PODS, "a", namespace="ns")
    assert len(transport.requests) == 1


@pytest.mark.parametrize(
    ("value", "selector"),
    [("n1", "spec.nodeName=n1"), ("a,b=c", r"spec.nodeName=a\,b\=c"), ("a\\", r"spec.nodeName=a\\")],
)
def test_a_value_of_a_field_selector_begins_no_other_requirement(value: str, selector: str) -> None:
    assert field_is("spec.nodeName", value) == selector


# --- reads --------------------------------------------------------------------------------------------------------
async def test_get_reads_past_the_caches_of_the_server() -> None:
    api, transport = scripted(ok(pod("a", uid="u")))
    got = await api.get(PODS, "a", namespace="ns")
    assert isinstance(got, Pod)
    assert got.metadata.uid == "u"
    assert transport.asked == [("GET", "/api/v1/namespaces/ns/pods/a")]
    assert "resourceVersion" not in transport.requests[0].query


async def test_a_list_is_read_page_by_page() -> None:
    api, transport = scripted(page(pod("a"), token="t1"), page(pod("b"), token="t2"), page(pod("c")))
    listing = await api.list(PODS, label_selector="app=x", field_selector="status.phase=Running")
    assert [item.metadata.name for item in listing.items] == ["a", "b", "c"]
    assert listing.resource_version == "10"
    common = {"labelSelector": "app=x", "fieldSelector": "status.phase=Running", "limit": str(PAGE_SIZE)}
    assert [request.query for request in transport.requests] == [
        common,
        {**common, "continue": "t1"},
        {**common, "continue": "t2"},
    ]


async def test_other_tasks_run_between_pages() -> None:
    api, _ = scripted(page(pod("a"), token="t1"), page(pod("b"), token="t2"), page(pod("c")))
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(count)
        await api.list(PODS)
        tasks.cancel_scope.cancel()
    assert turns >= 3


async def test_an_expired_continue_token_starts_the_list_anew() -> None:
    api, transport = scripted(page(pod("old"), token="t1"), refusal(410, "Expired"), page(pod("new"), version="20"))
    listing = await api.list(PODS)
    assert [item.metadata.name for item in listing.items] == ["new"]
    assert listing.resource_version == "20"
    assert "continue" not in transport.requests[2].query


async def test_an_empty_list_of_go_is_empty() -> None:
    api, _ = scripted(ok({"metadata": {"resourceVersion": "1"}, "items": None}))
    assert (await api.list(NODES)).items == []


class Thing(msgspec.Struct, weakref=True, eq=False):
    name: str


async def test_a_digest_lets_go_of_each_object_before_it_decodes_the_next() -> None:
    things: Resource[Thing] = Resource(version="v1", plural="things", kind="Thing", namespaced=False, type=Thing)
    alive: weakref.WeakSet[Thing] = weakref.WeakSet()

    async def second(_: Request) -> Response:
        assert len(alive) <= 1
        return page({"name": "d"})

    def keep(thing: Thing) -> str:
        alive.add(thing)
        assert len(alive) <= 2
        return thing.name

    api, _ = scripted(page({"name": "a"}, {"name": "b"}, {"name": "c"}, token="t"), second)
    assert (await api.digest(things, keep)).items == ["a", "b", "c", "d"]


async def test_a_digest_that_starts_anew_keeps_nothing_of_what_it_had() -> None:
    api, _ = scripted(page(pod("old"), BAD, token="t1"), refusal(410, "Expired"), page(pod("new"), version="20"))
    listing = await api.digest(PODS, lambda obj: obj.metadata.name)
    assert (listing.items, listing.resource_version, listing.undecoded) == (["new"], "20", ())


BAD = {"metadata": {"name": "bad", "namespace": "ns"}, "spec": {"containers": "none"}}


async def test_a_list_that_a_decision_rests_on_is_whole_or_fails() -> None:
    api, _ = scripted(page(pod("a"), BAD))
    with pytest.raises(errors.Undecodable, match="ns/bad"):
        await api.list(PODS)


async def test_a_list_may_skip_what_does_not_decode_but_names_it() -> None:
    api, _ = scripted(page(pod("a"), BAD, token="t"), page(pod("c")))
    listing = await api.list(PODS, skip_undecodable=True)
    assert [item.metadata.name for item in listing.items] == ["a", "c"]
    assert [bad.key for bad in listing.undecoded] == ["ns/bad"]
    assert "containers" in listing.undecoded[0].error


async def test_a_read_that_hangs_ends_in_a_timeout() -> None:
    api, transport = scripted(hang, hang, hang, hang, hang, timeout_s=4.0)
    with pytest.raises(errors.Timeout):
        await api.get(PODS, "a", namespace="ns")
    assert 10.0 < anyio.current_time() < 25.0
    assert len(transport.requests) < 5


# --- errors -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("code", "reason", "error"),
    [
        (400, "BadRequest", errors.BadRequest),
        (401, "Unauthorized", errors.Unauthorized),
        (403, "Forbidden", errors.Forbidden),
        (404, "NotFound", errors.NotFound),
        (409, "Conflict", errors.Conflict),
        (409, "AlreadyExists", errors.AlreadyExists),
        (410, "Gone", errors.Gone),
        (422, "Invalid", errors.Invalid),
        (500, "InternalError", errors.ServerError),
    ],
)
async def test_a_refusal_is_raised_by_its_condition(code: int, reason: str, error: type[errors.Refused]) -> None:
    api, _ = scripted(refusal(code, reason))
    with pytest.raises(error) as caught:
        await api.create(PODS, pod("a"), namespace="ns")
    assert type(caught.value) is error
    assert caught.value.reason == reason


async def test_an_answer_in_prose_is_quoted() -> None:
    api, _ = scripted(Response(418, {}, b"<html>a proxy</html>"))
    with pytest.raises(errors.Refused, match="a proxy"):
        await api.get(PODS, "a", namespace="ns")


async def test_a_created_object_that_does_not_decode_counts_as_perhaps_written() -> None:
    api, _ = scripted(ok(BAD, status=201))
    with pytest.raises(errors.Undecodable) as caught:
        await api.create(PODS, pod("a"), namespace="ns")
    assert caught.value.outcome_unknown


# --- writes -------------------------------------------------------------------------------------------------------
async def test_create_names_its_kind_and_returns_what_was_stored() -> None:
    api, transport = scripted(ok({"metadata": {"name": "c", "uid": "u"}}, status=201))
    stored = await api.create(CONFIG_MAPS, ConfigMap(metadata=ObjectMeta(name="c"), data={"k": "v"}), namespace="ns")
    assert stored.metadata.uid == "u"
    request = transport.requests[0]
    assert (request.method, request.path) == ("POST", "/api/v1/namespaces/ns/configmaps")
    assert request.body == {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"k": "v"}}


async def test_every_write_tells_the_server_when_to_give_it_up_and_waits_a_little_longer() -> None:
    answer = ok(pod("a"))
    api, transport = scripted(answer, answer, answer, answer, answer)
    await api.create(PODS, pod("a"), namespace="ns")
    await api.patch(PODS, "a", {}, namespace="ns")
    await api.delete(PODS, "a", namespace="ns")
    await api.bind("ns", "a", Binding())
    await api.evict("ns", "a")
    assert {request.query["timeout"] for request in transport.requests} == {"10s"}
    assert {request.timeout_s for request in transport.requests} == {11.0}


async def test_a_write_that_hangs_ends_in_a_timeout_and_is_sent_once() -> None:
    api, transport = scripted(hang)
    with pytest.raises(errors.Timeout) as caught:
        await api.create(PODS, pod("a"), namespace="ns")
    assert caught.value.outcome_unknown
    assert anyio.current_time() == 11.0
    assert len(transport.requests) == 1


async def test_writes_are_cut_so_that_their_way_and_their_work_fit_into_what_is_left_of_the_lease() -> None:
    api, transport = scripted(ok(pod("a")), fence=WriteFence(lambda: 6.5))
    await anyio.sleep(2.0)
    await api.patch(PODS, "a", {}, namespace="ns")
    request = transport.requests[0]
    assert request.query["timeout"] == "1750ms"
    assert request.timeout_s == 2.75


async def test_a_merge_patch_carries_its_preconditions() -> None:
    api, transport = scripted(ok(pod("a")))
    patch = {"metadata": {"annotations": {"k": "v"}}}
    await api.patch(PODS, "a", patch, namespace="ns", subresource="status", uid="u", resource_version="5")
    request = transport.requests[0]
    assert (request.path, request.content_type) == (
        "/api/v1/namespaces/ns/pods/a/status",
        "application/merge-patch+json",
    )
    assert request.body == {"metadata": {"annotations": {"k": "v"}, "uid": "u", "resourceVersion": "5"}}
    assert patch == {"metadata": {"annotations": {"k": "v"}}}


UID_CAUSE = {"field": "metadata.uid", "reason": "FieldValueInvalid"}
OTHER_CAUSE = {"field": "metadata.name", "reason": "FieldValueInvalid"}


@pytest.mark.parametrize("causes", [[UID_CAUSE], [OTHER_CAUSE, UID_CAUSE], ["a word", UID_CAUSE]])
async def test_another_uid_is_a_conflict_even_where_the_server_calls_it_invalid(causes: list[Any]) -> None:
    api, _ = scripted(refusal(422, "Invalid", causes=causes))
    with pytest.raises(errors.Conflict) as raised:
        await api.patch(PODS, "a", {}, namespace="ns", uid="u")
    assert raised.value.code == 409


@pytest.mark.parametrize(("causes", "uid"), [([OTHER_CAUSE], "u"), ([], "u"), (["a word"], "u"), ([UID_CAUSE], "")])
async def test_a_patch_that_is_invalid_for_another_reason_is_no_conflict(causes: list[Any], uid: str) -> None:
    api, _ = scripted(refusal(422, "Invalid", causes=causes))
    with pytest.raises(errors.Invalid):
        await api.patch(PODS, "a", {}, namespace="ns", uid=uid)


async def test_a_json_patch_is_sent_as_it_is() -> None:
    api, transport = scripted(ok(pod("a")))
    operations = [{"op": "test", "path": "/metadata/uid", "value": "u"}, {"op": "remove", "path": "/metadata/labels/x"}]
    await api.patch(PODS, "a", operations, namespace="ns")
    assert transport.requests[0].content_type == "application/json-patch+json"
    assert transport.requests[0].body == operations


async def test_a_json_patch_does_not_silently_lose_preconditions() -> None:
    api, transport = scripted()
    with pytest.raises(ValueError, match="`test` operation"):
        await api.patch(PODS, "a", [], namespace="ns", uid="u")
    assert transport.requests == []


async def test_delete_carries_its_preconditions_and_grace() -> None:
    api, transport = scripted(ok({}))
    await api.delete(PODS, "a", namespace="ns", uid="u", resource_version="5", grace_s=0)
    assert transport.requests[0].body == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": "u", "resourceVersion": "5"},
        "gracePeriodSeconds": 0,
    }


async def test_a_binding_is_posted_whole() -> None:
    api, transport = scripted(ok({"kind": "Status", "status": "Success"}, status=201))
    await api.bind(
        "ns",
        "a",
        Binding(
            metadata=ObjectMeta(name="a", uid="u", resource_version="5", annotations={"k": "v"}),
            target=ObjectReference(kind="Node", name="n1"),
        ),
    )
    request = transport.requests[0]
    assert (request.method, request.path) == ("POST", "/api/v1/namespaces/ns/pods/a/binding")
    assert request.body == {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "a", "uid": "u", "resourceVersion": "5", "annotations": {"k": "v"}},
        "target": {"kind": "Node", "name": "n1"},
    }


async def test_an_eviction_that_a_budget_forbids_is_answered_at_once() -> None:
    api, transport = scripted(refusal(429, "TooManyRequests", headers={"retry-after": "10"}))
    with pytest.raises(errors.TooManyRequests) as caught:
        await api.evict("ns", "a", uid="u", grace_s=5)
    assert caught.value.retry_after_s == 10.0
    assert transport.asked == [("POST", "/api/v1/namespaces/ns/pods/a/eviction")]
    assert transport.requests[0].body["deleteOptions"] == {"preconditions": {"uid": "u"}, "gracePeriodSeconds": 5}


async def test_a_write_turned_away_is_repeated_after_the_time_asked() -> None:
    api, transport = scripted(refusal(429, headers={"retry-after": "2"}), ok(pod("a")))
    await api.create(PODS, pod("a"), namespace="ns")
    assert transport.times[1] - transport.times[0] >= 2.0


@pytest.mark.parametrize(
    ("seconds", "written"), [(10.0, "10s"), (4.5, "4500ms"), (0.9999, "999ms"), (61.0, "61s"), (2.0005, "2s")]
)
def test_a_duration_is_written_as_go_reads_it(seconds: float, written: str) -> None:
    assert go_duration(seconds) == written
