"""What the validating webhook refuses: malformed asks in their dialect's words, and asks changed after they were read.

Only what changed is judged. A pod that was let in once may always be ungated, relabelled and freed of its finalizers,
also when the rules have become stricter since. KAI's older annotations are read as they stand until the pod is placed;
the words of all other dialects are read once, when the pod comes (gpu/translate/asked.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final

import msgspec

from admission import handover, protected
from admission.mutate import shared_containers
from admission.raw_pod import Raw, walk
from admission.settings import Choices, Guard
from gpu import bound_pod, limits
from gpu.translate import combine, registry
from gpu.translate.asked import asked
from gpu.translation import Mistake, Refusal, Translation, shown, told
from wire import names
from wire.core import Pod

#: Priority classes that every cluster has and any namespace may use. They come before all other pods.
_CRITICAL: Final = frozenset({"system-cluster-critical", "system-node-critical"})


def refusal_of_new(
    pod: Raw, *, choices: Choices, renamed: Collection[str] = (), may_be_critical: bool = False
) -> str | None:
    """Return the text of ``judge_new``."""
    found = judge_new(pod, choices=choices, renamed=renamed, may_be_critical=may_be_critical)
    return told(found) if isinstance(found, Refusal) else found


def judge_new(
    pod: Raw, *, choices: Choices, renamed: Collection[str] = (), may_be_critical: bool = False
) -> Refusal | str | None:
    """Return why a new pod of ours is refused, as text where the words are KAI's; None if it is not refused.

    ``pod`` is known to decode as wire.core.Pod. ``may_be_critical``: whether its namespace may give it a system
    priority class and GPUs.
    """
    translation = combine.translate(msgspec.convert(pod, Pod), choices.dialects)
    if isinstance(translation, Refusal):
        return translation
    if translation.request.containers and not may_be_critical and (critical := _critical(pod)) is not None:
        return critical
    if (no_room := bound_pod.cramped(pod["metadata"].get("annotations"), translation)) is not None:
        return no_room
    if isinstance(insists := limits.requirement(_annotations(pod)), Refusal):
        return insists
    if choices.guard is Guard.OFF:
        return None
    keys = {ref.key for ref in shared_containers(translation.request)}
    return handover.forbidden(pod, shared=keys, guard=choices.guard, renamed=renamed)


def _critical(pod: Raw) -> Refusal | None:
    """Refuse a class that would bring a tenant's pod before everybody's, for GPUs."""
    name = pod["spec"].get("priorityClassName") or ""
    if name not in _CRITICAL:
        return None
    return Refusal(
        code=Mistake.CONFLICTING,
        field="spec.priorityClassName",
        value=name,
        message=f"a pod that asks for GPUs can't have priority class {name} in this namespace",
        allowed="a priority class of the cluster's administrator, or a namespace of the setting critical-namespace",
    )


def refusal_of_update(before: Raw, after: Raw, *, sharing: bool = True) -> str | None:
    """Say why a change of a pod of ours is refused; None if it is not."""
    if after["metadata"].get("deletionTimestamp"):
        return None
    late = _said_too_late(before, after)
    if late is not None:
        return told(late)
    old, new = _annotations(before), _annotations(after)
    if old == new:
        return None
    changed = [key for key in protected.ASKS if old.get(key) != new.get(key)]
    if _is_placed(before):
        said = f"annotations {', '.join(changed)} can't be changed any more: the pod has its GPUs on a node already"
        return said if changed else None
    insists = limits.requirement(new)
    if isinstance(insists, Refusal) and old.get(insists.field) != new.get(insists.field):
        return told(insists)
    grows = bound_pod.bytes_used(new) > bound_pod.bytes_used(old)
    refusal = _unreadable(before, after, changed=changed, grows=grows, sharing=sharing)
    return told(refusal) if refusal is not None else None


def _unreadable(before: Raw, after: Raw, *, changed: list[str], grows: bool, sharing: bool) -> Refusal | None:
    """Why what a pod asks can't be served any more, after a change of what it asks or of how much it says."""
    translation = asked(msgspec.convert(after, Pod), sharing=sharing)
    if isinstance(translation, Refusal):
        return translation if changed else None
    if changed and (late := _shared_too_late(before, after, translation, changed[0])) is not None:
        return late
    return bound_pod.cramped(_annotations(after), translation) if changed or grows else None


def _shared_too_late(before: Raw, after: Raw, translation: Translation, key: str) -> Refusal | None:
    """A share for a container that was not made ready when the pod came: it would never see it, and the pod waits."""
    known = asked(msgspec.convert(before, Pod))
    had = {ref.key for ref in shared_containers(known.request)} if isinstance(known, Translation) else set()
    wanted = {ref.key for ref in shared_containers(translation.request)} - had
    for ref, container in walk(after):
        if ref.key in wanted and not handover.is_ready(container, ref.key):
            value = _annotations(after).get(key)
            return Refusal(
                code=Mistake.CONFLICTING,
                field=f"annotation {key}",
                value="none" if value is None else shown(value),
                message=f"container {ref.name} can't be given a share any more: it was not made ready for one when the "
                "pod came; delete the pod and create it again",
                allowed=shown(_annotations(before).get(key, "none")),
            )
    return None


def _said_too_late(before: Raw, after: Raw) -> Refusal | None:
    """A change of words that were read when the pod came, or that would have had to be there then."""
    has_record = names.GPU_RECORD in _annotations(before)
    for is_label, key, old, new in _changes(before, after):
        if not registry.is_word(key, is_label=is_label) or (not has_record and key in protected.ASKS):
            continue
        if has_record or _is_spoken(after) > _is_spoken(before):
            what = "label" if is_label else "annotation"
            return Refusal(
                code=Mistake.CONFLICTING,
                field=f"{what} {key}",
                value="none" if new is None else shown(new),
                message=f"{what} {key} can't be changed: what a pod asks of GPUs was read when it came, so this would "
                "change nothing; delete the pod and create it again",
                allowed="none" if old is None else shown(old),
            )
    return None


def _changes(before: Raw, after: Raw) -> Iterator[tuple[bool, str, str | None, str | None]]:
    """Labels and annotations that differ: whether it is a label, key, and the values of both sides."""
    for field in ("labels", "annotations"):
        old: dict[str, Any] = before["metadata"].get(field) or {}
        new: dict[str, Any] = after["metadata"].get(field) or {}
        for key in sorted({*old, *new}):
            if old.get(key) != new.get(key):
                yield field == "labels", key, old.get(key), new.get(key)


def _is_spoken(pod: Raw) -> bool:
    return registry.is_spoken(msgspec.convert(pod, Pod))


def _annotations(pod: Raw) -> dict[str, str]:
    annotations: dict[str, str] = pod["metadata"].get("annotations") or {}
    return annotations


def _is_placed(pod: Raw) -> bool:
    return bool(pod["spec"].get("nodeName")) or names.GRANT in _annotations(pod)
