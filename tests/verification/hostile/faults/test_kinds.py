"""All kinds together: their names, their JSON, and that each can be drawn."""

from __future__ import annotations

import random
from collections import Counter

import anyio
import msgspec
import pytest

from simulator.nodes import shape
from tests.verification.hostile.faults.grounds import stage
from verification.hostile.faults.drawing import draw
from verification.hostile.faults.kinds import (
    KINDS,
    OF_AGENTS,
    OF_CLAIMS,
    OF_PARTITIONING,
    OF_PREEMPTION,
    Fault,
    unpromised,
)

pytestmark = pytest.mark.thorough

MACHINES = shape.parse(["2x2x40GiB"])


def drawn(seed: int, **kwargs: object) -> tuple[Fault, ...]:
    return draw(random.Random(seed), MACHINES, **kwargs)  # type: ignore[arg-type] # the keywords of draw


def test_the_names_are_those_that_the_plan_speaks_of() -> None:
    assert set(KINDS) == {
        *("watch-delayed", "watch-held", "watch-repeated", "watch-cut", "watch-expired", "cache-old"),
        *("conflict", "expired", "throttled", "server-error", "time-out", "reset", "slow"),
        *("crash", "pause", "cut-off", "two-leaders", "older-version", "clock-jump"),
        *("node-lost", "node-rebooted", "node-reinstalled", "node-cut-off", "node-forgotten"),
        *("node-cordoned", "node-drained"),
        *("kubelet-refuses", "plugin-down", "plugin-lags", "gpu-ill", "slow-starts"),
        *("reservation-fails", "reservation-silent", "reservation-slow", "reservation-lies", "reservation-lies-afar"),
        *("reservation-unpullable", "agent-down", "agent-slow"),
        *("reservation-killed", "reservation-deleted", "reservation-vanishes", "reservation-evicted", "book-lost"),
        *("admission-down", "admission-slow", "admission-twice", "unauthorized", "forbidden"),
        *("node-replaced", "kubelet-forgets", "namespace-deleted", "reservations-deleted", "lease-deleted"),
        *("list-expired", "server-lags", "etcd-restored", "etcd-restored-live"),
        *("evictions-refused", "evictions-fail", "evictions-slow", "evictions-two-budgets", "victim-stays"),
        *("nominee-goes", "queue-vanishes", "nomination-conflict", "nominations-deleted"),
        *("claim-controller-down", "provisioner-down", "provisioning-fails", "provisioning-slow"),
        *("devices-vanish", "devices-renewed", "devices-tainted", "claims-remade", "rival-allocates"),
        *("claim-writes", "crash-at-claims", "claims-unheard"),
        *("partitioner-crashes", "partitioner-down", "mig-driver-fails", "mig-driver-slow", "kubelet-restarts"),
        *("slices-grabbed", "gpu-nodes-late", "gpu-nodes-unheard", "gpu-nodes-meddled"),
    }


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_each_kind_is_drawn_alone_and_survives_as_json(kind: str) -> None:
    for seed in range(20):
        faults = drawn(seed, kinds=[kind], schedulers=2, binders=2)
        assert {fault.kind for fault in faults} == {kind}
        assert msgspec.json.decode(msgspec.json.encode(faults), type=tuple[Fault, ...]) == faults


@pytest.mark.parametrize("kind", sorted(KINDS))
async def test_each_kind_is_over_when_it_says_and_leaves_no_rule_behind(kind: str) -> None:
    async with stage("2x2x40GiB") as on:
        rules = on.world.server.faults
        listeners = len(rules.on_answer)
        await on.pod("p", gpu_fraction="0.5")
        faults = drawn(7, kinds=[kind], duration_s=30.0)
        for fault in faults:
            on.strike(fault)
        await on.until(max(fault.end_s for fault in faults) + 1)
        assert [*rules.on_request, *rules.on_review, *rules.on_watch_line, *rules.on_watch_repeat] == []
        assert len(rules.on_answer) == listeners
        assert all(component.is_running for component in on.world.components.values())
        assert all(kubelet.is_answering for kubelet in on.world.nodes.kubelets.values())
        assert not any(clock.ahead_ns for clock in on.world.clocks.values())


def test_the_same_seed_draws_the_same() -> None:
    assert [drawn(seed) for seed in range(50)] == [drawn(seed) for seed in range(50)]
    assert len({drawn(seed) for seed in range(50)}) == 50


def test_most_runs_have_a_few_kinds_and_some_have_everything() -> None:
    sizes = Counter(len({fault.kind for fault in drawn(seed)}) for seed in range(400))
    assert 0.7 < sum(sizes[n] for n in (1, 2, 3)) / 400 < 0.9
    assert sum(count for size, count in sizes.items() if size > 20) > 20


@pytest.mark.parametrize("preemption", [False, True])
def test_faults_of_evictions_are_drawn_where_room_is_made(preemption: bool) -> None:
    kinds = {fault.kind for seed in range(200) for fault in drawn(seed, about=[OF_PREEMPTION] if preemption else [])}
    assert kinds & OF_PREEMPTION == (OF_PREEMPTION if preemption else set())
    assert kinds | OF_PREEMPTION == set(KINDS) - OF_AGENTS - OF_CLAIMS - OF_PARTITIONING


def test_faults_of_agents_are_drawn_where_there_are_some() -> None:
    kinds = {fault.kind for seed in range(200) for fault in drawn(seed, about=[OF_AGENTS])}
    assert kinds == set(KINDS) - OF_PREEMPTION - OF_CLAIMS - OF_PARTITIONING


def test_where_users_have_claims_there_is_a_fault_of_claims() -> None:
    chosen = [{fault.kind for fault in drawn(seed, about=[OF_CLAIMS])} for seed in range(200)]
    assert all(kinds & OF_CLAIMS for kinds in chosen)
    assert set().union(*chosen) >= OF_CLAIMS
    assert any(kinds - OF_CLAIMS for kinds in chosen)


def test_where_agents_make_slices_there_is_a_fault_of_that() -> None:
    chosen = [{fault.kind for fault in drawn(seed, about=[OF_PARTITIONING])} for seed in range(200)]
    assert all(kinds & OF_PARTITIONING for kinds in chosen)
    assert set().union(*chosen) >= OF_PARTITIONING


def test_faults_name_only_what_is_there() -> None:
    for seed in range(100):
        for fault in drawn(seed, schedulers=2, duration_s=10.0):
            assert getattr(fault, "node", "node-0") in {"node-0", "node-1"}
            assert getattr(fault, "component", "binder") in {"binder", "scheduler", "scheduler-2"}
            assert fault.at_s <= 10


def test_no_kinds_no_faults() -> None:
    assert drawn(1, kinds=()) == ()


def test_an_unknown_kind_is_refused_by_name_with_what_is_allowed() -> None:
    with pytest.raises(ValueError, match=r"faults tsunami: not known; allowed: admission-down, .*watch-repeated"):
        drawn(1, kinds=["crash", "tsunami"])


def test_only_what_is_drawn_excuses_an_invariant() -> None:
    assert unpromised(()) == frozenset()
    assert unpromised(drawn(1, kinds=["crash", "node-lost"])) == frozenset()
    assert unpromised(drawn(1, kinds=["reservation-lies"])) == {"S2", "S3", "S10", "L1", "L4"}
    excusing = sum(bool(unpromised(drawn(seed))) for seed in range(400))
    assert 0 < excusing < 120


async def test_all_kinds_at_once_end_too() -> None:
    async with stage("2x2x40GiB", schedulers=2, binders=2) as on:
        faults = [fault for kind in sorted(KINDS) for fault in drawn(3, kinds=[kind], duration_s=30.0)]
        async with anyio.create_task_group() as group:
            for fault in faults:
                group.start_soon(fault.strike, on.ground)
        assert on.now_s < max(fault.end_s for fault in faults) + 30
