"""Tells the devices of this node's reservation pods as soon as kubelet has given them: the device reporter.

What may be told is decided in nodeagent/core/report/devices.py.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Sequence
from typing import Any, Final, Protocol

import anyio
from typing_extensions import override

from kube.client.api import Api
from kube.client.errors import ApiError, Conflict, Forbidden, NotFound
from kube.client.resources import PODS
from kube.telemetry.logevents import LogEvent, about
from kube.watch.reflector import Reflector, Sink, Tee
from kube.watch.signal import Signal
from nodeagent.beat import beat
from nodeagent.core.report.devices import Asking, Given, Held, Outcome, Verdict, held, held_back, judge
from nodeagent.kubeletapi.client import Life, Unanswered
from nodeagent.kubeletapi.podresources import PodDevices
from nodeagent.report.cards import Cards
from wire import names
from wire.core import Pod


class Observer:
    """Told of what happens. This one does nothing with it."""

    def witnessed(self, outcome: Outcome) -> None:
        """Kubelet has answered about a reservation pod, and what follows is written."""

    def told(self, took_s: float) -> None:
        """A device was told, so long after the agent saw that kubelet had admitted the pod."""

    def unanswered(self) -> None:
        """No answer came from kubelet, or none that can be read."""

    def published(self) -> None:
        """The status of the GpuNode was written."""


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


class Witnessing:
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
        also: Sequence[Sink[Pod, Any]] = (),
    ) -> None:
        self._api = api
        self._kubelet = kubelet
        self._cards = cards
        self._kubelet_every_s = kubelet_every_s
        self._asking = Asking()
        self._changed = Signal()
        self.observer = Observer()
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
        self.observer.unanswered()

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
            if not before.is_witnessed:
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
        self.observer.witnessed(verdict.outcome)
        if verdict.outcome is Outcome.TOLD:
            self.observer.told(took_s)

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
            extra=about(LogEvent.RESERVATION_WITNESSED, reservation=before.name, device=written.uuid),
        )
        return written


def _given(pod: PodDevices | None) -> Given:
    return None if pod is None else [(each.resource, each.ids) for each in pod.devices]


def _first(given: Given) -> str:
    return next((each.partition("::")[0] for _, ids in given or () for each in ids), "")
