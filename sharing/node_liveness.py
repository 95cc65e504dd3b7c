"""Since when a machine has been heard of: only then does its kubelet learn that pods were deleted, and end them.

A pod that vanished may run on while its Node object is gone, or while its kubelet is silent. So the time for which a
vanished pod is waited for counts from here (sharing/entries.py). All but the moment is read from the Node object,
so a restart of the binder, and a Node that goes and comes between two looks, can only make the wait longer.
"""

from __future__ import annotations

import msgspec

from wire.core import Node


class Registration(msgspec.Struct, frozen=True, gc=False):
    """What a Node object says of its kubelet: ``uid`` of the object, ``ready_since`` as the API server has it.

    Another UID: the machine registered again, or another one did. Another ``ready_since``: it was silent in between.
    """

    uid: str
    ready_since: str


class Heard(msgspec.Struct, frozen=True, gc=False):
    """A machine that is heard of, without a break ``since_s`` (event loop's time)."""

    registration: Registration
    since_s: float


def registration(node: Node) -> Registration | None:
    """What is heard of a machine: None while its kubelet is silent. A Node that says nothing of it counts as heard."""
    ready = next((one for one in node.status.conditions or () if one.type == "Ready"), None)
    if ready is None:
        return Registration(node.metadata.uid, "")
    return Registration(node.metadata.uid, ready.last_transition_time or "") if ready.status == "True" else None


def heard(before: Heard | None, now: Registration | None, now_s: float) -> Heard | None:
    """Return how a machine is heard of, from what was known before and what its Node says now (None: nothing)."""
    if now is None:
        return None
    return before if before is not None and before.registration == now else Heard(now, now_s)
