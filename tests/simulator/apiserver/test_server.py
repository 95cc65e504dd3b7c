"""What only the server in memory has: records, one run from one seed, limits, lists, what a budget answers."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import anyio
import msgspec
import pytest

from kube.client.transport import Response
from simulator.apiserver.calls import AuditEntry
from simulator.apiserver.server import MemoryApiServer
from simulator.apiserver.types import ResourceType
from simulator.clock import VirtualClock
from tests.simulator.apiserver.calls import CONFIG_MAPS, PODS, decoded, pod, send
from tests.steps import counted


async def test_every_answer_is_on_record(server: MemoryApiServer) -> None:
    transport = server.transport("alice")
    await send(transport, "POST", PODS, pod("p"))
    await send(transport, "POST", f"{PODS}/p/binding", {"metadata": {"name": "p"}, "target": {"name": "n"}})
    await send(transport, "GET", f"{PODS}/q")

    def entry(verb: str, sub: str, name: str, code: int) -> AuditEntry:
        return AuditEntry(
            user="alice", verb=verb, resource="pods", subresource=sub, namespace="ns", name=name, code=code
        )

    assert server.audit == [
        entry("create", "", "", 201),
        entry("create", "binding", "p", 201),
        entry("get", "", "q", 404),
    ]
    assert [(each.method, each.path) for each in server.write_log] == [("POST", PODS), ("POST", f"{PODS}/p/binding")]


async def _run(seed: int) -> tuple[list[object], bytes]:
    clock = VirtualClock(asyncio.get_running_loop(), epoch_ns=1_800_000_000_000_000_000)
    server = MemoryApiServer(clock=clock, rng=random.Random(seed), auto_namespaces=True)
    transport = server.transport()
    for _ in range(5):
        await send(transport, "POST", PODS, {**pod("", generateName="p-")})
    return list(server.write_log), (await send(transport, "GET", PODS)).body


async def test_a_seed_makes_the_same_run_again() -> None:
    assert await _run(1) == await _run(1)
    assert (await _run(1))[1] != (await _run(2))[1]


async def test_a_namespace_is_made_when_first_used_if_told_so(server: MemoryApiServer) -> None:
    assert (await send(server.transport(), "POST", CONFIG_MAPS, {"metadata": {"name": "a"}})).status == 201
    assert (await send(server.transport(), "GET", "/api/v1/namespaces/ns")).status == 200


async def test_history_is_kept_for_so_many_changes() -> None:
    clock = VirtualClock(asyncio.get_running_loop())
    server = MemoryApiServer(clock=clock, rng=random.Random(1), auto_namespaces=True, history=3)
    transport = server.transport()
    versions = []
    for name in "abcdef":
        created = await send(transport, "POST", CONFIG_MAPS, {"metadata": {"name": name}})
        versions.append(decoded(created)["metadata"]["resourceVersion"])

    async def types_from(version: str) -> list[str]:
        query = {"watch": "1", "resourceVersion": version, "timeoutSeconds": "1"}
        async with transport.stream(CONFIG_MAPS, query=query, timeout_s=5) as (_, lines):
            return [line[9:14].decode() async for line in lines]

    assert await types_from(versions[2]) == ["ADDED"] * 3
    assert await types_from(versions[1]) == ["ERROR"]


async def test_who_listens_is_told_of_what_is_there_and_of_every_change(server: MemoryApiServer) -> None:
    transport = server.transport()
    await send(transport, "POST", CONFIG_MAPS, {"metadata": {"name": "a"}})
    told: list[tuple[str, str, bool]] = []

    def tell(kind: ResourceType, raw: bytes, is_gone: bool) -> None:
        told.append((kind.plural, msgspec.json.decode(raw)["metadata"]["name"], is_gone))

    server.listen(tell)
    assert ("configmaps", "a", False) in told
    told.clear()
    await send(transport, "POST", CONFIG_MAPS, {"metadata": {"name": "b"}})
    await send(transport, "PATCH", f"{CONFIG_MAPS}/a", {"data": {"k": "v"}})
    await send(transport, "DELETE", f"{CONFIG_MAPS}/a")
    assert told == [("configmaps", "b", False), ("configmaps", "a", False), ("configmaps", "a", True)]


async def test_a_dry_run_is_refused(server: MemoryApiServer) -> None:
    body = {"metadata": {"name": "a"}}
    response = await send(server.transport(), "POST", CONFIG_MAPS, body, dryRun="All")
    assert (response.status, decoded(response)["reason"]) == (501, "NotImplemented")
    assert (await send(server.transport(), "GET", f"{CONFIG_MAPS}/a")).status == 404


async def test_foreground_deletion_is_refused(server: MemoryApiServer) -> None:
    await send(server.transport(), "POST", CONFIG_MAPS, {"metadata": {"name": "a"}})
    response = await send(server.transport(), "DELETE", f"{CONFIG_MAPS}/a", {"propagationPolicy": "Foreground"})
    assert (response.status, decoded(response)["reason"]) == (501, "NotImplemented")
    assert (await send(server.transport(), "GET", f"{CONFIG_MAPS}/a")).status == 200


async def test_server_side_apply_is_an_unknown_media_type(server: MemoryApiServer) -> None:
    transport = server.transport()
    await send(transport, "POST", CONFIG_MAPS, {"metadata": {"name": "a"}})
    response = await transport.request(
        "PATCH", f"{CONFIG_MAPS}/a", query={}, body=b"{}", content_type="application/apply-patch+yaml", timeout_s=1
    )
    assert response.status == 415


async def test_a_restored_server_has_what_there_was_and_whoever_watched_has_to_list_again(
    server: MemoryApiServer,
) -> None:
    api = server.transport()
    for name in ("stays", "goes", "again"):
        await send(api, "POST", CONFIG_MAPS, {"metadata": {"name": name}, "data": {"k": "old"}})
    before = decoded(await send(api, "GET", CONFIG_MAPS))
    backup = server.resource_version
    await send(api, "PATCH", f"{CONFIG_MAPS}/stays", {"data": {"k": "new"}})
    for name in ("goes", "again"):
        await send(api, "DELETE", f"{CONFIG_MAPS}/{name}")
    for name in ("again", "comes"):
        await send(api, "POST", CONFIG_MAPS, {"metadata": {"name": name}})
    seen = server.resource_version
    server.restore(backup)
    after = decoded(await send(api, "GET", CONFIG_MAPS))
    kept = [[(each["metadata"]["uid"], each["data"]) for each in listing["items"]] for listing in (before, after)]
    assert kept[0] == kept[1]
    # As of etcd: each object has the version that it had, and every later write has a newer one.
    versions = [[each["metadata"]["resourceVersion"] for each in listing["items"]] for listing in (before, after)]
    assert versions[0] == versions[1]
    assert server.resource_version > seen
    patched = decoded(await send(api, "PATCH", f"{CONFIG_MAPS}/goes", {"data": {"k": "newer"}}))
    assert int(patched["metadata"]["resourceVersion"]) > seen
    query = {"watch": "1", "resourceVersion": str(seen)}
    async with api.stream(CONFIG_MAPS, query=query, timeout_s=5) as (_, lines):
        (line,) = [msgspec.json.decode(line) async for line in lines]
    assert (line["type"], line["object"]["code"]) == ("ERROR", 410)


async def test_a_namespace_that_was_going_when_etcd_was_restored_goes_and_one_that_was_not_stays(
    server: MemoryApiServer,
) -> None:
    transport = server.transport()
    await send(transport, "POST", CONFIG_MAPS, {"metadata": {"name": "a"}})
    home = CONFIG_MAPS.rpartition("/")[0]
    before = server.resource_version
    await send(transport, "DELETE", home)
    server.restore(before)
    await anyio.sleep(1)
    assert (await send(transport, "GET", f"{CONFIG_MAPS}/a")).status == 200
    await send(transport, "DELETE", home)
    going = server.resource_version
    await anyio.sleep(1)
    assert (await send(transport, "GET", home)).status == 404
    server.restore(going)
    await anyio.sleep(1)
    assert (await send(transport, "GET", home)).status == 404


async def test_a_restored_server_has_the_objects_and_versions_of_then_and_counts_on(server: MemoryApiServer) -> None:
    transport = server.transport()
    for name in ("changed", "deleted", "kept"):
        await send(transport, "POST", CONFIG_MAPS, {"metadata": {"name": name}, "data": {"k": "then"}})
    then = server.resource_version
    await send(transport, "PATCH", f"{CONFIG_MAPS}/changed", {"data": {"k": "now"}})
    await send(transport, "DELETE", f"{CONFIG_MAPS}/deleted")
    await send(transport, "POST", CONFIG_MAPS, {"metadata": {"name": "new"}})
    now = server.resource_version
    server.restore(then)
    items = decoded(await send(transport, "GET", CONFIG_MAPS))["items"]
    assert {item["metadata"]["name"]: item["data"]["k"] for item in items} == {
        "changed": "then",
        "deleted": "then",
        "kept": "then",
    }
    versions = {item["metadata"]["name"]: int(item["metadata"]["resourceVersion"]) for item in items}
    assert max(versions.values()) <= then
    assert server.resource_version > now


ALL = "/api/v1/pods"
OTHERS = 400


async def _names(server: MemoryApiServer, selector: str, path: str = ALL) -> list[str]:
    listed = decoded(await send(server.transport(), "GET", path, fieldSelector=selector))
    return [each["metadata"]["name"] for each in listed["items"]]


async def _bind(server: MemoryApiServer, name: str, node: str) -> Response:
    target = {"metadata": {"name": name}, "target": {"name": node}}
    return await send(server.transport(), "POST", f"{PODS}/{name}/binding", target)


async def test_the_pods_of_a_node_are_found_whatever_was_done_to_them_since(server: MemoryApiServer) -> None:
    transport = server.transport()
    for name in "cab":
        await send(transport, "POST", PODS, pod(name))
    assert await _names(server, "spec.nodeName=n") == []
    await _bind(server, "c", "n")
    await _bind(server, "a", "n")
    assert await _names(server, "spec.nodeName=n") == ["a", "c"]
    assert await _names(server, "spec.nodeName=n", PODS) == ["a", "c"]
    assert await _names(server, "spec.nodeName=n", "/api/v1/namespaces/other/pods") == []
    assert await _names(server, "spec.nodeName=") == ["b"]
    assert await _names(server, "spec.nodeName!=n") == ["b"]
    assert await _names(server, "spec.nodeName=n,metadata.name=c") == ["c"]
    await send(transport, "DELETE", f"{PODS}/c", {"gracePeriodSeconds": 0})
    assert await _names(server, "spec.nodeName=n") == ["a"]
    assert await _names(server, "spec.nodeName=elsewhere") == []


async def _steps(server: MemoryApiServer) -> int:
    with counted() as steps:
        await _names(server, "spec.nodeName=n")
    return steps.taken


async def test_a_list_of_one_nodes_pods_costs_no_more_for_pods_elsewhere(server: MemoryApiServer) -> None:
    await send(server.transport(), "POST", PODS, pod("p"))
    await _bind(server, "p", "n")
    await _names(server, "spec.nodeName=n")
    alone = await _steps(server)
    for number in range(OTHERS):
        await send(server.transport(), "POST", PODS, pod(f"other-{number}"))
    assert await _steps(server) <= 1.2 * alone


_BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
_PODS = "/api/v1/namespaces/default/pods"


async def _refused(server: MemoryApiServer, status: dict[str, Any]) -> tuple[int, str, int | None]:
    """Evict a ready pod under a budget of this status: code, what is said, when to come again."""
    client = server.transport()
    made = {
        "metadata": {"name": "p", "labels": {"app": "a"}},
        "spec": {"nodeName": "n1", "containers": [{"name": "main", "image": "busybox"}]},
    }
    await send(client, "POST", _PODS, made)
    running = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await send(client, "PATCH", f"{_PODS}/p/status", {"status": running})
    budget = {"metadata": {"name": "b"}, "spec": {"selector": {"matchLabels": {"app": "a"}}, "minAvailable": 1}}
    await send(client, "POST", _BUDGETS, budget)
    await send(client, "PATCH", f"{_BUDGETS}/b/status", {"status": status})
    answer = await send(client, "POST", f"{_PODS}/p/eviction", {"metadata": {"name": "p"}})
    body = decoded(answer)
    causes = body["details"].get("causes") or [{"message": body["message"]}]
    retry_s = answer.headers.get("retry-after")
    return answer.status, causes[0]["message"], int(retry_s) if retry_s else None


_NOT_SYNCED = {"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "message": "no scale"}
_ALL_BUSY = {"type": "DisruptionAllowed", "status": "False", "reason": "Busy", "message": "wait"}
_SEEN = {"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 2, "desiredHealthy": 1}
_HEAD = "The disruption budget b "


@pytest.mark.parametrize(
    ("status", "code", "says", "retry_s"),
    [
        ({"disruptionsAllowed": 5}, 429, f"{_HEAD}is still being processed by the server.", 10),
        ({**_SEEN, "currentHealthy": 1}, 429, f"{_HEAD}needs 1 healthy pods and has 1 currently", None),
        (_SEEN, 429, f"{_HEAD}does not allow evicting pods currently", None),
        (
            {**_SEEN, "conditions": [_NOT_SYNCED]},
            429,
            f"{_HEAD}does not allow evicting pods currently because it failed sync: no scale",
            None,
        ),
        (
            {**_SEEN, "conditions": [_ALL_BUSY]},
            429,
            f"{_HEAD}does not allow evicting pods currently (Busy): wait",
            None,
        ),
        (
            {**_SEEN, "disruptionsAllowed": -1},
            403,
            'poddisruptionbudget.policy "b" is forbidden: pdb disruptions allowed is negative',
            None,
        ),
        (
            {**_SEEN, "disruptedPods": {f"p{i}": "2026-01-01T00:00:00Z" for i in range(2001)}},
            403,
            'poddisruptionbudget.policy "b" is forbidden: DisruptedPods map too big - too many evictions not '
            "confirmed by PDB controller",
            None,
        ),
    ],
    ids=["not counted", "too few", "none", "not synced", "other reason", "negative", "too many noted"],
)
async def test_a_budget_says_why_it_lets_nobody_go(
    server: MemoryApiServer, status: dict[str, Any], code: int, says: str, retry_s: int | None
) -> None:
    assert await _refused(server, status) == (code, says, retry_s)
