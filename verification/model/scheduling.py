"""The schedulers, abstract: any pod may be put anywhere that looks as if it had room; gangs by a plan.

What a scheduler does with a decision is the step function's for direct attempts (scheduler/commit/direct.py), one
action a step, and transcribed from scheduler/commit/bind_requests.py for others (a BindRequest, made room for by taking
back another one). A decision and its first write are one step: what happens between them might as well happen before
the decision or after the write. A scheduler works on one direct attempt at a time, and hands over others meanwhile.

The shell carries out actions side by side; here books are joined and left one after the other, in the order of the
devices: another order gives the same books. Renewals of one attempt are one step. Members of a gang are stepped
together until their books are joined, then each alone, as scheduler/commit/gangs.py does.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import permutations
from typing import Any, Final

from gpu.attempts import Cause
from gpu.book import Book
from gpu.grant import Grant
from sharing import outcome
from sharing import state as actions
from sharing.attempt import Attempt
from sharing.failure import Failure
from sharing.outcome import MAX_TRIES, Outcome
from sharing.state import Action, Joined, Phase, State
from sharing.state import World as Seen
from verification.model import machines
from verification.model.config import Config, Rules
from verification.model.state import (
    ATTEMPT,
    GROUP,
    LIVE,
    NAMESPACE,
    NANO,
    NODE,
    PLAN,
    RUNNING,
    Device,
    Direct,
    Entry,
    Late,
    Pod,
    Request,
    Resv,
    Step,
    Translator,
    World,
    name,
    planned,
    slot_of,
    tenant,
    text,
)

Move = tuple[Direct, tuple[Action, ...]]
"""An attempt as the step function leaves it, and what is to be done."""

_HAVE_FAILED = frozenset({Phase.FENCE.value, Phase.LEAVE.value})


class DirectAttempts:
    """The direct attempts of all schedulers."""

    def __init__(self, rules: Rules, views: Translator) -> None:
        self._rules = rules
        self._views = views
        self._change = partial(machines.change_book, views=views, rules=rules)
        self._moves: dict[tuple[Direct, ...], list[Move]] = {}

    def go_on(self, world: World, number: int, one: Direct) -> Iterator[Step]:
        """Everything that may come of the next action of an attempt."""
        (action, *_) = self._actions(world, number, one) or (None,)
        match action:
            case actions.Join(group=group):
                yield from self.join(world, number, one, group=name(group))
            case actions.PostBinding(rv=rv, grant=grant):
                yield from self._post(world, number, one, rv=name(rv), grant=grant)
            case actions.ReadPod():
                yield from self._settle(world, number, one)
            case actions.Fence(rv=rv):
                yield from self._fence(world, number, one, name(rv))
            case actions.Leave(group=group, rv=rv):
                yield from self._leave(world, number, one, group=name(group), rv=name(rv))
            case _:
                return  # it waits for the others of its gang

    def _actions(self, world: World, number: int, one: Direct) -> tuple[Action, ...]:
        unit = _together(world, number, one)
        return self._step(unit)[unit.index(one)][1]

    # --- actions -----------------------------------------------------------------------------------------------------
    def join(self, world: World, number: int, one: Direct, *, group: int, how: str = "") -> Iterator[Step]:
        """Enter a book; ``how`` it came to it: a decision whose first join is refused is no step."""
        label = ("scheduler", number, f"{how}joins", one.uid, group)
        refused = outcome.Failed(Failure(cause=Cause.DEVICE_TAKEN))
        if world.resvs[group - GROUP] is None:
            yield (*label, "gone"), self._answered(world, number, one, refused)
            return
        after, answer = self._change(world, group, change=self._rules.joining([tenant(_entry(one, group, one.rv))]))
        resv = after.resvs[group - GROUP]
        if not isinstance(answer, Book) or resv is None:
            if not how:
                yield (*label, type(answer).__name__), self._answered(world, number, one, refused)
            return
        usable = self._usable(group, resv)
        joined = self._absorbed(one, outcome.JoinedAs(text(group), text(resv.uid), text(one.rv)), {group: usable})
        yield (*label, *(() if usable else ("unusable",))), self._put(after, number, one, joined)
        yield from self._book_late(world, after, number, one=one, group=group, joined=joined)

    def _book_late(
        self, world: World, after: World, number: int, *, one: Direct, group: int, joined: Direct
    ) -> Iterator[Step]:
        before, held = world.resvs[group - GROUP], after.resvs[group - GROUP]
        if not world.left.lates or before is None or held is None or before.book == held.book:
            return
        late = Late("book", (group, before.uid, before.rv, held.book))
        left = world.left._replace(lates=world.left.lates - 1)
        if machines.may_land(after, late, self._rules):
            again = self._put(after, number, one, joined)._replace(late=(*world.late, late), left=left)
            yield ("!scheduler", number, "joins, and again later", joined.uid), again
        if left.scheduler_crashes:
            left = left._replace(scheduler_crashes=left.scheduler_crashes - 1)
            dead = put(world, number, ())._replace(late=(*world.late, late), left=left)
            yield ("!scheduler", number, "joins later, and dies", joined.uid), dead

    def _post(self, world: World, number: int, one: Direct, *, rv: int, grant: Grant) -> Iterator[Step]:
        pod = machines.pod_of(world, one.uid)
        if not self._rules.binding_at_entry and pod is not None:
            rv = pod.rv
        holdings = tuple((name(d.group), name(d.reservation), name(d.uuid), d.nano // NANO) for d in grant.devices)
        binding = Late("bind", (one.uid, rv, one.attempt, holdings))
        refused = self._answered(world, number, one, outcome.BindingNotAccepted("refused", is_unknown=False))
        bound = machines.bind(world, binding, self._rules)
        label = ("scheduler", number, "binds", one.uid, rv)
        if bound is not None:
            yield label, self._answered(bound, number, one, outcome.BindingAccepted())
        else:
            yield (*label, "refused"), refused
        if world.left.refusals:
            left = world.left._replace(refusals=world.left.refusals - 1)
            yield ("!scheduler", *label[1:], "refused for another reason"), refused._replace(left=left)
        if world.left.lates and machines.may_land(world, binding, self._rules):
            left = world.left._replace(lates=world.left.lates - 1)
            unknown = self._answered(world, number, one, outcome.BindingNotAccepted("no answer", is_unknown=True))
            after = unknown._replace(late=(*world.late, binding), left=left)
            yield ("!scheduler", number, "binds, no answer", one.uid, rv), after

    def _settle(self, world: World, number: int, one: Direct) -> Iterator[Step]:
        """The quorum read. A Binding that may land was posted for the last time, or was not.

        Edits alone do not use up the tries: there are fewer of them.
        """
        pod = machines.pod_of(world, one.uid)
        label: tuple[Any, ...] = ("scheduler", number, "reads", one.uid)
        answer = outcome.PodRead(self._views.pod(pod) if pod is not None else None)
        found = self._absorbed(one, answer)
        if found.stage == Phase.RENEW.value:
            yield (*label, "renews"), self._renew(world, number, one, found)
            return
        yield label, self._put(world, number, one, found)
        if found.stage == Phase.BIND.value:
            given_up = self._put(world, number, one, self._absorbed(one, answer, tries=MAX_TRIES))
            yield (*label, "for the last time"), given_up

    def _renew(self, world: World, number: int, one: Direct, going: Direct) -> World:
        """Entries move to the pod's new version, or are entered again."""
        ((_, wanted),) = self._step((going,))
        for action in wanted:
            assert isinstance(action, actions.Renew)
            group = name(action.group)
            change = self._rules.rejoining(tenant(_entry(one, group, name(action.old_rv))), action.rv)
            world, answer = self._change_held(world, one, group, change)
            held = world.resvs[group - GROUP]
            if isinstance(answer, Book) and held is not None:
                renewed = outcome.Renewed(action.group, action.rv)
                going = self._absorbed(going, renewed, {group: self._usable(group, held)})
            else:
                going = self._absorbed(going, outcome.Failed(Failure(cause=Cause.REQUEST_CHANGED)))
        return self._put(world, number, one, going)

    def _fence(self, world: World, number: int, one: Direct, rv: int) -> Iterator[Step]:
        label = ("scheduler", number, "fences", one.uid)
        fenced = machines.fence(world, Late("fence", (one.uid, rv, one.attempt)), self._rules)
        if fenced is not None:
            yield label, self._answered(fenced, number, one, outcome.Fenced())
        else:
            yield (*label, "missed"), self._answered(world, number, one, outcome.FenceMissed())

    def _leave(self, world: World, number: int, one: Direct, *, group: int, rv: int) -> Iterator[Step]:
        after, _ = self._change_held(world, one, group, self._rules.leaving([tenant(_entry(one, group, rv))]))
        left_book = self._answered(after, number, one, outcome.Left(text(group)))
        yield ("scheduler", number, "leaves", one.uid, group), left_book
        if world.left.lates and after is not world:
            left = world.left._replace(lates=world.left.lates - 1)
            yield ("!scheduler", number, "leaves, answer lost", one.uid, group), after._replace(left=left)

    def _change_held(self, world: World, one: Direct, group: int, change: Any) -> tuple[World, Any]:
        """Change the book of a reservation that was joined; no answer where it is gone."""
        held = world.resvs[group - GROUP]
        if held is None or all((group, held.uid) != joined[:2] for joined in one.held):
            return world, None
        return self._change(world, group, change=change)

    def _usable(self, group: int, resv: Resv) -> int:
        """The device, if the reply to a write of the book shows it learned, and it was verified; else 0."""
        is_told = self._rules.see(self._views.resv(group, resv)).is_told
        return resv.uuid if is_told and (resv.proven or not self._rules.direct_needs_proof) else 0

    # --- states ------------------------------------------------------------------------------------------------------
    def _answered(self, world: World, number: int, one: Direct, answer: Outcome) -> World:
        return self._put(world, number, one, self._absorbed(one, answer))

    def _put(self, world: World, number: int, one: Direct, after: Direct) -> World:
        """Put an attempt in its place, and take it and its gang as far as they come without a write or read."""
        world = swap(world, number, one, after)
        for moved, _ in self._step(_together(world, number, after)):
            world = swap(world, number, moved, *((moved,) if moved.stage != Phase.END.value else ()))
        return world

    def _absorbed(self, one: Direct, answer: Outcome, uuids: dict[int, int] | None = None, *, tries: int = 1) -> Direct:
        state = self._rules.absorb(_state(one, 1, tries), answer)
        return _direct(one, state, uuids)

    def _step(self, unit: tuple[Direct, ...]) -> list[Move]:
        """What is done next. What direct attempts see is in themselves, so the answer is the same in any world."""
        moves = self._moves.get(unit)
        if moves is None:
            states = [_state(one, len(unit), 1) for one in unit]
            seen = {state.attempt.id: self._seen(one) for state, one in zip(states, unit, strict=True)}
            made = self._rules.step(states, seen)
            moves = [(_direct(one, move.state), move.actions) for one, move in zip(unit, made, strict=True)]
            self._moves[unit] = moves
        return moves

    def _seen(self, one: Direct) -> Seen:
        """The pod as it was decided on or read last, and what the books' answers showed."""
        held = {
            text(group): self._views.resv(group, _shown(reservation, uuid, _entry(one, group, rv)))
            for group, reservation, uuid, rv in one.held
        }
        return Seen(
            pod=self._views.pod(Pod(one.uid, one.rv)),
            reservations=held,
            verified=frozenset((text(reservation), text(uuid)) for _, reservation, uuid, _ in one.held if uuid),
            late=True,
        )


def _together(world: World, number: int, one: Direct) -> tuple[Direct, ...]:
    """Those that are stepped together: a gang as long as it joins."""
    members = world.schedulers[number]
    is_joining = any(other.stage == Phase.PREPARE.value for other in members)
    return members if one.plan and is_joining else (one,)


def _shown(reservation: int, uuid: int, entry: Entry) -> Resv:
    return Resv(reservation, 0, (entry,), dev=uuid, uuid=uuid, phase=RUNNING)


def _entry(one: Direct, group: int, rv: int) -> Entry:
    return Entry(one.uid, one.attempt, rv, dict(one.devices)[group])


def _state(one: Direct, members: int, tries: int) -> State:
    """The scheduler's state of an attempt."""
    slot = str(slot_of(one.uid))
    attempt = Attempt(
        id=text(one.attempt),
        namespace=NAMESPACE,
        name=slot,
        pod_uid=text(one.uid),
        pod_name=slot,
        node=NODE,
        rv=text(one.rv),
        devices=planned(one.devices),
        plan=text(one.plan) if one.plan else "",
        members=members,
        is_direct=True,
    )
    has_failed = one.failed or one.stage in _HAVE_FAILED
    return State(
        attempt=attempt,
        phase=Phase(one.stage),
        rv=text(one.rv),
        joined={text(group): Joined(text(reservation), text(rv)) for group, reservation, _, rv in one.held},
        tries=tries,
        failure=Failure(cause=Cause.REFUSED) if has_failed else None,
        may_land=bool(one.may_land),
    )


def _direct(one: Direct, state: State, uuids: dict[int, int] | None = None) -> Direct:
    """The model's form of a state. ``uuids``: devices that were learned just now, by group."""
    known = {group: uuid for group, _, uuid, _ in one.held} | (uuids or {})
    held = tuple(
        (name(group), name(joined.reservation), known[name(group)], name(joined.rv))
        for group, joined in state.joined.items()
    )
    is_settling = state.phase is Phase.SETTLE
    return one._replace(
        stage=state.phase.value,
        rv=name(state.rv),
        held=held,
        may_land=int(state.may_land and state.phase is not Phase.LEAVE),
        failed=int(is_settling and state.failure is not None),
    )


def put(world: World, number: int, attempts: tuple[Direct, ...]) -> World:
    """Put attempts in the place of all of a scheduler's."""
    schedulers = (*world.schedulers[:number], attempts, *world.schedulers[number + 1 :])
    return world._replace(schedulers=schedulers)


def swap(world: World, number: int, one: Direct, *others: Direct) -> World:
    """Put others in the place of an attempt."""
    kept = tuple(other for other in world.schedulers[number] if other.attempt != one.attempt)
    return put(world, number, (*kept, *others))


FULL: Final = 10
#: Stages that are the step function's; others are the gang's matter.
STEPPED: Final = frozenset(phase.value for phase in Phase)
DIRECT: Final = "direct"
HANDED: Final = "handed"


class Scheduling:
    """All schedulers of a world."""

    def __init__(self, config: Config, rules: Rules, views: Translator) -> None:
        self._config = config
        self._rules = rules
        self._views = views
        self._direct = DirectAttempts(rules, views)

    def steps(self, world: World) -> Iterator[Step]:
        """Everything that a scheduler may do next."""
        for number in range(len(world.schedulers)):
            under_way = world.schedulers[number]
            if under_way:
                for one in under_way:
                    if one.stage in STEPPED:
                        yield from self._direct.go_on(world, number, one)
                if world.left.scheduler_crashes:
                    left = world.left._replace(scheduler_crashes=world.left.scheduler_crashes - 1)
                    yield ("!crash of scheduler", number), put(world, number, ())._replace(left=left)
            busy = {one.uid for one in under_way}
            alone = [pod for slot, pod in enumerate(world.pods) if pod is not None and slot not in self._config.gang]
            for pod in alone:
                if not pod.grant and pod.life == LIVE and pod.uid not in busy:
                    yield from self._decide(world, number, pod)

    # --- deciding ----------------------------------------------------------------------------------------------------
    def _decide(self, world: World, number: int, pod: Pod) -> Iterator[Step]:
        slot = slot_of(pod.uid)
        there = world.requests[slot]
        if there is not None:
            if self._config.rival and number > 0:
                yield ("!scheduler", number, "takes back", pod.uid), machines.put_request(world, slot, None)
            elif there.pod != pod.uid:
                # Creating another makes room (bind_requests.py). One of this pod is the binder's, though the pod was
                # changed.
                yield ("scheduler", number, "takes back", pod.uid), machines.put_request(world, slot, None)
            return
        if not self.is_free(world, pod):
            return
        if not self._config.rival and any(d.uid == pod.uid for s in world.schedulers for d in s):
            return
        mode = self._config.mode(slot)
        for devices in self.choices(world, self._config.shares[slot]):
            if mode != DIRECT:
                yield from self._hand(world, number, pod, devices)
            if (
                mode != HANDED
                and not world.schedulers[number]
                and all(self.is_open(world, group) for group, _ in devices)
            ):
                attempt = machines.fresh(world, ATTEMPT)
                one = Direct(Phase.PREPARE.value, attempt, pod.uid, pod.rv, devices)
                if self._config.hesitant:
                    yield ("scheduler", number, "decides on", pod.uid, *devices), swap(world, number, one, one)
                else:
                    yield from self._direct.join(world, number, one, group=devices[0][0], how="decides: ")

    def choices(self, world: World, shares: tuple[int, ...]) -> Iterator[tuple[Device, ...]]:
        """Distinct groups for the shares of a pod, with room by their books; no more are opened than devices are left.

        Of the groups that nothing speaks of, one is as good as the other.
        """
        if self._rules.plan_keeps_places:
            world = _keeping_promises(world)
        held = {
            GROUP + at: self._rules.see(self._views.resv(GROUP + at, resv))
            for at, resv in enumerate(world.resvs)
            if resv is not None
        }
        named = _named(world)
        room = self._config.devices - sum(not one.is_terminal for one in held.values())
        free = {
            group: one.book.free_nano // NANO
            for group, one in held.items()
            if one.book is not None and not one.deleting and not one.is_terminal
        }
        bare = [GROUP + at for at, resv in enumerate(world.resvs) if resv is None] if room > 0 else []
        opened = [group for group in bare if group not in named][:room][: len(shares)]
        free |= {group: FULL for group in bare if group in named or group in opened}
        for chosen in permutations(free, len(shares)):
            fresh = [group for group in chosen if group in opened]
            fits = all(free[group] >= share for group, share in zip(chosen, shares, strict=True))
            if fits and fresh == opened[: len(fresh)] and sum(group not in held for group in chosen) <= room:
                yield tuple(zip(chosen, shares, strict=True))

    def is_free(self, world: World, pod: Pod) -> bool:
        """scheduler/commit/bind_requests.py: an attempt that was taken back is waited for, until its fence shows."""
        old = {
            one.request.attempt: one for binder in world.binders for one in binder.units if one.request.pod == pod.uid
        }
        is_fenced = all(one.phase == Phase.LEAVE.value for one in old.values())
        return len(old) <= self._config.scheduling_queue and (is_fenced or self._config.rival)

    def is_open(self, world: World, group: int) -> bool:
        """Whether its device may be joined directly."""
        held = world.resvs[group - GROUP]
        if held is None:
            return False
        view = self._rules.see(self._views.resv(group, held))
        return view.is_joinable and view.is_told and (held.proven or not self._rules.direct_needs_proof)

    def _hand(self, world: World, number: int, pod: Pod, devices: tuple[Device, ...]) -> Iterator[Step]:
        slot = slot_of(pod.uid)
        request = Request(machines.fresh(world, ATTEMPT), pod.uid, pod.rv, devices)
        after = machines.put_request(world, slot, request)
        yield ("scheduler", number, "hands over", pod.uid, *devices), after
        if world.left.lates:
            left = world.left._replace(lates=world.left.lates - 1)
            late = Late("create", (request._replace(attempt=0),))
            yield (
                ("!scheduler", number, "hands over, and again later", pod.uid, *devices),
                after._replace(late=(*after.late, late), left=left),
            )


def supposing(world: World, pod: Pod, devices: tuple[Device, ...]) -> World:
    """The world as if these devices were charged."""
    for group, share in devices:
        entry = Entry(pod.uid, 0, pod.rv, share)
        held = world.resvs[group - GROUP]
        if held is None:
            world = machines.create_resv(world, group, (entry,))
        elif all(known.uid != pod.uid for known in held.book):
            world = machines.put_resv(world, group, held._replace(book=(*held.book, entry)))
    return world


def _keeping_promises(world: World) -> World:
    """The world as if the plan's members that are not bound were in their books (commits.py)."""
    for uid, devices in world.plan[1] if world.plan else ():
        pod = machines.pod_of(world, uid)
        if pod is not None and not pod.grant:
            world = supposing(world, pod, devices)
    return world


def _named(world: World) -> set[int]:
    """Groups that something speaks of: a bound pod, a BindRequest, a write that may land."""
    named = {holding[0] for pod in world.pods if pod is not None for holding in pod.holdings}
    named |= {group for request in world.requests if request is not None for group, _ in request.devices}
    return named | {late.what[0] for late in world.late if late.kind in {"identity", "book"}}  # type: ignore[misc]  # a group


Placements = tuple[tuple[int, tuple[Device, ...]], ...]
Plan = tuple[int, Placements]


class Ganging:
    """The schedulers' work on the one gang of a world.

    A gang's plan is on the PodGroup, then come all books, then all bindings (scheduler/commit/gangs.py). The plan is
    written at exactly the version that was decided on. A gang whose members are all direct is the step function's; any
    other one is handed to the binder whole. A plan whose unbound members nobody is seen to work on is taken back: its
    members are fenced one by one, then it goes. Two leaders do not see each other's direct attempts, so each may take
    back what the other is at.
    """

    def __init__(self, config: Config, rules: Rules, scheduling: Scheduling) -> None:
        self._config = config
        self._rules = rules
        self._scheduling = scheduling

    def steps(self, world: World) -> Iterator[Step]:
        """Everything that a scheduler may do next for the gang."""
        if not self._config.gang:
            return
        if self._config.releases:
            yield from self._evict(world)
        for number, under_way in enumerate(world.schedulers):
            if not under_way:
                yield from self._decide(world, number)
                yield from self._take_back(world, number)
            for one in under_way:
                if one.stage == "plan":
                    yield from self._write(world, number)
                elif one.stage == "hand":
                    yield from self._hand(world, number, one)
                elif one.stage == "release":
                    yield from self._release(world, number, one)

    # --- starting ----------------------------------------------------------------------------------------------------
    def _decide(self, world: World, number: int) -> Iterator[Step]:
        members = [world.pods[slot] for slot in self._config.gang]
        waiting = [pod for pod in members if pod is not None and not pod.grant and pod.life == LIVE]
        if not waiting or not is_spent(world) or any(world.requests[slot] for slot in self._config.gang):
            return
        if not all(self._scheduling.is_free(world, pod) for pod in waiting):
            return
        for placements in self._placements(world, waiting):
            start = tuple(
                Direct("plan", 0, pod.uid, pod.rv, devices)
                for pod, (_, devices) in zip(waiting, placements, strict=True)
            )
            decided = put(world, number, start)
            if self._rules.plan_only_if_none:
                for label, after in self._write(decided, number):
                    yield ("scheduler", number, "decides and", *label[2:]), after
            else:
                yield ("scheduler", number, "decides on the gang"), decided

    def _placements(self, world: World, waiting: list[Pod]) -> Iterator[Placements]:
        """Places for all, one after the other, each with what those before it leave."""
        if not waiting:
            yield ()
            return
        pod, *rest = waiting
        for devices in self._scheduling.choices(world, self._config.shares[slot_of(pod.uid)]):
            for others in self._placements(supposing(world, pod, devices), rest):
                yield ((pod.uid, devices), *others)

    def _write(self, world: World, number: int) -> Iterator[Step]:
        """The plan is written; its members go the way that all of them can go."""
        members = world.schedulers[number]
        plan = machines.fresh(world, PLAN)
        is_direct = all(self._scheduling.is_open(world, group) for one in members for group, _ in one.devices) and all(
            self._config.mode(slot_of(one.uid)) in {DIRECT, ""} for one in members
        )
        is_handed = all(self._config.mode(slot_of(one.uid)) != DIRECT for one in members)
        planned = world._replace(plan=(plan, tuple((one.uid, one.devices) for one in members)))
        label = ("scheduler", number, "writes the plan", *((one.uid, one.devices) for one in members))
        attempt = machines.fresh(world, ATTEMPT)
        if is_direct:
            started = tuple(
                one._replace(stage=Phase.PREPARE.value, plan=plan, attempt=attempt + at)
                for at, one in enumerate(members)
            )
            yield label, put(planned, number, started)
        elif is_handed:
            yield label, put(planned, number, tuple(one._replace(stage="hand", plan=plan) for one in members))

    def _hand(self, world: World, number: int, one: Direct) -> Iterator[Step]:
        slot = slot_of(one.uid)
        rest = tuple(other for other in world.schedulers[number] if other is not one)
        planned = len(world.plan[1]) if world.plan else len(self._config.gang)
        request = Request(machines.fresh(world, ATTEMPT), one.uid, one.rv, one.devices, one.plan, planned)
        after = machines.put_request(world, slot, request)
        yield ("scheduler", number, "hands over", one.uid, *one.devices), put(after, number, rest)

    # --- taking back -------------------------------------------------------------------------------------------------
    def _take_back(self, world: World, number: int) -> Iterator[Step]:
        if not world.plan or is_spent(world):
            return
        unbound = [
            uid for uid, _ in world.plan[1] if (pod := machines.pod_of(world, uid)) is not None and not pod.grant
        ]
        if any(world.requests[slot_of(uid)] for uid in unbound):
            return
        if not self._config.rival and any(world.schedulers):
            return
        sign = "!" if any(world.schedulers) else ""
        label = (f"{sign}scheduler", number, "finds a stale plan")
        if self._rules.plan_fences_first:
            fences = tuple(Direct("release", 0, uid, 0, (), plan=world.plan[0]) for uid in unbound)
            yield label, put(world, number, fences)
        else:
            yield label, world._replace(plan=())

    def _release(self, world: World, number: int, one: Direct) -> Iterator[Step]:
        """Fence a member where it is, then the plan goes, if it is still the one that was found."""
        pod = machines.pod_of(world, one.uid)
        after = world
        if pod is not None and not pod.grant:
            after = machines.fence(world, Late("fence", (one.uid, pod.rv, one.plan)), self._rules) or world
        rest = tuple(other for other in world.schedulers[number] if other is not one)
        if not rest and after.plan and after.plan[0] == one.plan:
            after = after._replace(plan=())
        yield ("scheduler", number, "fences for the plan", one.uid), put(after, number, rest)

    def _evict(self, world: World) -> Iterator[Step]:
        """scheduler/background/stale_gangs.py: what is below its minimum for the grace time goes.

        Nobody works on it then.
        """
        members = [(slot, world.pods[slot]) for slot in self._config.gang]
        bound = [(slot, pod) for slot, pod in members if pod is not None and pod.grant and pod.life == LIVE]
        if len(bound) == len(members) or any(world.schedulers) or any(world.requests[slot] for slot, _ in members):
            return
        for slot, pod in bound:
            yield ("scheduler", "evicts", pod.uid), machines.delete_pod(world, slot)


def is_spent(world: World) -> bool:
    """No plan, or one whose members are all bound or gone: another may be written."""
    if not world.plan:
        return True
    return all((pod := machines.pod_of(world, uid)) is None or bool(pod.grant) for uid, _ in world.plan[1])
