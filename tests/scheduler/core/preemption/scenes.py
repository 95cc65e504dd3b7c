"""Small clusters for the search for room, and what is asked of them."""

from __future__ import annotations

import random
from typing import Any

import msgspec
from typing_extensions import override

from scheduler.core.cluster import Cluster
from scheduler.core.decide.allowance import LIMITS, Allowance
from scheduler.core.decide.attempts import Attempts
from scheduler.core.decide.charging import preemption_trial
from scheduler.core.model.priority_order import order_members
from scheduler.core.preemption.need import Need
from scheduler.core.preemption.trial import Trial
from scheduler.core.queues.use import is_fixed
from scheduler.core.scheduling_queue.effects import Effects
from tests.scheduler.core.objects import NANO, bound, cluster, node, pod, pod_group, queue, reservation
from wire import names
from wire.core import Pod

#: 2026-01-01T12:00:00Z.
NOON_S = 1_767_268_800


def at(seconds: int) -> str:
    """A time of that day, by its seconds."""
    return f"2026-01-01T{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}Z"


def running(name: str, queue_name: str, on: str, *, age_s: int = 3_600, **asked: Any) -> Pod:
    """A pod of a queue that has run on a node for a while."""
    made = pod(name, labels={names.QUEUE_LABEL: queue_name}, created=at(43_200 - age_s), **asked)
    made = msgspec.structs.replace(made, status=msgspec.structs.replace(made.status, start_time=at(43_200 - age_s)))
    return bound(made, on)


def sharing(name: str, queue_name: str, on: str, group: str, nano: int, *, age_s: int = 3_600, **asked: Any) -> Pod:
    """A pod that has a part of a device."""
    made = running(name, queue_name, on, age_s=age_s, fraction=str(nano / NANO), **asked)
    return bound(made, on, (group, nano), reservation=f"r-{group}", uuid=f"GPU-{group}")


def device(group: str, on: str, **tenants: int) -> Pod:
    """The reservation of a shared device, with its tenants by pod name."""
    return reservation(group, on, uuid=f"GPU-{group}", book={f"uid-{name}": nano for name, nano in tenants.items()})


def waiting(name: str, queue_name: str, **asked: Any) -> Pod:
    """A pod of a queue that waits."""
    return pod(name, labels={names.QUEUE_LABEL: queue_name}, created=at(43_000), **asked)


def trial_of(made: Cluster, **given: Any) -> Trial:
    """What a search reads, as of noon."""
    snapshot = made.snapshot()
    attempts = Attempts(
        snapshot, 0, LIMITS, Allowance(namespaces=1, most=LIMITS.most), Effects(snapshot.scheduling_queue)
    )
    return preemption_trial(attempts, **{"wall_s": NOON_S, **given})


def need_of(trial: Trial, name: str) -> Need:
    """The need of a pod alone, or of a gang's missing minimum."""
    group = trial.pod_groups.get(("ns", name))
    if group is None:
        one = trial.pods.records[f"uid-{name}"]
        return Need(
            pods=(one,),
            queue=one.queue,
            priority=one.priority,
            is_fixed=is_fixed(one, None),
            created=one.created,
            may_evict=one.may_evict,
        )
    members = order_members(each for each in trial.pods.members("ns", name) if not each.node)
    return Need(
        pods=tuple(members),
        group=group,
        quorum=trial.quorum(group),
        queue=group.queue,
        priority=members[0].priority,
        is_fixed=all(is_fixed(each, group) for each in members),
        created=group.created,
        delay_ns=group.delay_ns,
    )


# --- random clusters -----------------------------------------------------------------------------------------------
class Scene:
    """A full cluster by seed: queues in one or two levels, nodes, what runs there, and a need ``mine``."""

    def __init__(self, seed: int, *, most_units: int = 8) -> None:
        self.rng = random.Random(seed)
        self.most_units = most_units
        self.objects: list[Any] = []
        self.leaves: list[str] = []
        self.units = 0
        self._queues()
        self._nodes()
        self._mine()

    def cluster(self) -> Cluster:
        """The cluster that has seen all of it."""
        return cluster(*self.objects)

    def _amounts(self) -> tuple[float, float, float]:
        return self.rng.choice([0, 1, 2, 4]), self.rng.choice([0, 1, 1, 2]), self.rng.choice([-1, -1, -1, 4, 6])

    def _queues(self) -> None:
        levels = self.rng.choice([1, 1, 2])
        tops = [f"t{number}" for number in range(self.rng.choice([2, 3]))]
        for top in tops:
            self.objects.append(queue(top, gpu=self._amounts(), priority=self.rng.choice([100, 100, 101])))
            below = [f"{top}{letter}" for letter in "ab"] if levels == 2 else []
            self.objects += [queue(leaf, top, gpu=self._amounts()) for leaf in below]
            self.leaves += below or [top]

    def _nodes(self) -> None:
        rng, free = self.rng, dict[str, int]()
        for number in range(rng.choice([1, 2, 3])):
            free[f"n{number}"] = rng.choice([2, 3, 4])
            self.objects.append(node(f"n{number}", free[f"n{number}"]))
        names_of = [name for name, count in free.items() for _ in range(count)]
        rng.shuffle(names_of)
        spare = rng.choice([0, 0, 0, 1])
        while sum(free.values()) > spare and self.units < self.most_units:
            where = rng.choice([name for name in free if free[name]])
            kind = rng.choice(["alone", "alone", "alone", "gang", "shares"])
            if kind == "alone":
                gpus = rng.choice([1, 1, 2, free[where]])
                gpus = min(gpus, free[where])
                free[where] -= gpus
                self._alone(where, gpus=gpus)
            elif kind == "shares":
                free[where] -= 1
                self._shares(where)
            else:
                self._gang(free)

    def _asked(self) -> dict[str, Any]:
        return {"priority": self.rng.choice([50, 50, 50, 75, 100]), "age_s": self.rng.randrange(0, 10_000)}

    def _alone(self, where: str, **asked: Any) -> None:
        self.units += 1
        self.objects.append(running(f"p{self.units}", self.rng.choice(self.leaves), where, **asked, **self._asked()))

    def _shares(self, where: str) -> None:
        group, left, tenants = f"g{len(self.objects)}", 10, dict[str, int]()
        for _ in range(self.rng.choice([1, 2, 3])):
            tenths = self.rng.choice([part for part in (2, 3, 5, 7) if part <= left] or [0])
            if not tenths or self.units >= self.most_units:
                break
            left -= tenths
            self.units += 1
            name, nano = f"p{self.units}", tenths * NANO // 10
            tenants[name] = nano
            self.objects.append(sharing(name, self.rng.choice(self.leaves), where, group, nano, **self._asked()))
        self.objects.append(device(group, where, **tenants))

    def _gang(self, free: dict[str, int]) -> None:
        rng, there = self.rng, [name for name in free for _ in range(free[name])]
        size = min(rng.choice([2, 2, 3, 4]), len(there), self.most_units - self.units)
        if size < 1:
            return
        name, minimum, asked = f"j{len(self.objects)}", rng.randint(1, size), self._asked()
        of = rng.choice(self.leaves)
        self.objects.append(pod_group(name, minimum, queue=of))
        self.units += size - minimum + 1
        for number, where in enumerate(rng.sample(there, size)):
            free[where] -= 1
            self.objects.append(running(f"{name}{number}", of, where, gpus=1, group=name, **asked))

    def _mine(self) -> None:
        rng, of = self.rng, self.rng.choice(self.leaves)
        asked: dict[str, Any] = rng.choice([{"gpus": 1}, {"gpus": 1}, {"gpus": 2}, {"fraction": "0.5"}])
        asked = {**asked, "priority": rng.choice([50, 75, 75, 100])}
        if rng.random() < 0.5:
            self.objects.append(waiting("mine", of, **asked))
            return
        size = rng.choice([2, 2, 3])
        self.objects.append(pod_group("mine", rng.randint(1, size), queue=of))
        self.objects += [waiting(f"m{number}", of, group="mine", **asked) for number in range(size - 1)]
        # Some have a member that is not like the others.
        odd: dict[str, Any] = rng.choice([{}, {}, {"gpus": 0, "fraction": "", "cpu": "1"}, {"gpus": 2, "fraction": ""}])
        self.objects.append(waiting("last", of, group="mine", **{**asked, **odd}))


class Departments(Scene):
    """The same with up to three queues in each department, small quotas, and priorities at both levels."""

    @override
    def _amounts(self) -> tuple[float, float, float]:
        return self.rng.choice([0, 0, 1, 1, 2, 3]), self.rng.choice([0, 1, 1, 2, 3]), self.rng.choice([*[-1] * 8, 4])

    @override
    def _queues(self) -> None:
        priorities = [100, 100, 101]
        for number in range(self.rng.choice([2, 2, 3])):
            top = f"t{number}"
            self.objects.append(queue(top, gpu=self._amounts(), priority=self.rng.choice(priorities)))
            below = [f"{top}{letter}" for letter in "abc"[: self.rng.choice([1, 2, 2, 3])]]
            self.objects += [
                queue(leaf, top, gpu=self._amounts(), priority=self.rng.choice(priorities)) for leaf in below
            ]
            self.leaves += below
