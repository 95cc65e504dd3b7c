"""Reports the devices of this node's reservation pods as soon as kubelet has given them: the device reporter.

What may be reported is decided in nodeagent/core/report/devices.py.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol, TypeAlias

import anyio
import msgspec
from typing_extensions import override

from gpu import container_devices, reservation
from gpu.container_devices import Pin
from gpu.reservation import Reservation
from kube.client.api import Api
from kube.client.errors import ApiError, Conflict, Forbidden, NotFound
from kube.client.resources import PODS
from kube.telemetry.logevents import EventSink, LogEvent, about
from kube.watch.reflector import Reflector, Sink, Tee
from kube.watch.signal import Signal
from nodeagent.aligned_timer import beat
from nodeagent.core.devices import Card
from nodeagent.core.report.devices import Asking, Given, Held, Outcome, Verdict, held, held_back, judge
from nodeagent.kubeletapi.client import Life, PodDevices, Unanswered
from nodeagent.report.cards import Cards
from wire import names
from wire.core import Pod


class Books(Sink[Pod, Reservation]):
    """The node's reservations with their books, as the API server shows them: who holds what of its GPUs.

    ``reservations``: by the pod's UID. ``changed`` is set when one has come, changed or gone.
    """

    def __init__(self, changed: Signal) -> None:
        self._changed = changed
        self.reservations: dict[str, Reservation] = {}

    def pods(self) -> frozenset[str]:
        """Return the UIDs of all pods that have an entry."""
        books = (one.book for one in self.reservations.values() if one.book is not None)
        return frozenset(uid for book in books for uid in book.entries)

    @override
    def keep(self, obj: Pod) -> Reservation:
        return reservation.read(obj)

    @override
    async def replace(self, kept: Sequence[Reservation]) -> None:
        self.reservations = {one.uid: one for one in kept}
        self._changed.set()

    @override
    def upsert(self, obj: Pod) -> None:
        self.reservations[obj.metadata.uid] = reservation.read(obj)
        self._changed.set()

    @override
    def delete(self, obj: Pod) -> None:
        self.reservations.pop(obj.metadata.uid, None)
        self._changed.set()


#: UID of a reservation, and what it is opened for; None: it is opened for any device, or has one.
_Waits = tuple[str, Pin | None]


class Opening(Sink[Pod, _Waits]):
    """Reservations that wait for a device which a tenant names (docs/design/opening.md).

    A hint for the device plug-in: nothing rests on it.
    """

    def __init__(self) -> None:
        self._waits: dict[str, Pin] = {}

    def wanted(self, cards: Iterable[Card]) -> frozenset[str]:
        """Return the UUIDs that they name. By index is by the N of /dev/nvidiaN, as tenants mean it."""
        if not self._waits:
            return frozenset()
        indexes = {pin.index for pin in self._waits.values() if pin.index >= 0}
        named = (uuid for pin in self._waits.values() for uuid in pin.uuids)
        return frozenset((*named, *(card.uuid for card in cards if card.minor in indexes)))

    @override
    def keep(self, obj: Pod) -> _Waits:
        read = reservation.read(obj)
        hint = container_devices.hinted((obj.metadata.annotations or {}).get(names.OPENED_FOR, ""))
        is_open = not (read.uuid or read.deleting or read.is_terminal or hint.is_any)
        return read.uid, hint if is_open else None

    @override
    async def replace(self, kept: Sequence[_Waits]) -> None:
        self._waits = {uid: pin for uid, pin in kept if pin is not None}

    @override
    def upsert(self, obj: Pod) -> None:
        uid, pin = self.keep(obj)
        if pin is None:
            self._waits.pop(uid, None)
        else:
            self._waits[uid] = pin

    @override
    def delete(self, obj: Pod) -> None:
        self._waits.pop(obj.metadata.uid, None)


class DeviceReported(msgspec.Struct, frozen=True, gc=False):
    """Kubelet has answered about a reservation pod, and what follows is written.

    ``took_s``: from when the agent saw that kubelet had admitted the pod; None: no device was reported.
    """

    outcome: Outcome
    took_s: float | None = None


class KubeletSilent(msgspec.Struct, frozen=True, gc=False):
    """No answer came from kubelet, or none that can be read."""


class GpuNodeWritten(msgspec.Struct, frozen=True, gc=False):
    """The status of the GpuNode was written."""


AgentEvent: TypeAlias = DeviceReported | KubeletSilent | GpuNodeWritten


_log: Final = logging.getLogger(__name__)
#: Of more pods at a time kubelet is asked in one call: it answers 100 a second.
_MOST_CALLS: Final = 4


class Kubelet(Protocol):
    """The pod-resources API (nodeagent/kubeletapi/client.py)."""

    def life(self) -> Life:
        """Tell one kubelet from the next."""
        ...

    async def get(self, namespace: str, name: str) -> PodDevices | None:
        """Return what a pod was given; None: kubelet knows no such pod. Raises Unanswered."""
        ...

    async def list(self) -> tuple[PodDevices, ...]:
        """Return what all pods were given. Raises Unanswered."""
        ...


class ReservationSink(Sink[Pod, Held]):
    """Feeds the node's reservation pods into the table."""

    def __init__(self, asking: Asking, changed: Signal) -> None:
        self._asking = asking
        self._changed = changed

    @override
    def keep(self, obj: Pod) -> Held:
        return held(obj)

    @override
    async def replace(self, kept: Sequence[Held]) -> None:
        for uid in self._asking.uids() - {each.uid for each in kept}:
            self._asking.forget(uid)
        for each in kept:
            self._asking.see(each, anyio.current_time())
        self._changed.set()

    @override
    def upsert(self, obj: Pod) -> None:
        self._asking.see(held(obj), anyio.current_time())
        self._changed.set()

    @override
    def delete(self, obj: Pod) -> None:
        self._asking.forget(obj.metadata.uid)


class DeviceReporter:
    """Asks kubelet about the node's reservation pods, and patches what it says.

    ``also``: what else goes by these pods, which are watched once.
    """

    def __init__(
        self,
        api: Api,
        kubelet: Kubelet,
        cards: Cards,
        *,
        node: str,
        kubelet_every_s: float,
        rng: random.Random,
        emit: EventSink[AgentEvent],
        also: Sequence[Sink[Pod, Any]] = (),
    ) -> None:
        self._api = api
        self._emit = emit
        self._kubelet = kubelet
        self._cards = cards
        self._kubelet_every_s = kubelet_every_s
        self._asking = Asking()
        self._changed = Signal()
        #: Why kubelet did not answer last; "": it did, or was not asked.
        self.trouble = ""
        self.reflector = Reflector(
            api,
            PODS,
            Tee(ReservationSink(self._asking, self._changed), *also),
            namespace=names.RESERVATION_NAMESPACE,
            label_selector=f"{names.APP_LABEL}={names.RESERVATION_APP}",
            field_selector=f"spec.nodeName={node}",
            rng=rng,
        )

    async def run(self) -> None:
        """Ask and write until cancelled. What was begun may be left: each step can be taken again."""
        self._asking.another_kubelet(anyio.current_time())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._follow_kubelet)
            while True:
                wait_s = self._asking.next_s() - anyio.current_time()
                with anyio.move_on_after(None if wait_s == math.inf else max(0.0, wait_s)):
                    await self._changed.wait()
                await self._round()

    async def _follow_kubelet(self) -> None:
        """Ask about all pods again when another kubelet listens."""
        known = self._kubelet.life()
        while True:
            await beat(self._kubelet_every_s)
            life = self._kubelet.life()
            if life is not None and life != known:
                _log.info("another kubelet listens: its devices are compared")
                known = life
                self._asking.another_kubelet(anyio.current_time())
                self._changed.set()

    async def _round(self) -> None:
        due = self._asking.due(anyio.current_time())
        if not due:
            return
        try:
            answers = await self._ask(due)
        except Unanswered as error:
            self._no_answer(str(error))
            for each in due:
                self._asking.postpone(each.uid, anyio.current_time())
            return
        self.trouble = ""
        async with anyio.create_task_group() as tasks:
            for each in due:
                tasks.start_soon(self._take, each, answers[each.uid])

    async def _ask(self, due: Sequence[Held]) -> dict[str, Given]:
        """Ask about pods as they were read before, by UID. Raises Unanswered."""
        if len(due) <= _MOST_CALLS:
            return {each.uid: _given(await self._kubelet.get(each.namespace, each.name)) for each in due}
        listed = {(pod.namespace, pod.name): pod for pod in await self._kubelet.list()}
        return {each.uid: _given(listed.get((each.namespace, each.name))) for each in due}

    def _no_answer(self, why: str) -> None:
        if not self.trouble:
            _log.warning("kubelet does not say which devices it gave: %s", why)
        self.trouble = why
        self._emit(KubeletSilent())

    async def _take(self, before: Held, given: Given) -> None:
        """Judge an answer, and write what follows."""
        verdict = self._judge(before, given)
        if verdict.outcome is Outcome.UNKNOWN_DEVICE:
            if not self._cards.asked.is_set():
                # The agent was just started: nobody can say yet which devices there are.
                self._asking.postpone(before.uid, anyio.current_time())
                return
            self._cards.look_for(_first(given))
        if verdict.outcome is Outcome.TOLD and not self._asking.may_tell(before.uid, anyio.current_time()):
            if not before.is_reported:
                self._asking.postpone(before.uid, anyio.current_time())
                return
            verdict = held_back()
        written: Held | None = None
        if verdict.write is not None:
            written = await self._write(before, verdict)
            if written is None:
                return
        took_s = self._asking.asked_for_s(before.uid, anyio.current_time())
        self._asking.answered(
            before.uid, verdict.outcome, anyio.current_time(), uuid=written.uuid if written is not None else ""
        )
        self._emit(DeviceReported(verdict.outcome, took_s if verdict.outcome is Outcome.TOLD else None))

    def _judge(self, before: Held, given: Given) -> Verdict:
        asked_for_s = self._asking.asked_for_s(before.uid, anyio.current_time())
        return judge(before, self._asking.get(before.uid), given, self._cards.devices, asked_for_s=asked_for_s)

    async def _write(self, before: Held, verdict: Verdict) -> Held | None:
        """Patch exactly what was read before the question, and return it as stored; None: it is tried again.

        By its UID alone a late patch would overwrite what the pod's process told meanwhile (protocol.md, Told early).
        """
        body = {"metadata": {"annotations": dict(verdict.write or {})}}
        try:
            pod = await self._api.patch(
                PODS, before.name, body, namespace=before.namespace, uid=before.uid, resource_version=before.rv
            )
        except (Conflict, NotFound):
            # It was changed, its successor has the name, or nobody: the watch says which.
            self._asking.postpone(before.uid, anyio.current_time())
            return None
        except ApiError as error:
            _log.warning("reservation pod %s could not be written: %s", before.name, error)
            self._asking.failed(before.uid, anyio.current_time(), is_forbidden=isinstance(error, Forbidden))
            return None
        written = held(pod)
        _log.info(
            "device %s: %s",
            verdict.outcome.value,
            verdict.why or written.uuid,
            extra=about(LogEvent.DEVICE_REPORTED, reservation=before.name, device=written.uuid),
        )
        return written


def _given(pod: PodDevices | None) -> Given:
    return None if pod is None else [(each.resource, each.ids) for each in pod.devices]


def _first(given: Given) -> str:
    return next((each.partition("::")[0] for _, ids in given or () for each in ids), "")
