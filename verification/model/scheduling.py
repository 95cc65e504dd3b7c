"""The schedulers, abstract: any pod may be put anywhere that looks as if it had room; gangs by a plan.

What a scheduler does with a decision is the step function's for direct attempts (direct.py), and transcribed from
scheduler/commit/bind_requests.py for others (a BindRequest, made room for by taking back another one). A decision and
its first write are one step: what happens between them might as well happen before the decision or after the write. A
scheduler works on one direct attempt at a time, and hands over others meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from typing import Final

from sharing.state import Phase
from verification.model import server
from verification.model.config import Config, Rules
from verification.model.direct import DirectAttempts, put, swap
from verification.model.state import (
    ATTEMPT,
    GROUP,
    LIVE,
    PLAN,
    Device,
    Direct,
    Entry,
    Late,
    Pod,
    Request,
    Step,
    World,
    slot_of,
)
from verification.model.translating import NANO, Translator

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
                yield ("!scheduler", number, "takes back", pod.uid), server.put_request(world, slot, None)
            elif there.pod != pod.uid:
                # Creating another makes room (bind_requests.py). One of this pod is the binder's, though the pod was
                # changed.
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
    """The world as if the plan's members that are not bound were in their books (commits.py)."""
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
        plan = server.fresh(world, PLAN)
        is_direct = all(self._scheduling.is_open(world, group) for one in members for group, _ in one.devices) and all(
            self._config.mode(slot_of(one.uid)) in {DIRECT, ""} for one in members
        )
        is_handed = all(self._config.mode(slot_of(one.uid)) != DIRECT for one in members)
        planned = world._replace(plan=(plan, tuple((one.uid, one.devices) for one in members)))
        label = ("scheduler", number, "writes the plan", *((one.uid, one.devices) for one in members))
        attempt = server.fresh(world, ATTEMPT)
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
        request = Request(server.fresh(world, ATTEMPT), one.uid, one.rv, one.devices, one.plan, planned)
        after = server.put_request(world, slot, request)
        yield ("scheduler", number, "hands over", one.uid, *one.devices), put(after, number, rest)

    # --- taking back -------------------------------------------------------------------------------------------------
    def _take_back(self, world: World, number: int) -> Iterator[Step]:
        if not world.plan or is_spent(world):
            return
        unbound = [uid for uid, _ in world.plan[1] if (pod := server.pod(world, uid)) is not None and not pod.grant]
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
        pod = server.pod(world, one.uid)
        after = world
        if pod is not None and not pod.grant:
            after = server.fence(world, Late("fence", (one.uid, pod.rv, one.plan)), self._rules) or world
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
            yield ("scheduler", "evicts", pod.uid), server.delete_pod(world, slot)


def is_spent(world: World) -> bool:
    """No plan, or one whose members are all bound or gone: another may be written."""
    if not world.plan:
        return True
    return all((pod := server.pod(world, uid)) is None or bool(pod.grant) for uid, _ in world.plan[1])
