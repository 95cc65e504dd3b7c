"""Allocating and reserving claims as a system to explore (verification/model/explorer.py), and who acts beside it.

Those are the claim controller, another scheduler, users, and what ends processes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Final

from verification.model.claims.schedulers import (
    BUILT,
    FOREIGN,
    GONE,
    NONE,
    Acting,
    Attempt,
    Choice,
    Claim,
    Config,
    Left,
    Pod,
    Report,
    Rules,
    Scheduler,
    Stage,
    Step,
    World,
    changed,
    decisions,
    is_later_double,
)
from verification.model.config import Named
from verification.model.explorer import Result, explored, lines_of


def controllers(world: World) -> Iterator[Step]:
    """Pods that are gone leave ``reservedFor``; with the last of them the allocation goes. Devices get ready."""
    for number, claim in enumerate(world.claims):
        if claim.report is Report.PENDING:
            after = claim._replace(report=Report.READY, rv=claim.rv + 1)
            yield ("driver has ready the device of", number), _put(world, number, after)
        left = tuple(pod for pod in claim.reserved if pod == FOREIGN or world.pods[pod].node != GONE)
        if left != claim.reserved:
            after = claim._replace(reserved=left) if left else Claim()
            yield ("controller cleans", number), _put(world, number, after._replace(rv=claim.rv + 1))


def faults(config: Config, world: World) -> Iterator[Step]:
    """What may go wrong, as often as is left."""
    yield from _another(config, world)
    left = world.left
    for number, claim in enumerate(world.claims):
        if left.failures and claim.report is Report.PENDING:
            after = world._replace(left=left._replace(failures=left.failures - 1))
            failed = claim._replace(report=Report.FAILED, rv=claim.rv + 1)
            yield ("!driver fails with the device of", number), _put(after, number, failed)
    for number, pod in enumerate(world.pods):
        if left.deletions and pod.node != GONE:
            after = world._replace(left=left._replace(deletions=left.deletions - 1))
            gone = Pod(GONE, pod.rv + 1)
            yield ("!user deletes", number), after._replace(pods=changed(world.pods, number, gone))
        if left.edits and pod.node == NONE:
            after = world._replace(left=left._replace(edits=left.edits - 1))
            edited = pod._replace(rv=pod.rv + 1)
            yield ("!user edits", number), after._replace(pods=changed(world.pods, number, edited))
    for number, scheduler in enumerate(world.schedulers):
        if left.crashes and scheduler != Scheduler():
            after = world._replace(left=left._replace(crashes=left.crashes - 1))
            yield ("!crash of", f"s{number}"), after._replace(schedulers=changed(world.schedulers, number, Scheduler()))


def _another(config: Config, world: World) -> Iterator[Step]:
    """Another scheduler gives any device to a claim of its own, or allocates one of ours for a pod of its own."""
    if not world.left.foreigners:
        return
    after = world._replace(left=world.left._replace(foreigners=world.left.foreigners - 1))
    newest = 1 + max(claim.at for claim in world.claims)
    for number, claim in enumerate(world.claims):
        for device in range(len(config.devices)) if claim.device == NONE else ():
            taken = Claim(device, (FOREIGN,), newest, claim.rv + 1, config.fresh)
            yield ("!another allocates", number, device), _put(after, number, taken)


def _put(world: World, number: int, claim: Claim) -> World:
    return world._replace(claims=changed(world.claims, number, claim))


ONE: Final = Config()
GANG: Final = Config(uses=(0, 1), groups=((0, 1),))
#: Two pods with one claim, on one node.
SHARED: Final = Config(places=(2,), devices=(0,), uses=(0, 0), groups=((0,), (1,)))
#: Two pods that want the only device.
RIVALS: Final = Config(places=(2,), devices=(0,), uses=(0, 1), groups=((0,), (1,)))

CLAIMING: Final = (
    Named("claims: one pod, all that can go wrong", Config(left=Left(
        crashes=1, lost_answers=1, lates=1, foreigners=1, deletions=1, edits=1, timeouts=1))),
    Named("claims: another scheduler with claims of its own", Config(
        others=1, left=Left(crashes=1, lates=1, foreigners=1))),
    Named("claims: one claim, two pods, another scheduler", Config(
        places=(2,), devices=(0,), uses=(0, 0), groups=((0,), (1,)), left=Left(crashes=1, foreigners=1, deletions=1))),
    Named("claims: a gang, a crash, a late write", Config(
        uses=(0, 1), groups=((0, 1),), left=Left(crashes=1, lates=1))),
    Named("claims: a gang and a pod, devices for two", Config(
        places=(2, 1), uses=(0, 1, 2), groups=((0, 1), (2,)), left=Left(crashes=1, timeouts=1))),
    Named("claims: two devices on a node with one place", Config(
        places=(1,), devices=(0, 0), uses=(0, 1), groups=((0,), (1,)), left=Left(crashes=1, lates=1, deletions=1))),
    Named("claims: two leaders at once, one pod, a late write", Config(schedulers=2, left=Left(lates=1))),
    Named("claims: two leaders at once, one device", Config(
        places=(2,), devices=(0,), uses=(0, 1), groups=((0,), (1,)), schedulers=2, left=Left(edits=1, deletions=1))),
    Named("claims: two leaders at once, one claim, two pods", Config(
        places=(2,), devices=(0,), uses=(0, 0), groups=((0,), (1,)), schedulers=2)),
    Named("claims: devices that have to get ready, one pod, all that can go wrong", Config(
        awaits=True, left=Left(crashes=1, lates=1, foreigners=1, deletions=1, edits=1, timeouts=1, failures=1))),
    Named("claims: devices that have to get ready, a gang", Config(
        uses=(0, 1), groups=((0, 1),), awaits=True, left=Left(crashes=1, timeouts=1, failures=1))),
    Named("claims: devices that have to get ready, one claim, two pods", Config(
        places=(2,), devices=(0,), uses=(0, 0), groups=((0,), (1,)), awaits=True,
        left=Left(crashes=1, foreigners=1, failures=1))),
    Named("claims: devices that have to get ready, two leaders at once", Config(
        awaits=True, schedulers=2, left=Left(failures=1))),
)  # fmt: skip


class Claiming:
    """Allocating and reserving claims in one configuration, by one set of rules."""

    rests = True

    def __init__(self, config: Config, rules: Rules = BUILT) -> None:
        self._config = config
        self._rules = rules
        self._acting = Acting(config, rules)

    def first(self) -> World:
        """Nobody has decided anything."""
        return self._config.world()

    def steps(self, world: World) -> Iterator[Step]:
        """Everything that may happen next."""
        for number in range(len(world.schedulers)):
            yield from self._acting.steps(world, number)
        yield from self._acting.land(world)
        yield from controllers(world)
        yield from faults(self._config, world)

    def canonical(self, world: World) -> tuple[World, Hashable]:
        """Versions are the newest or older ones; allocations have an order."""
        order = sorted({claim.at for claim in world.claims if claim.at})
        ranks = {0: 0, **{at: rank for rank, at in enumerate(order, 1)}}
        same = world._replace(
            claims=tuple(claim._replace(rv=0, at=ranks[claim.at]) for claim in world.claims),
            pods=tuple(pod._replace(rv=0) for pod in world.pods),
            schedulers=tuple(
                each._replace(
                    attempt=each.attempt and self._attempt(world, each.attempt),
                    own=tuple((pod, 0) for pod, rv in each.own if rv == world.pods[pod].rv),
                )
                for each in world.schedulers
            ),
            late=tuple(sorted(self._choice(world, one) for one in world.late)),
        )
        return same, same

    def _attempt(self, world: World, attempt: Attempt) -> Attempt:
        return attempt._replace(choices=tuple(self._choice(world, one) for one in attempt.choices))

    def _choice(self, world: World, choice: Choice) -> Choice:
        """``seen`` and ``pod_rv`` as 0 if they are the versions that the objects have, else -1."""
        is_read = choice.stage in {Stage.READ, Stage.FENCED}
        is_seen = not is_read or choice.seen == world.claims[self._config.uses[choice.pod]].rv
        is_same = choice.pod_rv == world.pods[choice.pod].rv
        return choice._replace(seen=0 if is_seen else -1, pod_rv=0 if is_same else -1)

    def violation(self, world: World) -> str:
        """C1 to C5 (docs/design/model.md)."""
        for number, pod in enumerate(world.pods):
            if pod.node < 0:
                continue
            claim = world.claims[self._config.uses[number]]
            if claim.device == NONE or number not in claim.reserved or self._config.devices[claim.device] != pod.node:
                return "C1: a pod is bound, and its claim is not reserved for it on its node"
            if is_later_double(world, self._config.uses[number]):
                return "C2: a pod is bound with a device that an earlier claim has"
            if claim.report is not Report.READY:
                return "C5: a pod is bound, and the device of its claim is not ready"
        for group in self._config.groups:
            pods = [(pod, world.pods[pod].node, world.claims[self._config.uses[pod]]) for pod in group]
            if any(node >= 0 for _, node, _ in pods) and self._has_never_reserved(world, pods):
                return "C3: a member is bound before the claims of its gang are reserved"
        return world.broken

    def _has_never_reserved(self, world: World, pods: Sequence[tuple[int, int, object]]) -> bool:
        """Whether a member's claim has no device yet, though nobody has crashed, withdrawn or edited anything."""
        is_calm = world.left == self._config.left
        return is_calm and any(
            node == NONE and not _is_prepared(world.claims[self._config.uses[pod]], pod) for pod, node, _ in pods
        )

    def is_at_rest(self, world: World) -> bool:
        """Nothing is on its way, no pod waits that could be placed, and no pod that waits has a device."""
        is_busy = any(each.attempt for each in world.schedulers) or world.late
        if is_busy or next(controllers(world), None) is not None:
            return False
        if any(next(decisions(self._config, self._rules, world, each), None) for each in world.schedulers):
            return False
        return not any(world.pods[pod].node == NONE for claim in world.claims for pod in claim.reserved if pod >= 0)

    def told(self, path: Sequence[World]) -> list[str]:
        """One line a step, and the last state."""
        last = path[-1]
        return [
            *lines_of(self, path),
            *(f"= {part}" for part in (*last.claims, *last.pods, *last.schedulers, *last.late)),
        ]


def _is_prepared(claim: Claim, pod: int) -> bool:
    return pod in claim.reserved and claim.report is Report.READY


def explore_claiming(config: Config, rules: Rules = BUILT, *, limit: int = 10_000_000) -> Result:
    """Explore: until a violation is found, everything was seen, or ``limit`` states are known."""
    return explored(Claiming(config, rules), limit=limit)
