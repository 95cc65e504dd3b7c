"""A tenant that means harm: what it is drawn to do. That all holds with it: tests/simulation/test_kinds.py."""

from __future__ import annotations

from collections import Counter

from verification.hostile import tenant
from verification.hostile.actions import Action, ChangePodGroup, CreatePod, DeletePodGroup, EditPod
from verification.hostile.queue_actions import CreateQueue
from verification.hostile.scenario import Scenario, scenario_of
from verification.hostile.tenant_actions import NAMESPACE, CreateOwned, TenantAction

MANY = range(100)


def _harm(scenario: Scenario) -> list[Action]:
    return [
        each
        for each in scenario.actions
        if isinstance(each, TenantAction)
        or getattr(each, "namespace", "") == NAMESPACE
        or (isinstance(each, CreateQueue) and each.name.startswith(NAMESPACE))
    ]


def test_the_others_do_and_suffer_what_they_would_without_it() -> None:
    for seed in range(20):
        made = tenant.scenario(seed)
        plain = [scenario_of(seed), scenario_of(seed, with_claims=True)]
        harm = _harm(made)
        assert harm
        assert tuple(each for each in made.actions if each not in harm) in [each.actions for each in plain]
        assert made.faults in [each.faults for each in plain]
        assert made.calm_s >= max(each.at_s for each in made.actions)


def _told(action: Action) -> str:
    match action:
        case CreateOwned(uid_of=uid_of):
            return "owner with the UID of another" if uid_of else "owner of nobody"
        case CreatePod(group=group):
            return "pod of a group" if group else "pod alone"
        case EditPod(labels=labels):
            return "labels of a pod that runs" if labels else "another group"
        case ChangePodGroup() | DeletePodGroup():
            return type(action).__name__
        case _:
            return type(action).__name__


def test_it_does_all_that_it_can_in_some_runs() -> None:
    told = Counter(_told(action) for seed in MANY for action in _harm(tenant.scenario(seed)))
    assert set(told) == {
        "owner with the UID of another",
        "owner of nobody",
        "pod of a group",
        "pod alone",
        "labels of a pod that runs",
        "another group",
        "CreatePodGroup",
        "ChangePodGroup",
        "DeletePodGroup",
        "DeletePod",
        "CreateLabelled",
        "CreateQueue",
        "Churn",
        "CreateEndless",
        "ForbidEvictions",
        "CreateSlowClaims",
    }
    assert min(told.values()) >= 5
