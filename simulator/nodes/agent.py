"""Node agents, as far as reservations are concerned: they tell a device as soon as kubelet has given it.

They judge as the agent of a real node does (nodeagent/core/report/devices.py), in a shell of their own: an agent hears
of pods by a watch that may be ahead of its kubelet's or behind it, may be slow between an answer and its patch, and may
be away.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import anyio
from anyio.abc import TaskGroup, TaskStatus

from gpu import reservation
from kube.client import errors
from kube.client.api import Api
from kube.client.resources import PODS
from kube.client.retry import Retry
from kube.client.transport import Transport
from kube.watch.reflector import Reflector
from nodeagent.core.report.devices import Annotations, held, judge
from reservation.device import Device as Told
from simulator.nodes.kubelet import Kubelet
from wire import names
from wire.core import Pod

#: How soon it asks again, where there is no news of the reservation: kubelet may give it another device.
_AGAIN_S: Final = 1.0


@dataclass(slots=True)
class AgentFaults:
    """What is wrong with an agent; tests set it at any time.

    ``slow_s`` passes between kubelet's answer and the patch.
    """

    is_down: bool = False
    slow_s: float = 0.0


class NodeAgent:
    """The agent of one node."""

    def __init__(self, api: Api, kubelet: Kubelet) -> None:
        self.faults = AgentFaults()
        self._api = api
        self._kubelet = kubelet
        #: Reservations of the node (UID) as its watch shows them, and what is set when one is shown again.
        self._pods: dict[str, Pod] = {}
        self._news: dict[str, anyio.Event] = {}

    def see(self, pod: Pod, tasks: TaskGroup) -> None:
        """Take a reservation of the node."""
        uid = pod.metadata.uid
        self._pods[uid] = pod
        if uid in self._news:
            self._news[uid].set()
        elif not self._is_through(pod):
            self._news[uid] = anyio.Event()
            tasks.start_soon(self._follow, uid)

    def miss(self, uid: str) -> None:
        """Take that a reservation is gone."""
        self._pods.pop(uid, None)
        if uid in self._news:
            self._news[uid].set()

    async def _follow(self, uid: str) -> None:
        """Tell the device of one reservation until its process has had its say."""
        while (pod := self._pods.get(uid)) is not None and not self._is_through(pod):
            if self._is_up and (word := self._word(pod)) is not None:
                await anyio.sleep(self.faults.slow_s)
                if self._is_up:
                    with contextlib.suppress(errors.ApiError):
                        await self._write(pod, {"metadata": {"annotations": word}})
            with anyio.move_on_after(_AGAIN_S):
                await self._news[uid].wait()
            self._news[uid] = anyio.Event()
        del self._news[uid]

    @property
    def _is_up(self) -> bool:
        """Whether it lives and is connected: without its machine it is neither."""
        return not self.faults.is_down and self._kubelet.is_answering

    def _is_through(self, pod: Pod) -> bool:
        return reservation.read(pod).is_terminal or reservation.has_run(pod)

    def _word(self, pod: Pod) -> Annotations | None:
        """What is to be written, as kubelet answers now; None where there is nothing to tell."""
        if not pod.status.start_time or pod.metadata.deletion_timestamp is not None:
            return None  # to kubelet its name may still mean a predecessor
        given = [
            (device.resource, (device.uuid,))
            for device in self._kubelet.devices_of(pod.metadata.namespace, pod.metadata.name)
        ]
        before = held(pod)
        return judge(before, before, given or None, self._known()).write

    def _known(self) -> dict[str, Told]:
        """What the driver shows of the machine."""
        return {
            device.uuid: Told(device.uuid, None if device.is_slice else device.index, device.mem_mib)
            for device in self._kubelet.devices
        }

    async def _write(self, pod: Pod, patch: Mapping[str, object]) -> None:
        """Write at exactly the version that was read before the question."""
        meta = pod.metadata
        await self._api.patch(
            PODS, meta.name, patch, namespace=meta.namespace, uid=meta.uid, resource_version=meta.resource_version
        )


class NodeAgents:
    """The agents of those ``machines`` (by name) that have one, on one watch of reservations. ``make`` makes one."""

    def __init__(
        self,
        transport: Transport,
        machines: Mapping[str, Kubelet],
        make: Callable[[Api, Kubelet], NodeAgent] = NodeAgent,
        *,
        seed: int,
    ) -> None:
        rng = random.Random(f"{seed}/agents")
        api = Api(transport, retry=Retry(rng))
        #: By name of the node.
        self.of = {name: make(api, machines[name]) for name in sorted(machines)}
        self._node_of: dict[str, str] = {}
        self._tasks: TaskGroup | None = None
        self._reflector: Reflector[Pod] = Reflector(
            api,
            PODS,
            self,
            namespace=names.RESERVATION_NAMESPACE,
            label_selector=f"{names.APP_LABEL}={names.RESERVATION_APP}",
            rng=rng,
        )

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Work for ever; started once the reservations are known. Where there are none, nothing is watched."""
        if not self.of:
            task_status.started()
            return
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            await tasks.start(self._reflector.run)
            task_status.started()

    def keep(self, obj: Pod) -> Pod:
        """All of a reservation."""
        return obj

    async def replace(self, kept: Sequence[Pod]) -> None:
        """Take the whole truth."""
        there = {pod.metadata.uid for pod in kept}
        for uid in [uid for uid in self._node_of if uid not in there]:
            self._miss(uid)
        for pod in kept:
            self.upsert(pod)

    def upsert(self, obj: Pod) -> None:
        """Take a reservation."""
        agent = self.of.get(obj.spec.node_name)
        if agent is not None and self._tasks is not None:
            self._node_of[obj.metadata.uid] = obj.spec.node_name
            agent.see(obj, self._tasks)

    def delete(self, obj: Pod) -> None:
        """Take one that is gone."""
        self._miss(obj.metadata.uid)

    def _miss(self, uid: str) -> None:
        node = self._node_of.pop(uid, None)
        if node is not None:
            self.of[node].miss(uid)
