from __future__ import annotations

from kube.client.transport import Response
from simulator.apiserver.server import MemoryApiServer
from tests.simulator.apiserver.calls import PODS, decoded, pod, send
from tests.steps import counted

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
