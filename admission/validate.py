"""What the validating webhook refuses: malformed asks in KAI's words and order, and asks changed after placement.

Only what changed is judged. A pod that was let in once may always be ungated, relabelled and freed of its finalizers,
also when the rules have become stricter since.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from admission import guard as device_guard
from admission import protected
from admission.containers import Raw
from admission.mutate import shared_containers
from admission.settings import Guard
from gpu import room
from gpu.dialects import kai
from gpu.refusal import Refusal, told
from wire import names
from wire.core import Pod


def refusal_of_new(pod: Raw, *, guard: Guard, sharing: bool = True, renamed: Collection[str] = ()) -> str | None:
    """Say why a new pod of ours is refused; None if it is not. ``pod`` is known to decode as wire.core.Pod."""
    request = kai.translate(msgspec.convert(pod, Pod), sharing=sharing)
    if isinstance(request, Refusal):
        return told(request)
    if (no_room := room.cramped(pod["metadata"].get("annotations"), request)) is not None:
        return told(no_room)
    if guard is Guard.OFF:
        return None
    keys = {ref.key for ref in shared_containers(request)}
    return device_guard.forbidden(pod, shared=keys, guard=guard, renamed=renamed)


def refusal_of_update(before: Raw, after: Raw, *, sharing: bool = True) -> str | None:
    """Say why a change of a pod of ours is refused; None if it is not."""
    old, new = _annotations(before), _annotations(after)
    if old == new or after["metadata"].get("deletionTimestamp"):
        return None
    changed = [key for key in protected.ASKS if old.get(key) != new.get(key)]
    if _is_placed(before):
        said = f"annotations {', '.join(changed)} can't be changed any more: the pod has its GPUs on a node already"
        return said if changed else None
    request = kai.translate(msgspec.convert(after, Pod), sharing=sharing)
    if isinstance(request, Refusal):
        return told(request) if changed else None
    no_room = room.cramped(new, request) if changed or room.used(new) > room.used(old) else None
    return told(no_room) if no_room is not None else None


def _annotations(pod: Raw) -> dict[str, str]:
    annotations: dict[str, str] = pod["metadata"].get("annotations") or {}
    return annotations


def _is_placed(pod: Raw) -> bool:
    return bool(pod["spec"].get("nodeName")) or names.GRANT in _annotations(pod)
