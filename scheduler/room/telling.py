"""Tells of evictions for others: an event for people, a line of the log, a count.

Of many pods of one PodGroup, or of one namespace, the first have an event each, and the others one together
(kube/eventbursts.py). The log has a line for each.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from kube.client.resources import POD_GROUPS, PODS
from kube.eventbursts import Bursts
from kube.events import EventRecorder
from kube.telemetry.logevents import LogEvent, about
from scheduler.core.model.preemption import Action, Intent, Victim
from scheduler.core.model.records import PodRecord
from scheduler.core.queues.use import queue_of
from scheduler.core.report.queue_state import QueueState, queue_states
from scheduler.status import eviction_texts
from scheduler.telemetry.observing import Answer, Evicts, Observer
from scheduler.watch.cache import Cache
from wire import names
from wire.core import ObjectReference
from wire.events import WARNING

_log: Final = logging.getLogger(__name__)
_WHY: Final = {each: Evicts(each.value) for each in Action}
#: The most pods of one PodGroup that have an event of their own, as with client-go,
OF_GROUP: Final = 10
#: and the most pods without one in a namespace.
OF_NAMESPACE: Final = 50


class Evictions:
    """Tells what became of victims. What an event says is put together while the victim is known."""

    def __init__(self, cache: Cache, events: EventRecorder, observer: Observer) -> None:
        self._cache = cache
        self._events = Bursts(events, reason=names.REASON_EVICT, action="Evicting")
        self._observer = observer

    def states(self) -> Mapping[str, QueueState]:
        """How queues stand, by name; to be asked once for all that is written together."""
        queues = self._cache.cluster.queues
        return {
            state.record.name: state
            for state in queue_states(queues.records.all(), queues.accounts(), queues.sums.sums)
        }

    def note(self, intent: Intent, victim: Victim, states: Mapping[str, QueueState]) -> tuple[ObjectReference, str]:
        """About what an event is, and what it says."""
        pod = self._cache.cluster.pod(victim.pod_uid)
        place, taker = f"{victim.namespace}/{victim.name}", self._cache.cluster.pod(intent.places[0].pod_uid)
        workload = self._workload(intent, taker, victim.namespace)
        if intent.action is Action.PREEMPT:
            text = eviction_texts.preempted_text(place, workload)
        elif intent.action is Action.MOVE:
            text = eviction_texts.moved_text(place)
        else:
            queues = dict.fromkeys(self._queue(one) for one in (pod, taker) if one is not None)
            text = eviction_texts.reclaimed_text(place, workload, [states[name] for name in queues if name in states])
        return self._regarding(victim, pod), text

    def _workload(self, intent: Intent, taker: PodRecord | None, reader: str) -> str:
        """The workload that takes a place, for people of a namespace: of those of others they are told the queue."""
        if intent.namespace == reader:
            return f"{intent.namespace}/{intent.pod_group or (taker.name if taker is not None else '')}"
        return f"of queue {self._queue(taker)}" if taker is not None else "of another namespace"

    def _queue(self, pod: PodRecord) -> str:
        group = self._cache.cluster.pod_group(pod.namespace, pod.pod_group) if pod.pod_group else None
        return queue_of(pod, group)

    def _regarding(self, victim: Victim, pod: PodRecord | None) -> ObjectReference:
        """The victim's PodGroup, or the pod where there is none."""
        group = None if pod is None else self._cache.cluster.pod_group(pod.namespace, pod.pod_group)
        kind, name, uid = (PODS, victim.name, victim.pod_uid) if group is None else (POD_GROUPS, group.name, group.uid)
        return ObjectReference(
            api_version=kind.api_version, kind=kind.kind, name=name, namespace=victim.namespace, uid=uid
        )

    def told(self, intent: Intent, victim: Victim, note: tuple[ObjectReference, str], answer: Answer) -> None:
        """Tell of an answer; people hear of evictions only."""
        self._observer.asked_to_go(_WHY[intent.action], answer)
        if answer is not Answer.EVICTED:
            return
        regarding, text = note
        place, action = f"{victim.namespace}/{victim.name}", intent.action.value
        taker = f"{intent.namespace}/{intent.pod_group}" if intent.pod_group else intent.namespace
        extra = about(LogEvent.POD_EVICTED, pod=place, node=victim.node, action=action, intent=intent.id, taker=taker)
        _log.info("evicted: %s", text, extra=extra)
        is_of_group = regarding.kind == POD_GROUPS.kind
        alike, most = (regarding.uid, OF_GROUP) if is_of_group else (victim.namespace, OF_NAMESPACE)
        self._events.record(regarding, text, alike=alike, most=most, type=WARNING)
