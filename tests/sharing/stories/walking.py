"""A random walk over the binder's core: the real step, absorb, judge and rebuild on an abstract API server.

Writes have preconditions and may be answered, lost, or applied late without an answer; the cache lags; pods are
touched, deleted by force and run on for their grace; reservations fail and vanish; binders crash. The shell's part is
played in its simplest form. ``check`` adds up what really runs on each device.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gpu import book as device_book
from gpu.attempts import Cause
from gpu.bind_request import PlannedDevice
from gpu.book import Book, Entry, Tenant
from gpu.request import FractionAsk
from gpu.reservation import Reservation
from gpu.share import NANO_PER_DEVICE
from sharing import outcome as o
from sharing.attempt import Attempt
from sharing.entries import Evidence, Judgement, judge
from sharing.failure import Failure
from sharing.outcome import Outcome, absorb
from sharing.pods import PodView
from sharing.rebuilding import rebuild
from sharing.state import (
    Action,
    DropRequest,
    Fence,
    Join,
    Leave,
    Phase,
    PostBinding,
    ReadPod,
    Renew,
    State,
    TellBound,
    Verify,
    World,
    WriteConfigMaps,
)
from sharing.step import step
from tests.sharing.made import attempt, pod, reservation

GRACE_S = 30
GROUPS = ("g", "h")
MOST_PODS = 5


def a_contender(name: str, rng: random.Random, **changes: Any) -> Attempt:
    """A pod that wants a part of one device or of both."""
    groups = rng.choice([("g",), ("h",), ("g", "h")])
    devices = tuple(PlannedDevice(group, rng.choice([300_000_000, 500_000_000, 700_000_000])) for group in groups)
    return attempt(name, devices=devices, **changes)


@dataclass
class Server:
    """What etcd holds, and what still runs though etcd holds it no more."""

    pods: dict[str, PodView] = field(default_factory=dict)
    books: dict[str, Reservation] = field(default_factory=dict)
    requests: dict[str, Attempt] = field(default_factory=dict)
    #: Pods that were deleted by force: what they were, and until when they run.
    ghosts: dict[str, tuple[PodView, float]] = field(default_factory=dict)
    late: list[Callable[[], object]] = field(default_factory=list)
    rv: int = 100

    def next_rv(self) -> str:
        self.rv += 1
        return str(self.rv)

    def running_on(self, group: str, now: float) -> Iterator[tuple[str, int]]:
        ghosts = [ghost for ghost, until in self.ghosts.values() if now < until]
        for one in (*self.pods.values(), *ghosts):
            for device in one.grant.devices if one.grant and one.is_bound else ():
                if device.group == group:
                    yield one.uid, device.nano

    def put_book(self, held: Reservation, book: Book) -> Reservation | None:
        """Compare-and-set."""
        now = self.books.get(held.group)
        if now is None or (now.uid, now.rv) != (held.uid, held.rv):
            return None
        changed = msgspec.structs.replace(now, book=book, rv=self.next_rv())
        self.books[held.group] = changed
        return changed

    def bind(self, attempt: Attempt, bound: PodView) -> bool:
        now = self.pods.get(attempt.pod_uid)
        if now is None or now.is_bound or now.deleting or now.rv != bound.rv:
            return False
        self.pods[now.uid] = msgspec.structs.replace(bound, rv=self.next_rv())
        return True

    def touch(self, uid: str, **changes: object) -> None:
        self.pods[uid] = msgspec.structs.replace(self.pods[uid], rv=self.next_rv(), **changes)


class Walk:
    """One run. All chance comes from ``rng``; ``faults`` off means that all goes well from then on."""

    def __init__(self, attempts: Sequence[Attempt], rng: random.Random) -> None:
        self.rng = rng
        self.faults = True
        self.now = 0.0
        self.server = Server()
        self.seen: dict[str, PodView] = {}
        self.gone: dict[str, PodView | None] = {}
        self.lost: set[str] = set()
        self.verified: set[tuple[str, str]] = set()
        self.missing: dict[str, float] = {}
        self.units: dict[str, dict[str, State]] = {}
        self.incarnations = 0
        self.attempts = 0
        for made in attempts:
            self.server.pods[made.pod_uid] = pod(made, grace_s=GRACE_S)
            self.server.requests[made.id] = made
        self.restart()

    def restart(self) -> None:
        """A new incarnation: lists everything, remembers nothing."""
        self.seen = dict(self.server.pods)
        self.gone, self.lost, self.verified, self.missing = {}, set(), set(), {}
        self.units = {}
        for made in self.server.requests.values():
            self.units.setdefault(made.unit, {})[made.id] = State(attempt=made, rv=made.rv)

    def hand_over(self, made: Attempt) -> None:
        """A BindRequest is created and seen."""
        self.server.requests[made.id] = made
        self.units.setdefault(made.unit, {})[made.id] = State(attempt=made, rv=made.rv)

    # --- what happens ------------------------------------------------------------------------------------------------
    def happen(self) -> None:
        """One thing."""
        events = [self._work] * 8 + [self._sync] * 4 + [self._learn] * 3 + [self._collect] * 2 + [self._tick]
        if self.faults:
            events += [self._decide] * 4 + [self._land] * 2 + [self._touch, self._delete, self._take_back, self._come]
            events += [self.rng.choice([self._fail, self._lose, self.restart, self._tick])]
        self.rng.choice(events)()
        self.check()

    def settle(self, rounds: int = 400) -> None:
        """Faults stop: everything must come to rest."""
        self.faults = False
        for late in self.server.late:
            late()
        self.server.late.clear()
        for _ in range(rounds):
            self._sync(everything=True)
            for group in list(self.server.books):
                self._learn(group)
            for unit in list(self.units):
                self._work(unit)
            self._collect()
            self._tick()
            self.check()

    def check(self) -> None:
        """S1: what runs on a device is in its book, if it has one, and never more than one device."""
        groups = {device.group for a in self.server.pods.values() if a.grant for device in a.grant.devices}
        groups |= {device.group for g, _ in self.server.ghosts.values() if g.grant for device in g.grant.devices}
        for group in groups:
            running = dict(self.server.running_on(group, self.now))
            assert sum(running.values()) <= NANO_PER_DEVICE, (group, running)
            held = self.server.books.get(group)
            known = set(held.book.entries) if held is not None and held.book is not None else set(running)
            bound = {uid for uid in running if uid in self.server.pods}
            if held is not None and (held.uid, held.uuid) in self.verified:
                assert bound <= known, (group, bound, known)

    def _decide(self) -> None:
        """The scheduler tries a pod again that nobody works on, wherever the books it sees have room."""
        busy = {state.attempt.pod_uid for unit in self.units.values() for state in unit.values()}
        busy |= {made.pod_uid for made in self.server.requests.values()}
        free = [one for uid, one in sorted(self.server.pods.items()) if not one.is_bound and uid not in busy]
        if not free:
            return
        one = self.rng.choice(free)
        self.attempts += 1
        asks = one.request.shared if one.request else ()
        groups = self.rng.sample(GROUPS, len(asks))
        devices = tuple(
            PlannedDevice(group, ask.nano)
            for group, ask in zip(groups, asks, strict=True)
            if isinstance(ask, FractionAsk)
        )
        self.hand_over(attempt(one.name, id=f"attempt-{one.name}-{self.attempts}", rv=one.rv, devices=devices))

    def _come(self) -> None:
        """A user creates another pod."""
        if len(self.server.pods) < MOST_PODS:
            self.attempts += 1
            made = a_contender(f"new{self.attempts}", self.rng)
            self.server.pods[made.pod_uid] = pod(made, rv=self.server.next_rv(), grace_s=GRACE_S)

    def _tick(self) -> None:
        self.now += self.rng.choice([0.1, 1.0, 20.0])

    def _sync(self, *, everything: bool = False) -> None:
        """The cache hears of a pod, or of all."""
        uids = sorted({*self.seen, *self.server.pods})
        for uid in uids if everything else uids and [self.rng.choice(uids)]:
            there = self.server.pods.get(uid)
            if there is not None:
                self.seen[uid] = there
            elif (last := self.seen.pop(uid, None)) is not None:
                ghost = self.server.ghosts.get(uid)
                self.gone[uid] = ghost[0] if ghost else last

    def _touch(self) -> None:
        if self.server.pods:
            self.server.touch(self.rng.choice(sorted(self.server.pods)))

    def _delete(self) -> None:
        """By force: a bound pod runs on for its grace."""
        if not self.server.pods or self.rng.random() < 0.7:
            return
        last = self.server.pods.pop(self.rng.choice(sorted(self.server.pods)))
        self.server.ghosts[last.uid] = (last, self.now + (GRACE_S if last.is_bound else 0))
        for made in [a for a in self.server.requests.values() if a.pod_uid == last.uid]:
            del self.server.requests[made.id]

    def _learn(self, group: str = "") -> None:
        groups = sorted(self.server.books)
        if not groups:
            return
        held = self.server.books[group or self.rng.choice(groups)]
        if held.phase == "Pending":
            running = {"phase": "Running", "uuid": f"GPU-{held.group}", "rv": self.server.next_rv()}
            self.server.books[held.group] = msgspec.structs.replace(held, **running)

    def _fail(self) -> None:
        """Only before it is used: a device that is lost under its tenants is outside of what the books can keep."""
        idle = [g for g, held in self.server.books.items() if not list(self.server.running_on(g, self.now))]
        if idle and self.rng.random() < 0.3:
            group = self.rng.choice(sorted(idle))
            held = self.server.books[group]
            self.server.books[group] = msgspec.structs.replace(held, phase="Failed", rv=self.server.next_rv())

    def _lose(self) -> None:
        """Somebody deletes a reservation pod; the finalizer keeps it until its book can be rebuilt."""
        groups = sorted(self.server.books)
        if groups and self.rng.random() < 0.3:
            group = self.rng.choice(groups)
            held = self.server.books[group]
            self.server.books[group] = msgspec.structs.replace(held, deleting=True, rv=self.server.next_rv())

    def _take_back(self) -> None:
        if self.server.requests and self.rng.random() < 0.5:
            del self.server.requests[self.rng.choice(sorted(self.server.requests))]

    def _land(self) -> None:
        if self.server.late:
            self.server.late.pop(self.rng.randrange(len(self.server.late)))()

    # --- the units' shell --------------------------------------------------------------------------------------------
    def _work(self, unit: str = "") -> None:
        if not self.units:
            return
        key = unit or self.rng.choice(sorted(self.units))
        states = self.units[key]
        moves = step(list(states.values()), {id_: self._world(s) for id_, s in states.items()})
        states.update({move.state.attempt.id: move.state for move in moves})
        todo = [(move.state, action) for move in moves for action in move.actions]
        self.rng.shuffle(todo)
        answers = [(s.attempt.id, self._carry(s, action)) for s, action in todo]
        for id_, answer in answers:
            if answer is not None and self.units.get(key) is states:
                states[id_] = absorb(states[id_], answer)
        if all(s.phase is Phase.END for s in states.values()):
            self.units.pop(key, None)

    def _world(self, state: State) -> World:
        made = state.attempt
        held = {device.group: self.server.books.get(device.group) for device in made.devices}
        return World(
            pod=self.seen.get(made.pod_uid),
            pod_deleted=made.pod_uid in self.gone,
            reservations=held,
            lost=frozenset(g for g, joined in state.joined.items() if joined.reservation in self.lost),
            verified=frozenset(self.verified),
            request_gone=made.id not in self.server.requests,
            late=not self.faults and self.rng.random() < 0.05,
        )

    def _write(self, apply: Callable[[], object]) -> bool:
        """Whether a write was answered; if not it is lost, or done unheard, or comes late."""
        fate = self.rng.random() if self.faults else 1.0
        if fate < 0.1:
            return False
        if fate < 0.25:
            self.server.late.append(apply)
            return False
        if fate < 0.35:
            apply()
            return False
        return True

    def _carry(self, state: State, action: Action) -> Outcome | None:  # noqa: C901, PLR0911 - one case per action
        match action:
            case Join():
                return self._join(state, action.group)
            case Verify():
                return self._verify(action.group)
            case ReadPod():
                return o.PodRead(self._read(state))
            case WriteConfigMaps():
                return o.ConfigMapsWritten()
            case PostBinding():
                return self._post(state, action)
            case TellBound():
                return o.BoundTold()
            case Renew():
                return self._renew(state, action)
            case DropRequest():
                return self._drop(state)
            case Fence():
                return self._fence(state, action)
            case Leave():
                return self._leave(state, action)

    def _drop(self, state: State) -> Outcome | None:
        def drop() -> None:
            self.server.requests.pop(state.attempt.id, None)

        if not self._write(drop):
            return None
        drop()
        return o.RequestDropped()

    def _read(self, state: State) -> PodView | None:
        found = self.server.pods.get(state.attempt.pod_uid)
        if found is not None:
            self.seen[found.uid] = found
        return found

    def _join(self, state: State, group: str) -> Outcome | None:
        made = state.attempt
        nano = next(device.nano for device in made.devices if device.group == group)
        tenant = Tenant(made.pod_uid, Entry(nano, made.id, state.rv, int(self.now), f"team/{made.pod_name}"))
        held = self.server.books.get(group)
        if held is None:
            return self._make(group, tenant)
        if not held.is_joinable or held.book is None:
            return o.Failed(Failure(cause=Cause.NOT_JOINABLE))
        joined = device_book.join(held.book, [tenant])
        if not isinstance(joined, Book):
            return o.Failed(Failure(cause=Cause.DEVICE_TAKEN))
        if not self._write(lambda: self.server.put_book(held, joined)):
            return None
        after = self.server.put_book(held, joined)
        if after is None or after.book is None:
            return None
        return o.JoinedAs(group, after.uid, after.book.entries[made.pod_uid].rv)

    def _make(self, group: str, tenant: Tenant) -> Outcome | None:
        """The first book is made of what the lagging cache shows to be bound."""
        book = rebuild(group, [one for one in self.seen.values() if one.is_bound and group in one.held_groups])
        book = device_book.join(book, [tenant]) if isinstance(book, Book) else book
        if not isinstance(book, Book):
            return o.Failed(Failure(cause=Cause.DEVICE_CLAIMED))
        self.incarnations += 1
        made = reservation(
            group, uid=f"R-{group}-{self.incarnations}", rv=self.server.next_rv(), phase="Pending", uuid="", book=book
        )

        def create() -> None:
            self.server.books.setdefault(group, made)

        if not self._write(create):
            return None
        create()
        return o.JoinedAs(group, made.uid, tenant.entry.rv)

    def _verify(self, group: str) -> Outcome:
        held = self.server.books.get(group)
        if held is None or held.book is None or not held.uuid:
            return o.Failed(Failure(cause=Cause.RESERVATION_LOST))
        for one in self.server.pods.values():
            if one.is_bound and group in one.held_groups and one.uid not in held.book.entries:
                return o.Failed(Failure(cause=Cause.DEVICE_CLAIMED))
        self.verified.add((held.uid, held.uuid))
        return o.Verified(group)

    def _post(self, state: State, action: PostBinding) -> Outcome:
        groups = tuple(device.group for device in action.grant.devices)
        now = self.server.pods.get(state.attempt.pod_uid, pod(state.attempt))
        bound = msgspec.structs.replace(now, rv=action.rv, node=state.attempt.node, grant=action.grant, groups=groups)

        def bind() -> bool:
            there = self.server.pods.get(state.attempt.pod_uid)
            return there is not None and self.server.bind(state.attempt, bound)

        if self._write(bind) and bind():
            return o.BindingAccepted()
        return o.BindingNotAccepted("no")

    def _renew(self, state: State, action: Renew) -> Outcome | None:
        held = self.server.books.get(action.group)
        if held is None or held.book is None or held.uid != state.joined[action.group].reservation:
            return o.EntryGone(action.group)
        known = held.book.entries.get(state.attempt.pod_uid)
        if known is not None and (known.attempt, known.rv) == (state.attempt.id, action.rv):
            return o.Renewed(action.group, action.rv)
        entry = Entry(1, state.attempt.id, action.old_rv, 0, "")
        renewed = device_book.renew(held.book, Tenant(state.attempt.pod_uid, entry), action.rv)
        if renewed is None:
            return o.EntryGone(action.group)
        if not self._write(lambda: self.server.put_book(held, renewed)) or self.server.put_book(held, renewed) is None:
            return None
        return o.Renewed(action.group, action.rv)

    def _fence(self, state: State, action: Fence) -> Outcome | None:
        uid = state.attempt.pod_uid

        def fence() -> bool:
            there = self.server.pods.get(uid)
            if there is None or there.rv != action.rv:
                return False
            self.server.touch(uid, fenced=state.attempt.id)
            return True

        if not self._write(fence):
            return None
        return o.Fenced() if fence() else o.FenceMissed()

    def _leave(self, state: State, action: Leave) -> Outcome | None:
        held = self.server.books.get(action.group)
        if held is None or held.book is None or held.uid != state.joined[action.group].reservation:
            return o.Left(action.group)
        gone = Tenant(state.attempt.pod_uid, Entry(1, state.attempt.id, action.rv, 0, ""))
        left = device_book.leave(held.book, [gone])
        if not self._write(lambda: self.server.put_book(held, left)) or self.server.put_book(held, left) is None:
            return None
        return o.Left(action.group)

    # --- the collector -----------------------------------------------------------------------------------------------
    def _collect(self) -> None:
        for group, held in list(self.server.books.items()):
            for uid, entry in list((held.book or Book()).entries.items()):
                self._judge(group, uid, entry)
            self._let_go(group)
        for group in {g for one in self.server.pods.values() if one.is_bound for g in one.held_groups}:
            self._charge(group)

    def _let_go(self, group: str) -> None:
        """An idle reservation goes, and a departing or ended one whose tenants are all bound to it."""
        held = self.server.books[group]
        entries = held.book.entries if held.book is not None else {}
        pods = [self.server.pods.get(uid) for uid in entries]
        all_bound = all(one is not None and one.is_bound and group in one.held_groups for one in pods)
        if not entries or (all_bound and (held.deleting or held.is_terminal)):
            self.lost.add(self.server.books.pop(group).uid)

    def _charge(self, group: str) -> None:
        """Restore what was lost, and charge who is missing."""
        bound = [one for one in self.server.pods.values() if one.is_bound and group in one.held_groups]
        book = rebuild(group, bound)
        assert isinstance(book, Book)
        held = self.server.books.get(group)
        if held is None:
            self.incarnations += 1
            uid = f"R-{group}-{self.incarnations}"
            self.server.books[group] = reservation(group, uid=uid, rv=self.server.next_rv(), book=book)
        elif held.book is not None and (missing := [t for t in _tenants(book) if t.pod_uid not in held.book.entries]):
            joined = device_book.join(held.book, missing)
            if isinstance(joined, Book):
                self.server.put_book(held, joined)

    def _judge(self, group: str, uid: str, entry: Entry) -> None:
        held = self.server.books[group]
        found = self.server.pods.get(uid)
        since = self.missing.setdefault(uid, self.now) if found is None else self.now
        judgement = judge(
            entry,
            Evidence(
                group=group,
                pod=found,
                last=self.gone.get(uid),
                gone_for_s=self.now - since,
                heard_for_s=self.now - since,
                has_request=entry.attempt in self.server.requests,
                seen_for_s=self.now - entry.since,
            ),
        )
        if judgement is Judgement.FENCE_FIRST:
            self.server.touch(uid, fenced=entry.attempt)
        if judgement in {Judgement.DEAD, Judgement.FENCE_FIRST} and held.book is not None:
            self.server.put_book(held, device_book.leave(held.book, [Tenant(uid, entry)]))


def _tenants(book: Book) -> list[Tenant]:
    return [Tenant(uid, entry) for uid, entry in book.entries.items()]
