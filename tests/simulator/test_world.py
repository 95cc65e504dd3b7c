"""The whole of Moorage in one process: what fits runs, nothing is over-committed, and what breaks is found."""

from __future__ import annotations

import asyncio
import contextlib
import random
import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import Any

import anyio
import msgspec
import pytest

from admission.settings import Choices, Guard
from admission.settings import Settings as AdmissionSettings
from kube.client.errors import NotFound
from kube.client.resources import PODS
from simulator import manifests, outcome
from simulator.checks.violations import LIVENESS, NOT_JUDGED, SAFETY, SOUND
from simulator.clock import VirtualClock, VirtualTimeLoop
from simulator.manifests import Manifest
from simulator.nodes import shape
from simulator.nodes.shape import ReservationFault
from simulator.world import World, WorldSettings
from tests.node.histories.keeping import written
from tests.node.histories.scenarios import BY_HAND, WITH_MOORAGE
from tests.node.histories.simulated import simulated
from tests.whole import seeds

VIRTUAL_TIME = True

#: Nothing is broken; what is judged at rest was not looked at.
HELD = {**dict.fromkeys(SAFETY, "held"), **dict.fromkeys(LIVENESS, NOT_JUDGED)}


def world(*nodes: str, **settings: Any) -> World:
    clock = VirtualClock(asyncio.get_running_loop())
    return World(shape.parse(nodes or ["1x8x80GiB"]), clock=clock, settings=WorldSettings(**settings))


def pods(count: int, *annotations: str, prefix: str = "p", limits: str = "") -> list[Manifest]:
    document = textwrap.dedent(
        """
        apiVersion: v1
        kind: Pod
        metadata: {{name: {name}, annotations: {{{annotations}}}}}
        spec:
          schedulerName: kai-scheduler
          containers: [{{name: main, image: work, resources: {{limits: {{{limits}}}}}}}]
        """
    )
    listed = ", ".join(annotations)
    texts = [document.format(name=f"{prefix}-{i}", annotations=listed, limits=limits) for i in range(count)]
    return manifests.load("---".join(texts))


def gang(minimum: int) -> list[Manifest]:
    return manifests.load(
        "apiVersion: scheduling.run.ai/v2alpha2\nkind: PodGroup\n"
        f"metadata: {{name: gang}}\nspec: {{minMember: {minimum}, queue: q}}\n"
    )


HALF = 'gpu-fraction: "0.5"'


def phases(running: World) -> Counter[str]:
    return Counter(pod.phase for pod in outcome.pods(running))


async def settled(running: World, *, limit_s: float = 3600.0) -> dict[str, str]:
    """Wait until nothing happens any more, clear everything away, and return the checker's report."""
    assert await running.until_idle(limit_s=limit_s)
    await running.clear()
    return dict(running.finish())


@pytest.mark.parametrize("seed", seeds(5))
async def test_sixteen_halves_fill_eight_devices_whatever_the_order_of_events(seed: int) -> None:
    async with world(seed=seed, event_delay_s=0.5) as running:
        await running.apply(pods(16, HALF))
        assert await running.until_idle()
        (node,) = outcome.nodes(running)
        assert [len(device.tenants) for device in node.devices] == [2] * 8
        assert phases(running) == {"Running": 16}
        assert await settled(running) == HELD


@pytest.mark.parametrize(
    ("manifest", "nodes", "expected"),
    [
        (pods(3, 'gpu-fraction: "0.333"'), "1x1x1GiB", {"Running": 3}),
        (pods(24, 'gpu-memory: "2000"'), "1x1x46068MiB", {"Running": 23, "Pending": 1}),
        (pods(2, 'gpu-fraction: "0.6"', 'gpu-fraction-num-devices: "2"'), "1x4x1GiB", {"Running": 2}),
        (pods(3, limits="nvidia.com/gpu: 2"), "2x3x1GiB", {"Running": 2, "Pending": 1}),
        (gang(4) + pods(4, 'pod-group-name: "gang"', HALF), "1x2x1GiB", {"Running": 4}),
        (gang(4) + pods(4, 'pod-group-name: "gang"', HALF), "1x1x1GiB", {"Pending": 4}),
    ],
    ids=["thirds", "memory", "two devices", "whole", "a gang that fits", "a gang that does not"],
)
async def test_what_fits_runs_and_what_does_not_says_why(
    manifest: Sequence[Manifest], nodes: str, expected: dict[str, int]
) -> None:
    async with world(nodes) as running:
        await running.apply(manifest)
        assert await running.until_idle()
        assert phases(running) == expected
        assert all(pod.verdict for pod in outcome.pods(running) if pod.phase == "Pending")
        assert await settled(running) == HELD


@pytest.mark.parametrize(
    ("asked", "card_mib", "late"),
    [
        pytest.param((8192, 8192, 8192), 24576, 1, id="three thirds"),
        pytest.param((5120, 10240), 15360, 1, id="a third and two"),
        pytest.param((8192, 8192, 8191), 24576, 2, id="a MiB is left, and two are asked"),
    ],
)
async def test_memory_that_adds_up_to_a_card_runs_on_it_and_each_is_told_what_it_asked(
    asked: Sequence[int], card_mib: int, late: int
) -> None:
    async with world(f"1x1x{card_mib}MiB") as running:
        for number, mem_mib in enumerate(asked):
            await running.apply(pods(1, f'gpu-memory: "{mem_mib}"', prefix=f"p{number}"))
        assert await running.until_idle()
        assert sorted(pod.devices[0].mem_mib for pod in outcome.pods(running)) == sorted(asked)
        await running.apply(pods(1, f'gpu-memory: "{late}"', prefix="late"))
        assert await running.until_idle()
        assert phases(running) == {"Running": len(asked), "Pending": 1}
        assert await settled(running) == HELD


async def test_a_device_is_used_again_when_its_tenants_are_gone() -> None:
    async with world("1x1x1GiB") as running:
        await running.apply(pods(2, HALF))
        assert await running.until_idle()
        await running.apply(pods(1, limits="nvidia.com/gpu: 1", prefix="whole"))
        assert await running.until_idle()
        assert phases(running) == {"Running": 2, "Pending": 1}
        for i in range(2):
            await running.api.delete(PODS, f"p-{i}", namespace="default")
        assert await running.until_idle()
        assert phases(running) == {"Running": 1}
        assert await settled(running) == HELD


@pytest.mark.parametrize("seed", seeds(3))
@pytest.mark.parametrize("after_s", [0.1, 0.7, 1.3])
async def test_crashes_in_the_middle_change_nothing_in_the_end(seed: int, after_s: float) -> None:
    async with world(seed=seed, event_delay_s=0.2) as running:
        await running.apply(pods(16, HALF))
        await anyio.sleep(after_s)
        await running.restart(running.binder, pause_s=0.3)
        await running.restart(running.scheduler, pause_s=0.3)
        assert await running.until_idle()
        assert phases(running) == {"Running": 16}
        assert await settled(running) == HELD


async def test_a_node_that_rejects_a_reservation_does_not_keep_its_pod_from_running() -> None:
    async with world("2x1x1GiB") as running:
        for node in running.nodes.kubelets.values():
            node.reject_next(1)
        await running.apply(pods(1, HALF))
        assert await running.until_idle()
        assert phases(running) == {"Running": 1}
        assert await settled(running) == HELD


async def test_a_silent_reservation_does_not_hold_its_pod_for_ever() -> None:
    async with world("1x2x1GiB") as running:
        node = running.nodes["node-0"]
        node.faults.reservation = ReservationFault(silent=True)
        await running.apply(pods(1, HALF))
        await anyio.sleep(100)
        node.faults.reservation = ReservationFault()
        assert await running.until_idle()
        assert phases(running) == {"Running": 1}
        assert await settled(running) == HELD


async def test_containers_that_see_what_they_did_not_ask_for_are_found() -> None:
    """Without admission's guard an image's own NVIDIA_VISIBLE_DEVICES=all shows every GPU: the checker must see it."""
    async with world(admission=AdmissionSettings(choices=Choices(guard=Guard.OFF))) as running:
        await running.apply(pods(1))
        report = await settled(running)
        assert "container main of default/p-0 sees GPU-" in report["S3"]
        assert "but it asked for none" in report["S3"]


async def test_a_reservation_process_that_lies_is_found() -> None:
    """A pod shown another device than its reservation holds has not got what it was given."""
    async with world("1x2x1GiB") as running:
        node = running.nodes["node-0"]
        truth, *_ = node.intake.manager.order
        (other,) = [device for device in node.devices if device != truth]
        node.faults.reservation = ReservationFault(lie=other.uuid)
        await running.apply(pods(1, HALF))
        await anyio.sleep(30)
        assert "the reservations of its groups hold" in running.checker.report["S3"]


def test_the_same_seed_writes_the_same() -> None:
    async def writes(seed: int) -> list[Any]:
        async with world(seed=seed, event_delay_s=0.3) as running:
            await running.apply(pods(6, HALF))
            await running.until_idle()
            return list(running.server.write_log)
        raise AssertionError

    # A loop each, so that both runs begin at the same time.
    loop = {"loop_factory": VirtualTimeLoop}
    first, again, other = (anyio.run(writes, seed, backend_options=loop) for seed in (5, 5, 6))
    assert first == again
    assert first != other


# Random runs of the whole: arrivals, deletions, crashes, rejections and late events. Every invariant holds in each.


def batches(rng: random.Random) -> list[list[Manifest]]:
    fraction = rng.choice(["0.25", "0.3", "0.5", "0.9"])
    drawn = [
        pods(rng.randrange(1, 12), f'gpu-fraction: "{fraction}"', prefix="fraction"),
        pods(rng.randrange(1, 6), 'gpu-memory: "20000"', prefix="memory"),
        pods(rng.randrange(1, 4), limits="nvidia.com/gpu: 1", prefix="whole"),
        pods(2, 'gpu-fraction: "0.4"', 'gpu-fraction-num-devices: "2"', prefix="two"),
        gang(4) + pods(4, 'pod-group-name: "gang"', HALF, prefix="member"),
    ]
    rng.shuffle(drawn)
    return drawn


async def delete_one(running: World, rng: random.Random) -> None:
    pod = rng.choice(outcome.pods(running))
    with contextlib.suppress(NotFound):
        await running.api.delete(PODS, pod.name, namespace=pod.namespace, grace_s=rng.choice([None, None, 0]))


@pytest.mark.thorough
@pytest.mark.parametrize("seed", seeds(12))
async def test_a_storm_breaks_nothing_and_leaves_nothing(seed: int) -> None:
    rng = random.Random(seed)
    async with world("3x4x80GiB", seed=seed, event_delay_s=rng.choice([0.0, 0.1, 1.0])) as running:
        for batch in batches(rng):
            await running.apply(batch)
            await anyio.sleep(rng.random() * 2)
            if rng.random() < 0.4:
                await running.restart(rng.choice([running.scheduler, running.binder]), pause_s=rng.random())
            if rng.random() < 0.3:
                await delete_one(running, rng)
            if rng.random() < 0.2:
                running.nodes[f"node-{rng.randrange(3)}"].reject_next(1)
        assert await running.until_idle()
        unlucky = [pod for pod in outcome.pods(running) if pod.phase != "Running"]
        assert all(pod.verdict for pod in unlucky)
        await running.clear()
        assert dict(running.finish()) == HELD


# The simulated node tells what a real one told, of the same scenarios (tests/node/histories).

_SCENARIOS = {**BY_HAND, **WITH_MOORAGE}


@pytest.mark.parametrize("scenario", _SCENARIOS)
async def test_the_simulated_node_tells_what_a_real_one_told(scenario: str) -> None:
    async with simulated() as stage:
        await _SCENARIOS[scenario](stage)
        assert stage.telling.text == written(scenario)


async def test_a_pod_that_was_evicted_is_named_with_the_workload_that_it_went_for() -> None:
    def of_class(name: str, priority_class: str) -> list[Manifest]:
        (made,) = pods(1, prefix=name, limits="nvidia.com/gpu: 1")
        spec = {**made.body["spec"], "priorityClassName": priority_class, "terminationGracePeriodSeconds": 1}
        return [msgspec.structs.replace(made, body={**made.body, "spec": spec})]

    async with world("1x1x24GiB") as w:
        await w.apply(manifests.installed(of_class("low", "train")))
        await anyio.sleep(30)
        await w.apply([*of_class("high", "inference"), *pods(1, prefix="deleted")])
        await anyio.sleep(120)
        await w.api.delete(PODS, "deleted-0", namespace="default")
        await anyio.sleep(60)
        told = [(pod.name, pod.phase, pod.verdict) for pod in outcome.pods(w)]
    evicted = "Pod default/low-0 was preempted by higher priority workload default/high-0"
    assert told == [("high-0", "Running", ""), ("low-0", "Evicted", evicted)]


_WORKLOAD = """
apiVersion: {version}
kind: {kind}
metadata: {{name: low}}
spec:
  {spec}
  template:
    metadata: {{labels: {{app: low}}}}
    spec:
      schedulerName: kai-scheduler
      priorityClassName: train
      restartPolicy: {restart}
      terminationGracePeriodSeconds: 1
      containers: [{{name: main, image: work, resources: {{limits: {{nvidia.com/gpu: 1}}}}}}]
"""
_APPS = "selector: {matchLabels: {app: low}}"
_POLICY = "podFailurePolicy: {rules: [{action: %s, onPodConditions: [{type: DisruptionTarget}]}]}"
_INDEXED = "completions: 2\n  parallelism: 2\n  completionMode: Indexed\n  backoffLimitPerIndex"
_ONE_TOO_MANY = "Job low has failed: a pod of it was evicted, and"


_SET = """
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: s}
spec:
  replicas: 3
  podManagementPolicy: POLICY
  selector: {matchLabels: {app: s}}
  template:
    metadata: {labels: {app: s}}
    spec:
      schedulerName: kai-scheduler
      containers: [{name: main, image: work, resources: {limits: {nvidia.com/gpu: 1}}}]
"""


@pytest.mark.parametrize(("policy", "there"), [("OrderedReady", ["s-0", "s-1"]), ("Parallel", ["s-0", "s-1", "s-2"])])
async def test_a_pod_of_a_stateful_set_is_made_once_the_one_before_is_ready(policy: str, there: list[str]) -> None:
    """There is one GPU: the second pod waits for it, so it is never ready."""
    async with world("1x1x80GiB") as w:
        await w.apply(manifests.load(_SET.replace("POLICY", policy)))
        assert await w.until_idle()
        assert sorted(pod.name for pod in outcome.pods(w)) == there
        assert phases(w) == {"Running": 1, "Pending": len(there) - 1}
        await w.clear()
        assert set(w.finish().values()) <= SOUND


@pytest.mark.parametrize(
    ("kind", "spec", "replaced", "failed"),
    [
        pytest.param("ReplicaSet", f"replicas: 2\n  {_APPS}", 1, "", id="ReplicaSet"),
        pytest.param("StatefulSet", f"replicas: 2\n  {_APPS}", 1, "", id="StatefulSet"),
        pytest.param("Job", "parallelism: 2", 1, "", id="Job"),
        pytest.param("Job", "parallelism: 2\n  backoffLimit: 0", 0, "spec.backoffLimit is 0", id="no backoff"),
        pytest.param(
            "Job",
            f"parallelism: 2\n  backoffLimit: 0\n  {_POLICY % 'Ignore'}",
            1,
            "",
            id="ignored by its policy",
        ),
        pytest.param(
            "Job",
            f"parallelism: 2\n  {_POLICY % 'FailJob'}",
            0,
            "spec.podFailurePolicy fails it",
            id="fails by its policy",
        ),
        pytest.param(
            "Job",
            f"{_INDEXED}: 0",
            0,
            "",
            id="an index has failed",
        ),
        pytest.param(
            "Job",
            f"{_INDEXED}: 1\n  {_POLICY % 'FailJob'}",
            0,
            "spec.podFailurePolicy fails it",
            id="an index fails all",
        ),
    ],
)
async def test_an_evicted_pod_is_made_again_as_its_controller_would(
    kind: str, spec: str, replaced: int, failed: str
) -> None:
    restart, version = ("Never", "batch/v1") if kind == "Job" else ("Always", "apps/v1")
    text = _WORKLOAD.format(version=version, kind=kind, spec=spec, restart=restart)
    async with world("1x2x24GiB", replaces_evicted=True) as w:
        await w.apply(manifests.installed(manifests.load(text)))
        await anyio.sleep(60)
        (urgent,) = pods(1, prefix="high", limits="nvidia.com/gpu: 1")
        body = {**urgent.body, "spec": {**urgent.body["spec"], "priorityClassName": "inference"}}
        await w.apply([msgspec.structs.replace(urgent, body=body)])
        await anyio.sleep(300)
        found = [pod for pod in outcome.pods(w) if pod.name != "high-0"]
        (evicted,) = (pod for pod in found if pod.phase == outcome.EVICTED)
        assert "default/high-0" in evicted.verdict
        pending = {pod.name for pod in found if pod.phase == "Pending"}
        assert (evicted.name in pending) == (kind == "StatefulSet")
        ended = [pod for pod in found if pod.reason == outcome.JOB_FAILED]
        assert (len(pending), len(found)) == (replaced, 2 + replaced)
        assert [pod.verdict for pod in ended] == [f"{_ONE_TOO_MANY} {failed}"] * bool(failed)
        assert evicted.verdict.endswith(f"; {_ONE_TOO_MANY} {failed}") == bool(failed)
        await w.clear()
        assert set(w.finish().values()) <= SOUND
