"""Reservation pods whose process fails, hangs, is slow or lies, and reservation pods that go."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar, Final, Literal

import anyio
from typing_extensions import override

from kube.client.resources import PODS
from simulator.nodes.kubelet import Kubelet
from simulator.nodes.shape import NO_FAULT, ReservationFault
from verification.hostile.faults.ground import LOST_DEVICE, Ground, Timed
from verification.hostile.faults.nodes import OnNode
from wire import names
from wire.core import Pod

#: How far a reservation pod has to be: made, running, its device known, or with tenants in its book.
Stage = Literal["made", "running", "told", "used"]


#: Kubelet's words for an eviction by node pressure.
_SHORT_OF_DISK: Final = "The node was low on resource: ephemeral-storage."
_LOOK_S: Final = 0.05


class _OnProcesses(OnNode, frozen=True, kw_only=True):
    """A fault of the reservation processes on ``node`` that read their device while it lasts."""

    @override
    async def _strike(self, ground: Ground, kubelet: Kubelet) -> None:
        with _wrong(kubelet, self._fault(ground)):
            await anyio.sleep(self.for_s)

    def _fault(self, ground: Ground) -> ReservationFault:
        """What is wrong with them."""
        raise NotImplementedError


class ReservationFails(_OnProcesses, frozen=True, kw_only=True, tag="reservation-fails"):
    """NVML fails: the process ends with an error and is started again, with kubelet's back-off.

    Everything is promised: attempts that wait for it are given up, and others are made.
    """

    @override
    def _fault(self, ground: Ground) -> ReservationFault:
        return ReservationFault(broken="unable to get device handle: Unknown Error")


class ReservationSilent(_OnProcesses, frozen=True, kw_only=True, tag="reservation-silent"):
    """NVML never answers: who asked while the fault lasts hangs for as long as the pod lives.

    Everything is promised: such a reservation is given up and deleted.
    """

    @override
    def _fault(self, ground: Ground) -> ReservationFault:
        return ReservationFault(silent=True)


class ReservationUnpullable(_OnProcesses, frozen=True, kw_only=True, tag="reservation-unpullable"):
    """The image of reservation processes can't be pulled: none is started, and those that run go on.

    Everything is promised: where the node has an agent, devices are shared without; elsewhere attempts are given up.
    """

    @override
    def _fault(self, ground: Ground) -> ReservationFault:
        return ReservationFault(no_image=True)


class ReservationSlow(_OnProcesses, frozen=True, kw_only=True, tag="reservation-slow"):
    """NVML takes ``slow_s`` to answer, perhaps longer than anybody waits for it. Everything is promised."""

    slow_s: float

    @override
    def _fault(self, ground: Ground) -> ReservationFault:
        return ReservationFault(delay_s=self.slow_s)


class ReservationLies(_OnProcesses, frozen=True, kw_only=True, tag="reservation-lies"):
    """Processes tell the UUID of the node's card number ``card``, whichever they hold. At the end they are killed.

    They are part of what has to be trusted (no other pod may write an identity), for nobody else can see the device.
    So S2 and S3 can't be held for a tenant of a device that the reservation doesn't hold: it may be somebody's whole
    GPU. But two reservations that tell one UUID are never both used, so that no device is promised beyond its size:
    S1 is promised. Killed and started again they tell the truth, and what was promised on the lie is a lost device.
    """

    unpromised: ClassVar[frozenset[str]] = LOST_DEVICE | {"S3"}

    card: int

    @override
    async def _strike(self, ground: Ground, kubelet: Kubelet) -> None:
        with _wrong(kubelet, self._fault(ground)):
            await anyio.sleep(self.for_s)
        kubelet.kill_reservations()

    @override
    def _fault(self, ground: Ground) -> ReservationFault:
        kubelet = ground.node(self._of_node())
        cards = kubelet.devices if kubelet is not None else ()
        return ReservationFault(lie=cards[self.card % len(cards)].uuid if cards else "GPU-of-nobody")

    def _of_node(self) -> str:
        return self.node


class ReservationLiesAfar(ReservationLies, frozen=True, kw_only=True, tag="reservation-lies-afar"):
    """As above, but they tell a card of ``of_node``.

    Claims on a card are compared within a node only, for a card is in one machine. So one card may be promised on
    paper twice (S1), though on the wrong node no container starts with it; and a charge reckoned on the memory that was
    told is too low or too high for the card whose UUID was told (S8).
    """

    unpromised: ClassVar[frozenset[str]] = LOST_DEVICE | {"S1", "S3", "S8"}

    of_node: str

    @override
    def _of_node(self) -> str:
        return self.of_node


class ReservationKilled(_OnProcesses, frozen=True, kw_only=True, tag="reservation-killed"):
    """The processes are killed every ``every_s``, and started again with kubelet's back-off. Everything is promised."""

    every_s: float

    @override
    async def _strike(self, ground: Ground, kubelet: Kubelet) -> None:
        with anyio.move_on_after(self.for_s):
            while True:
                kubelet.kill_reservations()
                await anyio.sleep(self.every_s)


class _OnPod(Timed, frozen=True, kw_only=True):
    """Something happens to one reservation pod: the ``pick``-th, counted round, when first one is at ``stage``.

    Its device is free for any pod, before it is created again (protocol.md, A lost or foreign reservation). So S2
    can't be held for tenants that it has by then; S1 and S3 are promised.
    """

    unpromised: ClassVar[frozenset[str]] = LOST_DEVICE

    pick: int = 0
    stage: Stage = "told"

    @override
    async def _happen(self, ground: Ground) -> None:
        pod = await ground.first_reservation(_STAGES[self.stage], pick=self.pick, for_s=self.for_s)
        if pod is not None:
            await self._strike(ground, pod)

    async def _strike(self, ground: Ground, pod: Pod) -> None:
        """Let it happen to the pod."""
        raise NotImplementedError


class ReservationDeleted(_OnPod, frozen=True, kw_only=True, tag="reservation-deleted"):
    """A reservation pod is deleted by somebody whom the policies let through; ``force``: without its kubelet."""

    force: bool = False

    @override
    async def _strike(self, ground: Ground, pod: Pod) -> None:
        meta = pod.metadata
        grace_s = 0 if self.force else None
        await ground.insist(
            lambda: ground.api.delete(PODS, meta.name, namespace=meta.namespace, uid=meta.uid, grace_s=grace_s)
        )


class ReservationVanishes(_OnPod, frozen=True, kw_only=True, tag="reservation-vanishes"):
    """A reservation pod is gone at once, finalizer and book too: by an administrator who lifted the policies."""

    @override
    async def _strike(self, ground: Ground, pod: Pod) -> None:
        meta = pod.metadata
        body = {"metadata": {"finalizers": None}}
        await ground.insist(lambda: ground.lawless.patch(PODS, meta.name, body, namespace=meta.namespace, uid=meta.uid))
        await ground.insist(
            lambda: ground.lawless.delete(PODS, meta.name, namespace=meta.namespace, uid=meta.uid, grace_s=0)
        )


class BookLost(_OnPod, frozen=True, kw_only=True, tag="book-lost"):
    """The book of a device is gone, or empty, though it has tenants: an administrator's edit, past the policies.

    What tenants use is free by the book then (S8), but nobody comes to it who does not fit beside them: S1 is promised.
    """

    unpromised: ClassVar[frozenset[str]] = LOST_DEVICE | {"S8"}

    is_empty: bool = False

    @override
    async def _strike(self, ground: Ground, pod: Pod) -> None:
        meta = pod.metadata
        body = {"metadata": {"annotations": {names.TENANTS: "{}" if self.is_empty else None}}}
        await ground.insist(lambda: ground.lawless.patch(PODS, meta.name, body, namespace=meta.namespace, uid=meta.uid))


class ReservationEvicted(_OnPod, frozen=True, kw_only=True, tag="reservation-evicted"):
    """The kubelet evicts a reservation pod for the machine's sake: its containers end, and it has Failed."""

    @override
    async def _strike(self, ground: Ground, pod: Pod) -> None:
        kubelet = ground.node(pod.spec.node_name)
        with anyio.move_on_after(ground.left_s(self.end_s)):
            while kubelet and not kubelet.evict(pod.metadata.uid, _SHORT_OF_DISK):  # noqa: ASYNC110 - nobody tells us
                await anyio.sleep(_LOOK_S)


@contextmanager
def _wrong(kubelet: Kubelet, fault: ReservationFault) -> Iterator[None]:
    """Have something wrong with a node's reservation processes; a later fault of that kind takes its place."""
    kubelet.faults.reservation = fault
    try:
        yield
    finally:
        if kubelet.faults.reservation is fault:
            kubelet.faults.reservation = NO_FAULT


def _is_running(pod: Pod) -> bool:
    return pod.status.phase == names.RUNNING


def _is_told(pod: Pod) -> bool:
    return names.RESERVE_FOR_GPU_INDEX in (pod.metadata.annotations or {})


def _is_used(pod: Pod) -> bool:
    return _is_told(pod) and (pod.metadata.annotations or {}).get(names.TENANTS, "{}") != "{}"


_STAGES: Final[Mapping[Stage, Callable[[Pod], bool]]] = {
    "made": lambda _: True,
    "running": _is_running,
    "told": _is_told,
    "used": _is_used,
}
