"""Explanations for readers who may not list the pods of all namespaces: without names of others' pods.

Numbers stay, as they do in conditions of pods; so do names of nodes and queues.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from cli.explaining.views import GroupView, IntentView, RoomView, VictimView
from scheduler.core.what_if.edits import Edit
from scheduler.core.what_if.known_ends import Wait
from scheduler.core.what_if.node_changes import Ended
from scheduler.core.what_if.suggestions import Suggestion

_ANOTHER = "another group"


def suggested_to(namespace: str, helps: Iterable[Suggestion]) -> Sequence[Suggestion]:
    """Leave out changes that end others' pods, and names of those that end."""
    return [
        Suggestion(tuple(map(_without_names, each.edits)))
        for each in helps
        if not any(isinstance(edit, Ended) and edit.namespace not in {"", namespace} for edit in each.edits)
    ]


def _without_names(edit: Edit) -> Edit:
    return msgspec.structs.replace(edit, ends=(), uids=()) if isinstance(edit, Wait) else edit


def without_others(view: GroupView) -> GroupView:
    """Return the view with others' pods counted, not named."""
    room = None if view.room is None else _room(view.room, view.namespace)
    return msgspec.structs.replace(view, room=room, evictions=tuple(_intent(each, view) for each in view.evictions))


def _room(room: RoomView, namespace: str) -> RoomView:
    return msgspec.structs.replace(room, victims=_own(room.victims, namespace))


def _intent(intent: IntentView, view: GroupView) -> IntentView:
    victims = _own(intent.victims, view.namespace)
    if intent.for_group.partition("/")[0] == view.namespace:
        return msgspec.structs.replace(intent, victims=victims)
    message = intent.message.replace(intent.for_group, _ANOTHER)
    return msgspec.structs.replace(intent, victims=victims, for_group=_ANOTHER, message=message)


def _own(victims: Iterable[VictimView], namespace: str) -> tuple[VictimView, ...]:
    return tuple(each for each in victims if each.namespace == namespace)
