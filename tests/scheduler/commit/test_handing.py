"""BindRequests: KAI's shape with the exact charges beside it, created once whatever the answers are."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import msgspec
import pytest

from gpu.bind_request import Handover, PlannedDevice, parse
from gpu.dialects import kai
from gpu.request import GpuRequest
from kube.client.api import Api
from kube.client.resources import BIND_REQUESTS, NAMESPACES, PODS
from kube.client.retry import Retry
from scheduler.commit.bind_requests import NotHanded, create_request, request_manifest
from scheduler.core.model.plan import Placement
from simulator.apiserver.faults import Fault, once
from simulator.apiserver.server import MemoryApiServer
from simulator.clock import VirtualClock
from tests.scheduler.stage import is_call, pod, share
from wire import names
from wire.core import Pod

PLACEMENT = Placement(
    pod_uid="uid-1",
    namespace="team-a",
    name="trainer",
    rv="17",
    node="node-1",
    devices=(PlannedDevice("group-1", 500_000_000),),
)


def _request(wanted: dict[str, Any]) -> GpuRequest:
    translated = kai.translate(msgspec.convert(wanted, Pod))
    assert isinstance(translated, GpuRequest)
    return translated


def test_a_share_is_handed_over_as_kai_writes_it_with_exact_charges_beside() -> None:
    made = request_manifest(PLACEMENT, _request(share("trainer")), plan="p", members=8)
    assert made["metadata"]["name"] == "trainer"
    assert made["metadata"]["labels"] == {"selected-node": "node-1"}
    assert made["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Pod", "name": "trainer", "uid": "uid-1"}
    ]
    assert made["spec"] == {
        "podName": "trainer",
        "selectedNode": "node-1",
        "receivedResourceType": "Fraction",
        "receivedGPU": {"count": 1, "portion": "0.50"},
        "selectedGPUGroups": ["group-1"],
    }
    assert parse(made["metadata"]["annotations"][names.HANDOVER]) == Handover("17", PLACEMENT.devices, "p", 8)


def test_the_portion_of_memory_is_rounded_up_as_kai_does() -> None:
    placement = msgspec.structs.replace(PLACEMENT, devices=(PlannedDevice("group-1", 132_371_435, mem_mib=2000),))
    made = request_manifest(placement, _request(share("trainer")))
    assert made["spec"]["receivedGPU"] == {"count": 1, "portion": "0.14"}


def test_a_gang_member_with_whole_gpus_is_handed_over_as_regular() -> None:
    placement = msgspec.structs.replace(PLACEMENT, devices=())
    made = request_manifest(placement, _request(pod("trainer", gpus=2)))
    assert made["spec"]["receivedResourceType"] == "Regular"
    assert made["spec"]["receivedGPU"] == {"count": 2, "portion": "1.00"}
    assert "selectedGPUGroups" not in made["spec"]


async def _ready() -> tuple[MemoryApiServer, Api, Placement]:
    """A server with the pod that is placed: a request whose owner is not there would be collected."""
    server = MemoryApiServer(clock=VirtualClock(asyncio.get_running_loop()), rng=random.Random(1))
    api = Api(server.transport("scheduler"), retry=Retry(random.Random(1)), timeout_s=1.0)
    await api.create(NAMESPACES, {"metadata": {"name": "team-a"}})
    owner = await api.create(PODS, {"apiVersion": "v1", "kind": "Pod", **share("trainer")}, namespace="team-a")
    return server, api, msgspec.structs.replace(PLACEMENT, pod_uid=owner.metadata.uid)


@pytest.mark.parametrize("lost", ["request", "answer"])
async def test_a_request_without_an_answer_is_there_once(lost: str) -> None:
    server, api, placement = await _ready()
    fault = Fault(lost=lost)  # type: ignore[arg-type] # parametrised with the literals
    server.faults.on_request.append(once(fault, when=is_call("scheduler", "create", "bindrequests")))
    made = await create_request(api, request_manifest(placement, _request(share("trainer"))))
    listed = await api.list(BIND_REQUESTS)
    assert [item.metadata.uid for item in listed.items] == [made.metadata.uid]


async def test_an_older_request_of_that_name_goes_first() -> None:
    _, api, placement = await _ready()
    older = msgspec.structs.replace(placement, node="node-0")
    await create_request(api, request_manifest(older, _request(share("trainer"))))
    made = await create_request(api, request_manifest(placement, _request(share("trainer"))))
    listed = await api.list(BIND_REQUESTS)
    assert [item.spec.selected_node for item in listed.items] == ["node-1"]
    assert listed.items[0].metadata.uid == made.metadata.uid


async def test_a_request_refused_for_good_is_not_asked_for_again() -> None:
    server, api, placement = await _ready()
    refuse = is_call("scheduler", "create", "bindrequests")
    server.faults.on_request.append(lambda call: Fault(refuse_with=403) if refuse(call) else None)
    with pytest.raises(NotHanded):
        await create_request(api, request_manifest(placement, _request(share("trainer"))))
