"""What a part of the hostile runs has: claims and volumes, pods that keep apart, timers of any length."""

from __future__ import annotations

import random

import msgspec

from binder.settings import BinderSettings
from kube.lead.lease import LeaseSettings
from scheduler.settings import SchedulerSettings
from simulator.nodes import shape
from simulator.world import GANG_GRACE_S
from verification.hostile import device_actions, variations, workload
from verification.hostile.actions import APART, Action, CreatePod
from verification.hostile.device_actions import CreateResourceClaim, CreateVolumeClaim, PublishDevices
from verification.hostile.faults.kinds import OF_CLAIMS
from verification.hostile.scenario import Scenario, Switches, scenario_of
from verification.hostile.variations import Timers, draw, spread_out

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


NODES = shape.parse(["3x2x40GiB"])


def kept_apart(size: int = 200) -> list[CreatePod]:
    """Pods of a run that has some."""
    made = workload.draw(random.Random(1), shapes=NODES, duration_s=60.0, size=size)
    return [action for action in spread_out(random.Random(1), made) if isinstance(action, CreatePod)]


def test_a_tenth_of_the_runs_have_pods_that_keep_apart_under_faults() -> None:
    having = [
        each
        for each in map(scenario_of, range(300))
        if any(isinstance(action, CreatePod) and action.apart for action in each.actions)
    ]
    assert 15 <= len(having) <= 45
    assert len({fault.kind for each in having for fault in each.faults}) > 30


def test_some_name_the_rule_and_others_have_its_label_only() -> None:
    alone = [pod for pod in kept_apart() if not pod.group]
    naming, labelled = [pod for pod in alone if pod.apart], [pod for pod in alone if APART in pod.labels]
    assert 0.4 < len(labelled) / len(alone) < 0.8
    assert 0.3 < len(naming) / len(labelled) < 0.7
    assert all(pod.labels[APART] == pod.apart for pod in naming)


def test_the_manifest_keeps_a_pod_off_nodes_that_have_one_of_its_kind() -> None:
    affinity = CreatePod(at_s=0, name="p", apart="a").manifest["spec"]["affinity"]
    (term,) = affinity["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term == {"labelSelector": {"matchLabels": {APART: "a"}}, "topologyKey": "kubernetes.io/hostname"}
    assert "affinity" not in CreatePod(at_s=0, name="p").manifest["spec"]


def names_of(settings: msgspec.Struct) -> set[str]:
    return {
        name
        for name, value in msgspec.structs.asdict(settings).items()
        if name.endswith("_s") and not name.endswith("_per_s")
    }


def test_every_time_that_scheduler_and_binder_can_be_given_is_drawn() -> None:
    timers = draw(random.Random(1))
    assert timers.scheduler.keys() == names_of(SchedulerSettings())
    assert timers.binder.keys() == names_of(BinderSettings())
    assert "sandbox_s" in timers.kubelet
    assert "stop_s" not in timers.kubelet


def test_what_is_drawn_is_what_the_cluster_is_made_with() -> None:
    timers = Timers(scheduler={"orphan_s": 3.5}, binder={"sweep_s": 0.5}, kubelet={"sandbox_s": 2.0}, lease=0.5)
    switches = Switches(timers=timers, election=True, schedulers=2)
    world = Scenario(seed=1, shapes=("1x1x24GiB",), settings=switches, calm_s=1.0).world
    assert world.scheduler.orphan_s == 3.5
    assert world.binder.sweep_s == 0.5
    assert world.kubelet.sandbox_s == 2.0
    assert world.election == LeaseSettings(duration_s=30, renew_deadline_s=22.5, retry_s=10.0, poll_s=7.5)


def test_a_gang_may_be_in_part_for_longer_where_timers_or_ends_are_longer() -> None:
    def grace_s(**switches: object) -> float:
        settings = msgspec.convert(switches, Switches)
        return Scenario(seed=1, shapes=("1x1x24GiB",), settings=settings, calm_s=1.0).world.gang_grace_s

    assert grace_s() == grace_s(timers=Timers(scheduler={"staleness_grace_s": 6.0})) == GANG_GRACE_S
    assert grace_s(timers=Timers(scheduler={"staleness_grace_s": 120.0})) == 2 * GANG_GRACE_S
    assert grace_s(stop_s=30.0) == GANG_GRACE_S + 25.0
