"""Webhooks: when they are asked, what they may change, how they refuse."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import anyio
import msgspec
import pytest

from simulator.apiserver.faults import ReviewFault
from simulator.apiserver.server import MemoryApiServer
from tests.simulator.apiserver.calls import PODS, decoded, pod, send

Object = dict[str, Any]


class Hook:
    """A webhook that answers by a function and remembers what it was asked."""

    def __init__(
        self,
        answer: Callable[[Object], Object],
        *,
        mutating: bool = True,
        resource: str = "pods",
        operations: tuple[str, ...] = ("CREATE",),
    ) -> None:
        self.name = "hook.test"
        self.mutating = mutating
        self.resource = resource
        self.operations = operations
        self.is_optional = False
        self.namespace_labels: Object = {}
        self.asked: list[Object] = []
        self._answer = answer

    def matches(self, obj: Object, namespace_labels: dict[str, str]) -> bool:
        self.namespace_labels = namespace_labels
        return "ignored" not in (obj["metadata"].get("labels") or {})

    async def review(self, admission_review: Object) -> Object:
        self.asked.append(admission_review["request"])
        await anyio.sleep(1)
        uid = admission_review["request"]["uid"]
        return {"response": {"uid": uid, **self._answer(admission_review["request"])}}


def _label(key: str) -> Callable[[Object], Object]:
    def answer(request: Object) -> Object:
        labels = request["object"]["metadata"].get("labels") or {}
        patch = [{"op": "add", "path": "/metadata/labels", "value": {**labels, key: str(len(labels))}}]
        encoded = base64.b64encode(msgspec.json.encode(patch)).decode()
        return {"allowed": True, "patchType": "JSONPatch", "patch": encoded}

    return answer


def _allow(_: Object) -> Object:
    return {"allowed": True}


def _deny(_: Object) -> Object:
    return {"allowed": False, "status": {"code": 403, "message": "not today"}}


async def test_mutations_build_on_each_other_and_validation_sees_the_result(server: MemoryApiServer) -> None:
    last = Hook(_allow, mutating=False)
    for hook in (last, Hook(_label("first")), Hook(_label("second"))):
        server.add_webhook(hook)
    response = await send(server.transport("alice"), "POST", PODS, pod("p"))
    assert decoded(response)["metadata"]["labels"] == {"first": "0", "second": "1"}
    (request,) = last.asked
    assert request["object"]["metadata"]["labels"] == {"first": "0", "second": "1"}
    assert request["userInfo"]["username"] == "alice"
    assert (request["operation"], request["namespace"], request["name"]) == ("CREATE", "ns", "p")
    assert request["resource"] == {"group": "", "version": "v1", "resource": "pods"}
    assert request["oldObject"] is None
    assert last.namespace_labels == {"kubernetes.io/metadata.name": "ns"}


async def test_a_pod_has_no_name_yet_when_mutated_but_has_one_when_validated(server: MemoryApiServer) -> None:
    first, last = Hook(_allow), Hook(_allow, mutating=False)
    server.add_webhook(first)
    server.add_webhook(last)
    await send(server.transport(), "POST", PODS, pod("", generateName="gen-"))
    assert "name" not in first.asked[0]["object"]["metadata"]
    assert last.asked[0]["object"]["metadata"]["name"].startswith("gen-")
    # Built-in admission came before.
    assert first.asked[0]["object"]["spec"]["priority"] == 0


async def test_a_denial_stops_the_write(server: MemoryApiServer) -> None:
    server.add_webhook(Hook(_deny, mutating=False))
    response = await send(server.transport(), "POST", PODS, pod("p"))
    assert response.status == 403
    assert decoded(response)["message"] == 'admission webhook "hook.test" denied the request: not today'
    assert (await send(server.transport(), "GET", f"{PODS}/p")).status == 404


@pytest.mark.parametrize(
    "answer",
    [{"allowed": True, "patch": "!", "patchType": "JSONPatch"}, {"patchType": 3, "allowed": 1, "patch": "W10="}],
)
async def test_a_hook_that_talks_nonsense_fails_the_write(server: MemoryApiServer, answer: Object) -> None:
    server.add_webhook(Hook(lambda _: answer))
    assert (await send(server.transport(), "POST", PODS, pod("p"))).status == 500


async def test_what_does_not_match_is_not_asked(server: MemoryApiServer) -> None:
    hook = Hook(_deny)
    server.add_webhook(hook)
    assert (await send(server.transport(), "POST", PODS, pod("p", labels={"ignored": "x"}))).status == 201
    assert (await send(server.transport(), "PATCH", f"{PODS}/p", {"metadata": {"labels": {"a": "b"}}})).status == 200
    assert hook.asked == []


async def test_a_hook_is_asked_by_what_those_before_it_made_of_the_object(server: MemoryApiServer) -> None:
    before, later = Hook(_label("ignored")), Hook(_label("later"))
    server.add_webhook(before)
    server.add_webhook(later)
    response = await send(server.transport(), "POST", PODS, pod("p"))
    assert decoded(response)["metadata"]["labels"] == {"ignored": "0"}
    assert later.asked == []


async def test_bindings_are_seen_by_those_who_ask_for_them(server: MemoryApiServer) -> None:
    hook = Hook(_deny, mutating=False, resource="pods/binding")
    server.add_webhook(hook)
    await send(server.transport(), "POST", PODS, pod("p"))
    binding = {"metadata": {"name": "p"}, "target": {"name": "n"}}
    assert (await send(server.transport(), "POST", f"{PODS}/p/binding", binding)).status == 403
    assert (hook.asked[0]["subResource"], hook.asked[0]["kind"]["kind"]) == ("binding", "Binding")


async def test_a_deletion_is_seen_by_those_who_ask_for_it(server: MemoryApiServer) -> None:
    hook = Hook(_deny, mutating=False, operations=("DELETE",))
    server.add_webhook(hook)
    transport = server.transport()
    await send(transport, "POST", PODS, pod("p"))
    assert (await send(transport, "DELETE", f"{PODS}/p")).status == 403
    assert (await send(transport, "GET", f"{PODS}/p")).status == 200
    assert [(asked["operation"], asked["name"]) for asked in hook.asked] == [("DELETE", "p")]
    # What is meant for another object need not be asked about.
    wrong = {"preconditions": {"uid": "another"}}
    assert (await send(transport, "DELETE", f"{PODS}/p", wrong)).status == 409
    assert len(hook.asked) == 1


async def test_an_eviction_is_seen_by_those_who_ask_for_it(server: MemoryApiServer) -> None:
    hook = Hook(_deny, mutating=False, resource="pods/eviction")
    server.add_webhook(hook)
    transport = server.transport()
    await send(transport, "POST", PODS, pod("p"))
    eviction = {"metadata": {"name": "p"}}
    assert (await send(transport, "POST", f"{PODS}/p/eviction", eviction)).status == 403
    assert (await send(transport, "GET", f"{PODS}/p")).status == 200
    (asked,) = hook.asked
    assert (asked["operation"], asked["subResource"], asked["kind"]["kind"]) == ("CREATE", "eviction", "Eviction")


async def test_a_patch_is_made_anew_when_the_object_changed_meanwhile(server: MemoryApiServer) -> None:
    await send(server.transport(), "POST", PODS, pod("p"))
    hook = Hook(_allow, operations=("UPDATE",))
    server.add_webhook(hook)
    async with anyio.create_task_group() as group:
        for key in ("a", "b"):
            group.start_soon(send, server.transport(), "PATCH", f"{PODS}/p", {"metadata": {"labels": {key: "x"}}})
    stored = decoded(await send(server.transport(), "GET", f"{PODS}/p"))
    assert stored["metadata"]["labels"] == {"a": "x", "b": "x"}
    assert len(hook.asked) == 3


async def test_a_preconditioned_patch_is_not(server: MemoryApiServer) -> None:
    created = decoded(await send(server.transport(), "POST", PODS, pod("p")))
    server.add_webhook(Hook(_allow, operations=("UPDATE",)))
    rv = created["metadata"]["resourceVersion"]
    codes: list[int] = []

    async def patch(key: str) -> None:
        body = {"metadata": {"resourceVersion": rv, "labels": {key: "x"}}}
        codes.append((await send(server.transport(), "PATCH", f"{PODS}/p", body)).status)

    async with anyio.create_task_group() as group:
        group.start_soon(patch, "a")
        group.start_soon(patch, "b")
    assert sorted(codes) == [200, 409]


async def test_the_server_gives_up_when_the_caller_said(server: MemoryApiServer) -> None:
    server.add_webhook(Hook(_allow))
    response = await send(server.transport(), "POST", PODS, pod("p"), timeout="500ms")
    assert response.status == 504
    assert (await send(server.transport(), "GET", f"{PODS}/p")).status == 404


async def test_a_webhook_that_is_asked_twice_sees_what_it_made_and_what_others_made_of_that(
    server: MemoryApiServer,
) -> None:
    hooks = Hook(_label("first")), Hook(_label("second"))
    for hook in hooks:
        server.add_webhook(hook)
    server.faults.on_review.append(lambda _: ReviewFault(twice=True))
    response = await send(server.transport(), "POST", PODS, pod("p"))
    assert decoded(response)["metadata"]["labels"] == {"first": "2", "second": "2"}
    assert [len(hook.asked) for hook in hooks] == [2, 2]


@pytest.mark.parametrize(
    ("fault", "status", "took_s"),
    [
        (ReviewFault(down=True), 500, 0),
        (ReviewFault(delay_s=4), 201, 5),
        (ReviewFault(delay_s=5), 500, 5),
        (ReviewFault(delay_s=7, timeout_s=8), 201, 8),
    ],
)
async def test_a_webhook_that_does_not_answer_in_time_fails_the_write(
    server: MemoryApiServer, fault: ReviewFault, status: int, took_s: float
) -> None:
    hook = Hook(_allow)
    server.add_webhook(hook)
    server.faults.on_review.append(lambda _: fault)
    began = anyio.current_time()
    response = await send(server.transport(), "POST", PODS, pod("p"))
    assert (response.status, anyio.current_time() - began) == (status, took_s)
    if status == 500:
        assert decoded(response)["message"].startswith('Internal error occurred: failed calling webhook "hook.test": ')


async def test_of_two_default_priority_classes_the_lower_one_counts(server: MemoryApiServer) -> None:
    """Two of them come by a race. Tested here only: on a real server it would be every pod's."""
    transport = server.transport()
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    for name, value, is_default in (("high", 9, True), ("low", 5, True), ("lowest", 1, False)):
        body = {"metadata": {"name": name}, "value": value, "globalDefault": is_default}
        assert (await send(transport, "POST", classes, body)).status == 201
    spec = decoded(await send(transport, "POST", PODS, pod("p")))["spec"]
    assert (spec["priorityClassName"], spec["priority"]) == ("low", 5)


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"serviceAccountName": "x"}, 'error looking up service account ns/x: serviceaccount "x" not found'),
        ({"priorityClassName": "x"}, "no PriorityClass with name x was found"),
        ({"runtimeClassName": "x"}, 'pod rejected: RuntimeClass "x" not found'),
    ],
)
async def test_a_pod_that_names_what_is_not_there_is_refused_by_its_name(
    server: MemoryApiServer, spec: Object, why: str
) -> None:
    wanted = pod("p")
    response = await send(server.transport(), "POST", PODS, {**wanted, "spec": {**wanted["spec"], **spec}})
    assert response.status == 403
    assert decoded(response)["message"] == f'pods "p" is forbidden: {why}'


async def test_a_pod_whose_name_is_still_to_be_made_is_refused_by_its_beginning(server: MemoryApiServer) -> None:
    wanted = pod("", generateName="gen-")
    del wanted["metadata"]["name"]
    body = {**wanted, "spec": {**wanted["spec"], "priorityClassName": "x"}}
    response = await send(server.transport(), "POST", PODS, body)
    assert decoded(response)["message"] == 'pods "gen-" is forbidden: no PriorityClass with name x was found'


@pytest.mark.parametrize(("is_optional", "code"), [(True, 201), (False, 500)])
async def test_a_request_goes_on_without_an_optional_hook_that_does_not_answer(
    server: MemoryApiServer, is_optional: bool, code: int
) -> None:
    hook = Hook(_deny, mutating=False)
    hook.is_optional = is_optional
    server.add_webhook(hook)
    server.faults.on_review.append(lambda _: ReviewFault(down=True))
    assert (await send(server.transport("alice"), "POST", PODS, pod("p"))).status == code
    server.faults.on_review.clear()
    assert (await send(server.transport("alice"), "POST", PODS, pod("q"))).status == 403


RUNTIME_CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
KATA = {
    "metadata": {"name": "kata"},
    "handler": "kata",
    "overhead": {"podFixed": {"cpu": "250m"}},
    "scheduling": {"nodeSelector": {"vm": "yes"}, "tolerations": [{"key": "vm", "operator": "Exists"}]},
}


async def test_a_pod_gets_what_its_runtime_class_says(server: MemoryApiServer) -> None:
    assert (await send(server.transport(), "POST", RUNTIME_CLASSES, KATA)).status == 201
    wanted = pod("p")
    spec = {**wanted["spec"], "runtimeClassName": "kata", "nodeSelector": {"zone": "a"}}
    made = decoded(await send(server.transport(), "POST", PODS, {**wanted, "spec": spec}))["spec"]
    assert made["overhead"] == {"cpu": "250m"}
    assert made["nodeSelector"] == {"zone": "a", "vm": "yes"}
    assert {"key": "vm", "operator": "Exists"} in made["tolerations"]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"overhead": {"cpu": "1"}}, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"),
        ({"nodeSelector": {"vm": "no"}}, "conflict: runtimeClass.scheduling.nodeSelector conflicts with the pod's"),
    ],
)
async def test_a_pod_that_contradicts_its_runtime_class_is_refused(
    said: dict[str, Any], why: str, server: MemoryApiServer
) -> None:
    await send(server.transport(), "POST", RUNTIME_CLASSES, KATA)
    wanted = pod("p")
    spec = {**wanted["spec"], "runtimeClassName": "kata", **said}
    response = await send(server.transport(), "POST", PODS, {**wanted, "spec": spec})
    assert (response.status, decoded(response)["message"]) == (403, f'pods "p" is forbidden: {why}')


@pytest.mark.parametrize("said", [{}, {"runtimeClassName": "plain"}], ids=["no class", "a class without overhead"])
async def test_a_pod_with_an_overhead_that_no_runtime_class_says_is_refused(
    said: dict[str, Any], server: MemoryApiServer
) -> None:
    await send(server.transport(), "POST", RUNTIME_CLASSES, {"metadata": {"name": "plain"}, "handler": "plain"})
    wanted = pod("p")
    spec = {**wanted["spec"], "overhead": {"cpu": "1"}, **said}
    response = await send(server.transport(), "POST", PODS, {**wanted, "spec": spec})
    why = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
    assert (response.status, decoded(response)["message"]) == (403, f'pods "p" is forbidden: {why}')


async def test_the_text_of_a_secret_is_stored_among_its_data(server: MemoryApiServer) -> None:
    secret = {"metadata": {"name": "s"}, "data": {"a": "YQ==", "b": "Yg=="}, "stringData": {"b": "text"}}
    made = decoded(await send(server.transport(), "POST", "/api/v1/namespaces/default/secrets", secret))
    assert made["data"] == {"a": "YQ==", "b": "dGV4dA=="}
    assert "stringData" not in made
