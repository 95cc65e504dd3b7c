"""Pods with ResourceClaims are explained by what claims get, where that may be read."""

from __future__ import annotations

from typing import Any

import pytest

from kube.client.resources import DEVICE_TAINT_RULES, PODS
from runtime.options.selection import POD
from scheduler.settings import SchedulerSettings
from simulator.apiserver import types
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import Fault
from simulator.world import World, WorldSettings
from tests.scheduler import stage
from tests.scheduler.commit.devices import DRIVER, create_claim, devices, using
from ui.explain import explanation, tables
from ui.queues import reader
from ui.queues.count import Known
from ui.queues.pools import About
from wire import names

VIRTUAL_TIME = True

UNLESS = "the scheduler's next decision places it, unless something that was not read keeps it waiting."
WALL_S = 1_767_225_700
RULES = WorldSettings(seed=1, scheduler=SchedulerSettings(device_taint_rules=True))
#: The note where the scheduler's pods do not show whether rules count.
UNKNOWN = "whether the scheduler follows DeviceTaintRules (--device-taint-rules): {}, and they do not count here"


def refuse(plural: str) -> Any:
    def judge(call: Call) -> Fault | None:
        return Fault(refuse_with=403) if call.user == "someone" and call.kind.plural == plural else None

    return judge


async def read(world: World, name: str = "waits") -> Known:
    about = About(kind=POD, name=name, namespace=stage.TEAM)
    return await reader.read(stage.api_of(world, "someone"), wall_s=WALL_S, about=about)


def told(known: Known, name: str = "waits") -> tuple[str, tuple[str, ...]]:
    """The sentence about a pod, and what was not looked at, but for what is never looked at of a pod that waits."""
    subject = explanation.subject(known, POD, stage.TEAM, name)
    found = explanation.explained(known, subject, [], WALL_S)
    unread = (*known.unread, *explanation.not_looked_at(known, subject, found))
    view = tables.group_view(found, is_in_doubt=explanation.is_in_doubt(known, subject, found))
    return view.message, tuple(each for each in unread if not each.startswith("PodDisruptionBudgets"))


def _serve_rules(world: World) -> None:
    world.server.define(types.DEVICE_TAINT_RULES)


async def create_rule(world: World) -> None:
    """Taint all devices of the first node."""
    spec = {"deviceSelector": {"driver": DRIVER, "pool": "node-0"}, "taint": {"key": "ill", "effect": "NoSchedule"}}
    await world.resource_claims.api.create(DEVICE_TAINT_RULES, {"metadata": {"name": "ill"}, "spec": spec})


async def create_scheduler_pod(world: World, *arguments: str) -> None:
    """Create a pod like those of the chart."""
    labels = {"app.kubernetes.io/name": "moorage", "app.kubernetes.io/component": "scheduler"}
    container = {"name": "scheduler", "image": "moorage", "args": ["scheduler", *arguments]}
    body = {"metadata": {"name": "s", "labels": labels}, "spec": {"containers": [container]}}
    await world.api.create(PODS, body, namespace=names.SYSTEM_NAMESPACE)


async def test_a_pod_whose_claim_finds_no_device_is_explained_as_its_scheduler_tells_it() -> None:
    async with stage.stage("2x0x80GiB") as world, devices(world, 1, 0) as made:
        for name in ("runs", "waits"):
            await create_claim(made, name)
            await stage.create(world, using(stage.pod(name), name))
            await stage.settle()
        message, unread = told(await read(world))
        assert message.endswith(" ".join(stage.waits_because(world, "waits").split()))
        assert "cannot allocate all claims" in message
        assert unread == ()


async def test_a_pod_whose_claim_is_not_there_is_told_so_and_one_whose_claim_fits_that_it_starts() -> None:
    async with stage.stage("1x0x80GiB") as world, devices(world, 1) as made:
        await stage.create(world, using(stage.pod("waits"), "late"))
        await stage.settle()
        assert "late" in told(await read(world))[0]
        await create_claim(made, "late")
        assert "fits now" in told(await read(world))[0]


@pytest.mark.parametrize("plural", ["resourceclaims", "resourceslices", "deviceclasses"])
async def test_where_a_kind_may_not_be_read_claims_are_named_as_not_looked_at(plural: str) -> None:
    async with stage.stage("1x0x80GiB") as world, devices(world, 0) as made:
        await create_claim(made, "c")
        await stage.create(world, using(stage.pod("waits"), "c"), stage.pod("other", gpus=1))
        await stage.settle()
        world.server.faults.on_request.append(refuse(plural))
        known = await read(world)
        message, unread = told(known)
        assert message.endswith(UNLESS)
        assert [each.partition(" ")[0] for each in unread] == [plural, "ResourceClaims"]
        assert [each.partition(" ")[0] for each in told(known, "other")[1]] == [plural]


@pytest.mark.parametrize(
    ("arguments", "waits", "notes"),
    [
        (("--device-taint-rules",), True, []),
        ((), False, []),
        (("--config=/etc/file",), False, [UNKNOWN.format("a file of settings or a ConfigMap may say it")]),
        (None, False, [UNKNOWN.format("no pod of it is seen")]),
    ],
)
async def test_rules_that_taint_devices_count_as_the_pods_of_the_scheduler_say(
    arguments: tuple[str, ...] | None, waits: bool, notes: list[str]
) -> None:
    async with stage.stage("1x0x80GiB", settings=RULES, before=_serve_rules) as world, devices(world, 1) as made:
        await create_rule(world)
        if arguments is not None:
            await create_scheduler_pod(world, *arguments)
        await create_claim(made, "c")
        await stage.create(world, using(stage.pod("waits"), "c"))
        await stage.settle()
        message, unread = told(await read(world))
        assert ("cannot allocate all claims" in message) is waits
        assert message.endswith(UNLESS) is bool(notes)
        assert list(unread) == notes


@pytest.mark.parametrize(
    ("arguments", "left_out"),
    [((), []), (("--device-taint-rules",), ["DeviceTaintRules,", "ResourceClaims"]), (None, ["DeviceTaintRules,"])],
)
async def test_rules_that_may_not_be_read_keep_claims_from_being_looked_at_if_they_count(
    arguments: tuple[str, ...] | None, left_out: list[str]
) -> None:
    async with stage.stage("1x0x80GiB", settings=RULES, before=_serve_rules) as world, devices(world, 1) as made:
        await create_rule(world)
        if arguments is not None:
            await create_scheduler_pod(world, *arguments)
        await create_claim(made, "c")
        await stage.create(world, using(stage.pod("waits"), "c"))
        await stage.settle()
        world.server.faults.on_request.append(refuse("devicetaintrules"))
        message, unread = told(await read(world))
        assert message.endswith(UNLESS) is bool(left_out)
        assert [each.partition(" ")[0] for each in unread] == ["devicetaintrules", *left_out]


async def test_a_scheduler_that_follows_rules_which_the_cluster_does_not_serve_lets_claims_wait() -> None:
    async with stage.stage("1x0x80GiB", settings=RULES) as world, devices(world, 1) as made:
        await create_scheduler_pod(world, "--device-taint-rules")
        await create_claim(made, "c")
        await stage.create(world, using(stage.pod("waits"), "c"))
        await stage.settle()
        message, unread = told(await read(world))
        assert message.endswith(" ".join(stage.waits_because(world, "waits").split()))
        assert unread == ()
