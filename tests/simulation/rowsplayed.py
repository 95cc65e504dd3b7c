"""Plays every row of the translation table on a simulated cluster: each pod as its user wrote it, one after another.

Rows with one kind of settings share a cluster. It has a node of free cards, one of smaller cards that all have a tenant
already: of these the UUIDs and the indices are known, and one whose cards are cut into MIG slices.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import anyio
import msgspec

from admission.settings import Choices
from admission.settings import Settings as AdmissionSettings
from gpu.dialects.settings import DialectSettings
from gpu.translate import combine
from gpu.translation import Translation
from kube.client.resources import PODS
from simulator.checks.violations import SOUND
from simulator.clock import VirtualClock, VirtualTimeLoop
from simulator.nodes import containers
from simulator.nodes.device_manager import Device
from simulator.nodes.ground_truth import Started
from simulator.nodes.kubelet import Kubelet
from simulator.nodes.shape import NodeShape
from simulator.world import World, WorldSettings
from tests.gpu.dialects.everyrow import Case, every_row
from tests.scheduler import stage
from wire import names
from wire.core import Pod

_A100: Final = {names.NODE_GPU_PRODUCT: "NVIDIA-A100-SXM4"}
NODES: Final = (
    NodeShape(name="free", cards_mib=(81_920,) * 8, labels=_A100),
    NodeShape(name="told", cards_mib=(40_960,) * 8, labels=_A100),
    NodeShape(name="cut", slices=("3g.20gb",) * 4 + ("1g.10gb",) * 4 + ("1g.5gb",), labels=_A100),
)
#: Takes a hundredth of each card of the node ``told``, so that each is known.
_TENANT: Final = stage.pod(
    "tenant",
    annotations={names.GPU_FRACTION: "0.01", names.GPU_FRACTION_NUM_DEVICES: "8"},
    nodeSelector={names.HOSTNAME_LABEL: "told"},
)
_LIMIT_S: Final = 120.0
_LOOK_S: Final = 0.5

Json = dict[str, Any]


@dataclass(frozen=True)
class Asking:
    """A row that asks for GPUs, and what it is translated to."""

    case: Case
    translation: Translation


@dataclass(frozen=True)
class Seen:
    """What became of a row's pod. ``reason``: why it waits, "" where it runs.

    By container name: ``env`` is its whole environment, ``devices`` what the runtime showed it (UUIDs), ``assigned``
    what the vendor's plugin gave it. ``cards``: those of its node by UUID.
    """

    pod: Json
    reason: str
    env: Mapping[str, Mapping[str, str]]
    devices: Mapping[str, tuple[str, ...]]
    assigned: Mapping[str, tuple[str, ...]]
    cards: Mapping[str, Device]


def asking_rows() -> dict[str, Asking]:
    """By name, all rows that are accepted and ask for GPUs."""
    found = {}
    for case in every_row():
        translation = combine.translate(_pod(case), case.settings)
        if isinstance(translation, Translation) and any(each.asks for each in translation.request.containers):
            found[case.name] = Asking(case, translation)
    return found


def play(rows: Mapping[str, Asking]) -> dict[str, Seen]:
    """Play all of them, in virtual time; raises AssertionError where an invariant did not hold meanwhile."""
    by_settings: dict[DialectSettings, list[Case]] = {}
    for row in rows.values():
        by_settings.setdefault(row.case.settings, []).append(row.case)
    found: dict[str, Seen] = {}
    for settings, cases in by_settings.items():
        found |= anyio.run(_play, settings, cases, backend_options={"loop_factory": VirtualTimeLoop})
    return found


async def _play(settings: DialectSettings, cases: Sequence[Case]) -> dict[str, Seen]:
    admission = AdmissionSettings(choices=Choices(dialects=settings))
    clock = VirtualClock(asyncio.get_running_loop())
    found = {}
    async with World(NODES, clock=clock, settings=WorldSettings(seed=1, admission=admission)) as world:
        if settings.sharing:
            await stage.create(world, _TENANT)
            assert await world.until_idle(quiet_s=3.0)
        for case in cases:
            await stage.create(world, _manifest(case))
            await _settled(world)
            found[case.name] = await _seen(world)
            await world.api.delete(PODS, "p", namespace=stage.TEAM)
            assert await world.until_idle(quiet_s=3.0)
        broken = {key: told for key, told in world.finish().items() if told not in SOUND}
        assert broken == {}, world.checker.findings.found
    return found


async def _settled(world: World) -> None:
    """Wait until all containers of the pod run or have ended, or it says why it waits."""
    with anyio.fail_after(_LIMIT_S):
        while not _is_through(stage.find(world, "p")):  # noqa: ASYNC110 - what it waits for is on the server
            await anyio.sleep(_LOOK_S)


def _is_through(pod: Json) -> bool:
    phase = pod["status"].get("phase")
    return phase not in {None, "", "Pending"} or any(
        each["type"] == "PodScheduled" and each["status"] == "False" for each in pod["status"].get("conditions") or ()
    )


async def _seen(world: World) -> Seen:
    raw = stage.find(world, "p")
    pod = msgspec.convert(raw, Pod)
    node = world.nodes[pod.spec.node_name] if pod.spec.node_name else None
    starts = [each for each in world.nodes.ground_truth.history if isinstance(each, Started)]
    started = {each.container: each for each in starts if each.pod_uid == pod.metadata.uid}
    return Seen(
        pod=raw,
        reason=stage.waits_because(world, "p"),
        env=await _environments(pod, node) if node else {},
        devices={name: each.devices for name, each in started.items()},
        assigned={name: each.assigned for name, each in started.items()},
        cards={device.uuid: device for device in node.devices} if node else {},
    )


async def _environments(pod: Pod, node: Kubelet) -> dict[str, Mapping[str, str]]:
    """By container name, as the node's kubelet makes them."""
    found: dict[str, Mapping[str, str]] = {}
    for _, container in containers.containers_of(pod):
        sources, assigned = await node.sources(pod, container), node.assigned(pod.metadata.uid, container.name)
        env = containers.resolve(pod, container, sources=sources, assigned=assigned, image=node.image_env())
        assert not isinstance(env, containers.MissingSource)
        found[container.name] = env
    return found


def _pod(case: Case) -> Pod:
    return msgspec.structs.replace(case.pod, metadata=msgspec.structs.replace(case.pod.metadata, namespace=stage.TEAM))


def _manifest(case: Case) -> Json:
    """The pod as its user would write it: images that the rows leave out, and our scheduler."""
    raw: Json = msgspec.to_builtins(_pod(case))
    spec = {**raw["spec"], "schedulerName": names.SCHEDULER_NAME}
    for listed in ("containers", "initContainers"):
        spec[listed] = [{"image": "cuda", **container} for container in spec.get(listed) or ()]
    kept = {key: value for key, value in raw["metadata"].items() if key in {"labels", "annotations"} and value}
    return {"metadata": {**kept, "name": "p", "namespace": stage.TEAM}, "spec": spec}
