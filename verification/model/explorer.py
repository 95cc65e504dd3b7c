"""Explores all reachable states, breadth first: the first violation that is found has a shortest trace.

What is explored is an ``Explored``: the sharing protocol (``Sharing``), preemption (verification/model/preemption),
having claims bound (verification/model/volumes.py), or allocating ResourceClaims (verification/model/claims). States
are kept by their representative, each with its parent.
"""

from __future__ import annotations

import time
from array import array
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, permutations
from typing import Any, Final, Generic, Protocol, TypeVar

from verification.model import machines
from verification.model.binding import Binding
from verification.model.canonical import Canonical, told
from verification.model.collecting import Collecting
from verification.model.config import BUILT, Config, Rules
from verification.model.machines import Machines
from verification.model.scheduling import Ganging, Scheduling
from verification.model.state import (
    DEVICE,
    FINISHED,
    GROUP,
    LIVE,
    PENDING,
    RUNNING,
    Holding,
    Left,
    Step,
    Translator,
    World,
)

FULL = 10


def violation(world: World, config: Config) -> str:
    """Which safety property a state violates, "" if none."""
    return (
        _overcommitted(world)
        or _unheld(world, config)
        or _bound_in_part(world, config)
        or (_given_away(world) if config.keeps_room else "")
        or (_bound_though_withdrawn(world) if config.heeds_fences else "")
    )


def _overcommitted(world: World) -> str:
    used: defaultdict[int, int] = defaultdict(int)
    groups: defaultdict[int, set[int]] = defaultdict(set)
    for group, _, device, share in running(world):
        used[device] += share
        groups[device].add(group)
    for device, share in used.items():
        if share > FULL:
            return f"S1: {share} tenths of a device are used"
        if len(groups[device]) > 1:
            return f"S2: a device is used by {len(groups[device])} groups"
    return ""


def _unheld(world: World, config: Config) -> str:
    if _is_lost(world.left, config.left):
        return ""
    for group, _, device, _ in running(world):
        held = world.resvs[group - GROUP]
        if held is None or held.dev != device:
            return "S2: a device is used and nobody holds it: anybody may be given it"
    return ""


def _bound_in_part(world: World, config: Config) -> str:
    for slot, pod in enumerate(world.pods):
        if pod is not None and pod.grant and len(pod.holdings) != len(config.shares[slot]):
            return f"S3: a pod was bound with {len(pod.holdings)} of {len(config.shares[slot])} devices"
    return ""


def _bound_though_withdrawn(world: World) -> str:
    """The scheduler that withdrew an attempt has decided again, or will: the old decision does not come back."""
    for pod in world.pods:
        if pod is not None and pod.grant and pod.grant[0] in pod.fences:
            return "S5: a pod was bound by an attempt that was withdrawn"
    return ""


def _given_away(world: World) -> str:
    """A gang whose plan stands can be carried out: others left the room that it names."""
    if not world.plan:
        return ""
    planned = dict(world.plan[1])
    unbound = [pod.uid for pod in world.pods if pod is not None and pod.uid in planned and not pod.grant]
    for at, held in enumerate(world.resvs):
        wanted = sum(share for uid in unbound for group, share in planned[uid] if group == GROUP + at)
        others = sum(entry.share for entry in held.book if entry.uid not in unbound) if held is not None else 0
        if wanted and wanted + others > FULL:
            return "S4: the room that a gang's plan names was given to others"
    return ""


def running(world: World) -> list[Holding]:
    """What containers really use."""
    holdings = [holding for pod in world.pods if pod is not None and pod.life != FINISHED for holding in pod.holdings]
    return holdings + [holding for ghost in world.ghosts for holding in ghost.holdings]


def _is_lost(left: Left, first: Left) -> bool:
    """Whether a reservation lost its device to others: then it may be given away, for a while."""
    losses = ("unreserves", "evictions", "node_losses", "swaps")
    return any(getattr(left, loss) < getattr(first, loss) for loss in losses)


def is_at_rest(world: World, config: Config) -> bool:
    """Nothing is left over, and every pod that fits is bound."""
    if (
        world.late
        or world.ghosts
        or world.left_behind
        or world.collector
        or any(world.schedulers)
        or any(world.requests)
    ):
        return False
    if any(binder.units for binder in world.binders) or any(pod and pod.life != LIVE for pod in world.pods):
        return False
    if not all(_is_tidy(world, GROUP + at, config) for at in range(len(world.resvs))):
        return False
    return _is_lost(world.left, config.left) or not _is_missed(world, config)


def _is_tidy(world: World, group: int, config: Config) -> bool:
    """Whether the reservation of a group is there for its bound tenants, all of them and nobody else, and tells truly.

    Where its image can't be pulled, it stays Pending.
    """
    bound = {pod.uid for pod in world.pods if pod is not None and any(group == one[0] for one in pod.holdings)}
    held = world.resvs[group - GROUP]
    if held is None:
        return not bound
    has_come_to_rest = held.phase == (RUNNING if config.pulls else PENDING) and held.uuid == held.dev != 0
    return bool(bound) and not held.deleting and has_come_to_rest and {e.uid for e in held.book} == bound


def _is_missed(world: World, config: Config) -> bool:
    """Whether an unbound pod would fit on what is free, or a gang is there in part, or would fit as a whole.

    A pod that is only committed directly can't open a device, so it may have to wait for another.
    """
    free = [FULL] * config.devices
    for _, _, device, share in running(world):
        free[device - DEVICE] -= share
    gang = [pod for slot in config.gang if (pod := world.pods[slot]) is not None]
    waiting = [config.shares[slot] for slot in config.gang if (pod := world.pods[slot]) is not None and not pod.grant]
    opens = len(gang) == len(config.gang) and all(config.mode(slot) != "direct" for slot in config.gang)
    if waiting and (len(waiting) < len(gang) or (opens and _fit(waiting, free))):
        return True
    return any(
        pod is not None
        and not pod.grant
        and slot not in config.gang
        and config.mode(slot) != "direct"
        and _fit([config.shares[slot]], free)
        for slot, pod in enumerate(world.pods)
    )


def _fit(asked: list[tuple[int, ...]], free: list[int]) -> bool:
    """Whether all fit, each on distinct devices."""
    if not asked:
        return True
    first, *rest = asked
    for chosen in permutations(range(len(free)), len(first)):
        after = list(free)
        for at, share in zip(chosen, first, strict=True):
            after[at] -= share
        if min(after) >= 0 and _fit(rest, after):
            return True
    return False


W = TypeVar("W")
STUCK: Final = "L1/S9: it can't come to rest from here, with nothing left over and all bound that fits"


@dataclass(slots=True, kw_only=True)
class Result:
    """``violation`` is "" if none was found. ``is_complete``: every reachable state was seen."""

    states: int
    steps: int
    seconds: float
    is_complete: bool
    violation: str = ""
    trace: list[str] = field(default_factory=list)
    resting: int = 0

    def summary(self) -> str:
        """One line."""
        end = "complete" if self.is_complete else f"stopped at {self.states:,} states"
        found = f"; {self.violation}" if self.violation else ""
        return f"{self.states:,} states, {self.steps:,} steps, {self.seconds:.1f} s, {end}{found}"


class Explored(Protocol[W]):
    """A system of states: where it begins, what may happen next, and what must hold."""

    #: Whether it is also checked that it can always come to rest.
    rests: bool

    def first(self) -> W:
        """The state that it begins in."""

    def steps(self, world: W) -> Iterable[tuple[tuple[Any, ...], W]]:
        """Everything that may happen next, with labels; a label that begins with "!" is a fault, no progress."""

    def canonical(self, world: W) -> tuple[W, Hashable]:
        """Return what stands for all states that differ in names only, and its key."""

    def violation(self, world: W) -> str:
        """Which safety property a state violates, "" if none."""

    def is_at_rest(self, world: W) -> bool:
        """Whether nothing is left to do."""

    def told(self, path: Sequence[W]) -> list[str]:
        """One line for each step of a path of representatives, and the last state."""


class Model:
    """All processes of one configuration, by one set of rules."""

    def __init__(self, config: Config, rules: Rules = BUILT) -> None:
        self.config = config
        self.rules = rules
        views = Translator(config.shares, rules.fences_told)
        scheduling = Scheduling(config, rules, views)
        binding = Binding(config, rules, views)
        self._certain = binding.certain
        self._heeds_fences = config.heeds_fences
        self._parts: tuple[Callable[[World], Iterator[Step]], ...] = (
            scheduling.steps,
            Ganging(config, rules, scheduling).steps,
            binding.steps,
            Collecting(config, rules, views).steps,
            Machines(config, rules).steps,
        )

    def steps(self, world: World) -> Iterator[Step]:
        """Everything that may happen next, with labels; one step alone where the others might as well come after it."""
        if (certain := self._certain(world)) is not None:
            yield certain[0], machines.settled(self._reduced(certain[1]), self.rules)
            return
        for part in self._parts:
            for label, after in part(world):
                yield label, machines.settled(self._reduced(after), self.rules)

    def _reduced(self, world: World) -> World:
        """Without the earlier fences of a pod, where they are not looked at: they make many states of one."""
        if self._heeds_fences or all(pod is None or len(pod.fences) < 2 for pod in world.pods):
            return world
        pods = tuple(pod._replace(fences=pod.fences[:1]) if pod is not None else None for pod in world.pods)
        return world._replace(pods=pods)


class Sharing:
    """The sharing protocol in one configuration, by one set of rules.

    What must hold in every state, and at rest, shares no code with the product. Safety is judged by what containers
    really use: pods that were bound and have not ended, and containers that outlive their vanished pods.
    """

    def __init__(self, config: Config, rules: Rules = BUILT) -> None:
        self.rests = config.rests
        self._config = config
        self._canonical = Canonical(config.classes)
        self.canonical = self._canonical.__call__
        self.steps = Model(config, rules).steps

    def first(self) -> World:
        """All pods are there, and nothing else but perhaps a reservation."""
        return self._config.world()

    def violation(self, world: World) -> str:
        """S1 to S5."""
        return violation(world, self._config)

    def is_at_rest(self, world: World) -> bool:
        """Nothing is left over, and every pod that fits is bound."""
        return is_at_rest(world, self._config)

    def told(self, path: Sequence[World]) -> list[str]:
        """One line a step."""
        return told(self.steps, self._canonical, path)


def lines_of(system: Explored[W], path: Sequence[W]) -> list[str]:
    """Return one line for each step of a path of representatives."""
    lines = []
    for world, wanted in pairwise(path):
        found = (label for label, after in system.steps(world) if system.canonical(after)[0] == wanted)
        lines.append(" ".join(map(str, next(found))))
    return lines


def explore(config: Config, rules: Rules = BUILT, *, limit: int = 10_000_000) -> Result:
    """Explore the sharing protocol: until a violation is found, everything was seen, or ``limit`` states are known."""
    return explored(Sharing(config, rules), limit=limit)


def explored(system: Explored[W], *, limit: int = 10_000_000) -> Result:
    """Explore a system: until a violation is found, everything was seen, or ``limit`` states are known."""
    return _Exploration(system, limit).run()


class _Exploration(Generic[W]):
    def __init__(self, system: Explored[W], limit: int) -> None:
        self._system = system
        self._limit = limit
        self._known: dict[Hashable, int] = {}
        self._states: list[W] = []
        self._parents = array("i")
        #: For each step that is progress: from, to.
        self._from = array("i")
        self._to = array("i")
        self._count = 0
        self._start = time.process_time()

    def run(self) -> Result:
        self._add(*self._system.canonical(self._system.first()), -1)
        at = 0
        while at < len(self._states):
            if (why := self._system.violation(self._states[at])) != "":
                return self._result(why, at, is_complete=False)
            if len(self._states) >= self._limit:
                return self._result("", -1, is_complete=False)
            self._expand(at)
            at += 1
        if not self._system.rests:
            return self._result("", -1, is_complete=True)
        stuck, resting = self._stuck()
        result = self._result(STUCK if stuck >= 0 else "", stuck, is_complete=True)
        result.resting = resting
        return result

    def _add(self, world: W, key: Hashable, parent: int) -> int:
        at = self._known.setdefault(key, len(self._states))
        if at == len(self._states):
            self._states.append(world)
            self._parents.append(parent)
        return at

    def _expand(self, at: int) -> None:
        rests = self._system.rests
        canonical = self._system.canonical
        for label, after in self._system.steps(self._states[at]):
            self._count += 1
            to = self._add(*canonical(after), at)
            if rests and label[0][0] != "!":
                self._from.append(at)
                self._to.append(to)

    def _stuck(self) -> tuple[int, int]:
        """The first state from which no progress leads to rest (-1: none), and how many states are at rest."""
        before: list[list[int]] = [[] for _ in self._states]
        for source, to in zip(self._from, self._to, strict=True):
            before[to].append(source)
        resting = [at for at, world in enumerate(self._states) if self._system.is_at_rest(world)]
        reached = bytearray(len(self._states))
        open_ = list(resting)
        for at in open_:
            reached[at] = 1
        while open_:
            for source in before[open_.pop()]:
                if not reached[source]:
                    reached[source] = 1
                    open_.append(source)
        return reached.find(0), len(resting)

    def _result(self, why: str, at: int, *, is_complete: bool) -> Result:
        seconds = time.process_time() - self._start
        trace = self._trace(at) if why else []
        return Result(
            states=len(self._states),
            steps=self._count,
            seconds=seconds,
            is_complete=is_complete,
            violation=why,
            trace=trace,
        )

    def _trace(self, at: int) -> list[str]:
        path = []
        while at >= 0:
            path.append(self._states[at])
            at = self._parents[at]
        return self._system.told(path[::-1])
