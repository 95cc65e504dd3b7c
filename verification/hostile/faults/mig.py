"""What befalls agents that make MIG slices: crashes at each step, drivers that fail or are late, late reports.

Everything is promised under these. They are drawn only where agents make slices, or by name. On other nodes nothing
happens.
"""

from __future__ import annotations

from functools import partial
from typing import Final, Literal

import anyio
from typing_extensions import override

from kube.client import errors
from kube.client.resources import GPU_NODES, PODS
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import Fault
from simulator.mig.hardware import End, Moment
from simulator.mig.nodes import SlicedRuntime
from simulator.policies import AGENT
from verification.hostile.faults.ground import READS, Ground, Timed
from verification.hostile.faults.requests import WatchHeld

NAMESPACE: Final = "grabbers"
_LOOK_S: Final = 0.1


class _OnSliced(Timed, frozen=True, kw_only=True):
    """A fault of the agent of ``node``, of its driver or its kubelet."""

    node: str

    @override
    async def _happen(self, ground: Ground) -> None:
        found = ground.sliced.get(self.node)
        if found is not None:
            await self._strike(ground, found)

    async def _strike(self, ground: Ground, found: SlicedRuntime) -> None:
        """Let it happen to the node."""
        raise NotImplementedError


class PartitionerCrashes(_OnSliced, frozen=True, kw_only=True, tag="partitioner-crashes"):
    """The agent is killed at the ``nth`` change of slices (0: at once), before or after the driver has done it.

    ``pause_s`` later it is started again, but not before the driver is done with what it was asked.
    """

    nth: int
    moment: Moment
    pause_s: float

    @override
    async def _strike(self, ground: Ground, found: SlicedRuntime) -> None:
        left, hit = self.nth, anyio.Event()

        def noticed(moment: Moment) -> None:
            nonlocal left
            left -= moment == self.moment
            if left <= 0 and not hit.is_set():
                hit.set()
                found.hold_down()

        if not self.nth:
            noticed(self.moment)
        found.driver.listeners.append(noticed)
        with anyio.move_on_after(ground.left_s(self.end_s - self.pause_s)):
            await hit.wait()
        found.driver.listeners.remove(noticed)
        if hit.is_set():
            await anyio.sleep(min(self.pause_s, ground.left_s(self.end_s)))
            found.let_up()


class PartitionerDown(_OnSliced, frozen=True, kw_only=True, tag="partitioner-down"):
    """The agent is down until the end: what is asked of it is not taken up, and the scheduler withdraws it."""

    @override
    async def _strike(self, ground: Ground, found: SlicedRuntime) -> None:
        found.hold_down()
        await anyio.sleep(self.for_s)
        found.let_up()


class DriverFails(_OnSliced, frozen=True, kw_only=True, tag="mig-driver-fails"):
    """Of a thousand changes ``per_mille`` fail: refused, done by half, or done and an error reported nevertheless."""

    per_mille: int
    end: End
    seed: int

    @override
    async def _strike(self, ground: Ground, found: SlicedRuntime) -> None:
        dice = ground.dice(self.kind, self.seed)
        found.driver.faults.end = lambda: self.end if dice.randrange(1000) < self.per_mille else "done"
        await anyio.sleep(self.for_s)
        found.driver.faults.end = lambda: "done"


class DriverSlow(_OnSliced, frozen=True, kw_only=True, tag="mig-driver-slow"):
    """A change of slices takes ``slow_s`` longer: perhaps longer than the agent waits, and it is done nevertheless."""

    slow_s: float

    @override
    async def _strike(self, ground: Ground, found: SlicedRuntime) -> None:
        found.driver.faults.slow_s = self.slow_s
        await anyio.sleep(self.for_s)
        found.driver.faults.slow_s = 0.0


class KubeletRestarts(_OnSliced, frozen=True, kw_only=True, tag="kubelet-restarts"):
    """The kubelet's process restarts every ``every_s``, and shows no pods for ``blind_s``; containers go on."""

    every_s: float
    blind_s: float

    @override
    async def _strike(self, ground: Ground, found: SlicedRuntime) -> None:
        with anyio.move_on_after(self.for_s):
            while True:
                found.side.restart(self.blind_s)
                await anyio.sleep(self.every_s)


class SlicesGrabbed(_OnSliced, frozen=True, kw_only=True, tag="slices-grabbed"):
    """Whenever a slice is about to go, a pod that names the node comes for one of its kind, up to ``late_s`` later.

    Its maker asks no scheduler. At the end these pods go.
    """

    late_s: float
    seed: int

    @override
    async def _strike(self, ground: Ground, found: SlicedRuntime) -> None:
        dice, made, known = ground.dice(self.kind, self.seed), list[str](), frozenset[str]()
        with anyio.move_on_after(self.for_s):
            while True:
                now = found.agent.partitioner.withdrawn if found.agent is not None else frozenset[str]()
                for uuid in sorted(now - known):
                    resource = next((each.resource for each in found.machine.devices() if each.uuid == uuid), "")
                    await anyio.sleep(dice.uniform(0.0, self.late_s))
                    if resource:
                        made.append(f"grab-{self.node}-{round(self.at_s * 1000)}-{len(made)}")
                        with anyio.CancelScope(shield=True):
                            await self._grab(ground, made[-1], resource)
                known = now
                await anyio.sleep(_LOOK_S)
        for name in made:
            await ground.insist(partial(ground.api.delete, PODS, name, namespace=NAMESPACE))

    async def _grab(self, ground: Ground, name: str, resource: str) -> None:
        container = {"name": "main", "image": "work", "resources": {"limits": {resource: "1"}}}
        spec = {"schedulerName": "default-scheduler", "nodeName": self.node, "containers": [container]}
        try:
            await ground.api.create(PODS, {"metadata": {"name": name}, "spec": spec}, namespace=NAMESPACE)
        except errors.ApiError:
            return


class GpuNodesLate(Timed, frozen=True, kw_only=True, tag="gpu-nodes-late"):
    """What agents write of GpuNodes takes up to ``there_s`` to the API server, and the answer as long."""

    there_s: float
    seed: int

    @override
    async def _happen(self, ground: Ground) -> None:
        dice = ground.dice(self.kind, self.seed)

        def rule(call: Call) -> Fault | None:
            if call.user != AGENT or call.kind.plural != GPU_NODES.plural or call.verb in READS:
                return None
            left_s = ground.left_s(self.end_s)
            there_s = min(dice.uniform(0.0, self.there_s), left_s)
            return Fault(delay_s=there_s, answer_delay_s=min(dice.uniform(0.0, self.there_s), left_s - there_s))

        with ground.requests(rule):
            await anyio.sleep(self.for_s)


class GpuNodesUnheard(WatchHeld, frozen=True, kw_only=True, tag="gpu-nodes-unheard"):
    """A scheduler or the agents hear nothing of GpuNodes until the end."""


class GpuNodesMeddled(Timed, frozen=True, kw_only=True, tag="gpu-nodes-meddled"):
    """Every ``every_s`` all that is asked of nodes is taken back, or their GpuNodes are deleted."""

    every_s: float
    how: Literal["withdrawn", "deleted"]

    @override
    async def _happen(self, ground: Ground) -> None:
        with anyio.move_on_after(self.for_s):
            while True:
                for name in ground.sliced:
                    with anyio.CancelScope(shield=True):
                        await self._meddle(ground, name)
                await anyio.sleep(self.every_s)

    async def _meddle(self, ground: Ground, name: str) -> None:
        if self.how == "deleted":
            await ground.insist(partial(ground.api.delete, GPU_NODES, name))
        else:
            await ground.insist(partial(ground.api.patch, GPU_NODES, name, {"spec": {"mig": None}}))
