"""Brings a running cluster before the checker: its writes, its schedulers' ledgers, and all of it when it is at rest.

Ledgers are read as plain numbers; counting what has changed is what the next decision would begin with, so looking
changes no decision. Judging rest takes virtual time and ends with taking work away: what waits though it fits is given
the longest back-off to be placed (L1), nothing may be written or decided while there is nothing to do (L5), and then a
pod is deleted on purpose to see that its room is used at once (L4).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import anyio

from gpu.node_resources import is_device_resource
from kube.client import errors, resources
from kube.client.api import Api
from scheduler.app import Scheduler
from scheduler.core.cluster import Cluster
from scheduler.core.nodes.table import CPU, MEMORY, PODS
from sharing.entries import vanished_wait_s
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import Fault
from simulator.apiserver.server import MemoryApiServer
from simulator.checks import fit
from simulator.checks.checker import WATCHED, Checker
from simulator.checks.evictions import Write
from simulator.checks.facts import PodFacts
from simulator.checks.ledgers import Ledger, Row
from simulator.components import Runnable
from simulator.nodes.node_set import NodeSet
from simulator.replicas import Component

#: What a scheduler follows, by plural.
FOLLOWED: Final = ("nodes", "podgroups", "bindrequests", "pods")


def ledger_of(name: str, scheduler: object) -> Ledger | None:
    """Read a scheduler's ledger; None of a stand-in that has none."""
    if not isinstance(scheduler, Scheduler):
        return None
    cluster = scheduler.cache.cluster
    is_busy = not cluster.commits.are_settled
    caps = cluster.slice_caps.of
    return Ledger(scheduler=name, is_busy=is_busy, rows={} if is_busy else _rows(cluster), caps=caps)


def decisions(scheduler: object) -> int:
    """How many decisions a scheduler has made since it started; 0 of a stand-in that makes none."""
    return scheduler.cache.cluster.decisions if isinstance(scheduler, Scheduler) else 0


def _rows(cluster: Cluster) -> dict[str, Row]:
    counted = cluster.refresh()
    table = counted.table
    free_of = table.free.T.tolist()
    kinds = [(at, name) for at, name in enumerate(table.resources) if is_device_resource(name)]
    rows = {}
    for node, row in counted.row_of.items():
        free = free_of[row]
        shared = {device.group: device.free_nano for device in table.devices[row]}
        rows[node] = Row(free[CPU], free[MEMORY], free[PODS], {name: free[at] for at, name in kinds}, shared)
    return rows


_READS: Final = frozenset({"get", "list", "watch"})
#: The status of a write that never arrived.
_UNHEARD: Final = 504
#: After a change the ledgers are looked at so soon, and again until nothing is under way.
_LEDGER_S: Final = 0.2
#: Twice the longest time for which a node is out for a pod (scheduler/core/model/settings.py), looked at now and then.
L1_S: Final = 3600.0
_L1_LOOK_S: Final = 60.0
_PASSING_LOOK_S: Final = 1.0
#: So long after the last event something may still fall due: what a forced deletion left (its grace period and a
#: margin), the rest of a broken gang, idle reservations.
_LATE_WORK_S: Final = 300.0
#: Nothing is written for so long when there is nothing to do.
L5_S: Final = 600.0
#: The most decisions of one scheduler in that time: searches, and nodes that are kept, have times of their own.
L5_DECISIONS: Final = 60
#: From the moment at which a pod is gone: one decision, and what there is to be done before a Binding (a reservation
#: that goes: its grace period; one that comes: its start and its answer).
L4_S: Final = 60.0
#: A pod without a grace period is gone when it is deleted; its share is kept until its machine was heard of that long.
_KEPT_S: Final = float(vanished_wait_s(0))
_L4_LOOK_S: Final = 0.5


class Audited(Protocol):
    """The parts of a world (simulator/world.py) that are looked at."""

    @property
    def checker(self) -> Checker:
        """What judges."""

    @property
    def server(self) -> MemoryApiServer:
        """What everybody writes to."""

    @property
    def api(self) -> Api:
        """A user's calls."""

    @property
    def nodes(self) -> NodeSet:
        """Kubelets and devices."""

    @property
    def components(self) -> Mapping[str, Component]:
        """Schedulers and binders by their names."""

    @property
    def running(self) -> Mapping[str, Runnable]:
        """Schedulers that run now, by the names of their components."""


@dataclass(slots=True)
class Auditor:
    """Watches one world for its checker. ``observer`` shows the checker objects; ``is_ours``: which users are."""

    world: Audited
    observer: str
    is_ours: Callable[[str], bool]
    _news: anyio.Event = field(default_factory=anyio.Event)

    @property
    def _checker(self) -> Checker:
        return self.world.checker

    # --- writes

    def answered(self, call: Call, code: int) -> None:
        """Tell the checker of a write, as the API server has just answered it."""
        if call.verb not in _READS:
            self._checker.wrote(self._write(call, code))

    def struck(self, call: Call, fault: Fault) -> None:
        """Tell the checker of a write that a fault keeps from the API server: it was tried nevertheless."""
        if call.verb not in _READS and not fault.is_carried_out:
            self._checker.wrote(self._write(call, fault.refuse_with or _UNHEARD))

    def _write(self, call: Call, code: int) -> Write:
        return Write(
            at_s=anyio.current_time(),
            user=call.user,
            is_ours=self.is_ours(call.user),
            verb=call.verb,
            plural=call.kind.plural,
            subresource=call.subresource,
            namespace=call.namespace,
            name=call.name or _name_in(call.body),
            code=code,
            version=self.world.server.resource_version if code < 300 else 0,
        )

    # --- ledgers

    def changed(self) -> None:
        """Some object has changed."""
        self._news.set()

    async def watch_ledgers(self) -> None:
        """After changes, compare the schedulers' ledgers with a recount as soon as nothing is under way (S12)."""
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            await anyio.sleep(_LEDGER_S)
            if not self.look_at_ledgers():
                self._news.set()

    def look_at_ledgers(self) -> bool:
        """Judge every scheduler that is in step; False if one was not."""
        now_s = anyio.current_time()
        if not self._is_told(self.observer, WATCHED):
            return False
        judged = [self._look_at(name, scheduler, now_s) for name, scheduler in self.world.running.items()]
        return all(judged)

    def _look_at(self, name: str, scheduler: object, now_s: float) -> bool:
        component = self.world.components[name]
        if not component.is_in_touch or not self._is_told(name, FOLLOWED):
            # Who is down has no ledger, and tells of its return by the changes that it makes.
            return not component.is_running
        if component.is_older:
            return True
        if self._checker.has_requests:
            return False
        ledger = ledger_of(name, scheduler)
        return ledger is None or self._checker.ledger(ledger, now_s)

    def _is_told(self, user: str, kinds: Iterable[str]) -> bool:
        """Whether a user's watches are open and were handed everything."""
        left = self.world.server.undelivered(user)
        return all(left.get(kind) == 0 for kind in kinds)

    # --- rest

    async def judge_rest(self) -> None:
        """Judge a cluster in which nothing happens any more: L1 to L7, and what S10 and S11 say of rest."""
        await self._judge_placed()
        await self._pass()
        now_s = anyio.current_time()
        self._checker.judge_waiting(now_s)
        self._checker.judge_forgotten(self._stuck(), now_s)
        self._checker.nominations.judge_rest(now_s)
        await self._judge_quiet()
        self._checker.claims.judge_rest(anyio.current_time())
        await self._judge_freed()
        self._checker.findings.judged.add("L2")

    async def _judge_placed(self) -> None:
        """L1: a pod that fits is bound, once back-offs and excluded nodes have had their time."""
        until_s = anyio.current_time() + L1_S
        fitting = self._checker.fitting(self._checker.scene)
        while fitting and anyio.current_time() < until_s:
            await anyio.sleep(_L1_LOOK_S)
            now = self._checker.fitting(self._checker.scene)
            fitting = {uid: why for uid, why in now.items() if uid in fitting}
        for why in fitting.values():
            self._checker.findings.add("L1", anyio.current_time(), why)
        self._checker.findings.judged.add("L1")

    async def _pass(self) -> None:
        """Wait until no pod speaks of what is under way, at most L1_S: what is still said then, L3 judges.

        An excluded node is tried again after up to half of L1_S, so an attempt may fail in a cluster that had been at
        rest for longer than any back-off.
        """
        until_s = anyio.current_time() + L1_S
        while self._checker.has_passing_words and anyio.current_time() < until_s:  # noqa: ASYNC110 - plain data
            await anyio.sleep(_PASSING_LOOK_S)

    def _stuck(self) -> list[str]:
        """Bound pods that don't run, though their machines work.

        A pod that waits for its user's ConfigMap or Secret, or of which the user took the request for a share back on
        its way, waits for what nobody else owes it.
        """
        pods = [pod for pod in self._checker.live.values() if _is_ours_to_run(pod) and not self._runs(pod)]
        return [pod.uid for pod in pods if not pod.lacks_config]

    def _runs(self, pod: PodFacts) -> bool:
        kubelet = self.world.nodes.kubelets.get(pod.node)
        return pod.phase != "Pending" or kubelet is None or not kubelet.is_answering

    async def _judge_quiet(self) -> None:
        """L5: with nothing to do we write nothing, but for leases, and decide next to nothing.

        Not judged where a program ends meanwhile.
        """
        await anyio.sleep(_LATE_WORK_S)
        if self._checker.has_patient_pods:
            return
        writes = self._checker.writes
        before, running, decided = writes.work, self._running(), self._decisions()
        await anyio.sleep(L5_S)
        live = self._checker.live
        if any(uid in live and live[uid].has_ended for uid in running):
            return
        if writes.work > before:
            text = f"{writes.work - before} writes in {L5_S:.0f} s with nothing to do, the last: {writes.last_work}"
            self._checker.findings.add("L5", anyio.current_time(), text)
        for name, number in self._decisions().items():
            if (made := number - decided.get(name, number)) > L5_DECISIONS:
                text = f"{name} made {made} decisions in {L5_S:.0f} s with nothing to do"
                self._checker.findings.add("L5", anyio.current_time(), text)
        self._checker.findings.judged.add("L5")

    def _decisions(self) -> dict[str, int]:
        """How many decisions each scheduler has made that runs."""
        return {name: decisions(scheduler) for name, scheduler in self.world.running.items()}

    def _running(self) -> list[str]:
        """Users' pods that have not ended."""
        return [uid for uid, pod in self._checker.live.items() if not pod.has_ended and not pod.is_reservation]

    async def _judge_freed(self) -> None:
        """L4: a pod is taken away in whose room another one fits that waits; that one has to be bound at once."""
        chance = _chance(self._checker)
        self._checker.findings.judged.add("L4")
        if chance is None:
            return
        leaving, wanted = chance
        waiting = [pod.uid for pod in self._checker.live.values() if pod.waits]
        try:
            await self.world.api.delete(resources.PODS, leaving.name, namespace=leaving.namespace, uid=leaving.uid)
        except errors.ApiError:
            return
        while leaving.uid in self._checker.live:  # noqa: ASYNC110 - the checker's view is plain data
            await anyio.sleep(_L4_LOOK_S)
        within_s = L4_S + (0.0 if leaving.raw["spec"].get("terminationGracePeriodSeconds", 30) else _KEPT_S)
        until_s = anyio.current_time() + within_s
        while anyio.current_time() < until_s:
            await anyio.sleep(_L4_LOOK_S)
            if any(not (pod := self._checker.live.get(uid)) or pod.node for uid in waiting):
                return
        kept_from = self._checker.kept_from(self._checker.scene)  # a queue that has less now may have a right to one
        still = [pod for pod in self._checker.live.values() if pod.key in wanted]
        wanted = [pod.key for pod in still if leaving.node not in kept_from(pod)]
        if not wanted:
            return
        fitting = ", ".join(wanted)
        text = f"{within_s:.0f} s after pod {leaving.key} was gone nobody has its room, where {fitting} would fit"
        self._checker.findings.add("L4", anyio.current_time(), text)


def _chance(checker: Checker) -> tuple[PodFacts, list[str]] | None:
    """A bound pod, and the names of waiting ones that would fit if it were gone; None if there is no such pod."""
    scene, live = checker.scene, checker.live
    kept_from = checker.kept_from(scene)
    waiting = [pod for pod in live.values() if pod.waits and not pod.pod_group and fit.is_judged(pod)]
    for leaving in live.values():
        if not waiting:
            return None
        if not _is_ours_to_run(leaving) or leaving.pod_group or leaving.phase != "Running":
            continue
        for room in scene.rooms:
            if room.name == leaving.node:
                freed = room.without(leaving)
                usable = [pod for pod in waiting if checker.pools.may_use(pod, scene.nodes[room.name])]
                fitting = [pod for pod in usable if freed.copy().take(pod)]
                free = [pod for pod in fitting if room.name not in kept_from(pod)]
                found = [pod.key for pod in free if not checker.limits.may_hold(pod, without=leaving)]
                if found:
                    return leaving, found
    return None


def _is_ours_to_run(pod: PodFacts) -> bool:
    """Whether we placed it, and it has not ended."""
    return bool(pod.node) and pod.is_ours and not pod.is_placed_by_hand and not pod.has_ended


def _name_in(body: bytes | None) -> str:
    """The name of an object that is being created."""
    written: Any = json.loads(body) if body else None
    metadata = written.get("metadata") if isinstance(written, dict) else None
    return str((metadata or {}).get("name", ""))
