"""A Queue among the others: its parent, cycles, children, and quotas up and down the tree.

KAI checks parent and quotas only with ``--enable-quota-validation`` (kai-contract 2.1), and its scheduler lives with
what it finds, so these findings are warnings here: manifests that KAI takes in any order are taken. A cycle is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from admission.objects.amounts import Amount, amount
from admission.objects.findings import Finding, Rule, Word
from admission.objects.others import Others, quota, said_of
from wire.crds.queue import UNITS, Queue

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
    """Yield what KAI warns of with quota validation, in KAI's order: parent before children."""
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
