"""ResourceClaims and volumes in a part of the hostile runs: all that may happen to them does."""

from __future__ import annotations

import random

from simulator.nodes import shape
from verification.hostile import device_actions, variations, workload
from verification.hostile.actions import Action, CreatePod
from verification.hostile.device_actions import CreateResourceClaim, CreateVolumeClaim, PublishDevices
from verification.hostile.faults.kinds import OF_CLAIMS
from verification.hostile.scenario import scenario_of

SHAPES = shape.parse(["2x4x80GiB", "1x1x24GiB"])
MANY = range(300)


def drawn(seed: int) -> tuple[Action, ...]:
    return workload.draw(random.Random(seed), shapes=SHAPES, duration_s=20.0)


def claimed(seed: int, *, always: bool = False) -> tuple[Action, ...]:
    return variations.claimed(random.Random(seed), drawn(seed), shapes=SHAPES, duration_s=20.0, always=always)


def test_every_kind_of_action_comes_up_and_no_pod_is_lost() -> None:
    kinds: set[type] = set()
    for seed in MANY:
        made = claimed(seed, always=True)
        kinds |= {type(action) for action in made if type(action).__module__ == device_actions.__name__}
        count = sum(isinstance(action, CreatePod) for action in made)
        assert count == sum(isinstance(action, CreatePod) for action in drawn(seed))
        assert [action.at_s for action in made] == sorted(action.at_s for action in made)
    assert kinds == {*device_actions.ClaimAction.__args__} - {device_actions.RunDriver}


def test_some_gangs_share_a_claim_that_comes_no_later_than_they() -> None:
    runs = [claimed(seed, always=True) for seed in MANY]
    shared = [(each, run) for run in runs for each in run if isinstance(each, CreateResourceClaim) and each.pod_group]
    assert len(shared) > len(MANY) // 20
    for claim, run in shared:
        pods = [each for each in run if isinstance(each, CreatePod) and each.workload_group == claim.pod_group]
        assert pods
        assert all(each.group == claim.pod_group for each in pods)
        assert claim.at_s <= min(each.at_s for each in pods if each.templates and not each.claims)


def test_pods_alone_and_in_gangs_have_claims_of_each_kind_and_some_have_none() -> None:
    made = [action for seed in MANY for action in claimed(seed, always=True)]
    pods = [action for action in made if isinstance(action, CreatePod)]
    for field in ("claims", "templates", "volumes"):
        assert any(getattr(pod, field) and pod.group for pod in pods)
        assert any(getattr(pod, field) and not pod.group for pod in pods)
    assert any(pod.volumes and (pod.claims or pod.templates) for pod in pods)
    assert any(not (pod.claims or pod.templates or pod.volumes) for pod in pods)
    assert any((pod.claims or pod.templates) and (pod.gpus or pod.annotations) for pod in pods)
    assert {action.cls for action in made if isinstance(action, CreateVolumeClaim)} == {"fast", "slow"}
    offered = [device for action in made if isinstance(action, PublishDevices) for device in action.devices]
    for field in ("is_big", "is_tainted", "shared_gib"):
        assert any(getattr(device, field) for device in offered)


def test_runs_with_claims_have_faults_of_claims_and_others_have_none() -> None:
    for seed in range(60):
        made, plain = scenario_of(seed, with_claims=True), scenario_of(seed)
        assert variations.has_claims(made.actions)
        assert {fault.kind for fault in made.faults} & OF_CLAIMS
        if not variations.has_claims(plain.actions):
            assert not {fault.kind for fault in plain.faults} & OF_CLAIMS
