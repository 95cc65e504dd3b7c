from __future__ import annotations

import base64
from typing import Any

import anyio
import msgspec
import pytest

from kube.client.resources import GPU_NODES, NODES
from nodeagent.core.devices import Lost, Machine
from reservation.device import Unreadable
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import NOTHING, Fault
from simulator.apiserver.types import MOORAGE
from tests.nodeagent.node import AGENT, CARDS, MACHINE, NODE, Scene, scene
from wire import names
from wire.crds.gpunode import CardHealth, TenantStatus


def kinds(it: Scene) -> list[str]:
    return [write for write in it.writes() if "gpunodes" in write]


async def test_a_node_says_its_cards_and_goes_with_its_node_object() -> None:
    async with scene() as it:
        await it.start()
        await anyio.sleep(1.0)
        made = await it.gpu_node()
        owners = made.metadata.owner_references or []
        assert len(owners) == 1
        owner = owners[0]
        node = await it.api.get(NODES, NODE)
        assert (owner.kind, owner.name, owner.uid) == ("Node", NODE, node.metadata.uid)
        assert (made.status.gpus, made.status.healthy) == (2, 2)
        assert [card.uuid for card in made.status.cards or ()] == ["GPU-a", "GPU-b"]
        assert (made.status.agent.version, made.status.agent.plugin_mode) == ("1.2.3", "off")
        assert kinds(it) == ["create gpunodes", "patch gpunodes/status"]


async def test_an_agent_whose_driver_does_not_answer_says_so_and_keeps_the_cards_that_it_knew() -> None:
    async with scene() as it:
        await it.start()
        await anyio.sleep(1.0)
        it.machine[0] = Unreadable("unable to initialize NVML: Driver Not Loaded")
        await anyio.sleep(310.0)
        status = (await it.gpu_node()).status
        assert [(each.what, each.why) for each in status.agent.missing or ()] == [
            ("devices", "unable to initialize NVML: Driver Not Loaded")
        ]
        assert status.gpus == 2
        it.machine[0] = Machine(CARDS[:1], {})
        await anyio.sleep(310.0)
        status = (await it.gpu_node()).status
        assert (status.gpus, status.agent.missing) == (1, None)


async def test_a_lost_gpu_is_told_with_the_drivers_words_and_the_others_are_used_as_before() -> None:
    async with scene() as it:
        await it.start()
        await anyio.sleep(1.0)
        why = "unable to get device handle: GPU is lost"
        it.machine[0] = Machine(CARDS[:1], {CARDS[0].uuid: MACHINE.devices[CARDS[0].uuid]}, (Lost(1, why),))
        await anyio.sleep(310.0)
        status = (await it.gpu_node()).status
        assert (status.gpus, status.healthy, status.agent.missing) == (2, 1, None)
        assert [(card.uuid, card.health) for card in status.cards or ()] == [
            ("GPU-a", None),
            ("GPU-b", CardHealth(state="ill", reason=why)),
        ]
        it.kubelet.given = {"r": ("GPU-a",)}
        await it.reserve()
        await anyio.sleep(1.0)
        assert (await it.annotations())[names.RESERVE_FOR_GPU_INDEX] == "GPU-a"
        it.machine[0] = MACHINE
        await anyio.sleep(310.0)
        assert (await it.gpu_node()).status.healthy == 2


async def test_a_gpu_that_was_lost_before_the_agent_started_is_told_by_its_index() -> None:
    async with scene() as it:
        it.machine[0] = Machine(CARDS[:1], {}, (Lost(1, "unable to get device handle: GPU is lost"),))
        await it.start()
        await anyio.sleep(1.0)
        status = (await it.gpu_node()).status
        assert status.gpus == 1
        assert [(each.what, each.why) for each in status.agent.missing or ()] == [
            ("GPU 1", "unable to get device handle: GPU is lost")
        ]


async def test_many_changes_become_one_write_and_use_waits_five_minutes() -> None:
    async with scene() as it:
        await it.start()
        await anyio.sleep(10.0)
        writes = len(kinds(it))
        for percent in range(20):
            it.agent.publishing.tell(health={"GPU-a": CardHealth(state="ill", reason=str(percent))})
            await anyio.sleep(0.1)
        await anyio.sleep(5.0)
        assert len(kinds(it)) == writes + 2
        assert (await it.gpu_node()).status.healthy == 1
        await anyio.sleep(300.0)
        writes = len(kinds(it))
        for percent in range(0, 60 * 60, 5):
            tenant = TenantStatus(pod_uid="u", pod="team/p", card="GPU-a", memory_percent=percent % 100)
            it.agent.publishing.tell(tenants=(tenant,))
            await anyio.sleep(5.0)
        assert 11 <= len(kinds(it)) - writes <= 13


async def test_one_that_was_deleted_is_made_again_and_one_that_was_changed_is_set_right() -> None:
    async with scene() as it:
        await it.start()
        await anyio.sleep(5.0)
        await it.api.delete(GPU_NODES, NODE)
        await anyio.sleep(5.0)
        assert (await it.gpu_node()).status.gpus == 2
        await it.api.patch(GPU_NODES, NODE, {"status": {"gpus": 9}}, subresource="status")
        await anyio.sleep(5.0)
        assert (await it.gpu_node()).status.gpus == 2


async def test_one_that_was_deleted_before_the_answer_to_its_creation_came_is_made_again() -> None:
    """The watch has shown its deletion by then, once; the answer shows an object that is gone."""
    async with scene() as it:

        def slows(call: Call) -> Fault | None:
            is_first = call.verb == "create" and call.kind.plural == GPU_NODES.plural and not kinds(it)
            return Fault(answer_delay_s=2.0) if is_first else None

        it.server.faults.on_request.append(slows)
        await it.start()
        await anyio.sleep(1.0)
        await it.api.delete(GPU_NODES, NODE)
        await anyio.sleep(30.0)
        assert (await it.gpu_node()).status.gpus == 2


async def test_while_its_node_object_is_gone_nothing_is_made() -> None:
    async with scene() as it:
        await it.api.delete(NODES, NODE)
        await it.start()
        await anyio.sleep(60.0)
        assert kinds(it) == []
        await it.api.create(NODES, {"metadata": {"name": NODE}})
        await anyio.sleep(1.0)
        assert (await it.gpu_node()).status.gpus == 2


async def test_where_the_kind_is_not_served_devices_are_told_all_the_same_and_later_it_is_written() -> None:
    async with scene(with_kind=False) as it:
        await it.start()
        it.kubelet.given = {"r": ("GPU-a",)}
        await it.reserve()
        await anyio.sleep(60.0)
        assert await it.annotations()
        assert kinds(it) == []
        it.server.define(MOORAGE[0])
        await anyio.sleep(60.0)
        assert (await it.gpu_node()).status.gpus == 2


@pytest.mark.parametrize("status", [403, 500])
async def test_refused_writes_are_tried_again_ever_more_seldom(status: int) -> None:
    async with scene() as it:
        refused = True

        def refuse(call: Call) -> Fault:
            is_meant = refused and call.user == AGENT and call.verb in {"create", "patch"}
            return Fault(refuse_with=status) if is_meant else NOTHING

        it.server.faults.on_request.append(refuse)
        await it.start()
        await anyio.sleep(3600.0)
        assert len(kinds(it)) < 60 * (1 if status == 403 else 8)
        refused = False
        await anyio.sleep(240.0)
        assert (await it.gpu_node()).status.gpus == 2


class Dropping:
    """Takes a field out of every status, as an API server with an older definition does."""

    name = "drops"
    mutating = True
    resource = "gpunodes/status"
    operations: tuple[str, ...] = ("UPDATE",)
    is_optional = False

    def matches(self, obj: Any, namespace_labels: dict[str, str]) -> bool:
        return True

    async def review(self, admission_review: Any) -> Any:
        request = admission_review["request"]
        patch = [{"op": "replace", "path": "/status/healthy", "value": 7}]
        answer = {"uid": request["uid"], "allowed": True, "patchType": "JSONPatch"}
        return {"response": {**answer, "patch": base64.b64encode(msgspec.json.encode(patch)).decode()}}


async def test_a_field_that_the_api_server_does_not_keep_is_not_written_again_and_again() -> None:
    async with scene() as it:
        it.server.add_webhook(Dropping())
        await it.start()
        await anyio.sleep(600.0)
        assert (await it.gpu_node()).status.healthy == 7
        assert kinds(it) == ["create gpunodes", "patch gpunodes/status"]
