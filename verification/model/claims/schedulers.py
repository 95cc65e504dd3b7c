"""Allocating and reserving ResourceClaims, as values: claims, pods, and what schedulers do (docs/design/claims.md).

Devices are numbered, each on one node. Versions of objects count only as equal or not, the order of allocations only as
earlier or later. Schedulers decide on devices for the claims of a group, on Bindings and withdrawals; then they
allocate and reserve, bind, fence and withdraw.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any, Final, NamedTuple, TypeAlias

#: No node, no device.
NONE: Final = -1
#: A pod that is gone.
GONE: Final = -2
#: A pod of another scheduler.
FOREIGN: Final = -3


class Report(enum.IntEnum):
    """What a driver says of an allocated device."""

    READY = 0
    PENDING = 1
    FAILED = 2


class Claim(NamedTuple):
    """``device``: what is allocated; ``reserved``: pods in ``reservedFor``; ``at``: when the allocation was written."""

    device: int = NONE
    reserved: tuple[int, ...] = ()
    at: int = 0
    rv: int = 0
    report: Report = Report.READY


class Pod(NamedTuple):
    """``node``: where it is bound, NONE or GONE."""

    node: int = NONE
    rv: int = 0


class Stage(enum.IntEnum):
    """How far the write for one pod is."""

    CHOSEN = 0
    READ = 1
    FENCED = 2
    WRITTEN = 3


class Kind(enum.IntEnum):
    """What a scheduler does for a group: allocate and reserve, bind, or leave and clear."""

    PREPARE = 0
    BIND = 1
    WITHDRAW = 2


class Choice(NamedTuple):
    """A pod, decided on at version ``pod_rv``, and the device of its claim. ``seen``: the claim's version, as read."""

    kind: Kind
    pod: int
    device: int
    pod_rv: int
    stage: Stage = Stage.CHOSEN
    seen: int = 0


class Attempt(NamedTuple):
    """What a scheduler does for one group."""

    kind: Kind
    choices: tuple[Choice, ...]


class Scheduler(NamedTuple):
    """``own``: pods for which it has reserved claims itself, each with the version that it decided on."""

    attempt: Attempt | None = None
    own: tuple[tuple[int, int], ...] = ()


class Left(NamedTuple):
    """How often each of these may still happen."""

    crashes: int = 0
    lost_answers: int = 0
    lates: int = 0
    foreigners: int = 0
    deletions: int = 0
    edits: int = 0
    timeouts: int = 0
    failures: int = 0


NEVER: Final = Left()


class World(NamedTuple):
    """``late``: writes on their way that nobody waits for. ``broken``: what a step has violated."""

    claims: tuple[Claim, ...]
    pods: tuple[Pod, ...]
    schedulers: tuple[Scheduler, ...]
    left: Left
    late: tuple[Choice, ...] = ()
    broken: str = ""


Step: TypeAlias = tuple[tuple[Any, ...], World]


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """``places``: pods that each node takes. ``devices``: the node of each. ``uses``: the claim of each pod.

    ``groups``: pods that start together. ``others``: claims of another scheduler, which does not look at ours.
    ``awaits``: a device is not ready before its driver says so, once it is allocated.
    """

    places: tuple[int, ...] = (1, 1)
    devices: tuple[int, ...] = (0, 1)
    uses: tuple[int, ...] = (0,)
    groups: tuple[tuple[int, ...], ...] = ((0,),)
    others: int = 0
    awaits: bool = False
    schedulers: int = 1
    left: Left = NEVER

    @property
    def fresh(self) -> Report:
        """What is said of a device that was just allocated."""
        return Report.PENDING if self.awaits else Report.READY

    @property
    def ours(self) -> int:
        """How many claims are of our pods; those of others follow."""
        return max(self.uses) + 1

    def world(self) -> World:
        """Nobody has decided anything."""
        return World(
            claims=(Claim(),) * (self.ours + self.others),
            pods=(Pod(),) * len(self.uses),
            schedulers=(Scheduler(),) * self.schedulers,
            left=self.left,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Each a line of docs/design/claims.md, "Rules of the writes"."""

    #: A claim is written at exactly the version that was read.
    at_rv: bool = True
    #: No pod is bound before it is in ``reservedFor``.
    reserves: bool = True
    #: No member of a gang is bound before the claims of all are reserved.
    whole: bool = True
    #: Pods are bound by a decision that has seen what was written for their claims.
    decides_again: bool = True
    #: Of two claims with one device the later one gives back.
    gives_back: bool = True
    #: A pod is bound by reservations of this process for this version of the pod; others are withdrawn.
    own_only: bool = True
    #: A pod is fenced before its claims are left.
    fences: bool = True
    #: A withdrawal writes the version of the claim that it read before the fence.
    reads_first: bool = True
    #: An allocation is cleared only if nobody is left.
    clears_alone: bool = True
    #: Claims of pods that don't fit are withdrawn.
    withdraws: bool = True
    #: No pod is bound before the devices of its claims are ready.
    waits: bool = True


BUILT: Final = Rules()


def changed(items: tuple[Any, ...], at: int, item: Any) -> tuple[Any, ...]:
    """The same with another item at a place."""
    return (*items[:at], item, *items[at + 1 :])


def is_later_double(world: World, number: int) -> bool:
    """Whether an earlier claim has this claim's device."""
    claim = world.claims[number]
    return claim.device != NONE and any(
        other.device == claim.device and other.at < claim.at for other in world.claims if other is not claim
    )


def decisions(config: Config, rules: Rules, world: World, scheduler: Scheduler) -> Iterator[Attempt]:
    """Everything that a scheduler may decide on what it sees now."""
    for group in config.groups:
        waiting = [pod for pod in group if world.pods[pod].node == NONE]
        if not waiting:
            continue
        held = [pod for pod in waiting if pod in world.claims[config.uses[pod]].reserved]
        unusable = [
            pod
            for pod in held
            if (rules.own_only and (pod, world.pods[pod].rv) not in scheduler.own)
            or (rules.gives_back and is_later_double(world, config.uses[pod]))
            or (rules.waits and world.claims[config.uses[pod]].report is not Report.READY)
        ]
        if unusable:
            yield _withdrawal(config, world, unusable)
            continue
        found = list(_placements(config, world, waiting))
        for devices in found:
            yield _attempt(config, rules, world, dict(zip(waiting, devices, strict=True)))
        if not found and held and rules.withdraws:
            yield _withdrawal(config, world, held)


def _placements(config: Config, world: World, waiting: list[int]) -> Iterator[tuple[int, ...]]:
    """All ways to give the claims of these pods devices, on nodes that have a place for each."""
    held = {claim.device for claim in world.claims}
    options = []
    for pod in waiting:
        number = config.uses[pod]
        claim = world.claims[number]
        if claim.device != NONE:
            is_out = is_later_double(world, number) or (claim.report is Report.FAILED and claim.reserved)
            is_taken = is_out and pod not in claim.reserved
            options.append([] if is_taken else [claim.device])
        else:
            options.append([device for device in range(len(config.devices)) if device not in held])
    for devices in product(*options):
        by_claim = {config.uses[pod]: device for pod, device in zip(waiting, devices, strict=True)}
        is_one_each = all(by_claim[config.uses[p]] == d for p, d in zip(waiting, devices, strict=True))
        new = [device for number, device in by_claim.items() if world.claims[number].device == NONE]
        if is_one_each and len(set(new)) == len(new) and _have_places(config, world, devices):
            yield devices


def _have_places(config: Config, world: World, devices: tuple[int, ...]) -> bool:
    nodes = [config.devices[device] for device in devices]
    bound = [pod.node for pod in world.pods]
    return all(nodes.count(node) + bound.count(node) <= config.places[node] for node in set(nodes))


def _attempt(config: Config, rules: Rules, world: World, devices: dict[int, int]) -> Attempt:
    def is_ready(pod: int) -> bool:
        claim = world.claims[config.uses[pod]]
        return pod in claim.reserved or (not rules.reserves and claim.device != NONE)

    kind = Kind.BIND if all(map(is_ready, devices)) else Kind.PREPARE
    return Attempt(kind, tuple(Choice(kind, pod, device, world.pods[pod].rv) for pod, device in devices.items()))


def _withdrawal(config: Config, world: World, pods: list[int]) -> Attempt:
    return Attempt(
        Kind.WITHDRAW,
        tuple(Choice(Kind.WITHDRAW, pod, world.claims[config.uses[pod]].device, world.pods[pod].rv) for pod in pods),
    )


class Acting:
    """Schedulers in one configuration, by one set of rules."""

    def __init__(self, config: Config, rules: Rules) -> None:
        self._config = config
        self._rules = rules

    def steps(self, world: World, number: int) -> Iterator[Step]:
        """What a scheduler may do next."""
        scheduler = world.schedulers[number]
        attempt = scheduler.attempt
        if attempt is None:
            for each in decisions(self._config, self._rules, world, scheduler):
                told = [(choice.pod, choice.device) for choice in each.choices]
                yield self._with(world, number, each, f"s{number} decides to {each.kind.name.lower()}", *told)
            return
        open_ = [at for at, choice in enumerate(attempt.choices) if not self._is_done(world, choice)]
        if not open_:
            yield self._ended(world, number, attempt)
        for at in open_:
            if attempt.choices[at].stage is not Stage.WRITTEN:
                yield from self._next(world, number, at)
        for choice in attempt.choices if attempt.kind is Kind.PREPARE and not self._rules.whole else ():
            if choice.stage is Stage.WRITTEN and world.pods[choice.pod].node == NONE:
                yield from self._bind(world, number, choice)
        if world.left.timeouts and attempt.kind is Kind.PREPARE:
            left = world.left._replace(timeouts=world.left.timeouts - 1)
            yield self._with(world._replace(left=left), number, None, "!time is over for", f"s{number}")

    def _is_done(self, world: World, choice: Choice) -> bool:
        is_written = choice.stage is Stage.WRITTEN and not self._has_to_wait(world, choice)
        return is_written or world.pods[choice.pod].node != NONE

    def _has_to_wait(self, world: World, choice: Choice) -> bool:
        """Whether the device that was reserved for a pod is not ready yet."""
        claim = self._claim(world, choice)
        is_pending = claim.report is Report.PENDING and choice.pod in claim.reserved
        return self._rules.waits and choice.kind is Kind.PREPARE and is_pending

    def _ended(self, world: World, number: int, attempt: Attempt) -> Step:
        if attempt.kind is Kind.PREPARE and not self._rules.decides_again:
            return self._with(world, number, _binding(attempt), f"s{number} has reserved all")
        return self._with(world, number, None, f"s{number} is done")

    def _next(self, world: World, number: int, at: int) -> Iterator[Step]:
        attempt = world.schedulers[number].attempt
        if attempt is None:
            return
        choice = attempt.choices[at]
        if attempt.kind is Kind.BIND:
            yield from self._bind(world, number, choice)
        elif choice.stage is self._last(choice):
            yield from self._write(world, number, at, choice)
        elif attempt.kind is Kind.PREPARE:
            yield self._read(world, number, at, choice)
        else:
            yield self._leave(world, number, at, choice)

    # --- allocating and reserving ------------------------------------------------------------------------------------
    def _read(self, world: World, number: int, at: int, choice: Choice) -> Step:
        claim = self._claim(world, choice)
        if claim.device not in {NONE, choice.device}:
            return self._with(world, number, None, f"s{number} is overtaken", choice.pod)
        if choice.pod in claim.reserved:
            return self._to(world, number, at, (choice._replace(stage=Stage.WRITTEN), "finds reserved"))
        return self._to(world, number, at, (choice._replace(stage=Stage.READ, seen=claim.rv), "reads"))

    def _write(self, world: World, number: int, at: int, choice: Choice) -> Iterator[Step]:
        """A compare-and-set of the claim, for either kind of attempt."""
        again = choice._replace(stage=Stage.CHOSEN, seen=0)
        if self._rules.at_rv and self._claim(world, choice).rv != choice.seen:
            if choice.kind is Kind.WITHDRAW:
                yield self._with(world, number, None, f"s{number} conflicts, begins again", choice.pod)
            else:
                yield self._to(world, number, at, (again, "conflicts"))
            return
        after = self.apply(world, choice)
        owned = self._owning(after, number, choice)
        yield self._to(owned, number, at, (choice._replace(stage=Stage.WRITTEN, seen=0), "writes"))
        left = world.left
        if left.lost_answers:
            spent = owned._replace(left=left._replace(lost_answers=left.lost_answers - 1))
            yield self._to(spent, number, at, (again, "!writes, no answer to"))
        if left.lates:
            spent = world._replace(left=left._replace(lates=left.lates - 1), late=(*world.late, choice))
            yield self._with(spent, number, None, "!crash, a write is late of", f"s{number}", choice.pod, crash=True)

    def _owning(self, world: World, number: int, choice: Choice) -> World:
        """The scheduler knows what it has reserved itself, and for which version of the pod."""
        scheduler = world.schedulers[number]
        others = tuple(each for each in scheduler.own if each[0] != choice.pod)
        mine = ((choice.pod, choice.pod_rv),) if choice.kind is Kind.PREPARE else ()
        own = tuple(sorted((*others, *mine)))
        return world._replace(schedulers=changed(world.schedulers, number, scheduler._replace(own=own)))

    # --- withdrawing -------------------------------------------------------------------------------------------------
    def _last(self, choice: Choice) -> Stage:
        """The stage after which the claim is written."""
        is_fenced_last = choice.kind is Kind.WITHDRAW and self._rules.fences and self._rules.reads_first
        return Stage.FENCED if is_fenced_last else Stage.READ

    def _leave(self, world: World, number: int, at: int, choice: Choice) -> Step:
        """Read the claim, fence the pod, in this order."""
        claim = self._claim(world, choice)
        is_fence = choice.stage is (Stage.READ if self._rules.reads_first else Stage.CHOSEN)
        if is_fence and self._rules.fences:
            pod = world.pods[choice.pod]
            if pod.rv != choice.pod_rv:
                return self._with(world, number, None, f"s{number} misses the fence of", choice.pod)
            world = world._replace(pods=changed(world.pods, choice.pod, pod._replace(rv=pod.rv + 1)))
            return self._to(world, number, at, (choice._replace(stage=Stage.FENCED), "fences"))
        if choice.pod not in claim.reserved:
            return self._to(world, number, at, (choice._replace(stage=Stage.WRITTEN), "finds left"))
        return self._to(world, number, at, (choice._replace(stage=Stage.READ, seen=claim.rv), "reads"))

    # --- writes that land --------------------------------------------------------------------------------------------
    def apply(self, world: World, choice: Choice) -> World:
        """A write of a claim, carried out. What another has written must not be lost."""
        claim = self._claim(world, choice)
        if choice.kind is Kind.WITHDRAW:
            left = tuple(pod for pod in claim.reserved if pod != choice.pod)
            is_cleared = not left or not self._rules.clears_alone
            after = Claim(rv=claim.rv) if is_cleared else claim._replace(reserved=left)
            if is_cleared and left:
                world = world._replace(broken="C4: an allocation is cleared that others use")
        else:
            if claim.device not in {NONE, choice.device}:
                world = world._replace(broken="C4: what another scheduler has allocated is overwritten")
            at = 1 + max(each.at for each in world.claims) if claim.device == NONE else claim.at
            reserved = tuple(sorted({*claim.reserved, choice.pod}))
            report = self._config.fresh if claim.device == NONE else claim.report
            after = Claim(choice.device, reserved, at, claim.rv, report)
        after = after._replace(rv=claim.rv + 1)
        return world._replace(claims=changed(world.claims, self._config.uses[choice.pod], after))

    def land(self, world: World) -> Iterator[Step]:
        """Writes that nobody waits for any more land, or are refused."""
        for at, choice in enumerate(world.late):
            rest = world._replace(late=(*world.late[:at], *world.late[at + 1 :]))
            label = f"late {choice.kind.name.lower()} lands", choice.pod, choice.device
            if choice.kind is Kind.BIND:
                yield label, self._bound(rest, choice)
            else:
                is_current = self._claim(world, choice).rv == choice.seen or not self._rules.at_rv
                yield label, self.apply(rest, choice) if is_current else rest

    def _bound(self, world: World, choice: Choice) -> World:
        """The Binding, at exactly the version of the pod that was decided on."""
        pod = world.pods[choice.pod]
        if pod.node != NONE or pod.rv != choice.pod_rv:
            return world
        after = pod._replace(node=self._config.devices[choice.device], rv=pod.rv + 1)
        return world._replace(pods=changed(world.pods, choice.pod, after))

    def _bind(self, world: World, number: int, choice: Choice) -> Iterator[Step]:
        bound = self._bound(world, choice)
        if bound is world:
            yield self._with(world, number, None, f"s{number} binds in vain", choice.pod)
            return
        yield self._with(bound, number, world.schedulers[number].attempt, f"s{number} binds", choice.pod)
        if world.left.lates:
            left = world.left._replace(lates=world.left.lates - 1)
            spent = world._replace(left=left, late=(*world.late, choice))
            yield self._with(spent, number, None, "!crash, a Binding is late of", f"s{number}", choice.pod, crash=True)

    # --- small ones --------------------------------------------------------------------------------------------------
    def _claim(self, world: World, choice: Choice) -> Claim:
        claim: Claim = world.claims[self._config.uses[choice.pod]]
        return claim

    def _to(self, world: World, number: int, at: int, step: tuple[Choice, str]) -> Step:
        """The attempt with a choice one stage further; a fault's name begins with "!"."""
        choice, what = step
        attempt = world.schedulers[number].attempt
        if attempt is None:
            raise ValueError(f"s{number} has no attempt")
        choices = changed(attempt.choices, at, choice)
        fault = "!" if what.startswith("!") else ""
        label = f"{fault}s{number} {what.removeprefix('!')}"
        return self._with(world, number, attempt._replace(choices=choices), label, choice.pod)

    @staticmethod
    def _with(world: World, number: int, attempt: Attempt | None, *label: object, crash: bool = False) -> Step:
        own = () if crash else world.schedulers[number].own
        return label, world._replace(schedulers=changed(world.schedulers, number, Scheduler(attempt, own)))


def _binding(attempt: Attempt) -> Attempt:
    return Attempt(Kind.BIND, tuple(each._replace(kind=Kind.BIND, stage=Stage.CHOSEN) for each in attempt.choices))
