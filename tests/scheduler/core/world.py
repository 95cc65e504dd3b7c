"""A small world around the core for the stateful test: an API that remembers, writes that succeed or fail, and events
that come late, twice and out of order between kinds.

The world is honest about what is really used; the core sees it through events only. Nothing here checks the core's own
sums: ``violations`` adds up what was really bound, with its own arithmetic.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from gpu import book as books
from gpu import reservation as reservations
from gpu.book import Book, Entry
from scheduler.core.cluster import Cluster
from scheduler.core.convert.pod_groups import queue_record
from scheduler.core.model.plan import Attempt, Bind, Gang, Hold, Join, Placement, Plan, Retire, Withdraw
from scheduler.core.model.settings import Settings
from tests.scheduler.core.objects import NANO, bind_request, bound, changed, ended, feed, reservation
from tests.values import there
from verification.event_log import EventLog
from wire import names
from wire.core import Node, Pod
from wire.crds.bindrequest import BindRequest
from wire.crds.podgroup import PodGroup
from wire.crds.queue import Queue

#: Evictions have a machine of their own (stories/test_preemption_machine.py).
SETTINGS = Settings(back_off_ns=1, exclusion_ns=1, preemption=False)


@dataclass
class Commit:
    """A placement under way, and how far it is."""

    placement: Placement
    kind: str
    step: int = 0
    #: Whether this scheduler began it: of its predecessor's it knows the BindRequest alone.
    is_ours: bool = True


KINDS = ("pod", "node", "group", "request", "queue")


@dataclass
class World:
    """What is true. ``queues`` holds events by kind that the core has not seen yet; ``seen`` those that it has."""

    cluster: Cluster = field(init=False)
    #: The same cluster, and what it was told and asked since it began.
    recorded: Cluster = field(init=False)
    log: EventLog = field(init=False)
    nodes: dict[str, Node] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    groups: dict[str, PodGroup] = field(default_factory=dict)
    requests: dict[str, BindRequest] = field(default_factory=dict)
    shares: dict[str, Queue] = field(default_factory=dict)
    commits: dict[str, Commit] = field(default_factory=dict)
    queues: dict[str, deque[Any]] = field(default_factory=lambda: {kind: deque() for kind in KINDS})
    seen: list[Any] = field(default_factory=list)
    now_ns: int = 0
    reserved: int = 0

    def __post_init__(self) -> None:
        self._start_cluster()

    def _start_cluster(self) -> None:
        self.log = EventLog()
        self.recorded = Cluster(SETTINGS)
        self.cluster = self.log.recording(self.recorded)

    # --- the API -------------------------------------------------------------------------------------------------
    def put_pod(self, pod: Pod) -> None:
        self.pods[pod.metadata.uid] = pod
        self.queues["pod"].append(pod)

    def drop_pod(self, uid: str) -> None:
        del self.pods[uid]
        self.queues["pod"].append(("gone", uid))
        if uid in self.requests:
            self.drop_request(uid)

    def put_request(self, uid: str, request: BindRequest) -> None:
        self.requests[uid] = request
        self.queues["request"].append(request)

    def drop_request(self, uid: str) -> None:
        request = self.requests.pop(uid)
        self.queues["request"].append(("gone", request.metadata.namespace, request.metadata.name))

    def put_node(self, made: Node) -> None:
        self.nodes[made.metadata.name] = made
        self.queues["node"].append(made)

    def put_share(self, made: Queue) -> None:
        """A Queue object, which is called a share here, as ``queues`` are those of events."""
        self.shares[made.metadata.name] = made
        self.queues["queue"].append(made)

    def drop_share(self, name: str) -> None:
        self.queues["queue"].append(("gone", self.shares.pop(name)))

    def put_group(self, made: PodGroup) -> None:
        self.groups[made.metadata.name] = made
        self.queues["group"].append(made)

    def drop_group(self, name: str) -> None:
        del self.groups[name]
        self.queues["group"].append(("gone", name))

    # --- events --------------------------------------------------------------------------------------------------
    def deliver(self, kind: str, count: int) -> None:
        for _ in range(min(count, len(self.queues[kind]))):
            self._take(kind, self.queues[kind].popleft())

    def deliver_all(self) -> None:
        for kind, queue in self.queues.items():
            self.deliver(kind, len(queue))

    def repeat_an_old_event(self, rng: random.Random) -> None:
        if self.seen:
            feed(self.cluster, rng.choice(self.seen))

    def _take(self, kind: str, event: Any) -> None:
        match kind, event:
            case "pod", ("gone", uid):
                self.cluster.remove_pod(uid)
            case "queue", ("gone", share):
                self.cluster.queues.records.drop(queue_record(share))
            case "group", ("gone", name):
                self.cluster.remove_pod_group("ns", name)
            case "pod", Commit():
                self._release(event)
            case "request", ("gone", namespace, name):
                self.cluster.remove_bind_request(namespace, name)
            case _:
                feed(self.cluster, event)
                if isinstance(event, Pod):
                    self.seen.append(event)

    def restart(self) -> None:
        """The scheduler dies with all that it had under way and not written, and lists the API."""
        for uid, commit in list(self.commits.items()):
            if commit.step == 0 or uid not in self.requests:
                del self.commits[uid]
            commit.is_ours = False
        self._start_cluster()
        for queue in self.queues.values():
            queue.clear()
        self.seen.clear()
        self.cluster.replace_bind_requests(list(self.requests.values()))
        self.cluster.queues.records.replace(list(map(queue_record, self.shares.values())))
        feed(self.cluster, *self.pods.values(), *self.nodes.values())
        self.cluster.replace_pod_groups(list(self.groups.values()))

    # --- commits -------------------------------------------------------------------------------------------------
    def commit(self, plan: Plan) -> None:
        for entry in plan.entries:
            match entry:
                case Bind(placement) | Join(placement):
                    self._begin(placement, "direct")
                case Attempt(placement):
                    self.cluster.commits.open(placement)
                    self.commits[placement.pod_uid] = Commit(placement, "binder")
                case Hold(placement):
                    self.cluster.commits.hold(placement)
                case Gang(placements=placements, by_binder=by_binder):
                    for placement in placements:
                        self._begin(placement, "binder" if by_binder else "direct")
                case Retire(reservation_uid=uid):
                    self.retire(uid)
                case Withdraw(placement):
                    self.move_on(placement)
                case _:
                    pass

    def _begin(self, placement: Placement, kind: str) -> None:
        self.cluster.commits.assume(placement)
        self.commits[placement.pod_uid] = Commit(placement, kind)

    def move_on(self, placement: Placement) -> None:
        """Take a share back from a node that is late; what it did at the binder is over when its end is seen."""
        uid = placement.pod_uid
        self.cluster.commits.move_on(placement, now_ns=self.now_ns)
        if uid in self.commits:
            self.withdraw(uid)

    def advance(self, uid: str) -> None:
        """One step of a commit: hand-over, join, bind."""
        commit = self.commits[uid]
        pod = self.pods.get(uid)
        if pod is None or pod.metadata.resource_version != commit.placement.rv:
            self.withdraw(uid)
        elif commit.kind == "binder" and commit.step == 0:
            devices = [(d.group, d.nano) for d in commit.placement.devices]
            self.put_request(uid, bind_request(pod, commit.placement.node, *devices))
            commit.step = 1
        elif commit.step < 2:
            commit.step = 2
            if not all(self._join(commit, d.group, d.nano) for d in commit.placement.devices):
                self.withdraw(uid)
        else:
            self._bind(commit, pod)

    def _join(self, commit: Commit, group: str, nano: int) -> bool:
        """Enter a book, as its compare-and-set allows. Only dead entries may be in the way: else the plan was wrong."""
        held = self.reservation(group)
        placement = commit.placement
        if held is None:
            if commit.kind == "direct":
                return False
            self.reserved += 1
            book = {placement.pod_uid: nano}
            uid = f"r{self.reserved}"
            self.put_pod(reservation(group, placement.node, book=book, uuid="", uid=uid))
            return True
        read = reservations.read(held)
        if read.book is None or read.deleting:
            return False
        entries = {**read.book.entries, placement.pod_uid: Entry(nano, "attempt", placement.rv, 0, "ns/p")}
        live = sum(entry.nano for uid, entry in entries.items() if self._is_live(uid, entry))
        assert live <= NANO, f"the plan put {live} nano on {group}"
        if sum(entry.nano for entry in entries.values()) > NANO:
            return False
        self._write_book(held, entries)
        return True

    def _write_book(self, held: Pod, entries: dict[str, Entry]) -> None:
        annotations = {**(held.metadata.annotations or {}), names.TENANTS: books.render(Book(entries))}
        self.put_pod(changed(held, annotations=annotations))

    def _bind(self, commit: Commit, pod: Pod) -> None:
        placement = commit.placement
        given = [(d.group, d.nano) for d in placement.devices]
        uid, uuid = "", ""
        for group, _ in given:
            held = self.reservation(group)
            if held is None:
                self.withdraw(placement.pod_uid)
                return
            if not reservations.read(held).uuid:
                self.answer(held)
        if given:
            held = there(self.reservation(given[0][0]))
            uid, uuid = held.metadata.uid, f"GPU-{given[0][0]}"
        self.put_pod(bound(pod, placement.node, *given, reservation=uid, uuid=uuid))
        self.cluster.commits.settle(placement.pod_uid, attempt=placement.number)
        del self.commits[placement.pod_uid]
        if placement.pod_uid in self.requests:
            self.drop_request(placement.pod_uid)

    def withdraw(self, uid: str) -> None:
        """Fence the pod, so that nothing late can bind it, then give back what it held.

        What the binder did is over for the scheduler when it sees the fenced pod: the reservation that may have been
        made on the way was seen before, for the same watch tells of both.
        """
        commit = self.commits.pop(uid)
        pod = self.pods.get(uid)
        if pod is not None:
            self.put_pod(changed(pod))
        if uid in self.requests:
            self.drop_request(uid)
        if commit.kind == "direct":
            self._release(commit)
        else:
            self.queues["pod"].append(commit)

    def _release(self, commit: Commit) -> None:
        if not commit.is_ours:
            return
        placement = commit.placement
        self.cluster.commits.failed(placement.pod_uid, placement.node, "made to fail", now_ns=self.now_ns)
        self.cluster.commits.release(placement.pod_uid, attempt=placement.number)

    # --- answers -------------------------------------------------------------------------------------------------
    def silent(self) -> list[Pod]:
        """Reservations that have not said yet which device they hold."""
        return [held for held in self.reservations() if not reservations.read(held).uuid]

    def answer(self, held: Pod) -> None:
        """A reservation says which device it holds."""
        told = {names.RESERVE_FOR_GPU_INDEX: f"GPU-{reservations.read(held).group}"}
        self.put_pod(changed(held, annotations={**(held.metadata.annotations or {}), **told}))

    # --- upkeep --------------------------------------------------------------------------------------------------
    def reservation(self, group: str) -> Pod | None:
        found = [held for held in self.reservations() if reservations.read(held).group == group]
        return found[0] if found else None

    def reservations(self) -> list[Pod]:
        return [p for p in self.pods.values() if reservations.is_reservation(p)]

    def collect(self) -> None:
        """Remove dead entries from all books."""
        for held in self.reservations():
            book = there(reservations.read(held).book)
            live = {uid: entry for uid, entry in book.entries.items() if self._is_live(uid, entry)}
            if len(live) != len(book.entries):
                self._write_book(held, live)

    def _is_live(self, uid: str, entry: Entry) -> bool:
        pod = self.pods.get(uid)
        if pod is None or pod.status.phase in names.ENDED_PHASES:
            return False
        return bool(pod.spec.node_name) or pod.metadata.resource_version == entry.rv

    def look_for_departed(self) -> None:
        """What the shell does about hand-overs that went with their pods: nobody works on them here any more."""
        for record in self.cluster.commits.departed():
            if self.cluster.pod(record.pod_uid) is None and record.pod_uid not in self.requests:
                feed(self.cluster, *(held for d in record.devices if (held := self.reservation(d.group)) is not None))
                self.cluster.commits.forget_departed(record.pod_uid)

    def retire(self, uid: str) -> None:
        """Delete a reservation if its book is empty, as the precondition on its version has it."""
        held = self.pods.get(uid)
        if held is not None:
            book = reservations.read(held).book
            if book is not None and not book.entries:
                self.drop_pod(uid)

    def end(self, uid: str) -> None:
        self.put_pod(ended(self.pods[uid]))

    def succeeded(self, group: str) -> int:
        """How many pods that name this PodGroup have succeeded, whichever start they belonged to."""
        return sum(
            (pod.metadata.annotations or {}).get(names.POD_GROUP_NAME) == group and pod.status.phase == names.SUCCEEDED
            for pod in self.pods.values()
        )

    # --- what is really used -------------------------------------------------------------------------------------
    def violations(self) -> list[str]:
        """Devices and nodes that hold more than they have."""
        used: dict[str, int] = {}
        whole: dict[str, int] = {}
        for pod in self.pods.values():
            name = pod.spec.node_name
            if not name or pod.status.phase in names.ENDED_PHASES:
                continue
            asked = (pod.spec.containers[0].resources.requests or {}).get(names.GPU_RESOURCE, "0")
            whole[name] = whole.get(name, 0) + int(asked)
            if reservations.is_reservation(pod):
                read = reservations.read(pod)
                assert read.book is not None
                used[read.group] = sum(entry.nano for entry in read.book.entries.values())
        full = [f"device {group} holds {nano}" for group, nano in used.items() if nano > NANO]
        for name, count in whole.items():
            had = int((self.nodes[name].status.allocatable or {})[names.GPU_RESOURCE])
            if count > had:
                full.append(f"node {name} gave {count} of {had} devices")
        return full


def fresh(world: World) -> Cluster:
    """A cluster that knows what the API says and nothing else."""
    made = Cluster(SETTINGS)
    feed(made, *world.shares.values(), *world.nodes.values(), *world.groups.values())
    feed(made, *world.requests.values(), *world.pods.values())
    return made
