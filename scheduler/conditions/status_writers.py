"""Writes the status of PodGroups and Queues: what they hold and ask for, and what keeps them.

Sums are written when they change. Why a gang waits is written when its reasons change, not their numbers: else one GPU
that comes free would cost a write for each of 10,000 gangs that wait. A second after a decision, queues that have
changed are compared with what their objects show. Only the leader writes.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter
from typing import Any, Final, NamedTuple

import anyio

from kube.client.api import Api
from kube.client.clock import Clock
from kube.client.resources import POD_GROUPS, QUEUES
from kube.events import EventRecorder
from kube.watch.signal import Signal
from scheduler.conditions.messages import told
from scheduler.conditions.paced_writes import PacedWrites
from scheduler.conditions.status_fields import (
    codes,
    condition,
    differences,
    is_alike,
    resources_patch,
    shown_condition,
    with_condition,
)
from scheduler.core.model.plan import Explain
from scheduler.core.model.settings import name_of
from scheduler.core.model.verdict import Reasons
from scheduler.core.queues.use import is_fixed
from scheduler.core.report.state import GroupState, QueueState, group_state, queue_states
from scheduler.watch.cache import Cache, Shown
from scheduler.watch.secondary import shown
from wire.api_groups import WARNING
from wire.core import ObjectReference
from wire.crds.podgroup import PodGroupStatus, SchedulingCondition
from wire.rfc3339 import rfc3339

Key = tuple[str, str]

#: Between two writes of one PodGroup.
GROUP_EVERY_S: Final = 10.0
#: From a change to the look at it: a gang whose pods come one after the other starts within this, as a rule.
GATHER_S: Final = 3.0


class _Look(NamedTuple):
    """One PodGroup as it is, and what it shows. ``is_fixed``: its pods can't be preempted."""

    key: Key
    state: GroupState
    known: Shown[PodGroupStatus]
    is_fixed: bool

    @property
    def reasons(self) -> frozenset[Reasons]:
        """Why it waits, without numbers."""
        return frozenset(verdict.reasons for verdict in self.state.verdicts or ())


class PodGroupStatuses:
    """Follows sums and verdicts of PodGroups, and writes where an object shows something else."""

    def __init__(self, api: Api, cache: Cache, *, clock: Clock, events: EventRecorder) -> None:
        self._api = api
        self._events = events
        self._cache = cache
        self._clock = clock
        self._pool = name_of(cache.cluster.settings.pool)
        self._writes = PacedWrites[Key](
            "the status of PodGroups",
            is_due=self._is_due,
            write=self._write,
            every_s=GROUP_EVERY_S,
            gather_s=GATHER_S,
            namespace_of=itemgetter(0),
        )
        #: The reasons that a PodGroup shows, as far as they were written or compared in this term.
        self._said: dict[Key, frozenset[Reasons]] = {}

    def want(self, entries: Iterable[Explain]) -> None:
        """Take what one decision says of waiting pods."""
        for entry in entries:
            for key in self._groups_of(entry):
                self._writes.look_at(key)

    def _groups_of(self, entry: Explain) -> Iterable[Key]:
        if entry.pod_group is not None:
            return (entry.pod_group,)
        pods = (self._cache.cluster.pod(uid) for uid in entry.pods)
        return dict.fromkeys((pod.namespace, pod.pod_group) for pod in pods if pod is not None and pod.pod_group)

    async def run(self) -> None:
        """Write until cancelled."""
        self._said.clear()
        await self._writes.run(self._cache.groups.known())

    def sums_changed(self, key: Key) -> None:
        """The sums of a PodGroup have changed."""
        self._writes.look_at(key)

    def shown(self, key: Key) -> None:
        """A PodGroup shows another status than before, or is gone."""
        if self._cache.groups.get(key) is None:
            self._said.pop(key, None)
            self._writes.forget(key)
        else:
            self._writes.look_at(key)

    def _look(self, key: Key) -> _Look | None:
        """How a PodGroup stands and what it shows; None if it is not there."""
        cluster, known = self._cache.cluster, self._cache.groups.get(key)
        group = cluster.pod_group(*key)
        if group is None or group.is_elsewhere or known is None or known.uid != group.uid:
            return None
        members = cluster.members(*key)
        state = group_state(
            cluster.queues.sums.of_group(key), members, cluster.scheduling_queue.said.verdict, cluster.is_in_flight
        )
        return _Look(key, state, known, any(is_fixed(pod, group) for pod in members if not pod.node))

    def _is_due(self, key: Key) -> bool:
        look = self._look(key)
        return look is not None and bool(self._patch(look))

    def _patch(self, look: _Look) -> dict[str, Any]:
        """The merge patch of the status that makes it say how the group stands; empty if it says so."""
        state, status = look.state, look.known.what
        patch: dict[str, Any] = {}
        if resources := resources_patch(state, status.resources_status):
            patch["resourcesStatus"] = resources
        if state.verdicts is None:
            return patch
        if not state.verdicts:
            if shown_condition(status, self._pool) is not None:
                patch["schedulingConditions"] = with_condition(status, None, self._pool)
        elif patch or self._has_news(look):
            patch["schedulingConditions"] = with_condition(status, self._condition(look), self._pool)
        return patch

    def _has_news(self, look: _Look) -> bool:
        """Whether a group waits for other reasons than those that it shows."""
        shown, now, said = shown_condition(look.known.what, self._pool), look.reasons, self._said.get(look.key)
        if shown is None or (said is not None and said != now):
            return True
        wanted = self._condition(look)
        if codes(shown) != codes(wanted) or (said is None and not is_alike(shown, wanted)):
            return True
        self._said[look.key] = now
        return False

    def _condition(self, look: _Look) -> SchedulingCondition:
        account_of, now = self._cache.cluster.queues.account_of, rfc3339(self._clock.now_ns())
        return condition(
            look.state,
            look.known.what,
            account_of,
            namespace=look.key[0],
            pool=self._pool,
            is_fixed=look.is_fixed,
            now=now,
        )

    async def _write(self, key: Key) -> None:
        look = self._look(key)
        patch = {} if look is None else self._patch(look)
        if look is None or not patch:
            return
        namespace, name = key
        written = await self._api.patch(
            POD_GROUPS,
            name,
            {"status": patch},
            namespace=namespace,
            subresource="status",
            uid=look.known.uid,
            resource_version=look.known.rv,
        )
        if "schedulingConditions" in patch:
            before, self._said[key] = self._said.get(key), look.reasons
            if before != look.reasons:
                self._tell(look)
        self._cache.note_pod_group(written)

    def _tell(self, look: _Look) -> None:
        """Record an event of why it waits, in KAI's words, if it does (kai-contract 4.10)."""
        said = [told(verdict, reader=look.key[0]) for verdict in look.state.verdicts or ()]
        if not said:
            return
        (namespace, name), reason, note = look.key, said[0].reason, "\n".join(each.message for each in said)
        regarding = ObjectReference(
            api_version=POD_GROUPS.api_version,
            kind=POD_GROUPS.kind,
            name=name,
            namespace=namespace,
            uid=look.known.uid,
        )
        self._events.record(regarding, reason=reason, action="Scheduling", note=note, type=WARNING)


#: Between two writes of one queue.
QUEUE_EVERY_S: Final = 5.0
#: From a decision to a look at all queues, and between two looks.
_LOOK_S: Final = 1.0


class QueueStatuses:
    """Follows the accounts of queues, and writes where a Queue shows something else."""

    def __init__(self, api: Api, cache: Cache, *, clock: Clock) -> None:
        self._api = api
        self._cache = cache
        self._clock = clock
        self._states: dict[str, QueueState] = {}
        self._writes = PacedWrites[str](
            "the status of Queues", is_due=self._is_due, write=self._write, every_s=QUEUE_EVERY_S
        )
        self._decided = Signal()

    def decided(self) -> None:
        """A decision was made that is not the one before: sums may have changed."""
        self._decided.set()

    async def run(self) -> None:
        """Write until cancelled."""
        self._states = {}
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._writes.run)
            while True:
                await self._decided.wait()
                await anyio.sleep(_LOOK_S)  # what comes with it, such as that its pods are bound, is one write
                self._look()

    def _look(self) -> None:
        """Take how queues stand by the counts of the last decision."""
        queues = self._cache.cluster.queues
        states = queue_states(queues.records.all(), queues.accounts(), queues.sums.sums)
        before, self._states = self._states, {state.record.name: state for state in states}
        for name, state in self._states.items():
            if before.get(name) != state:
                self._writes.look_at(name)

    def shown(self, name: str) -> None:
        """A Queue shows another status than before, or is gone."""
        if self._cache.queues.get(name) is None:
            self._writes.forget(name)
        else:
            self._writes.look_at(name)

    def _is_due(self, name: str) -> bool:
        return bool(self._differences(name))

    def _differences(self, name: str) -> dict[str, Any]:
        state, known = self._states.get(name), self._cache.queues.get(name)
        if state is None or known is None or state.record.uid != known.uid:
            return {}
        return differences(state, known.what.status, now=rfc3339(self._clock.now_ns()))

    async def _write(self, name: str) -> None:
        known, patch = self._cache.queues.get(name), self._differences(name)
        if known is None or not patch:
            return
        queue = await self._api.patch(
            QUEUES, name, {"status": patch}, subresource="status", uid=known.uid, resource_version=known.rv
        )
        self._cache.queues.note(name, shown(queue))
