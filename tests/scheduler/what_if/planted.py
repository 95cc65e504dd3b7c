"""Mistakes in what finds edits, one for each family: each says of a change that does not help that it does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from scheduler.core.what_if import known_ends, queue_changes
from scheduler.core.what_if.edits import Edit, Family
from scheduler.core.what_if.group_changes import (
    FRACTION,
    Asking,
    Members,
    Without,
    dropped_constraints,
    fewer_members,
    request_ranges,
    smaller_requests,
)
from scheduler.core.what_if.known_ends import Wait
from scheduler.core.what_if.node_changes import Ended, MoreNodes, kinds_of_nodes, running
from scheduler.core.what_if.queue_changes import QueueAmount
from scheduler.core.what_if.suggestions import FINDERS, Finder
from scheduler.core.what_if.trials import Finding, Trying, answered


def found(finder: Finder, trying: Trying) -> list[Edit]:
    return list(answered(trying, finder(trying)))


def _one_step_too_much(trying: Trying) -> Finding:
    """An amount that is one step above the largest that helps."""
    for edit in found(smaller_requests, trying):
        assert isinstance(edit, Asking)
        steps = {what: step for what, step, _ in request_ranges(trying.subject)}
        yield Asking(edit.what, edit.amount + (10 if edit.what == FRACTION else 2) * steps[edit.what])


def _one_member_too_many(trying: Trying) -> Finding:
    for edit in found(fewer_members, trying):
        assert isinstance(edit, Members)
        yield Members(edit.minimum + 1)


def _any_constraint(trying: Trying) -> Finding:
    """A constraint that is there, tried or not."""
    for cls in trying.subject.classes():
        for key, _ in cls.constraints.selector:
            yield Without("nodeSelector", key)
    yield from dropped_constraints(trying)


def _a_gpu_too_little(trying: Trying) -> Finding:
    for edit in queue_changes.amounts_needed(trying):
        yield QueueAmount(edit.queue, edit.field, edit.resource, max(0, edit.amount - 10**9))


def _whoever_runs(trying: Trying) -> Finding:
    """The first one that runs, whatever it holds."""
    for each in running(trying.snapshot, trying.subject.uids)[:1]:
        yield Ended(each.name)


def _without_who_comes_first(trying: Trying) -> Finding:
    """One node, tried without the others that wait."""
    for like in kinds_of_nodes(trying):
        edit = MoreNodes(1, like)
        if trying.outcome(*edit.changes(trying.snapshot, trying.subject)).starts:
            yield edit


def _an_end_too_early(trying: Trying) -> Finding:
    """All ends that are known but the last one that is needed."""
    for wait in found(known_ends.candidates, trying):
        assert isinstance(wait, Wait)
        yield Wait(until_s=wait.until_s, uids=wait.uids[:-1], ends=wait.ends[1:])


PLANTED: Final[Mapping[Family, Finder]] = {
    Family.WAIT: _an_end_too_early,
    Family.ASK_LESS: _one_step_too_much,
    Family.FEWER_MEMBERS: _one_member_too_many,
    Family.WITHOUT_CONSTRAINT: _any_constraint,
    Family.QUEUE: _a_gpu_too_little,
    Family.ENDED: _whoever_runs,
    Family.MORE_NODES: _without_who_comes_first,
}


def finders(family: Family) -> Mapping[Family, tuple[Finder, int]]:
    """Only this family, with its mistake."""
    return {family: (PLANTED[family], FINDERS[family][1])}


def silent(family: Family) -> Mapping[Family, tuple[Finder, int]]:
    """All families but this one, so that nothing is said where it alone would help."""
    return {each: found for each, found in FINDERS.items() if each is not family}
