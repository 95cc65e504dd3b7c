"""The schedulers, abstract: any pod may be put anywhere that looks as if it had room.

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
from verification.model.config import Config
from verification.model.direct import DirectAttempts, put, swap
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
    Step,
    World,
    slot_of,
)
from verification.model.translating import NANO, Translator

FULL: Final = 10
#: Stages that are the step function's; others are the gang's matter (ganging.py).
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
        return len(old) <= self._config.backlog and (is_fenced or self._config.rival)

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
