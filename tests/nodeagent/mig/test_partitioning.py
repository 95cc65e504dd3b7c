"""A partitioner on a played driver and kubelet, in virtual time."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from nodeagent.core.mig_partitioning import (
    KUBELET_SETTLES_NS,
    CardSlices,
    NotDone,
    Outcome,
    Present,
    Spot,
    State,
)
from nodeagent.kubeletapi.client import Devices, Life, PodDevices, Unanswered
from nodeagent.mig.partitioning import GpuPartitioner, Restoring
from tests.nodeagent.core.mig.cards import PROFILES, SECOND_NS, present, spot
from wire.core import ObjectMeta
from wire.crds.gpunode import CardStatus, GpuNode, GpuNodeSpec, GpuNodeStatus, MigLayout, PartitioningStatus, SlicePlace

GPU = "GPU-a"
RESOURCE = "nvidia.com/mig-1g.10gb"


@dataclass
class World:
    """``slices``: of the GPU. ``offered``: as kubelet heard the plug-in's list; it hears it after ``hears_s``."""

    slices: list[Present] = field(default_factory=lambda: [present("1g@0"), present("1g@1")])
    given: list[str] = field(default_factory=list)
    booked: list[str] = field(default_factory=list)
    layout: tuple[str, ...] | None = None
    attempt: str = "a"
    refuses: str = ""
    is_kubelet_up: bool = True
    is_driver_up: bool = True
    has_mig_mode: bool = True
    #: GPUs without slices that are in MIG mode as well.
    others: frozenset[str] = frozenset()
    makes_s: float = 0.0
    calls: list[str] = field(default_factory=list)
    heard: list[Outcome] = field(default_factory=list)
    #: What kubelet would give, as the plug-in listed it.
    listed: frozenset[str] = frozenset()
    status: GpuNodeStatus = field(default_factory=GpuNodeStatus)
    #: The file that an agent keeps, and which boot of the machine this is; None: nothing is made again.
    kept: Path | None = None
    boot: str = "b1"

    # --- the driver
    async def read(self) -> Mapping[str, CardSlices]:
        await anyio.sleep(0.01)
        if not self.is_driver_up:
            raise NotDone("unable to initialize NVML: Driver Not Loaded")
        mine = {GPU: CardSlices(tuple(self.slices), PROFILES)} if self.has_mig_mode else {}
        return mine | {other: CardSlices((), PROFILES) for other in self.others}

    async def destroy(self, card: str, at: Spot) -> None:
        self._call(f"destroy {at}")
        assert card == GPU
        self.slices = [each for each in self.slices if each.spot != at]

    async def make(self, card: str, at: Spot) -> None:
        await anyio.sleep(self.makes_s)
        self._call(f"make {at}")
        name = f"{at.profile[:2]}@{at.start}"
        assert (card, spot(name)) == (GPU, at)
        self.slices.append(present(name))

    def _call(self, what: str) -> None:
        self.calls.append(what)
        if self.refuses and what.startswith(self.refuses):
            raise NotDone("Unknown Error")

    # --- kubelet
    def life(self) -> Life:
        return (1, 0) if self.is_kubelet_up else None

    async def list(self) -> tuple[PodDevices, ...]:
        if not self.is_kubelet_up:
            raise Unanswered("nobody listens")
        return (PodDevices("team", "a", (Devices(RESOURCE, tuple(self.given)),)),)

    async def allocatable(self) -> tuple[Devices, ...]:
        if not self.is_kubelet_up:
            raise Unanswered("nobody listens")
        return (Devices(RESOURCE, tuple(sorted(self.listed))),)

    # --- the API server
    def gpu_node(self) -> GpuNode | None:
        if self.layout is None:
            return GpuNode(status=self.status)
        places = [SlicePlace(profile=spot(each).profile, start=spot(each).start) for each in self.layout]
        mig = [MigLayout(uuid=GPU, layout=places, attempt=self.attempt)]
        return GpuNode(metadata=ObjectMeta(name="a"), spec=GpuNodeSpec(mig=mig), status=self.status)


def now_ns() -> int:
    return int(anyio.current_time() * SECOND_NS)


@contextlib.asynccontextmanager
async def partitioning(world: World) -> AsyncIterator[GpuPartitioner]:
    """A partitioner, and a plug-in that lists once a second what is not withdrawn."""
    partitioner = GpuPartitioner(
        world,
        world,
        gpu_node=world.gpu_node,
        booked=lambda: world.booked,
        told=lambda: None,
        heard=lambda _, outcome: world.heard.append(outcome),
        now_ns=now_ns,
    )
    if world.kept is not None:
        partitioner.restoring = Restoring(world, kept=world.kept, boot=world.boot)

    async def plug_in() -> None:
        while True:
            generation = partitioner.generation
            there = {uuid for each in world.slices for uuid in each.uuids}
            partitioner.taken(generation)
            world.listed = frozenset(there - partitioner.withdrawn)
            await anyio.sleep(1.0)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(plug_in)
        await partitioner.restore()
        tasks.start_soon(partitioner.run)
        await anyio.sleep(KUBELET_SETTLES_NS / SECOND_NS + 1)
        yield partitioner
        tasks.cancel_scope.cancel()


async def until(probe: Callable[[], bool]) -> None:
    while not probe():  # noqa: ASYNC110 - virtual time
        await anyio.sleep(0.01)


def has_called(world: World, times: int) -> bool:
    return len(world.calls) >= times


def states(world: World) -> list[State]:
    return [each.state for each in world.heard]


async def test_a_layout_that_is_asked_for_is_made_within_fifteen_seconds() -> None:
    world = World()
    async with partitioning(world) as partitioner:
        assert [each.profile for each in partitioner.reports[GPU].layout or ()] == ["1g.10gb", "1g.10gb"]
        world.layout = ("1g@1", "2g@2", "3g@4")
        began_s = anyio.current_time()
        while State.DONE not in states(world):
            await anyio.sleep(0.1)
            assert anyio.current_time() - began_s < 15
        assert world.calls == ["destroy 1g.10gb at 0", "make 2g.20gb at 2", "make 3g.40gb at 4"]
        assert states(world) == [State.UNDER_WAY, State.DONE]
        await anyio.sleep(10)
        assert [each.start for each in partitioner.reports[GPU].layout or ()] == [1, 2, 4]
        assert partitioner.reports[GPU].partitioning == PartitioningStatus(attempt="a", state="done")
        assert partitioner.withdrawn == frozenset()
        assert len(world.calls) == 3


async def test_a_slice_that_goes_is_offered_to_nobody_from_the_first_step_on() -> None:
    world = World()
    async with partitioning(world) as partitioner:
        world.layout = ("1g@1",)
        while "destroy 1g.10gb at 0" not in world.calls:
            await anyio.sleep(0.01)
            assert not world.calls or "MIG-1g@0" in partitioner.withdrawn
        # The plug-in lists it still, until it has read the driver.
        assert "MIG-1g@0" in partitioner.withdrawn
        partitioner.taken(partitioner.generation - 1)
        assert "MIG-1g@0" in partitioner.withdrawn


async def test_an_attempt_at_a_slice_of_a_pod_or_a_book_is_refused_and_another_one_may_follow() -> None:
    world = World(given=["MIG-1g@0"])
    async with partitioning(world) as partitioner:
        world.layout = ("2g@0",)
        await anyio.sleep(5)
        world.given, world.booked, world.attempt = [], ["MIG-1g@1"], "b"
        await anyio.sleep(5)
        assert [(each.attempt, each.state) for each in world.heard] == [("a", State.REFUSED), ("b", State.REFUSED)]
        assert [each.in_use for each in partitioner.reports[GPU].layout or ()] == [False, True]
        world.booked, world.attempt = [], "c"
        await anyio.sleep(12)
        assert states(world)[2:] == [State.UNDER_WAY, State.DONE]
        assert partitioner.counts == {"done": 1, "refused": 2, "failed": 0, "restored": 0}
        assert world.calls[-1] == "make 2g.20gb at 0"


async def test_a_partitioner_that_ends_between_two_steps_is_followed_by_one_that_completes_the_layout() -> None:
    for cut_at in range(1, 5):
        world = World(layout=("2g@0", "3g@4"))
        async with partitioning(world):
            await until(functools.partial(has_called, world, cut_at))
        assert len(world.calls) == cut_at
        async with partitioning(world):
            await anyio.sleep(15)
            assert sorted(each.spot for each in world.slices) == [spot("2g@0"), spot("3g@4")]
            assert world.heard[-1].state is State.DONE


def rebooted(tmp_path: Path, *, state: str = "done", **how: Any) -> World:
    """A machine after a reboot: its GPU has no slices, and its GpuNode shows what was."""
    card = CardStatus(uuid=GPU, layout=[], partitioning=PartitioningStatus(attempt="a", state=state))
    there: dict[str, Any] = {"slices": [], "layout": ("2g@0", "3g@4"), "kept": tmp_path / "kept", **how}
    return World(status=GpuNodeStatus(cards=[card]), **there)


async def test_slices_that_a_reboot_took_are_made_again_before_anything_is_offered(tmp_path: Path) -> None:
    world = rebooted(tmp_path)
    async with partitioning(world) as partitioner:
        assert world.calls == ["make 2g.20gb at 0", "make 3g.40gb at 4"]
        assert partitioner.generation == 1
        assert world.heard == []
        assert [each.start for each in partitioner.reports[GPU].layout or ()] == [0, 4]
        assert partitioner.counts == {"done": 0, "refused": 0, "failed": 0, "restored": 1}
        world.slices.clear()  # by hand
        await anyio.sleep(30)
        assert len(world.calls) == 2
    world.boot = "b2"
    async with partitioning(world):
        assert len(world.calls) == 4


async def test_a_driver_that_comes_late_and_a_mig_mode_that_is_switched_on_late_are_waited_for(tmp_path: Path) -> None:
    world = rebooted(tmp_path, is_driver_up=False)
    async with anyio.create_task_group() as tasks:

        async def partition() -> None:
            async with partitioning(world):
                await anyio.sleep_forever()

        tasks.start_soon(partition)
        await anyio.sleep(12)
        assert world.calls == []
        world.is_driver_up, world.has_mig_mode = True, False
        await anyio.sleep(30)
        assert world.calls == []
        world.has_mig_mode = True
        await anyio.sleep(6)
        assert world.calls == ["make 2g.20gb at 0", "make 3g.40gb at 4"]
        tasks.cancel_scope.cancel()


async def test_a_gpu_whose_mig_mode_is_switched_on_after_that_of_another_gets_its_slices_again(tmp_path: Path) -> None:
    world = rebooted(tmp_path, has_mig_mode=False, others=frozenset({"GPU-b"}))
    async with partitioning(world) as partitioner:
        assert set(partitioner.reports) == {GPU, "GPU-b"}
        # As the agent writes it.
        report = partitioner.reports[GPU]
        world.status = GpuNodeStatus(cards=[CardStatus(uuid=GPU, layout=[], partitioning=report.partitioning)])
        world.has_mig_mode = True
        await anyio.sleep(6)
        assert world.calls == ["make 2g.20gb at 0", "make 3g.40gb at 4"]
        world.has_mig_mode = False
        await anyio.sleep(6)
        assert set(partitioner.reports) == {"GPU-b"}
