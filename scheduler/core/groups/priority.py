"""The priority of a PodGroup's pods: that of the class which it names, as in KAI.

Their own, which the API server has set from their class or the global default, counts where it names none, one that
does not exist, or one of the system, which admission refuses on a tenant's pods. A pod that was placed keeps the
priority that it was placed for (gpu/grant.py): a change of the PodGroup applies to pods placed later. Until the
PriorityClasses were read a group waits that names one which is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from scheduler.core.model.facts import Facts
from scheduler.core.model.records import PodGroupRecord, PodRecord, Priority
from wire.core import NEVER_PREEMPTS, PriorityClass

_KIND: Final = "priorityclasses.scheduling.k8s.io"
#: The API server lets only the system's classes have more.
_HIGHEST: Final = 1_000_000_000


class PriorityClassRecord(msgspec.Struct, frozen=True, gc=False):
    """A PriorityClass, by its name."""

    key: str
    priority: Priority


def priority_class_record(obj: PriorityClass) -> PriorityClassRecord:
    """Read a PriorityClass."""
    return PriorityClassRecord(obj.metadata.name, Priority(obj.value, obj.preemption_policy != NEVER_PREEMPTS))


class GroupPriorities:
    """``groups``: what is known of PodGroups, read only. ``changed`` is called with those whose priority changed."""

    def __init__(
        self, groups: Mapping[tuple[str, str], PodGroupRecord], changed: Callable[[PodGroupRecord], None]
    ) -> None:
        self._groups = groups
        self._tell = changed
        self.classes: Facts[str, PriorityClassRecord] = Facts(self._class_changed, read_changed=self._read_changed)

    def judged(self, group: PodGroupRecord) -> PodGroupRecord:
        """A PodGroup, which waits while its class may exist without being known."""
        name = group.priority_class
        unread = _KIND if name and name not in self.classes and not self.classes.is_current else ""
        return group if group.unread == unread else msgspec.structs.replace(group, unread=unread)

    def counted(self, pod: PodRecord) -> PodRecord:
        """A pod with the priority that it counts with now."""
        own = pod.own_priority or Priority(pod.priority, pod.may_evict)
        said = self._said(pod, own) or own
        kept = None if said == own else own
        if (pod.priority, pod.may_evict, pod.own_priority) == (said.value, said.may_evict, kept):
            return pod
        return msgspec.structs.replace(pod, priority=said.value, may_evict=said.may_evict, own_priority=kept)

    def _said(self, pod: PodRecord, own: Priority) -> Priority | None:
        if pod.charged is not None:
            return None if pod.charged.priority is None else Priority(pod.charged.priority, own.may_evict)
        group = self._groups.get((pod.namespace, pod.pod_group)) if pod.pod_group else None
        found = None if group is None else self.classes.get(group.priority_class)
        return None if found is None or found.priority.value > _HIGHEST else found.priority

    def _class_changed(self, record: PriorityClassRecord) -> None:
        self._tell_those(lambda group: group.priority_class == record.key)

    def _read_changed(self) -> None:
        self._tell_those(lambda group: bool(group.priority_class))

    def _tell_those(self, are_meant: Callable[[PodGroupRecord], bool]) -> None:
        for group in [group for group in self._groups.values() if are_meant(group)]:
            self._tell(group)
