"""What tracing costs: processor time of the scheduler for each pod of one GPU that it binds, with it and without.

The same control plane and nodes for all; one round of each way follows the other, each with a scheduler that was
started before its pods are made. Pods are told to run as soon as they are bound, so that their whole traces are told.
"""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import anyio

from admission.tracing import PodTraces as AdmissionTraces
from admission.tracing import Review
from bench import bench_cluster, objects, processes
from bench.bench_cluster import Stage
from bench.contenders import ALONE, Moorage
from bench.result import Figures, Sizes
from binder.telemetry.tracing import ActionCarried, AttemptEnded
from binder.telemetry.tracing import AttemptTraces as BinderTraces
from kube.client.clock import SystemClock
from kube.telemetry.tracing import Tracer
from runtime.tracing.exporter import Exporting
from scheduler.core.model.plan import Bind, Placement, Plan
from scheduler.telemetry.events import Attempted, Decided
from scheduler.telemetry.events import PodTraces as SchedulerTraces
from sharing.attempt import Attempt
from sharing.outcome import BoundTold, JoinedAs, Outcome, RequestDropped, Verified
from sharing.state import Action, DropRequest, Join, TellBound, Verify
from tools.cluster.deployment import SCHEDULER, Deployment, Options
from tools.cluster.plane import ControlPlane
from wire import names
from wire.core import ObjectMeta, OwnerReference, Pod, PodSpec, PodStatus
from wire.crds.bindrequest import BindRequest

_BOUND_WITHIN_S: Final = 300.0
#: For the last events to be taken, and the last batch of spans to be sent.
_REST_S: Final = 6.0
#: A process that has started uses less than this in a second, and has so long to get there.
_AT_REST_S: Final = 0.03
_STARTED_WITHIN_S: Final = 120.0
#: None has started before it has used so much.
_STARTS_S: Final = 0.5
#: Way -> the part of all pods that is traced, "" for none.
WAYS: Final = {"off": "", "ratio 0.01": "0.01", "ratio 1": "1"}
#: The same in billionths.
RATIOS: Final = {"ratio 0.01": 10_000_000, "ratio 1": 1_000_000_000}
_BATCH: Final = 600
_BATCHES: Final = 2
_LOOK_S: Final = 0.5
_ALONE_ROUNDS: Final = 2
_RUNNING: Final = {"status": {"phase": "Running"}}

NOTES: Final = (
    "cpu_ms_per_pod: processor time of the scheduler's process, all threads, from when it has its lists until its pods "
    "are bound, run, and are told to the collector, for each pod: the least of the rounds. Others use the machine, and "
    "what they do only adds.",
    "more_percent: the median, over the rounds, of what a way took more than the round without tracing beside it; "
    "more_percent_of_least compares the least of each.",
    "A traced pod of one GPU has six spans from the scheduler. The collector is a process that forgets what it takes.",
    "us_per_pod: processor time of tracing alone, in one process: all that a component tells of a pod, encoded and "
    "sent. Making pods for it is in it, too, some 15 us. It is little moved by what else the machine does: compare it "
    "with cpu_ms_per_pod.",
)


def measure(sizes: Sizes) -> Figures:
    """All rounds on one control plane, then reviews."""
    nodes, rounds = sizes.tracing
    with ControlPlane(node_lifecycle=False) as plane, _sink() as endpoint:
        found = anyio.run(_rounds, plane, nodes, rounds, endpoint)
        alone = _alone(endpoint)
    least = {way: min(of_way) for way, of_way in found.items()}
    figures: dict[str, Any] = {
        way: {
            "cpu_ms_per_pod": round(least[way], 3),
            "more_percent": _more(found[way], found["off"]),
            "more_percent_of_least": round((least[way] / least["off"] - 1) * 100, 1),
            "of_rounds": [round(one, 3) for one in found[way]],
        }
        for way in found
    }
    figures |= alone
    return Figures(
        sizes={"nodes": nodes, "pods": nodes * objects.CARDS, "rounds": rounds},
        notes=NOTES,
        figures=figures,
    )


def _more(traced: Sequence[float], off: Sequence[float]) -> float:
    return round(statistics.median((one / other - 1) * 100 for one, other in zip(traced, off, strict=True)), 1)


@contextmanager
def _sink() -> Iterator[str]:
    with subprocess.Popen([sys.executable, "-m", "bench.sink"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()


async def _rounds(plane: ControlPlane, nodes: int, rounds: int, endpoint: str) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    async with bench_cluster.stage(plane, nodes=nodes) as scene:
        with Deployment(plane, Options(components=(), arguments=ALONE)) as deployment:
            for _ in range(rounds):
                for way, ratio in WAYS.items():
                    asked = ("--traces-endpoint", endpoint, "--traces-ratio", ratio) if ratio else ()
                    found[way].append(await _round(scene, deployment, asked, nodes * objects.CARDS))
    return found


async def _round(scene: Stage, deployment: Deployment, asked: Sequence[str], count: int) -> float:
    """Milliseconds of processor time for each pod."""
    pods = [objects.whole(f"pod-{i:05}", scheduler=Moorage.scheduler_name) for i in range(count)]
    pod_names = [pod["metadata"]["name"] for pod in pods]
    deployment.start(SCHEDULER, *asked)
    await _at_rest(deployment.pid(SCHEDULER))
    async with bench_cluster.observed(scene) as observer:
        pid = deployment.pid(SCHEDULER)
        before_s = processes.cpu_s(pid)
        await scene.create(bench_cluster.PODS, pods)
        await observer.bound(pod_names, within_s=_BOUND_WITHIN_S)
        await scene.patch_all([f"{bench_cluster.PODS}/{name}/status" for name in pod_names], _RUNNING)
        await anyio.sleep(_REST_S)
        used_s = processes.cpu_s(pid) - before_s
    deployment.check()
    deployment.kill(SCHEDULER)
    await scene.clear()
    return used_s / count * 1e3


async def _at_rest(pid: int) -> None:
    """Wait until a process has started: importing takes seconds on a busy machine, and is not what is measured."""
    with anyio.fail_after(_STARTED_WITHIN_S):
        used_s = -1.0
        while processes.cpu_s(pid) - used_s > _AT_REST_S or used_s < _STARTS_S:
            used_s = processes.cpu_s(pid)
            await anyio.sleep(1.0)


def _alone(endpoint: str) -> dict[str, dict[str, float]]:
    """Microseconds of processor time that tracing takes for a pod in each component, the least of the rounds."""
    kinds = {"scheduler": _scheduled, "binder": _bound, "admission": _reviewed}
    used: dict[str, list[float]] = {}
    for _ in range(_ALONE_ROUNDS):
        for component, pods in kinds.items():
            for way, ratio_nano in RATIOS.items():
                us = anyio.run(_used_us, endpoint, ratio_nano, pods)
                used.setdefault(f"{component}, {way}", []).append(us)
    return {row: {"us_per_pod": round(min(of_row), 1)} for row, of_row in used.items()}


async def _used_us(endpoint: str, ratio_nano: int, pods: Callable[[Tracer], Callable[[int], None]]) -> float:
    """What is told of pods, the sending by the other thread included; without what the same costs untraced."""
    sink = Exporting(f"{endpoint}/v1/traces", resource={"service.name": "bench"}, headers={})
    tell = pods(Tracer(sink, clock=SystemClock(), ratio_nano=ratio_nano))
    used_s = 0.0
    for batch in range(1 + _BATCHES):
        began_s = time.process_time()
        for number in range(batch * _BATCH, (batch + 1) * _BATCH):
            tell(number)
        # No more than has room in its queue, or what is dropped would cost nothing.
        while sink.waiting:  # noqa: ASYNC110 - a thread sends them, and tells nobody
            await anyio.sleep(_LOOK_S)
        # The first is to warm up.
        used_s = used_s + time.process_time() - began_s if batch else 0.0
    sink.close(30.0)
    if sink.counts()["dropped"] or sink.counts()["failed"]:
        raise AssertionError(sink.counts())
    return used_s / (_BATCH * _BATCHES) * 1e6


def _scheduled(tracer: Tracer) -> Callable[[int], None]:
    traces = SchedulerTraces(tracer, scheduler_name=names.SCHEDULER_NAME)
    traces.leads(True)

    def tell(number: int) -> None:
        uid = f"7f0c1a52-0000-4000-8000-{number:012}"
        placement = Placement(pod_uid=uid, namespace="team", name="train", rv="1", node="node-1")
        now_s = anyio.current_time()
        traces.seen(_pod(uid))
        traces.take(Decided(Plan(entries=(Bind(placement),)), now_s, now_s, now_s))
        traces.take(Attempted(placement, now_s, now_s, None))
        traces.of(uid)
        traces.seen(_pod(uid, node="node-1"))
        traces.seen(_pod(uid, node="node-1", phase=names.RUNNING))
        traces.gone(uid)

    return tell


def _bound(tracer: Tracer) -> Callable[[int], None]:
    traces = BinderTraces(tracer)
    took: Sequence[tuple[Action, Outcome]] = (
        (Join("group"), JoinedAs("group", "reservation", "1")),
        (Verify("group"), Verified("group")),
        (TellBound(), BoundTold()),
        (DropRequest(), RequestDropped()),
    )

    def tell(number: int) -> None:
        uid = f"7f0c1a52-0000-4000-8000-{number:012}"
        attempt = Attempt(
            id=f"r{uid}", namespace="team", name="train", pod_uid=uid, pod_name="train", node="node-1", rv="1"
        )
        now_s = anyio.current_time()
        traces.seen(_pod(uid))
        owner = OwnerReference(api_version="v1", kind="Pod", name="train", uid=uid)
        traces.requested(BindRequest(metadata=ObjectMeta(uid=attempt.id, owner_references=[owner])))
        for action, outcome in took:
            traces.take(ActionCarried(attempt, action, outcome, now_s, now_s))
        traces.of(attempt)
        traces.seen(_pod(uid, node="node-1"))
        traces.dropped(attempt.id)
        traces.take(AttemptEnded(attempt, None, 0.0))
        traces.seen(_pod(uid, node="node-1", phase=names.RUNNING))

    return tell


def _reviewed(tracer: Tracer) -> Callable[[int], None]:
    traces = AdmissionTraces(tracer, rng=random.Random(1))
    pod = {"metadata": {"annotations": {names.GPU_FRACTION: "0.5"}}}

    def tell(_: int) -> None:
        review = Review("mutate", traces.now_ns(), pod, "team/train")
        traces.admitted(review, traces.marked(review, pod))

    return tell


def _pod(uid: str, *, node: str = "", phase: str = names.PENDING) -> Pod:
    return Pod(
        metadata=ObjectMeta(name="train", namespace="team", uid=uid, creation_timestamp="2026-01-01T00:00:00Z"),
        spec=PodSpec(scheduler_name=names.SCHEDULER_NAME, node_name=node),
        status=PodStatus(phase=phase),
    )
