"""Runs in which one tenant means harm: what an attacker tried on a real cluster, at random, among teams at work.

It acts in a namespace of its own, in queues that the teams use as well, and within what the API server's policies allow
(simulator/policies.py). Nothing else is excused by it: all invariants are judged as without it.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence
from typing import Final

import msgspec

from verification.hostile.actions import (
    Action,
    ChangePodGroup,
    CreatePod,
    CreatePodGroup,
    DeletePod,
    DeletePodGroup,
    EditPod,
)
from verification.hostile.device_actions import ANY_CLASS, CreateDeviceClasses
from verification.hostile.queue_actions import CreateQueue
from verification.hostile.scenario import Scenario, scenario_of
from verification.hostile.tenant_actions import (
    NAMESPACE,
    Churn,
    CreateEndless,
    CreateLabelled,
    CreateOwned,
    CreateSlowClaims,
    ForbidEvictions,
)
from wire import names

#: Names of owners that are no names: paths, queries, and what a URL has a meaning for.
PATHS: Final = (
    "../../team/jobs/quiet",
    "../../../../../../api/v1/pods",
    "?watch=true",
    "quiet?watch=true&limit=1",
    "a%2f..%2fb",
    "..",
    ".",
    "#",
    "x/status",
)
_KINDS: Final = (("batch/v1", "Job"), ("apps/v1", "ReplicaSet"), ("example.com/v1", "Nothing"), ("../v1", "Job"))
_LABELS: Final = (100, 1_000, 9_000)
#: Part of the runs in which there are claims, and so selectors.
_CLAIMS: Final = 0.3
#: Where there are queues it has two of its own, and most of its pods are in these.
_OWN_QUEUES: Final = ("mallory-0", "mallory-1")
_IN_OWN_QUEUE: Final = 0.8
#: How often a pod is made and deleted that takes what others have.
_CHURNS: Final = (10, 30)


def scenario(seed: int, *, kinds: Collection[str] | None = None) -> Scenario:
    """Make a run from a seed. ``kinds``: the faults that may occur (None: all, (): none).

    Raises ValueError for a kind that is not known.
    """
    rng = random.Random(f"{seed}/tenant")
    made = scenario_of(seed, kinds, with_claims=rng.random() < _CLAIMS)
    actions = sorted((*made.actions, *_harm(rng, made.actions, made.calm_s)), key=lambda action: action.at_s)
    return msgspec.structs.replace(made, actions=tuple(actions), calm_s=max(made.calm_s, actions[-1].at_s))


def _harm(rng: random.Random, actions: Sequence[Action], calm_s: float) -> Iterator[Action]:
    """Draw what it does before ``calm_s``: two to four of all its ways."""
    queues = [each.name for each in actions if isinstance(each, CreateQueue)]
    if queues:
        yield from map(_own_queue, _OWN_QUEUES)
    has_claims = any(isinstance(each, CreateDeviceClasses) for each in actions)
    others = [each.name for each in actions if isinstance(each, CreatePod)]
    ways = [_owners, _relabelling, _groups, _labels, _churn, _endless]
    ways += [_selectors] if has_claims else []
    scene = _Scene(rng, queues, others, max(1.0, 0.8 * calm_s))
    for way in rng.sample(ways, rng.randrange(2, 5)):
        yield from way(scene)
    if rng.random() < 0.3:
        yield ForbidEvictions(at_s=scene.moment(), name="none-goes")


def _own_queue(name: str) -> CreateQueue:
    """A queue of one GPU."""
    free = {"quota": -1.0, "limit": -1.0, "overQuotaWeight": 1.0}
    gpu = {"quota": 1.0, "limit": 1.0, "overQuotaWeight": 1.0}
    return CreateQueue(at_s=0.0, name=name, resources={"gpu": gpu, "cpu": free, "memory": free})


class _Scene:
    """What there is to do harm to."""

    def __init__(self, rng: random.Random, queues: Sequence[str], others: Sequence[str], last_s: float) -> None:
        self.rng = rng
        self.queues = queues
        self._all = queues or [names.DEFAULT_QUEUE]
        self.others = others
        self._last_s = last_s

    def moment(self) -> float:
        """A time to the millisecond."""
        return round(self.rng.uniform(0.0, self._last_s), 3)

    def queue(self) -> dict[str, str]:
        """A label that names a queue: mostly one of its own, which has a limit."""
        own = self.rng.random() < _IN_OWN_QUEUE
        return {names.QUEUE_LABEL: self.rng.choice(_OWN_QUEUES if own and self.queues else self._all)}


def _owners(scene: _Scene) -> Iterator[Action]:
    """Owners that are paths, that do not exist, and that have another namespace's UID."""
    rng, at_s = scene.rng, scene.moment()
    for number in range(rng.choice((1, 3, 6))):
        version, kind = rng.choice(_KINDS)
        uid_of = rng.choice(scene.others) if scene.others and rng.random() < 0.5 else ""
        yield CreateOwned(
            at_s=at_s, name=f"owned-{number}", api_version=version, kind=kind, owner=rng.choice(PATHS), uid_of=uid_of
        )


def _relabelling(scene: _Scene) -> Iterator[Action]:
    """Pods that run are said to be of other queues, of other projects, or not to be preemptible."""
    rng, at_s = scene.rng, scene.moment()
    for number in range(rng.choice((2, 4))):
        name = f"moved-{number}"
        yield CreatePod(at_s=at_s, name=name, namespace=NAMESPACE, gpus=1, labels=scene.queue())
        changes: list[dict[str, str | None]] = [
            {**scene.queue()},
            {names.QUEUE_LABEL: None, names.PROJECT_LABEL: scene.queue()[names.QUEUE_LABEL]},
            {names.PREEMPTIBILITY_LABEL: "non-preemptible"},
        ]
        edit = EditPod(at_s=at_s, name=name, namespace=NAMESPACE, labels=rng.choice(changes), when_bound_s=20.0)
        yield msgspec.structs.replace(edit, at_s=round(at_s + 0.1, 3))
        grouped: dict[str, str | None] = {names.POD_GROUP_NAME: "nothing"}
        yield msgspec.structs.replace(edit, at_s=round(at_s + 0.2, 3), labels={}, annotations=grouped)


def _groups(scene: _Scene) -> Iterator[Action]:
    """PodGroups are deleted, moved to other queues, or made non-preemptible under pods that run; then more come."""
    rng, at_s = scene.rng, scene.moment()
    for number in range(rng.choice((1, 2, 3))):
        name, queue = f"moving-{number}", scene.queue()[names.QUEUE_LABEL]
        for again in range(2):
            begins_s = round(at_s + 15.0 * again, 3)
            yield CreatePodGroup(at_s=begins_s, name=name, minimum=1, namespace=NAMESPACE, queue=queue)
            for member in range(2):
                pod = f"{name}-{again}-{member}"
                yield CreatePod(at_s=begins_s, name=pod, namespace=NAMESPACE, group=name, gpus=1)
            ends_s = round(begins_s + rng.uniform(2.0, 12.0), 3)
            if rng.random() < 0.5:
                yield DeletePodGroup(at_s=ends_s, name=name, namespace=NAMESPACE)
            else:
                yield ChangePodGroup(
                    at_s=ends_s,
                    name=name,
                    namespace=NAMESPACE,
                    queue=scene.queue()[names.QUEUE_LABEL],
                    preemptibility=rng.choice((None, "non-preemptible")),
                )


def _labels(scene: _Scene) -> Iterator[Action]:
    """Pods with thousands of labels, of ours or of another scheduler."""
    rng = scene.rng
    schedulers = (names.SCHEDULER_NAME, "default-scheduler")
    labels, scheduler = rng.choice(_LABELS), rng.choice(schedulers)
    yield CreateLabelled(at_s=scene.moment(), name="labelled", pods=3, labels=labels, scheduler=scheduler)


def _churn(scene: _Scene) -> Iterator[Action]:
    """One pod that takes what others have comes and goes."""
    rng = scene.rng
    yield Churn(
        at_s=scene.moment(),
        name="churned",
        times=rng.choice(_CHURNS),
        wait_s=rng.choice((1.0, 5.0, 20.0)),
        labels=scene.queue(),
        priority_class=rng.choice(("", "urgent", "inference")),
    )


def _endless(scene: _Scene) -> Iterator[Action]:
    """Shares that never end, deleted by force, more of them than a queue may have."""
    at_s = scene.moment()
    yield CreateEndless(at_s=at_s, name="endless", times=scene.rng.choice((2, 4, 8)), labels=scene.queue())
    yield DeletePod(at_s=round(at_s + 60.0, 3), name="endless-0", namespace=NAMESPACE, grace_s=0)


def _selectors(scene: _Scene) -> Iterator[Action]:
    """Claims with selectors that are long to evaluate."""
    rng = scene.rng
    yield CreateSlowClaims(
        at_s=scene.moment(),
        name="slow",
        claims=rng.choice((1, 5, 20)),
        device_class=ANY_CLASS,
        length=rng.choice((20, 60, 120)),
    )
