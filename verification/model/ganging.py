"""Gangs: the plan first, then all books, then all bindings (scheduler/commit/gangs.py).

The plan is on the PodGroup. It is written at exactly the version that was decided on, so deciding and writing are
one step. A gang whose members are all direct is the step function's (direct.py); any other one is handed to the binder
whole. A plan whose unbound members nobody is seen to work on is taken back: its members are fenced one by one, then it
goes. Two leaders do not see each other's direct attempts, so each may take back what the other is at.
"""

from __future__ import annotations

from collections.abc import Iterator

from sharing.state import Phase
from verification.model import server
from verification.model.config import Config
from verification.model.direct import put
from verification.model.rules import Rules
from verification.model.scheduling import DIRECT, Scheduling, supposing
from verification.model.state import ATTEMPT, LIVE, PLAN, Device, Direct, Late, Pod, Request, Step, World, slot_of

Placements = tuple[tuple[int, tuple[Device, ...]], ...]
Plan = tuple[int, Placements]


class Ganging:
    """The schedulers' work on the one gang of a world."""

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
