"""The schedulers, abstract: any pod may be put anywhere that looks as if it had room.

What a scheduler does with a decision is transcribed from scheduler/commit/direct.py (join all, post, settle by reading,
fence, give back) and scheduler/commit/handing.py (a BindRequest, made room for by taking back another one). A decision
and its first write are one step: what happens between them might as well happen before the decision or after the write.
A scheduler works on one direct attempt at a time, and hands over others meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import permutations
from typing import Any, Final

from gpu.book import Book
from sharing.state import Phase
from verification.model import server
from verification.model.config import Config
from verification.model.rules import Rules
from verification.model.state import (
    ATTEMPT,
    GROUP,
    LIVE,
    Device,
    Direct,
    Entry,
    Late,
    Pod,
    Request,
    Resv,
    Step,
    World,
    slot_of,
)
from verification.model.translating import NANO, Translator, tenant

FULL: Final = 10
DIRECT: Final = "direct"
HANDED: Final = "handed"


class Scheduling:
    """All schedulers of a world."""

    def __init__(self, config: Config, rules: Rules, views: Translator) -> None:
        self._config = config
        self._rules = rules
        self._views = views
        self._change = partial(server.change_book, views=views, rules=rules)

    def steps(self, world: World) -> Iterator[Step]:
        """Everything that a scheduler may do next."""
        for number in range(len(world.schedulers)):
            under_way = world.schedulers[number]
            if under_way:
                for one in under_way:
                    yield from self._go_on(world, number, one)
                if world.left.scheduler_crashes:
                    left = world.left._replace(scheduler_crashes=world.left.scheduler_crashes - 1)
                    yield ("!crash of scheduler", number), _put(world, number, ())._replace(left=left)
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
                yield ("!scheduler", number, "takes back", pod.uid), server.put_request(world, slot, None)
            elif there.pod != pod.uid:
                # Creating another makes room (handing.py). One of this pod is the binder's, though the pod was changed.
                yield ("scheduler", number, "takes back", pod.uid), server.put_request(world, slot, None)
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
                attempt = server.fresh(world, ATTEMPT)
                one = Direct("join", attempt, pod.uid, pod.rv, devices)
                if self._config.hesitant:
                    yield ("scheduler", number, "decides on", pod.uid, *devices), _swap(world, number, one, one)
                else:
                    yield from self._join(world, number, one, "decides: ")

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
        """scheduler/commit/handed.py: an attempt that was taken back is waited for, until its fence shows."""
        old = {
            one.request.attempt: one for binder in world.binders for one in binder.units if one.request.pod == pod.uid
        }
        is_fenced = all(one.phase == Phase.LEAVE.value for one in old.values())
        return len(old) <= self._config.backlog and (is_fenced or self._config.rival)

    def is_open(self, world: World, group: int) -> bool:
        """Whether its device may be joined directly."""
        held = world.resvs[group - GROUP]
        if held is None:
            return False
        view = self._rules.see(self._views.resv(group, held))
        return view.is_joinable and view.is_learned and (held.proven or not self._rules.direct_needs_proof)

    def _hand(self, world: World, number: int, pod: Pod, devices: tuple[Device, ...]) -> Iterator[Step]:
        slot = slot_of(pod.uid)
        request = Request(server.fresh(world, ATTEMPT), pod.uid, pod.rv, devices)
        after = server.put_request(world, slot, request)
        yield ("scheduler", number, "hands over", pod.uid, *devices), after
        if world.left.lates:
            left = world.left._replace(lates=world.left.lates - 1)
            late = Late("create", (request._replace(attempt=0),))
            yield (
                ("!scheduler", number, "hands over, and again later", pod.uid, *devices),
                after._replace(late=(*after.late, late), left=left),
            )

    # --- a direct attempt --------------------------------------------------------------------------------------------
    def _go_on(self, world: World, number: int, one: Direct) -> Iterator[Step]:
        match one.stage:
            case "join":
                yield from self._join(world, number, one, "")
            case "post":
                yield from self._post(world, number, one)
            case "settle":
                yield from self._settle(world, number, one)
            case "fence":
                yield from self._fence(world, number, one)
            case "leave":
                yield from self._leave(world, number, one)
            case _:
                return  # it waits for the others, or is the gang's matter (ganging.py)

    def _join(self, world: World, number: int, one: Direct, how: str) -> Iterator[Step]:
        held = {group for group, _, _ in one.held}
        group = next(group for group, _ in one.devices if group not in held)
        label = ("scheduler", number, f"{how}joins", one.uid, group)
        if world.resvs[group - GROUP] is None:
            yield (*label, "gone"), self._give_back(world, number, one)
            return
        change = self._rules.joining([tenant(_entry(one, group))])
        after, answer = self._change(world, group, change=change)
        resv = after.resvs[group - GROUP]
        if not isinstance(answer, Book) or resv is None:
            if not how:
                yield (*label, type(answer).__name__), self._give_back(world, number, one)
            return
        joined = one._replace(held=(*one.held, (group, resv.uid, resv.uuid)))
        if not self._is_usable(group, resv):
            yield (*label, "unusable"), self._give_back(after, number, joined)
            return
        is_all = len(joined.held) == len(one.devices)
        waits = bool(one.plan) and self._rules.gang_joins_all
        stage = ("joined" if waits else "post") if is_all or not self._rules.direct_joins_all else "join"
        joined = joined._replace(stage=stage)
        yield label, _gang_joined(_swap(after, number, one, joined), number, joined)
        yield from self._book_late(world, after, number, group=group, joined=joined)

    def _book_late(self, world: World, after: World, number: int, *, group: int, joined: Direct) -> Iterator[Step]:
        before, held = world.resvs[group - GROUP], after.resvs[group - GROUP]
        if not world.left.lates or before is None or held is None or before.book == held.book:
            return
        late = Late("book", (group, before.uid, before.rv, held.book))
        left = world.left._replace(lates=world.left.lates - 1)
        if server.may_land(after, late, self._rules):
            again = _gang_joined(_swap(after, number, joined, joined), number, joined)._replace(
                late=(*world.late, late), left=left
            )
            yield ("!scheduler", number, "joins, and again later", joined.uid), again
        if left.scheduler_crashes:
            left = left._replace(scheduler_crashes=left.scheduler_crashes - 1)
            yield (
                ("!scheduler", number, "joins later, and dies", joined.uid),
                _put(world, number, ())._replace(late=(*world.late, late), left=left),
            )

    def _is_usable(self, group: int, resv: Resv | None) -> bool:
        """scheduler/commit/direct.py _metadata: what the reply to the join shows is learned, and was verified."""
        if resv is None:
            return False
        view = self._rules.see(self._views.resv(group, resv))
        return view.is_learned and (resv.proven or not self._rules.direct_needs_proof)

    def _post(self, world: World, number: int, one: Direct) -> Iterator[Step]:
        rv = one.rv
        pod = server.pod(world, one.uid)
        if not self._rules.binding_at_entry and pod is not None:
            rv = pod.rv
        share = dict(one.devices)
        holdings = tuple((group, reservation, uuid, share[group]) for group, reservation, uuid in one.held)
        binding = Late("bind", (one.uid, rv, one.attempt, holdings))
        bound = server.bind(world, binding, self._rules)
        if bound is not None:
            rest = () if len(one.held) == len(one.devices) else (one._replace(stage="join"),)
            after = _swap(bound, number, one, *rest)
            yield ("scheduler", number, "binds", one.uid, rv), after
        else:
            yield (
                ("scheduler", number, "binds", one.uid, rv, "refused"),
                _swap(world, number, one, one._replace(stage="settle")),
            )
        if world.left.refusals:
            left = world.left._replace(refusals=world.left.refusals - 1)
            refused = _swap(world, number, one, one._replace(stage="settle"))._replace(left=left)
            yield ("!scheduler", number, "binds", one.uid, rv, "refused for another reason"), refused
        if world.left.lates and server.may_land(world, binding, self._rules):
            left = world.left._replace(lates=world.left.lates - 1)
            late = world._replace(late=(*world.late, binding), left=left)
            unknown = one._replace(stage="settle", may_land=1)
            yield ("!scheduler", number, "binds, no answer", one.uid, rv), _swap(late, number, one, unknown)

    def _settle(self, world: World, number: int, one: Direct) -> Iterator[Step]:
        """scheduler/commit/direct.py post, after the quorum read."""
        pod = server.pod(world, one.uid)
        label: tuple[Any, ...] = ("scheduler", number, "reads", one.uid)
        if pod is None or pod.grant:
            is_ours = pod is not None and bool(pod.grant) and pod.grant[0] == one.attempt  # type: ignore[misc]  # not empty
            if is_ours or self._rules.direct_leaves_rest:
                yield label, _swap(world, number, one)
            else:
                yield label, self._give_back(world, number, one)
        elif pod.rv != one.rv and self._goes_on(one, pod):
            yield (*label, "renews"), self._renew(world, number, one, pod.rv)
        elif pod.rv != one.rv or not one.may_land or not self._rules.direct_fences:
            yield label, self._give_back(world, number, one)
        else:
            yield label, _swap(world, number, one, one._replace(stage="post"))
            yield (*label, "for the last time"), _swap(world, number, one, one._replace(stage="fence"))

    def _goes_on(self, one: Direct, pod: Pod) -> bool:
        """Whether a member of a gang goes on though its pod was changed: unless it was withdrawn."""
        return bool(one.plan) and self._rules.gang_renews and one.attempt not in self._rules.fences_told(pod.fences)

    def _renew(self, world: World, number: int, one: Direct, rv: int) -> World:
        """Entries move to the pod's new version, or are entered there anew; where one can't, the attempt goes."""
        moved: list[tuple[int, int, int]] = []
        for at, (group, reservation, _) in enumerate(one.held):
            change = self._rules.rejoining(tenant(_entry(one, group)), str(rv))
            world, answer = self._change_held(world, group, reservation, change)
            held = world.resvs[group - GROUP]
            if not isinstance(answer, Book) or held is None:
                for other, its, _ in moved:
                    leave = self._rules.leaving([tenant(_entry(one._replace(rv=rv), other))])
                    world, _ = self._change_held(world, other, its, leave)
                return self._give_back(world, number, one._replace(held=one.held[at:]))
            moved.append((group, held.uid, held.uuid))
        renewed = one._replace(rv=rv, held=tuple(moved), may_land=0)
        if not all(self._is_usable(group, world.resvs[group - GROUP]) for group, _, _ in moved):
            return self._give_back(world, number, renewed)
        return _swap(world, number, one, renewed._replace(stage="post"))

    def _change_held(self, world: World, group: int, reservation: int, change: Any) -> tuple[World, Any]:
        """Change the book of a reservation that was joined; no answer where it is gone."""
        held = world.resvs[group - GROUP]
        if held is None or held.uid != reservation:
            return world, None
        return self._change(world, group, change=change)

    def _fence(self, world: World, number: int, one: Direct) -> Iterator[Step]:
        late = Late("fence", (one.uid, one.rv, one.attempt))
        fenced = server.fence(world, late, self._rules)
        if fenced is not None:
            yield ("scheduler", number, "fences", one.uid), self._give_back(fenced, number, one)
        else:
            yield (
                ("scheduler", number, "fences", one.uid, "missed"),
                _swap(world, number, one, one._replace(stage="settle")),
            )

    def _give_back(self, world: World, number: int, one: Direct) -> World:
        going = (one._replace(stage="leave", may_land=0),) if one.held else ()
        world = _swap(world, number, one, *going)
        return _gang_failed(world, number, one.plan) if one.plan and one.stage == "join" else world

    def _leave(self, world: World, number: int, one: Direct) -> Iterator[Step]:
        (group, reservation, _), *rest = one.held
        after, _ = self._change_held(world, group, reservation, self._rules.leaving([tenant(_entry(one, group))]))
        going = (one._replace(held=tuple(rest)),) if rest else ()
        yield ("scheduler", number, "leaves", one.uid, group), _swap(after, number, one, *going)
        if world.left.lates and after is not world:
            left = world.left._replace(lates=world.left.lates - 1)
            yield ("!scheduler", number, "leaves, answer lost", one.uid, group), after._replace(left=left)


def _entry(one: Direct, group: int) -> Entry:
    return Entry(one.uid, one.attempt, one.rv, dict(one.devices)[group])


def supposing(world: World, pod: Pod, devices: tuple[Device, ...]) -> World:
    """The world as if these devices were charged."""
    for group, share in devices:
        entry = Entry(pod.uid, 0, pod.rv, share)
        held = world.resvs[group - GROUP]
        if held is None:
            world = server.create_resv(world, group, (entry,))
        elif all(known.uid != pod.uid for known in held.book):
            world = server.put_resv(world, group, held._replace(book=(*held.book, entry)))
    return world


def _keeping_promises(world: World) -> World:
    """The world as if the plan's members that are not bound were in their books (planned_members.py)."""
    for uid, devices in world.plan[1] if world.plan else ():
        pod = server.pod(world, uid)
        if pod is not None and not pod.grant:
            world = supposing(world, pod, devices)
    return world


def _named(world: World) -> set[int]:
    """Groups that something speaks of: a bound pod, a BindRequest, a write that may land."""
    named = {holding[0] for pod in world.pods if pod is not None for holding in pod.holdings}
    named |= {group for request in world.requests if request is not None for group, _ in request.devices}
    return named | {late.what[0] for late in world.late if late.kind in {"identity", "book"}}  # type: ignore[misc]  # a group


def _put(world: World, number: int, attempts: tuple[Direct, ...]) -> World:
    schedulers = (*world.schedulers[:number], attempts, *world.schedulers[number + 1 :])
    return world._replace(schedulers=schedulers)


def _swap(world: World, number: int, one: Direct, *others: Direct) -> World:
    """Put others in the place of an attempt."""
    kept = tuple(other for other in world.schedulers[number] if other.attempt != one.attempt)
    return _put(world, number, (*kept, *others))


def _gang_joined(world: World, number: int, one: Direct) -> World:
    """When all members have joined, all may bind (scheduler/commit/gangs.py _start_direct)."""
    members = world.schedulers[number]
    if not one.plan or any(other.stage != "joined" for other in members):
        return world
    return _put(world, number, tuple(other._replace(stage="post") for other in members))


def _gang_failed(world: World, number: int, plan: int) -> World:
    """When one member could not join, all give back what they have."""
    members = world.schedulers[number]
    going = [other._replace(stage="leave") if other.plan == plan else other for other in members]
    return _put(world, number, tuple(other for other in going if other.held))
