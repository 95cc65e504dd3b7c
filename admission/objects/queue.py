"""Whether a Queue may be created, changed or deleted: KAI's rules first, in KAI's order, then ours."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Final

import msgspec

from admission.objects.findings import (
    Allowed,
    Finding,
    Judgement,
    Refused,
    Rule,
    Word,
    broken_durations,
    broken_patience,
)
from wire.crds.queue import TOO_MANY_UNITS, UNITS, UNLIMITED, WEIGHT_UNITS, Queue, QueueResource, counted


class Amount(msgspec.Struct, frozen=True):
    """A sum of quotas: the decimals that they print as, and how many of them are unlimited.

    Exact, so that three tenths of a GPU are not more than 0.3.
    """

    finite: Fraction = Fraction()
    unlimited: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.finite + other.finite, self.unlimited + other.unlimited)

    def __sub__(self, other: Amount) -> Amount:
        """Take one out again that was added before."""
        return Amount(self.finite - other.finite, self.unlimited - other.unlimited)

    def exceeds(self, most: Amount) -> bool:
        """Whether it is more: nothing exceeds what is unlimited, and what is unlimited exceeds all else, as in KAI."""
        return not most.unlimited and (self.unlimited > 0 or self.finite > most.finite)

    def text(self) -> str:
        """As KAI writes it: without exponent and trailing zeros."""
        if self.unlimited:
            return "unlimited"
        if self.finite.denominator == 1:
            return str(self.finite.numerator)
        return format(Decimal(self.finite.numerator) / Decimal(self.finite.denominator), "f")


NOTHING = Amount()


def amount(value: float | None) -> Amount:
    """Read a number of the wire; one without meaning counts as 0."""
    if value == UNLIMITED:
        return Amount(unlimited=1)
    return Amount(Fraction(repr(value))) if value is not None and math.isfinite(value) and value > 0 else NOTHING


_ABSENT: Final = QueueResource()


class Others:
    """All queues that are known; the judged one may be among them, as it is stored.

    Made in time linear in their number. Sums are made when they are asked for, once, so that all queues of a flat tree
    can be judged in linear time. A queue that is being deleted is found, and is nobody's child.
    """

    def __init__(self, queues: Iterable[Queue] = ()) -> None:
        self._by_name = {queue.metadata.name: queue for queue in queues}
        self._below: dict[str, list[Queue]] = {}
        for _, queue in sorted(self._by_name.items()):
            if _is_child(queue, queue.spec.parent_queue):
                self._below.setdefault(queue.spec.parent_queue, []).append(queue)
        self._sums: dict[tuple[str, str], Amount] = {}

    def __len__(self) -> int:
        return len(self._by_name)

    def find(self, name: str) -> Queue | None:
        """Return a queue by its name."""
        return self._by_name.get(name)

    def below(self, parent: str) -> list[Queue]:
        """Return the children of a queue, by name, without itself."""
        return [queue for queue in self._below.get(parent, ()) if queue.metadata.name != parent]

    def quota_below(self, parent: str, resource: str, *, besides: str) -> Amount:
        """Return the sum of the children's quotas, without the child of this name."""
        total, left_out = self._sum(parent, resource), self._by_name.get(besides)
        return total if left_out is None or not _is_child(left_out, parent) else total - quota(left_out, resource)

    def _sum(self, parent: str, resource: str) -> Amount:
        if (known := self._sums.get((parent, resource))) is None:
            known = NOTHING
            for queue in self._below.get(parent, ()):
                known += quota(queue, resource)
            self._sums[parent, resource] = known
        return known


def quota(queue: Queue, resource: str) -> Amount:
    """Return a queue's quota of ``cpu``, ``memory`` or ``gpu``."""
    return amount(said_of(queue, resource).quota)


def said_of(queue: Queue, resource: str) -> QueueResource:
    """Return what a queue says of a resource; absent is all 0."""
    return getattr(queue.spec.resources, resource, None) or _ABSENT


def _is_child(queue: Queue, parent: str) -> bool:
    return bool(parent) and queue.spec.parent_queue == parent and not queue.metadata.deletion_timestamp


def broken_fields(queue: Queue) -> Iterator[Finding]:
    """Yield what is wrong with each field, in the order of the fields in the schema.

    Each of them closes the queue in the scheduler, which never reads it as another value (docs/design/queues.md). KAI
    refuses none of it, except for durations, which its webhook can't decode.
    """
    spec = queue.spec
    for name, units in UNITS.items():
        yield from _broken_resource(name, said_of(queue, name), units)
    if spec.priority is not None and not -(2**63) <= spec.priority < 2**63:
        yield Finding(rule=Rule.PRIORITY, field="spec.priority", value=_digits(spec.priority))
    yield from broken_durations(preemptMinRuntime=spec.preempt_min_runtime, reclaimMinRuntime=spec.reclaim_min_runtime)
    yield from broken_patience(queue.metadata.annotations or {})


def _broken_resource(name: str, said: QueueResource, units: int) -> Iterator[Finding]:
    for field, value in (("quota", said.quota), ("limit", said.limit)):
        if value is not None and value != UNLIMITED and counted(value, units) is None:
            yield _finding(Rule.AMOUNT, f"{name}.{field}", value, units)
    weight = said.over_quota_weight
    if weight is not None and counted(weight, WEIGHT_UNITS) is None:
        yield _finding(Rule.WEIGHT, f"{name}.overQuotaWeight", weight, WEIGHT_UNITS)


def _finding(rule: Rule, field: str, value: float, units: int) -> Finding:
    words: dict[str, Word] = {"name": field.replace(".", " "), "most": (TOO_MANY_UNITS - 1) // units}
    return Finding(rule=rule, field=f"spec.resources.{field}", value=repr(value), words=words)


def _digits(number: int) -> str:
    """The number, if it is not so large that Python refuses to write it."""
    return str(number) if abs(number) < 10**40 else "a number of more than 40 digits"


_TITLES: Final = {"cpu": "CPU", "memory": "Memory", "gpu": "GPU"}
_PARENT: Final = "spec.parentQueue"


def cycle(queue: Queue, others: Others) -> Finding | None:
    """Say whether the queue would be its own ancestor. Cycles of other queues are not its fault."""
    name, path, at = queue.metadata.name, [queue.metadata.name], queue.spec.parent_queue
    while at and at != name and len(path) <= len(others) and (above := others.find(at)) is not None:
        path.append(at)
        at = above.spec.parent_queue
    if not at or at != name:
        return None
    words: dict[str, Word] = {"queue": name, "path": (*path, name)}
    return Finding(rule=Rule.PARENT_CYCLE, field=_PARENT, value=queue.spec.parent_queue, words=words)


def with_children(queue: Queue, others: Others) -> Finding | None:
    """Say whether a queue that is to be deleted has children."""
    names = tuple(each.metadata.name for each in others.below(queue.metadata.name))
    if not names:
        return None
    words: dict[str, Word] = {"queue": queue.metadata.name, "children": names}
    return Finding(rule=Rule.HAS_CHILDREN, field="metadata.name", value=queue.metadata.name, words=words)


def doubts(queue: Queue, others: Others) -> Iterator[Finding]:
    """Yield what KAI warns of with quota validation, in KAI's order: parent before children.

    KAI checks parent and quotas only with ``--enable-quota-validation`` (kai-contract 2.1), and its scheduler lives
    with what it finds. So these are warnings here: manifests that KAI takes in any order are taken. A cycle
    is refused.
    """
    yield from _of_parent(queue, others)
    yield from _of_children(queue, others)


def above_limit(queue: Queue) -> Iterator[Finding]:
    """Yield each quota that the queue's own limit makes useless."""
    for name in UNITS:
        own, limit = quota(queue, name), amount(said_of(queue, name).limit)
        if own.exceeds(limit):
            yield _quota(Rule.QUOTA_ABOVE_LIMIT, name, own, limit)


def _of_parent(queue: Queue, others: Others) -> Iterator[Finding]:
    named = queue.spec.parent_queue
    if not named or named == queue.metadata.name:
        return
    parent = others.find(named)
    if parent is None or parent.spec.resources is None:
        rule = Rule.PARENT_NOT_FOUND if parent is None else Rule.PARENT_WITHOUT_RESOURCES
        yield Finding(rule=rule, field=_PARENT, value=named, words={"parent": named})
        return
    for name in UNITS:
        own, most = quota(queue, name), quota(parent, name)
        if own.exceeds(most):
            yield _quota(Rule.QUOTA_ABOVE_PARENT, name, own, most, parent=named)
        total = own + others.quota_below(named, name, besides=queue.metadata.name)
        if total.exceeds(most):
            yield _quota(Rule.SIBLINGS_ABOVE_PARENT, name, total, most, parent=named)


def _of_children(queue: Queue, others: Others) -> Iterator[Finding]:
    named = queue.metadata.name
    for name in UNITS:
        most = quota(queue, name)
        for child in others.below(named):
            if (own := quota(child, name)).exceeds(most):
                yield _quota(Rule.CHILD_ABOVE_QUOTA, name, own, most, child=child.metadata.name)
        if (total := others.quota_below(named, name, besides=named)).exceeds(most):
            yield _quota(Rule.CHILDREN_ABOVE_QUOTA, name, total, most)


def _quota(rule: Rule, name: str, found: Amount, most: Amount, **words: Word) -> Finding:
    said = {"resource": _TITLES[name], "found": found.text(), "most": most.text(), **words}
    return Finding(rule=rule, field=f"spec.resources.{name}.quota", value=found.text(), words=said)


#: Warnings of one review. A queue may have thousands of children.
_MOST_WARNINGS: Final = 16


def judge_written(queue: Queue, *, old: Queue | None, others: Others | None) -> Judgement:
    """Judge a queue as it would be stored.

    ``old``: as it is stored, None if it is new. ``others``: all queues, None if they could not be read; then
    nothing that concerns them is checked, as in KAI without quota validation.

    A value that is refused in a new queue is a warning where the old one has it already: so a queue from before the
    rule can be mended field by field.
    """
    if queue.spec.resources is None:
        return Refused((Finding(rule=Rule.RESOURCES_MISSING, field="spec.resources", value=""),))
    found = list(broken_fields(queue))
    if others is not None and (circular := cycle(queue, others)) is not None:
        found.append(circular)
    known = {(each.field, each.value) for each in _broken_before(old, others)}
    is_old = [(each.field, each.value) in known for each in found]
    fresh = tuple(each for each, old_one in zip(found, is_old, strict=True) if not old_one)
    if fresh:
        return Refused(fresh)
    return Allowed((*found, *_warnings(queue, others))[:_MOST_WARNINGS])


def judge_deleted(queue: Queue, *, others: Others | None) -> Judgement:
    """Judge whether a queue may be deleted."""
    if others is None:
        return Allowed((_unknown(),))
    found = with_children(queue, others)
    return Allowed() if found is None else Refused((found,))


def _broken_before(old: Queue | None, others: Others | None) -> list[Finding]:
    """What was wrong already."""
    if old is None:
        return []
    circular = None if others is None else cycle(old, others)
    return [*broken_fields(old), *([circular] if circular is not None else ())]


def _warnings(queue: Queue, others: Others | None) -> list[Finding]:
    in_tree = [_unknown()] if others is None else list(doubts(queue, others))
    return [*in_tree, *above_limit(queue)]


def _unknown() -> Finding:
    return Finding(rule=Rule.OTHERS_UNKNOWN, field="", value="")
