"""``moorage simulate``: what these manifests would do on a cluster of such nodes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import anyio
import msgspec
import yaml

from admission.settings import Choices
from admission.settings import Settings as AdmissionSettings
from gpu.dialects.settings import DialectSettings
from kube.client import errors
from kube.client.clock import Clock, SystemClock
from runtime.manifests import documents
from runtime.options.manifests import expanded, text_of
from runtime.options.output import FOR_PROGRAMS, WIDE
from runtime.output import Progress, write
from runtime.process import HARDLY_EVER, rare_collections
from runtime.text import BadInput, line
from simulator import installation, manifests, outcome
from simulator.clock import VirtualClock, VirtualTimeLoop
from simulator.manifests import Manifest
from simulator.nodes import shape
from simulator.nodes.shape import NodeShape
from simulator.outcome import Outcome
from simulator.world import World, WorldSettings
from ui import outcomes
from ui.page.recording import Recorder, recorded
from wire import names
from wire.core import Node
from wire.yaml_text import why_not_yaml


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked on the command line. ``until_s`` None: until nothing changes any more."""

    nodes: Sequence[str]
    files: Sequence[str]
    output: str = "table"
    seed: int = 0
    delay_s: float = 0.0
    until_s: float | None = None
    real_time: bool = False
    record: str | None = None
    details: bool = False
    adopt_all: bool = False
    node_labels: Sequence[str] = ()
    node_resources: Sequence[str] = ()
    dialects: DialectSettings = DialectSettings()


def run(request: Request, progress: Progress | None = None) -> int:
    """Simulate and print; return 0 if every invariant held, else 1. Raises BadInput."""
    progress = progress or Progress()
    try:
        shapes = shape.added(shape.parse(request.nodes), labels=request.node_labels, resources=request.node_resources)
        objects = read(request.files, progress, nodes=shapes)
        objects = manifests.installed(manifests.adopted(objects) if request.adopt_all else objects)
    except (shape.MalformedShape, shape.MalformedAddition, manifests.MalformedManifest) as error:
        raise BadInput(str(error)) from error
    loop = {} if request.real_time else {"loop_factory": VirtualTimeLoop}
    with rare_collections(HARDLY_EVER):
        result = anyio.run(_simulate, shapes, objects, request, progress, backend_options=loop)
        if isinstance(result, BadInput):
            raise result
        sys.stderr.writelines(f"moorage: {text}\n" for text in _left_to_others(result))
        if request.output in FOR_PROGRAMS:
            write(result, request.output)
        else:
            is_wide = request.output == WIDE
            outcomes.show(result, outcomes.console(), details=request.details, is_wide=is_wide)
    return 0 if result.all_held else 1


def read(
    files: Sequence[str],
    progress: Progress,
    *,
    nodes: Sequence[NodeShape | Node] = (),
    beside: Sequence[Manifest] = (),
) -> list[Manifest]:
    """Read files, the manifests in folders, and "-" for standard input; say on stderr what is passed over.

    ``beside``: classes of volumes that are there, which decide when claims of the manifests are bound. Raises BadInput,
    MalformedManifest.
    """
    found: list[Manifest] = []
    reader = manifests.Reader(nodes)
    for name in files:
        for path in expanded(name):

            def tick(file: str = str(path)) -> None:
                progress.tick(lambda: f"reading {line(file)}, objects read: {len(found)}")

            tick()
            found.extend(reader.read(_documents(text_of(path), path, tick), origin=str(path)))
    grouped = [each for each in reader.grouped([*beside, *found]) if each not in beside]
    sys.stderr.writelines(f"moorage: {line(text)}\n" for text in reader.passed.lines())
    return grouped


def _documents(text: str, path: Path, tick: Callable[[], None]) -> list[object]:
    try:
        return documents(text, tick)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadInput(f"{path}: not YAML: {why_not_yaml(error)}") from error


#: Each is a scheduler that runs.
_MOST_POOLS: Final = 16


def _pools(nodes: Sequence[NodeShape], objects: Sequence[Manifest]) -> tuple[str, ...]:
    """Return the node pools that nodes or manifests name, each of which has a scheduler. Raises BadInput."""
    labelled = [*(node.labels for node in nodes), *(each.body["metadata"].get("labels") for each in objects)]
    found = {(labels or {}).get(names.NODE_POOL_LABEL, "") for labels in labelled} - {""}
    if len(found) > _MOST_POOLS:
        raise BadInput(f"label {names.NODE_POOL_LABEL}: {len(found)} values; allowed: up to {_MOST_POOLS}")
    return tuple(sorted(found))


async def _simulate(
    shapes: Sequence[NodeShape], objects: Sequence[Manifest], request: Request, progress: Progress
) -> Outcome | BadInput:
    clock: Clock = SystemClock() if request.real_time else VirtualClock(asyncio.get_running_loop())
    admission = AdmissionSettings(choices=Choices(dialects=request.dialects))
    settings = WorldSettings(
        seed=request.seed,
        pools=_pools(shapes, objects),
        event_delay_s=request.delay_s,
        checks_queues=True,
        replaces_evicted=True,
        admission=admission,
    )
    world = World(shapes, clock=clock, settings=settings)
    # By requests, since a timer would change what happens in virtual time.
    world.server.faults.on_answer.append(lambda _call, _code: progress.tick(lambda: _doing(world)))
    with recorded(request.record, world.server, clock) as recorder:
        async with world:
            recorder.found()
            return await _live(world, objects, request, recorder)
    raise AssertionError("a world swallows no exception")


def _left_to_others(result: Outcome) -> Iterator[str]:
    """Say that pods wait for another scheduler, and how to simulate them."""
    left = sum(pod.reason == outcome.OTHER_SCHEDULER for pod in result.pods)
    if left:
        which = f"{left} of {len(result.pods)} pods name another scheduler or none and stay pending"
        yield f"{which}; --adopt-all schedules them as well"


def _doing(world: World) -> str:
    running = sum(pod["status"].get("phase") == names.RUNNING for pod in world.pods)
    return f"simulated {world.elapsed_s:.0f} s, {len(world.pods)} pods are there, {running} of them run"


async def _live(world: World, objects: Sequence[Manifest], request: Request, recorder: Recorder) -> Outcome | BadInput:
    try:
        await world.apply(objects)
    except errors.ApiError as error:
        # A value, because what is raised in here comes out wrapped by the world's task group.
        return BadInput(f"{'; '.join(error.__notes__)}: {error}")
    if request.until_s is None:
        idle = await world.until_idle()
    else:
        await anyio.sleep(request.until_s)
        idle = world.is_settled
    pods, nodes = outcome.pods(world), outcome.nodes(world)
    ours = {each.body["metadata"]["name"] for each in objects if each.origin == installation.ORIGIN}
    queues = outcome.queues(world, unless_used=ours)
    ended_at_s = world.elapsed_s
    recorder.end()  # what is deleted from here on is deleted by who judges
    if idle and request.until_s is None and not request.real_time:
        await world.judge_rest()
    await world.clear()
    report = world.finish()
    return Outcome(pods=pods, nodes=nodes, queues=queues, invariants=report, idle=idle, ended_at_s=ended_at_s)
