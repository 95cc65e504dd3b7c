"""A Queue among the others: its parent, cycles, children, and quotas up and down the tree.

KAI checks parent and quotas only with ``--enable-quota-validation`` (kai-contract 2.1), and its scheduler lives with
what it finds, so these findings are warnings here: manifests that KAI takes in any order are taken. A cycle is refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Final

from admission.objects.findings import Finding, Rule, Word
from admission.objects.queue_fields import resource
from wire.crds.queue import UNITS, UNLIMITED, Queue

#: Other queues by name, without the one that is judged.
Others = Mapping[str, Queue]

_TITLES: Final = {"cpu": "CPU", "memory": "Memory", "gpu": "GPU"}
_PARENT: Final = "spec.parentQueue"
#: An amount that nothing exceeds; quotas are exact decimals otherwise.
_Amount = Fraction | None
_UNLIMITED: Final[_Amount] = None


def cycle(queue: Queue, others: Others) -> Finding | None:
    """Say whether the queue would be its own ancestor. Cycles of other queues are not its fault."""
    name, path, at = queue.metadata.name, [queue.metadata.name], queue.spec.parent_queue
    while at and at != name and at in others and len(path) <= len(others):
        path.append(at)
        at = others[at].spec.parent_queue
    if not at or at != name:
        return None
    words: dict[str, Word] = {"queue": name, "path": (*path, name)}
    return Finding(rule=Rule.PARENT_CYCLE, field=_PARENT, value=queue.spec.parent_queue, words=words)


def children(name: str, others: Others) -> list[Queue]:
    """Return the queues whose parent is this one, by name; those that are being deleted don't count."""
    found = [each for each in others.values() if each.spec.parent_queue == name]
    return sorted((each for each in found if not each.metadata.deletion_timestamp), key=lambda each: each.metadata.name)


def with_children(queue: Queue, others: Others) -> Finding | None:
    """Say whether a queue that is to be deleted has children."""
    names = tuple(each.metadata.name for each in children(queue.metadata.name, others))
    if not names:
        return None
    words: dict[str, Word] = {"queue": queue.metadata.name, "children": names}
    return Finding(rule=Rule.HAS_CHILDREN, field="metadata.name", value=queue.metadata.name, words=words)


def doubts(queue: Queue, others: Others) -> Iterator[Finding]:
    """Yield what KAI warns of with quota validation, in KAI's order: parent before children."""
    yield from _of_parent(queue, others)
    yield from _of_children(queue, others)


def above_limit(queue: Queue) -> Iterator[Finding]:
    """Yield each quota that the queue's own limit makes useless."""
    for name in UNITS:
        said = resource(queue.spec, name)
        quota, limit = _exact(said.quota), _exact(said.limit)
        if _exceeds(quota, limit):
            yield _quota(Rule.QUOTA_ABOVE_LIMIT, name, quota, limit)


def _of_parent(queue: Queue, others: Others) -> Iterator[Finding]:
    named = queue.spec.parent_queue
    if not named or named == queue.metadata.name:
        return
    parent = others.get(named)
    if parent is None or parent.spec.resources is None:
        rule = Rule.PARENT_NOT_FOUND if parent is None else Rule.PARENT_WITHOUT_RESOURCES
        yield Finding(rule=rule, field=_PARENT, value=named, words={"parent": named})
        return
    siblings = [queue, *children(named, others)]
    for name in UNITS:
        most = _exact(resource(parent.spec, name).quota)
        own = _exact(resource(queue.spec, name).quota)
        if _exceeds(own, most):
            yield _quota(Rule.QUOTA_ABOVE_PARENT, name, own, most, parent=named)
        if _exceeds(total := _sum(name, siblings), most):
            yield _quota(Rule.SIBLINGS_ABOVE_PARENT, name, total, most, parent=named)


def _of_children(queue: Queue, others: Others) -> Iterator[Finding]:
    below = children(queue.metadata.name, others)
    for name in UNITS:
        most = _exact(resource(queue.spec, name).quota)
        for child in below:
            if _exceeds(own := _exact(resource(child.spec, name).quota), most):
                yield _quota(Rule.CHILD_ABOVE_QUOTA, name, own, most, child=child.metadata.name)
        if _exceeds(total := _sum(name, below), most):
            yield _quota(Rule.CHILDREN_ABOVE_QUOTA, name, total, most)


def _quota(rule: Rule, name: str, found: _Amount, most: _Amount, **words: Word) -> Finding:
    said = {"resource": _TITLES[name], "found": _text(found), "most": _text(most), **words}
    return Finding(rule=rule, field=f"spec.resources.{name}.quota", value=_text(found), words=said)


def _sum(name: str, queues: Iterable[Queue]) -> _Amount:
    total = Fraction()
    for queue in queues:
        if (quota := _exact(resource(queue.spec, name).quota)) is None:
            return _UNLIMITED
        total += quota
    return total


def _exact(value: float | None) -> _Amount:
    """The decimal that a float prints as, so that three tenths are not more than 0.3. What has no meaning is 0."""
    if value == UNLIMITED:
        return _UNLIMITED
    return Fraction(repr(value)) if value is not None and math.isfinite(value) and value > 0 else Fraction()


def _exceeds(value: _Amount, most: _Amount) -> bool:
    return most is not None and (value is None or value > most)


def _text(amount: _Amount) -> str:
    """As KAI writes it: without exponent and trailing zeros."""
    if amount is None:
        return "unlimited"
    if amount.denominator == 1:
        return str(amount.numerator)
    return format(Decimal(amount.numerator) / Decimal(amount.denominator), "f")
