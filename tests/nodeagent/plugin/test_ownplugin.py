"""The device plug-in as a part of the agent, in virtual time; what it serves is played."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from kube.client.api import Api
from kube.client.resources import NODES
from kube.client.retry import Retry
from kube.events import EventRecorder
from nodeagent.core.plugin.health import Health, State
from nodeagent.core.plugin.settings import Mistake
from nodeagent.mig.partitioning import GpuPartitioner, Restoring
from nodeagent.plugin.node import Labelling, NodeSaid, NodeSources, chosen, cleared, decoded, encoded, said
from nodeagent.plugin.ports import Observer, Sources
from nodeagent.plugin.supervisor import OwnPlugin, Reports
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import NOTHING, Fault
from simulator.clock import VirtualClock
from tests.nodeagent.mig.test_partitioning import now_ns, rebooted
from tests.nodeagent.node import AGENT, NODE, Scene, scene
from tests.values import of_kind, there
from wire import names
from wire.crds.gpunode import GpuNodeStatus

GPU = "nvidia.com/gpu"


class Played:
    """A plug-in that does what a test says, and counts its starts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.starts = 0
        self.sources: Sources | None = None
        self.does: Callable[[Observer], Awaitable[None]] = self.waits

    async def waits(self, observer: Observer) -> None:
        del observer
        await anyio.sleep_forever()

    async def serve(self, sources: Sources, observer: Observer) -> None:
        self.starts += 1
        self.sources = sources
        await self.does(observer)

    async def known(self) -> Collection[str] | None:
        return {GPU}

    def part_of(self, it: Scene, partitioner: GpuPartitioner | None = None) -> OwnPlugin:
        """Make it the plug-in of the agent that is about to start."""
        clock = VirtualClock(asyncio.get_running_loop())
        once = Api(it.server.transport(AGENT), retry=Retry(random.Random(5), tries=1))
        events = EventRecorder(once, clock=clock, controller="moorage-node-agent", instance="a")
        it.tasks.start_soon(events.run)
        publishing = it.agent.publishing
        return OwnPlugin(
            self.serve,
            said=NodeSources(lambda: publishing.node, folder=self.folder, kept=self.folder.parent / "node"),
            node_read=publishing.nodes.synced,
            allocatable=self.known,
            reports=Reports(events, clock, node=NODE, seen=lambda: publishing.node),
            labelling=Labelling(once, node=NODE, seen=lambda: publishing.node, rng=random.Random(6)),
            wanted=it.agent.wanted,
            partitioner=partitioner,
        )


@pytest.fixture
def played(tmp_path: Path) -> Played:
    folder = tmp_path / "files"
    folder.mkdir()
    return Played(folder)


async def status(it: Scene) -> GpuNodeStatus:
    return (await it.gpu_node()).status


async def test_what_it_says_is_in_the_gpu_node_and_on_the_node(played: Played) -> None:
    async def works(observer: Observer) -> None:
        observer.registered(GPU, (1, 2))
        observer.health({"GPU-a": Health(state=State.ILL, reason="Xid79: GPU has fallen off the bus")})
        observer.rival("shared", "another answers")
        observer.labelled({"nvidia.com/gfd.timestamp": "moorage", "nvidia.com/gpu.count": "2"})
        await anyio.sleep_forever()

    played.does = works
    async with scene() as it:
        await it.start(plugin=played.part_of)
        await anyio.sleep(5)
        found = await status(it)
        assert (found.agent.plugin_mode, found.gpus, found.healthy) == ("own", 2, 1)
        assert found.cards is not None
        ill, well = found.cards
        assert ill.health is not None
        assert (ill.health.state, ill.health.reason, well.health) == ("ill", "Xid79: GPU has fallen off the bus", None)
        assert [(each.what, each.why) for each in found.agent.missing or ()] == [("shared", "another answers")]
        plugin = there(it.agent.plugin)
        assert plugin.rivals == 1
        assert (await it.api.get(NODES, NODE)).metadata.labels == {
            "nvidia.com/gfd.timestamp": "moorage",
            "nvidia.com/gpu.count": "2",
        }
        writes = len(it.writes())
        await anyio.sleep(3600)
        assert len(it.writes()) == writes


@pytest.mark.parametrize("error", [RuntimeError("a bug"), ExceptionGroup("", [OSError("a bug")])])
async def test_when_it_ends_the_agent_goes_on_and_it_is_started_again(played: Played, error: Exception) -> None:
    async def fails(observer: Observer) -> None:
        del observer
        raise error

    played.does = fails
    async with scene() as it:
        await it.start(plugin=played.part_of)
        await anyio.sleep(100)
        assert played.starts == 4
        assert [(each.what, each.why) for each in (await status(it)).agent.missing or ()] == [
            ("device-plugin", "a bug; started again in 30 s")
        ]
        it.kubelet.given = {"r": ("GPU-a",)}
        await it.reserve()
        await anyio.sleep(1)
        assert (await it.annotations())[names.DEVICE_REPORTER] == names.REPORTER_KUBELET
        played.does = played.waits
        await anyio.sleep(60)
        assert (await status(it)).agent.missing is None


async def test_it_is_asked_of_the_node_as_it_is_now(played: Played) -> None:
    (played.folder / "default").touch()
    (played.folder / "big").touch()
    async with scene() as it:
        await it.start(plugin=played.part_of)
        await anyio.sleep(1)
        sources = there(played.sources)
        assert sources.file() == played.folder / "default"
        assert (await sources.allocatable(), sources.cleared()) == ({GPU}, frozenset())
        meta = {"labels": {names.NODE_AGENT_CONFIG: "big"}, "annotations": {names.NODE_GPU_CLEARED: "GPU-a"}}
        await it.api.patch(NODES, NODE, {"metadata": meta})
        await anyio.sleep(1)
        assert (sources.file(), sources.cleared()) == (played.folder / "big", {"GPU-a"})
        await it.api.patch(NODES, NODE, {"metadata": {"labels": {names.NODE_AGENT_CONFIG: "small"}}})
        await anyio.sleep(1)
        assert isinstance(sources.file(), Mistake)


async def test_without_an_api_server_it_waits_for_its_node_only_where_it_never_saw_it(played: Played) -> None:
    is_away = True

    def away(call: Call) -> Fault:
        return Fault(refuse_with=503) if is_away and call.user == AGENT and call.kind.plural == "nodes" else NOTHING

    for starts in (1, 2):
        async with scene() as it:
            is_away = True
            it.server.faults.on_request.append(away)
            await it.start(plugin=played.part_of)
            await anyio.sleep(60)
            assert played.starts == starts - 1 + (starts > 1)
            is_away = False
            await anyio.sleep(120)
            assert played.starts == starts
            assert played.sources is not None
            for _ in range(2):
                played.sources.cleared()


@pytest.mark.parametrize(("is_away", "served_s"), [(False, 2.0), (True, 30.0)])
async def test_nothing_is_offered_until_slices_of_before_a_reboot_are_made_again_or_for_half_a_minute(
    played: Played, tmp_path: Path, is_away: bool, served_s: float
) -> None:
    machine = rebooted(tmp_path, makes_s=0.5)
    partitioner = GpuPartitioner(
        machine,
        machine,
        gpu_node=machine.gpu_node,
        booked=list,
        told=lambda: None,
        heard=lambda _, __: None,
        now_ns=now_ns,
    )
    made_at_start: list[int] = []

    async def works(observer: Observer) -> None:
        del observer
        made_at_start.append(len(machine.calls))
        await anyio.sleep_forever()

    def plugin(it: Scene) -> OwnPlugin:
        known = it.agent.publishing.gpu_nodes.synced.wait
        partitioner.restoring = Restoring(machine, kept=tmp_path / "kept", boot="b1", known=known)
        return played.part_of(it, partitioner)

    def away(call: Call) -> Fault:
        return Fault(refuse_with=503) if is_away and call.kind.plural == "gpunodes" else NOTHING

    played.does = works
    async with scene() as it:
        it.server.faults.on_request.append(away)
        began_s = anyio.current_time()
        await it.start(plugin=plugin)
        while not made_at_start:  # noqa: ASYNC110 - virtual time
            await anyio.sleep(0.1)
        assert anyio.current_time() - began_s <= served_s + 1
        assert made_at_start == [0 if is_away else 2]
        is_away = False
        await anyio.sleep(150)
        assert len(machine.calls) == 2


async def test_it_is_told_which_gpus_reservations_of_its_node_are_opened_for(played: Played) -> None:
    async with scene() as it:
        first: dict[str, Any] = {names.OPENED_FOR: "1"}
        second: dict[str, Any] = {names.OPENED_FOR: "GPU-a"}
        await it.reserve(**first)
        await it.reserve("elsewhere", node="node-b", **second)
        await it.start(plugin=played.part_of)
        await anyio.sleep(1.0)
        assert played.sources is not None
        assert played.sources.wanted() == {"GPU-b"}
        it.kubelet.given = {"r": ("GPU-b",)}
        await anyio.sleep(30.0)
        assert (await it.annotations())[names.RESERVE_FOR_GPU_INDEX] == "GPU-b"
        assert played.sources.wanted() == set()


OURS, NVIDIAS = "moorage.dev/agent-config", "nvidia.com/device-plugin.config"


@pytest.mark.parametrize(
    ("labels", "files", "name"),
    [
        ({}, [], None),
        ({}, ["a"], "a"),
        ({}, ["a", "b"], None),
        ({}, ["a", "default"], "default"),
        ({NVIDIAS: "b"}, ["a", "b"], "b"),
        ({NVIDIAS: "b", OURS: "a"}, ["a", "b"], "a"),
        ({NVIDIAS: ""}, ["a"], "a"),
    ],
)
def test_a_node_has_the_file_that_its_label_names(labels: dict[str, str], files: list[str], name: str | None) -> None:
    assert chosen(labels, files) == name


def test_a_label_that_names_no_file_is_a_mistake() -> None:
    found = of_kind(Mistake, chosen({NVIDIAS: "c"}, ["a", "b"]))
    assert str(found) == f"{NVIDIAS}: 'c' is no file; allowed: a, b"


def test_of_many_files_the_first_twenty_are_named() -> None:
    files = [f"f{number:02}" for number in range(21)]
    assert str(chosen({NVIDIAS: "c"}, files)) == f"{NVIDIAS}: 'c' is no file; allowed: {', '.join(files[:20])}"


LABELS = {"moorage.dev/agent-config": "big", "nvidia.com/device-plugin.config": "small", "zone": "a"}


def test_of_a_node_only_what_is_meant_for_the_plugin_is_kept() -> None:
    found = said(LABELS, {"moorage.dev/gpu-cleared": "GPU-a", "other": "x"})
    assert found == NodeSaid({name: LABELS[name] for name in sorted(LABELS) if name != "zone"}, "GPU-a")
    assert said({}, {}) == NodeSaid()


@pytest.mark.parametrize(
    ("before", "now", "found"),
    [
        (None, "GPU-a", set()),
        ("GPU-a", "GPU-a", set()),
        ("", "GPU-a", {"GPU-a"}),
        ("GPU-a", "GPU-b, GPU-a,\n GPU-c", {"GPU-a", "GPU-b", "GPU-c"}),
        ("GPU-a", "", set()),
        ("GPU-a", " , ", set()),
    ],
)
def test_a_new_value_counts_once(before: str | None, now: str, found: set[str]) -> None:
    was = None if before is None else NodeSaid(cleared=before)
    assert cleared(was, NodeSaid(cleared=now)) == found


def test_what_is_kept_is_read_again_and_anything_else_is_nothing() -> None:
    kept = said(LABELS, {"moorage.dev/gpu-cleared": "GPU-a"})
    assert decoded(encoded(kept)) == kept
    for content in (b"", b"[]", b'{"labels": {"a": 1}}', b'{"cleared": null}', b"[" * 100_000):
        assert decoded(content) is None


LABELLING_OURS = "nvidia.com/gfd.timestamp"
COUNT = "nvidia.com/gpu.count"
WANTED = {LABELLING_OURS: "moorage", COUNT: "2"}


@asynccontextmanager
async def labelling() -> AsyncIterator[tuple[Scene, Labelling]]:
    async with scene() as it:
        await it.start()
        api = Api(it.server.transport(AGENT), retry=Retry(random.Random(5)))
        made = Labelling(api, node=NODE, seen=lambda: it.agent.publishing.node, rng=random.Random(6))
        it.tasks.start_soon(made.run)
        yield it, made


async def labels(it: Scene) -> dict[str, str]:
    return dict((await it.api.get(NODES, NODE)).metadata.labels or {})


def writes(it: Scene) -> int:
    return it.writes().count("patch nodes")


async def test_what_is_wanted_is_written_once_and_set_right_half_a_minute_later() -> None:
    async with labelling() as (it, made):
        await anyio.sleep(600)
        assert writes(it) == 0
        made.want(WANTED)
        await anyio.sleep(2)
        assert await labels(it) == WANTED
        await anyio.sleep(3600)
        assert writes(it) == 1
        await it.api.patch(NODES, NODE, {"metadata": {"labels": {COUNT: "7"}}})
        await anyio.sleep(31)
        assert await labels(it) == WANTED
        assert writes(it) == 2


async def test_where_gpu_feature_discovery_comes_nothing_is_written_any_more() -> None:
    async with labelling() as (it, made):
        made.want(WANTED)
        await anyio.sleep(2)
        theirs = {LABELLING_OURS: "1764240000", COUNT: "1"}
        await it.api.patch(NODES, NODE, {"metadata": {"labels": theirs}})
        made.want({**WANTED, COUNT: "3"})
        await anyio.sleep(3600)
        assert await labels(it) == theirs
        assert writes(it) == 1


async def test_where_the_file_takes_labels_back_ours_go_and_others_stay() -> None:
    async with labelling() as (it, made):
        await it.api.patch(NODES, NODE, {"metadata": {"labels": {"zone": "a", "nvidia.com/gpu.present": "true"}}})
        made.want(WANTED)
        await anyio.sleep(2)
        made.want({})
        await anyio.sleep(31)
        assert await labels(it) == {"zone": "a", "nvidia.com/gpu.present": "true"}


async def test_a_refused_write_is_tried_again_ever_more_seldom() -> None:
    async with labelling() as (it, made):
        is_refused, tries = True, 0

        def refuse(call: Call) -> Fault:
            nonlocal tries
            if not is_refused or call.user != AGENT or (call.verb, call.kind.plural) != ("patch", "nodes"):
                return NOTHING
            tries += 1
            return Fault(refuse_with=403)

        it.server.faults.on_request.append(refuse)
        made.want(WANTED)
        await anyio.sleep(3600)
        assert 30 < tries < 70
        is_refused = False
        await anyio.sleep(130)
        assert await labels(it) == WANTED
