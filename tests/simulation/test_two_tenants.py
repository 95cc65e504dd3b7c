"""What is written into the objects of a namespace names nothing of another one: its people may read it."""

from __future__ import annotations

import random
from typing import Any

import pytest

from simulator.apiserver.calls import Call
from simulator.world import World
from tests.simulation.test_queues import LABEL, queue
from verification.hostile.actions import Action, CreatePod, CreatePodGroup
from verification.hostile.run import run
from verification.hostile.scenario import Scenario, Switches
from wire import names

pytestmark = pytest.mark.thorough

TENANTS = ("canary-red", "canary-blue")


def _actions(rng: random.Random) -> list[Action]:
    """Pods and gangs of two tenants, more than fit, so that each takes from the other and from itself."""
    made: list[Action] = [queue(tenant, quota=2) for tenant in TENANTS]
    for number in range(24):
        tenant, at_s = rng.choice(TENANTS), rng.uniform(5, 200)
        name, labels = f"{tenant}-{number}", {LABEL: rng.choice([tenant, *TENANTS])}
        asked: dict[str, Any] = rng.choice([{"gpus": 1}, {"gpus": 2}, {"annotations": {names.GPU_FRACTION: "0.5"}}])
        size = rng.choice([1, 1, 2])
        if size > 1:
            made.append(CreatePodGroup(at_s=at_s, name=name, minimum=size, labels=labels, namespace=tenant))
            asked = {**asked, "annotations": {**asked.get("annotations", {}), names.POD_GROUP_NAME: name}}
        made += [
            CreatePod(
                at_s=at_s, name=f"{name}-{at}", namespace=tenant, labels=labels, run_s=rng.choice([None, 60]), **asked
            )
            for at in range(size)
        ]
    return made


def test_no_text_names_an_object_of_another_namespace() -> None:
    told, leaks = set[str](), list[str]()

    def show(world: World) -> None:
        def answered(call: Call, code: int) -> None:
            if code >= 300 or call.namespace not in TENANTS or call.body is None:
                return
            text = call.body.decode()
            told.add(call.decoded().get("reason", "") if call.kind.plural == "events" else call.kind.plural)
            other = next(tenant for tenant in TENANTS if tenant != call.namespace)
            # A queue may have any name, and the pods here name those of both.
            if f"{other}-" in text or f"{other}/" in text:
                leaks.append(f"{call.verb} {call.kind.plural} {call.namespace}/{call.name}: {text}")

        world.server.faults.on_answer.append(answered)

    settings = Switches(preemption=True, suggestions=True, reserved_nodes_percent=50, patience_s=20.0)
    for seed in (0, 2):
        actions = tuple(_actions(random.Random(seed)))
        scenario = Scenario(seed=seed, shapes=("1x4x80GiB",), actions=actions, settings=settings, calm_s=60.0)
        assert run(scenario, show=show).violations == ()
    assert leaks == []
    assert {names.REASON_EVICT, names.REASON_UNSCHEDULABLE} <= told
