"""Tells a pod, when it is bound, how its words were understood where that is not what they say: one event.

What the origin of a form would have weakened, and what was given in the place of what was asked (rule X6 of the
translation table, docs/reference/dialects.md). Only the leader tells, and nobody what happened between two leaders:
the pod's record has notes as well.
"""

from __future__ import annotations

import anyio

from gpu.telling import note_text, taken_text
from gpu.translation import LOSSES, Note, NoteCode
from kube.events import EventRecorder
from scheduler.core.model.records import PodRecord
from scheduler.watch.cache import Cache
from wire import names
from wire.core import ObjectReference
from wire.events import NORMAL, WARNING


class Remarking:
    """Records an event on pods that were bound, while it runs."""

    def __init__(self, cache: Cache, events: EventRecorder) -> None:
        self._events = events
        self._is_leading = False
        cache.on_bound = self._bound

    async def run(self) -> None:
        """Tell pods until cancelled."""
        self._is_leading = True
        try:
            await anyio.sleep_forever()
        finally:
            self._is_leading = False

    def _bound(self, pod: PodRecord, alternative: int) -> None:
        if not self._is_leading:
            return
        requests = [*pod.cls.requests()]
        first = _first_there(pod, alternative)
        is_other = first < alternative < len(requests)
        # That less may be given is no news to a pod that was given all.
        notes = [note for note in _notes(pod) if is_other or note.code is not NoteCode.WEAKENED]
        texts = [taken_text(requests, alternative, first)] if is_other else []
        texts += [note_text(note) for note in notes]
        if not texts:
            return
        self._events.record(
            ObjectReference(api_version="v1", kind="Pod", name=pod.name, namespace=pod.namespace, uid=pod.uid),
            reason=names.REASON_UNDERSTOOD,
            action="Binding",
            note="; ".join(texts),
            type=WARNING if any(note.code in LOSSES for note in notes) else NORMAL,
            is_final=True,
        )


def _first_there(pod: PodRecord, alternative: int) -> int:
    """What the pod asks first on nodes such as the one that it was bound to."""
    places = pod.cls.places
    return places.index(places[alternative]) if alternative < len(places) else 0


def _notes(pod: PodRecord) -> tuple[Note, ...]:
    return pod.recorded.notes if pod.recorded is not None else ()
