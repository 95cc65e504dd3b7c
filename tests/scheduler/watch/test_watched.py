"""DeviceTaintRules are read only where that is asked for, and then claims wait until they could be read."""

from __future__ import annotations

import pytest

from kube.client.resources import DEVICE_TAINT_RULES
from scheduler.settings import SchedulerSettings
from simulator.apiserver import types
from simulator.world import World, WorldSettings
from tests.scheduler.commit.devices import claims_of, create_claim, devices, given, using
from tests.scheduler.stage import bound, create, pod, settle, stage, waits_because

_ON = WorldSettings(seed=1, scheduler=SchedulerSettings(device_taint_rules=True))


def _serve(world: World) -> None:
    world.server.define(types.DEVICE_TAINT_RULES)


async def _taint(world: World, device: str) -> None:
    spec = {"deviceSelector": {"device": device}, "taint": {"key": "example.com/ill", "effect": "NoSchedule"}}
    await world.api.create(DEVICE_TAINT_RULES, {"metadata": {"name": f"ill-{device}"}, "spec": spec})


@pytest.mark.parametrize(("settings", "device"), [(_ON, "d1"), (WorldSettings(seed=1), "d0")], ids=["on", "off"])
async def test_a_tainted_device_is_given_to_nobody_where_rules_are_read(settings: WorldSettings, device: str) -> None:
    async with stage("1x1x80GiB", settings=settings, before=_serve) as world, devices(world, 2) as made:
        await _taint(world, "d0")
        await create_claim(made, "c")
        await settle(1)
        await create(world, using(pod("p"), "c"))
        await settle(5)
        assert given((await claims_of(made))["c"]) == [("node-0", device)]


async def test_a_pod_waits_while_all_devices_are_tainted_and_starts_when_the_rule_is_gone() -> None:
    async with stage("1x1x80GiB", settings=_ON, before=_serve) as world, devices(world, 1) as made:
        await _taint(world, "d0")
        await create_claim(made, "c")
        await settle(1)
        await create(world, using(pod("p"), "c"))
        await settle(10)
        assert "cannot allocate all claims" in waits_because(world, "p")
        await world.api.delete(DEVICE_TAINT_RULES, "ill-d0")
        await settle(10)
        assert bound(world) == {"p"}


async def test_pods_whose_claims_are_not_allocated_wait_until_rules_are_served() -> None:
    async with stage("1x1x80GiB", settings=_ON) as world, devices(world, 1) as made:
        await create_claim(made, "c")
        await create(world, using(pod("p"), "c"), pod("other", gpus=1))
        await settle(60)
        assert bound(world) == {"other"}
        assert "can't read devicetaintrules.resource.k8s.io" in waits_because(world, "p")
        _serve(world)
        await settle(60)
        assert bound(world) == {"other", "p"}
