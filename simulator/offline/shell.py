"""Decides on a cluster of records, and carries out what is decided, until nothing changes any more.

Decisions are the live scheduler's: the same ``Cluster`` and ``decide``. What the API server, the binder and kubelets
would do is done at once: a pod that is bound runs, a victim is gone, and its controller has made it again. No pod ends
on its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from gpu.bind_request import PlannedDevice
from gpu.grant import Charged, render_charged
from scheduler.core.cluster import Cluster
from scheduler.core.convert.owners import controller_uid
from scheduler.core.decide.allowance import Limits
from scheduler.core.filters.pod_rule import takes
from scheduler.core.model.devices import SliceRecord
from scheduler.core.model.plan import (
    Attempt,
    Bind,
    Entry,
    Evict,
    Explain,
    Gang,
    GiveUp,
    Hold,
    Join,
    Nominate,
    Placement,
    Plan,
    Prepare,
    Retire,
)
from scheduler.core.model.preemption import Budget, Evicted, Nomination, Victim
from scheduler.core.model.records import NodeRecord, PodRecord
from scheduler.core.model.stale import Stale
from simulator.offline import books
from simulator.offline.books import Books, DeviceClaims
from wire import names
from wire.core import Pod, PodStatus
from wire.rfc3339 import rfc3339
from wire.units import SECOND_NS

#: By ``PreemptionFacts.asked`` None: all victims count as asked to go, since they go at once.
_ALL_ASKED: Final = None


class Evictions:
    """What preemption reads besides nodes, queues and pods: evictions of the last hour and PodDisruptionBudgets.

    ``note`` tells the cluster, while pods are evicted and start again.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        facts = cluster.snapshot().preemption_facts
        self._facts = msgspec.structs.replace(facts, asked=_ALL_ASKED)
        self._labels = dict(facts.labels)
        self._evicted = dict(facts.evicted)
        self._budgets = list(facts.budgets)
        #: By successor (UID): numbers of the budgets that one pod less disturbs once it runs.
        self._disturbs: dict[str, tuple[int, ...]] = {}
        self._has_changed = True

    def note(self) -> None:
        """Tell the cluster what has changed."""
        if self._has_changed:
            self._has_changed = False
            self._facts = msgspec.structs.replace(
                self._facts,
                version=self._facts.version + 1,
                labels=dict(self._labels),
                evicted=dict(self._evicted),
                budgets=tuple(self._budgets),
            )
            self._cluster.note_preemption_facts(self._facts)

    def is_allowed(self, pod: PodRecord) -> bool:
        """Whether budgets let a pod be evicted now."""
        return all(self._budgets[at].allowed > 0 for at in self._of(pod))

    def evicted(self, pod: PodRecord, owner: str, *, wall_s: int, successor: str) -> None:
        """A pod was evicted for others. ``successor``: the UID of what takes its place, "" if nothing does."""
        known = self._evicted.get(owner, Evicted(0, 0))
        self._evicted[owner] = Evicted(known.times + 1, wall_s)
        disturbed = tuple(self._of(pod))
        self._allow(disturbed, -1)
        if successor and disturbed:
            self._disturbs[successor] = disturbed
        self._has_changed = True

    def started(self, pod: PodRecord) -> None:
        """A pod has a node now."""
        self._allow(self._disturbs.pop(pod.uid, ()), 1)
        if any(budget.namespace == pod.namespace for budget in self._budgets):
            self._labels[pod.uid] = pod.labels
            self._has_changed = True

    def gone(self, uid: str) -> None:
        """A pod is gone."""
        if self._labels.pop(uid, None) is not None:
            self._has_changed = True

    def _of(self, pod: PodRecord) -> Iterator[int]:
        for at, budget in enumerate(self._budgets):
            if budget.namespace == pod.namespace and takes(budget.selector, pod.labels):
                yield at

    def _allow(self, numbers: tuple[int, ...], more: int) -> None:
        for at in numbers:
            budget: Budget = self._budgets[at]
            self._budgets[at] = msgspec.structs.replace(budget, allowed=budget.allowed + more)
            self._has_changed = True


#: What a Binding writes: a pod that was just made has none of it.
_WRITTEN: Final = frozenset({
    names.GRANT,
    names.CHARGED,
    names.RECEIVED_RESOURCE_TYPE,
    names.GPU_PORTION_ANNOTATION,
    names.GPU_GROUP_LABEL,
})  # fmt: skip
_PREFIXES: Final = (names.VISIBLE_DEVICES_PREFIX, names.MULTI_GPU_GROUP_LABEL_PREFIX)
#: Pods of a DaemonSet, and static pods (their owner is the Node), which ``kubectl drain`` leaves.
_STAY: Final = frozenset({"DaemonSet", "Node"})


def has_successor(pod: Pod) -> bool:
    """Whether something makes the pod again."""
    return bool(controller_uid(pod.metadata))


def leaves_drained_node(pod: Pod) -> bool:
    """Whether ``kubectl drain --ignore-daemonsets --force`` takes a pod off its node."""
    return not any(owner.controller and owner.kind in _STAY for owner in pod.metadata.owner_references or ())


def successor(pod: Pod, *, uid: str, rv: str, created: str) -> Pod:
    """Return the pod that is made again: it waits, and keeps its name. ``created``: as the API server writes it.

    What a webhook or gate would do to it again is not known: it is taken as admitted and free to start.
    """
    meta = pod.metadata
    return msgspec.structs.replace(
        pod,
        metadata=msgspec.structs.replace(
            meta,
            uid=uid,
            resource_version=rv,
            creation_timestamp=created,
            deletion_timestamp=None,
            labels=_unwritten(meta.labels),
            annotations=_unwritten(meta.annotations),
        ),
        spec=msgspec.structs.replace(pod.spec, node_name=""),
        status=PodStatus(phase=names.PENDING),
    )


def bound(pod: Pod, node: str, *, rv: str, started: str, charged: Charged | None = None) -> Pod:
    """Return a pod that runs on a node since ``started``. ``charged``: what it was placed for in its queue."""
    annotations = {**(pod.metadata.annotations or {}), **render_charged(charged)}
    return msgspec.structs.replace(
        pod,
        metadata=msgspec.structs.replace(pod.metadata, resource_version=rv, annotations=annotations),
        spec=msgspec.structs.replace(pod.spec, node_name=node, scheduling_gates=None),
        status=PodStatus(
            phase=names.RUNNING,
            start_time=started,
            resource_claim_statuses=pod.status.resource_claim_statuses,
            extended_resource_claim_status=pod.status.extended_resource_claim_status,
        ),
    )


def _unwritten(found: Mapping[str, str] | None) -> dict[str, str] | None:
    if not found:
        return None
    return {key: text for key, text in found.items() if key not in _WRITTEN and not key.startswith(_PREFIXES)} or None


class Shell:
    """A cluster and its pods. ``pods``: the objects, by UID, that it was counted from. ``wall_s``: the wall clock.

    ``current``: by the UID of a pod of the beginning, that of the pod which has its place now; None: nobody has.
    ``evictions``: pods that were evicted for others so far, those of broken gangs included. ``others_gone``: pods of
    other schedulers that a drain took away. ``room``: by the UID of a pod that was evicted for others, theirs.
    ``placed_s``: when pods got a node (wall clock). UIDs of both are those of the beginning.
    """

    def __init__(self, cluster: Cluster, pods: Iterable[Pod], *, wall_s: int) -> None:
        self.cluster = cluster
        self.wall_s = wall_s
        self._pods = {pod.metadata.uid: pod for pod in pods}
        versions = [_version(pod) for pod in self._pods.values()]
        versions += [claim.resource_version for claim in cluster.claims.claims.all()]
        self._rv = max((int(rv) for rv in versions if rv.isdecimal()), default=0)
        self._books = Books(cluster, self._next_rv)
        self._device_claims = DeviceClaims(cluster.claims, self._next_rv)
        self._evictions = Evictions(cluster)
        self._read = cluster.list_reader()
        self.current: dict[str, str | None] = {uid: uid for uid in self._pods}
        self._origins = {uid: uid for uid in self._pods}
        self.evictions = 0
        self.room: dict[str, tuple[str, ...]] = {}
        self.placed_s: dict[str, int] = {}
        self.others_gone = 0
        self._made = 0
        #: Gangs (namespace and PodGroup) of which a pod has succeeded.
        self._at_their_end = {
            (pod.metadata.namespace, (pod.metadata.annotations or {}).get(names.POD_GROUP_NAME, ""))
            for pod in self._pods.values()
            if pod.status.phase == names.SUCCEEDED
        }

    # --- what was under way --------------------------------------------------------------------------------------
    def finish_what_is_under_way(self) -> None:
        """Have pods on their way arrive, terminating ones end, and victims of standing decisions go."""
        commits, snapshot = self.cluster.commits, self.cluster.snapshot()
        records = snapshot.pods.records
        for uid in [uid for uid, pod in records.items() if pod.deleting and not pod.is_reservation]:
            self.remove(uid)
        for uid in [uid for uid in snapshot.pods.unbound if commits.is_spoken_for(uid)]:
            charge = next((each for each in commits.under_way(uid) if self.cluster.node(each.node) is not None), None)
            if charge is not None:
                self._bind(uid, charge.node, charge.devices, charged=charge.charged)
        for namespace, name in list(commits.hand_overs.names()):
            self.cluster.remove_bind_request(namespace, name)
        for departed in commits.departed():
            commits.forget_departed(departed.pod_uid)
        for nomination in commits.nominations.all():
            self._evict(nomination.victims)
        self._note()

    # --- plans ---------------------------------------------------------------------------------------------------
    def carry_out(self, plan: Plan) -> bool:
        """Do what was decided; return whether that was anything but reasons."""
        has_done = [self._carry_out(entry) for entry in plan.entries]
        self.cluster.told([entry for entry in plan.entries if isinstance(entry, Explain)])
        self._note()
        return any(has_done)

    def _carry_out(self, entry: Entry) -> bool:
        match entry:
            case Bind(placement) | Join(placement) | Attempt(placement) | Hold(placement):
                self._place(placement)
            case Gang(placements=placements):
                for placement in placements:
                    self._place(placement)
            case Prepare(placements=placements):
                for placement in placements:
                    self._prepare(placement)
            case Nominate(nomination=nomination):
                self._nominate(nomination)
            case GiveUp(nomination_id=nomination_id):
                self.cluster.commits.nominations.drop(nomination_id)
            case Retire(reservation_uid=uid):
                self._books.close(uid)
            case Evict():
                return self._release(entry)
            case _:
                return False
        return True

    def _prepare(self, placement: Placement) -> None:
        books.bind(self.cluster.storage, placement)
        uid = placement.pod_uid
        if placement.claims:
            before = self._pods[uid]
            pod = self._pods[uid] = self._device_claims.prepare(placement, before)
            if pod is not before:
                self.cluster.upsert_pod(pod)
            self._device_claims.own(uid, pod.metadata.resource_version)

    def _place(self, placement: Placement) -> None:
        self._bind(
            placement.pod_uid,
            placement.node,
            placement.devices,
            charged=placement.charged,
            alternative=placement.alternative,
        )

    def _bind(
        self,
        uid: str,
        name: str,
        devices: Iterable[PlannedDevice],
        *,
        charged: Charged | None,
        alternative: int = 0,
    ) -> None:
        waiting, node = self.cluster.pod(uid), self.cluster.node(name)
        if waiting is None or node is None or waiting.node:
            return
        pod = bound(self._pods[uid], name, rv=self._next_rv(), started=self._now(), charged=charged)
        seen = self._read(pod)
        if seen.record is None:
            raise ValueError(f"pod {waiting.namespace}/{waiting.name} was placed and counts for nothing")
        request = [*waiting.cls.requests()][alternative]
        cls = msgspec.structs.replace(seen.record.cls, request=request)
        held = self._books.join(waiting, node, devices)
        record = msgspec.structs.replace(seen.record, cls=cls, held=held)
        self._pods[uid] = pod
        self.placed_s[self._origins[uid]] = self.wall_s
        self.cluster.take_pod(msgspec.structs.replace(seen, record=record))
        self._evictions.started(record)

    def _nominate(self, nomination: Nomination) -> None:
        self.cluster.commits.nominations.put(nomination)
        takers = tuple(self._origins.get(place.pod_uid, place.pod_uid) for place in nomination.places)
        for victim in nomination.victims:
            self.room.setdefault(self._origins[victim.pod_uid], takers)
        self._evict(nomination.victims)

    def _release(self, entry: Evict) -> bool:
        """Evict what is left of a gang, unless it is at its end, or a budget forbids it: then nothing of it goes."""
        if entry.pod_group in self._at_their_end:
            return False
        records = [pod for victim in entry.pods if (pod := self.cluster.pod(victim.pod_uid)) is not None]
        if not all(map(self._evictions.is_allowed, records)):
            return False
        self._evict(entry.pods)
        return bool(records)

    def _evict(self, victims: Iterable[Victim]) -> None:
        for victim in victims:
            record = self.cluster.pod(victim.pod_uid)
            if record is not None:
                self.evictions += 1
                self._end(record, owner=victim.owner)

    def _end(self, record: PodRecord, *, owner: str) -> None:
        """Have a pod go and come again. ``owner`` "": it was not evicted for others."""
        pod = self._pods[record.uid]
        self.remove(record.uid)
        made = self._make_again(pod) if has_successor(pod) else ""
        if owner:
            self._evictions.evicted(record, owner, wall_s=self.wall_s, successor=made)

    def _make_again(self, pod: Pod) -> str:
        origin = self._origins[pod.metadata.uid]
        self._made += 1
        uid = f"{origin}~{self._made}"
        made = successor(pod, uid=uid, rv=self._next_rv(), created=self._now())
        made = self._device_claims.make_again(pod, made)
        self._pods[uid] = made
        self._origins[uid] = origin
        self.current[origin] = uid
        self.cluster.take_pod(self._read(made))
        return uid

    # --- what administrators do ----------------------------------------------------------------------------------
    def remove(self, uid: str) -> None:
        """Have a pod go for good."""
        self.cluster.remove_pod(uid, has_ended=True)
        self._books.leave(uid)
        self._device_claims.leave(uid)
        self._evictions.gone(uid)
        origin = self._origins.get(uid)
        if origin is not None and self.current[origin] == uid:
            self.current[origin] = None

    def drain(self, node: str) -> None:
        """Cordon a node and take its pods off, as ``kubectl drain --ignore-daemonsets --force`` does.

        Those with a controller are made again, if they are this scheduler's. PodDisruptionBudgets don't count.
        """
        self.cordon(node)
        for record in [*self.cluster.snapshot().pods.bound_to(node)]:
            if record.is_reservation or not leaves_drained_node(self._pods[record.uid]):
                continue
            if record.queue:
                self._end(record, owner="")
            else:
                self.others_gone += not record.is_elsewhere
                self.remove(record.uid)

    def cordon(self, name: str) -> None:
        """Let a node take no further pods."""
        node = self.cluster.node(name)
        if node is not None:
            self.put_node(msgspec.structs.replace(node, is_cordoned=True))

    def put_node(self, node: NodeRecord, slices: Iterable[SliceRecord] = ()) -> None:
        """Let a node be there, or be another one. ``slices``: what drivers publish for it, of a node that is new."""
        there = (known for name in self.cluster.node_names() if (known := self.cluster.node(name)) is not None)
        self.cluster.replace_nodes([*(known for known in there if known.name != node.name), node])
        for each in slices:
            self.cluster.claims.inventory.slices.put(each)

    # --- the rest ------------------------------------------------------------------------------------------------
    def _note(self) -> None:
        if self.cluster.settings.preemption:
            self._evictions.note()

    def _now(self) -> str:
        return rfc3339(self.wall_s * SECOND_NS)

    def _next_rv(self) -> str:
        self._rv += 1
        return str(self._rv)


def _version(pod: Pod) -> str:
    return pod.metadata.resource_version


#: The clock is put forward by so much at most.
LONGEST_S: Final = 300
#: Decisions that are made at most: enough for some 100,000 pods.
MOST_ROUNDS: Final = 20_000
#: Nothing that began before this matters: a clock that starts at 0 would have no past.
_BEGIN_NS: Final = 86_400 * SECOND_NS
#: Counts in reasons are not renewed: nobody reads them while it goes on.
_LIMITS: Final = Limits(retold=0)


class Rest(msgspec.Struct, frozen=True, kw_only=True):
    """How it ended. ``is_at_rest``: nothing more was to be done; else ``rounds`` were as many as are made.

    ``passed_s``: by how much the clock was put forward.
    """

    is_at_rest: bool
    rounds: int
    passed_s: int


def settle(shell: Shell, *, most_rounds: int = MOST_ROUNDS, told: Callable[[int], None] = lambda _rounds: None) -> Rest:
    """Decide until nothing changes any more. ``told``: of each round.

    The clock does not move until nothing is left to do. Then it is put forward to when the scheduler would decide
    again: for a gang below its minimum, say, whose grace time is over. It is put forward by five minutes in all at
    most, so a pod that begins to wait does not get nodes of its own, which the scheduler keeps for pods after ten
    minutes.
    """
    cluster, begin_wall_s = shell.cluster, shell.wall_s
    now_ns, until_ns = _BEGIN_NS, _BEGIN_NS + LONGEST_S * SECOND_NS
    for number in range(1, most_rounds + 1):
        told(number)
        shell.wall_s = begin_wall_s + (now_ns - _BEGIN_NS) // SECOND_NS
        plan = cluster.decide(now_ns, _LIMITS, wall_s=shell.wall_s)
        if shell.carry_out(plan) or (plan.wake_at_ns is not None and plan.wake_at_ns <= now_ns):
            continue
        if _note_broken_gangs(shell, now_ns):
            continue
        if plan.wake_at_ns is None or plan.wake_at_ns > until_ns:
            return Rest(is_at_rest=True, rounds=number, passed_s=(now_ns - _BEGIN_NS) // SECOND_NS)
        now_ns = plan.wake_at_ns
    return Rest(is_at_rest=False, rounds=most_rounds, passed_s=(now_ns - _BEGIN_NS) // SECOND_NS)


def _note_broken_gangs(shell: Shell, now_ns: int) -> bool:
    """Tell the cluster which gangs are below their minimum, as the scheduler does; return whether that is news."""
    cluster = shell.cluster
    broken = {(group.namespace, group.name) for group in cluster.broken_gangs()}
    known = dict(cluster.stale.gangs)
    news = [cluster.note_stale(key, None) for key in known if key not in broken]
    news += [cluster.note_stale(key, Stale(since_ns=now_ns)) for key in sorted(broken) if key not in known]
    return any(news)
