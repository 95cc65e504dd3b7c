"""Queues as the checker reads them: the tree, what pods count for in it, and L3 of what pods say of their queues.

Plain JSON in, exact fractions out, written from docs/queues.md and not from the scheduler's code.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from math import floor
from typing import Any, Final, NamedTuple

from simulator.checks import shares
from simulator.checks.facts import Ask, Granted, Json, PodFacts
from simulator.checks.ledgers import MILLI, NANO, demand, devices_named
from wire import names

#: By resource of a Queue: how much one on the wire is, in what pods are counted in (millicores, bytes, GPUs).
PER: Final[Mapping[str, Fraction]] = {"cpu": Fraction(1), "memory": Fraction(10**6), "gpu": Fraction(1)}
#: By resource: how many smallest units (millicores, bytes, nano of a GPU) one on the wire has.
_UNITS: Final = {"cpu": 1, "memory": 10**6, "gpu": 10**9}
_WEIGHT_UNITS: Final = 10**6
_WITHOUT_END: Final = -1
_TOO_MANY_UNITS: Final = 2**60
_DEEPEST: Final = 32
AMOUNTS: Final = ("limit", "quota")


class QueueTree:
    """One version of all Queues (name -> spec): who is below whom, what a queue allows, and why one can't be used.

    It never changes, so what is found in it is kept.
    """

    def __init__(self, specs: Mapping[str, Json]) -> None:
        self.specs = specs
        self._paths: dict[str, tuple[list[str], str]] = {}
        self._below: dict[str, list[str]] | None = None
        self._parents = {spec.get("parentQueue") or "" for spec in specs.values()}

    def path(self, name: str) -> tuple[list[str], str]:
        """A queue and all above it, itself first; and why it can't be used, "" if it can."""
        if name not in self._paths:
            self._paths[name] = self._found_path(name)
        return self._paths[name]

    def closed(self, name: str) -> str:
        """Why no pod may start in a queue, "" if one may."""
        _, why = self.path(name)
        return why or (f"queue {name} has queues below it" if name in self._parents else "")

    def below(self, name: str) -> Iterable[str]:
        """A queue and all queues below it."""
        if self._below is None:
            self._below = {}
            for each in self.specs:
                for above in self.path(each)[0]:
                    self._below.setdefault(above, []).append(each)
        return self._below.get(name, ())

    def most(self, name: str, field: str, resource: str) -> Fraction | None:
        """What a limit or a quota allows, exactly as it prints; None: everything."""
        written = self._amount(name, field, resource)
        is_endless = written == _WITHOUT_END or not math.isfinite(written or 0)
        return None if is_endless else Fraction(str(written or 0)) * PER[resource]

    def parent(self, name: str) -> str:
        """The queue above, "" at the top."""
        return str(self.specs[name].get("parentQueue") or "")

    def _amount(self, name: str, field: str, resource: str) -> Any:
        resources = self.specs[name].get("resources") or {}
        return (resources.get(resource) or {}).get(field)

    def _found_path(self, name: str) -> tuple[list[str], str]:
        path: list[str] = []
        while name:
            if name not in self.specs:
                return [], f"there is no queue {name}"
            if name in path:
                return [], f"queue {name} is above itself"
            if wrong := self._without_meaning(name):
                return [], f"queue {name} has {wrong}"
            path.append(name)
            if len(path) > _DEEPEST:
                return [], f"more than {_DEEPEST} queues are above each other"
            name = self.parent(name)
        return path, ""

    def _without_meaning(self, name: str) -> str:
        for resource, units in _UNITS.items():
            for field in AMOUNTS:
                written = self._amount(name, field, resource)
                if written != _WITHOUT_END and not _has_meaning(written, units):
                    return f"a {field} of {written} {resource}"
            weight = self._amount(name, "overQuotaWeight", resource)
            if not _has_meaning(weight, _WEIGHT_UNITS):
                return f"a weight of {weight} for {resource}"
        return ""


def _has_meaning(written: Any, units: int) -> bool:
    if written is None:
        return True
    return math.isfinite(written) and written >= 0 and math.floor(Fraction(str(written)) * units) < _TOO_MANY_UNITS


Amounts = Mapping[str, Fraction]

NOTHING: Final[Amounts] = dict.fromkeys(PER, Fraction(0))
_SLICES: Final = re.compile(r"(?:[0-9]c\.)?([1-9])g\.")


class Row(NamedTuple):
    """What a pod counts for, and where: what it uses where it is bound, else what it asks.

    GPUs are whole ones, what Bindings give of shared ones, and MIG slices of ``N`` compute slices as N GPUs. ``pool``:
    its node pool; ``is_fixed``: it can't be preempted.
    """

    pool: str
    queue: str
    is_fixed: bool
    priority: int
    used: Amounts


class Sums:
    """Rows by pod UID, and their sums by queue, for each node pool: what another pool's pods use counts in no queue."""

    def __init__(self) -> None:
        self._rows: dict[str, Row] = {}
        #: By pool and queue, and whether only what can't be preempted counts.
        self._sums: dict[tuple[str, str, bool], dict[str, Fraction]] = {}

    def row(self, uid: str) -> Row | None:
        """What a pod counts for."""
        return self._rows.get(uid)

    def put(self, uid: str, row: Row | None) -> None:
        """Take a pod's row as it is now; None: the pod is gone."""
        before = self._rows.pop(uid, None)
        if before is not None:
            self._add(before, -1)
        if row is not None:
            self._rows[uid] = row
            self._add(row, 1)

    def used(self, pool: str, queues: Iterable[str], resource: str, *, of_fixed: bool) -> Fraction:
        """What all pods of a pool in these queues use, or those of them that can't be preempted."""
        return sum((self._sums.get((pool, each, of_fixed), NOTHING)[resource] for each in queues), Fraction(0))

    def _add(self, row: Row, sign: int) -> None:
        for of_fixed in {False, row.is_fixed}:
            total = self._sums.setdefault((row.pool, row.queue, of_fixed), dict(NOTHING))
            for resource, amount in row.used.items():
                total[resource] += sign * amount


def amounts_used(pod: PodFacts, smallest_mib: int) -> Amounts:
    """What a pod uses where it is bound; without a grant, as one that names its node itself, what it asks there."""
    if not pod.node or pod.has_ended:
        return NOTHING
    if not pod.grants:
        return asked(pod, smallest_mib)
    return _with(pod, _whole(pod) + Fraction(sum(map(_nano, pod.grants)), NANO))


def asked(pod: PodFacts, smallest_mib: int) -> Amounts:
    """What a pod asks that waits; of memory of a GPU the part of the smallest card, the whole one if none is known."""
    ways = shares.ways(pod)
    if ways:
        parts = (_part(each, smallest_mib) * max(1, _gpus(each.profile)) for each in ways[0])
    else:
        parts = (each.devices * _part(each, smallest_mib) for each in pod.asks.values() if not each.is_whole)
    return _with(pod, _whole(pod) + sum(parts, Fraction(0)))


def plus(one: Amounts, other: Amounts) -> Amounts:
    """The sum of both."""
    return {resource: amount + other[resource] for resource, amount in one.items()}


def _part(asked: Ask | shares.Part, card_mib: int) -> Fraction:
    """The part of one device, in whole nanos: three times 0.3333333333333 are more than one."""
    part = asked.charge(card_mib) if card_mib or not asked.mem_mib else Fraction(1)
    return Fraction(-(-part * NANO // 1), NANO)


def _whole(pod: PodFacts) -> int:
    return sum(demand(pod, name) * _gpus(name) for name in devices_named(pod))


def _with(pod: PodFacts, gpus: Fraction) -> Amounts:
    return {"cpu": Fraction(demand(pod, "cpu", per=MILLI)), "memory": Fraction(demand(pod, "memory")), "gpu": gpus}


def _nano(grant: Granted) -> int:
    return grant.nano * max(1, _gpus(grant.resource))


def _gpus(resource: str) -> int:
    if resource == names.GPU_RESOURCE:
        return 1
    found = _SLICES.match(resource.removeprefix(names.MIG_RESOURCE_PREFIX))
    return int(found[1]) if found else 1


class Load(NamedTuple):
    """A queue with what it and those below it have.

    ``closed``: why it can't be used, "" if it can. ``most``: by ``quota`` and ``limit`` what it allows (None: all).
    """

    name: str
    parent: str
    closed: str
    placed: int
    waiting: int
    used: Amounts
    waits_for: Amounts
    most: Mapping[str, Mapping[str, Fraction | None]]


def loads(
    tree: QueueTree, own: Mapping[str, Sequence[PodFacts]], card_mib: Callable[[PodFacts], int]
) -> Iterator[Load]:
    """Yield all queues of a tree, each behind its parent, then those that pods name and that nobody made.

    ``own``: pods by the queue that they count in. A queue that can't be used stands for itself.
    """
    for name in sorted(tree.specs, key=lambda name: tree.path(name)[0][::-1] or [name]):
        below = [name] if tree.path(name)[1] else tree.below(name)
        most = {field: {each: tree.most(name, field, each) for each in PER} for field in AMOUNTS}
        pods = [pod for each in below for pod in own.get(each, ())]
        yield _load(pods, card_mib, name=name, parent=tree.parent(name), closed=tree.path(name)[1], most=most)
    for name in sorted(own.keys() - tree.specs.keys() if tree.specs else ()):
        most = dict.fromkeys(AMOUNTS, dict.fromkeys(PER, Fraction(0)))
        yield _load(own[name], card_mib, name=name, parent="", closed=tree.path(name)[1], most=most)


def _load(
    pods: Sequence[PodFacts],
    card_mib: Callable[[PodFacts], int],
    *,
    name: str,
    parent: str,
    closed: str,
    most: Mapping[str, Mapping[str, Fraction | None]],
) -> Load:
    used = waits_for = NOTHING
    for pod in pods:
        used = plus(used, amounts_used(pod, card_mib(pod)))
        if not pod.node:
            waits_for = plus(waits_for, asked(pod, card_mib(pod)))
    placed = sum(bool(pod.node) for pod in pods)
    return Load(name, parent, closed, placed, len(pods) - placed, used, waits_for, most)


#: What a queue and those below it use at the least and at the most, as pods that vanished may count: queue, resource,
#: and whether only what can't be preempted counts.
Used = Callable[[str, str, bool], tuple[Fraction, Fraction]]

_NUMBER: Final = r"[0-9]+(?:\.[0-9]+)?"
_LIMIT: Final = re.compile(
    rf"(?P<at>\S+) quota has reached the allowable limit of .*\. Limit is (?P<most>{_NUMBER}) (?P<unit>GPUs|cores|GB), "
    rf"currently (?P<held>{_NUMBER}) \S+ allocated and workload requested (?P<asked>{_NUMBER}) \S+"
)
_QUOTA: Final = re.compile(
    rf"Non-preemptible workload is over quota\. Workload requested (?P<asked>{_NUMBER}) (?P<unit>GPUs|cores|GB), "
    rf"but (?P<at>\S+) quota is (?P<most>{_NUMBER}) \S+, while (?P<held>{_NUMBER}) \S+ are already allocated .*"
)
_BROKEN: Final = re.compile(
    r"Queue (?P<name>\S+) (?:does not exist|belongs to node pool .*|has queues below it .*|can't be used: .*)"
)
#: Unit -> resource, how many of what is counted make one, and how many smallest units are one of what is counted.
_UNITS_SAID: Final = {"GPUs": ("gpu", 1, 10**9), "cores": ("cpu", 1000, 1), "GB": ("memory", 10**9, 1)}


def untrue(text: str, queue: str, tree: QueueTree, used: Used) -> Iterator[str]:
    """Yield what a pod says of its queue that is not so: amounts, or the link of the tree that is broken.

    Nothing where it speaks of something else. Sentences are read as a user reads them
    (scheduler/conditions/messages.py).
    """
    if found := _BROKEN.fullmatch(text):
        if found["name"] != queue or not tree.closed(queue):
            yield f"it says {text!r}, and of queue {queue} it is {tree.closed(queue) or 'nothing that keeps it'}"
    elif found := _LIMIT.fullmatch(text):
        yield from _wrong_amounts(found, "limit", tree.path(queue)[0], tree=tree, used=used)
    elif found := _QUOTA.fullmatch(text):
        yield from _wrong_amounts(found, "quota", tree.path(queue)[0], tree=tree, used=used)


def _wrong_amounts(
    found: re.Match[str], field: str, path: Sequence[str], *, tree: QueueTree, used: Used
) -> Iterator[str]:
    at, (resource, one, smallest) = found["at"], _UNITS_SAID[found["unit"]]
    if at not in path:
        yield f"it says {found[0]!r}, and the queues above it are {', '.join(path) or 'not to be used'}"
        return
    most, asked = Fraction(found["most"]) * one, Fraction(found["asked"]) * one
    really, (fewest, counted) = tree.most(at, field, resource), used(at, resource, field == "quota")
    held = Fraction(found["held"]) * one
    if really is None or most != floor(really * smallest) / Fraction(smallest):
        yield f"it says a {field} of {found['most']} for queue {at}, which has {really and float(really)}"
    if not fewest <= held <= counted or held + asked <= most:
        yield f"it says {found[0]!r}, and queue {at} uses {float(counted):g} {resource}"
