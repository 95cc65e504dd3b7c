"""The group that is asked about, and the cluster as it would be after the edits of ``--what-if``."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from cli.explain import called
from cli.explaining.views import GroupView
from cli.inspection.options import POD
from cli.queueing.counting import NOW_NS, Known
from cli.refusing import BadInput
from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.model.steps import ended
from scheduler.core.what_if import explanation
from scheduler.core.what_if.edit_text import read_edit
from scheduler.core.what_if.edits import Edit, NotPossible, Subject, subject_of_group, subject_of_pod
from scheduler.core.what_if.explanation import Explained, with_residents
from scheduler.core.what_if.suggestions import suggestions_within
from scheduler.core.what_if.trials import Trying

#: Operations (core/decide/allowance.py) after which no further change is tried: about 0.7 s.
MOST_OPERATIONS: Final = 1_500_000
#: A node that is like another one has copies of the devices that this one alone reaches.
NO_COPIES: Final = "devices that several nodes reach: changes that add nodes add none of them"
CUT: Final = "not all changes that might help were tried, as that takes too long"


class Whole(msgspec.Struct, frozen=True):
    """What is printed as JSON and YAML. ``unread``: what could not be read, and so is missing here."""

    group: GroupView
    unread: tuple[str, ...] = ()


def edits(texts: Sequence[str]) -> list[Edit]:
    """Read all of ``--what-if``. Raises BadInput for one that means nothing."""
    found = []
    for text in texts:
        try:
            found.append(read_edit(text))
        except NotPossible as error:
            raise BadInput(f"--what-if {error}") from error
    return found


def subject(known: Known, kind: str, namespace: str, name: str) -> Subject:
    """Find the group. Raises BadInput if it is not there."""
    snapshot = known.snapshot
    found = (subject_of_pod if kind == POD else subject_of_group)(snapshot, namespace, name)
    if found is not None:
        return found
    records = snapshot.pods.records.values()
    there = (
        [pod.name for pod in records if pod.namespace == namespace]
        if kind == POD
        else [group for of, group in snapshot.pod_groups if of == namespace]
    )
    near = difflib.get_close_matches(name, there, n=1)
    meant = f"; did you mean {near[0]}?" if near else ""
    whose = "" if kind != POD else " that waits for this scheduler or has a node"
    raise BadInput(f"there is no {called(kind)} {name} in namespace {namespace}{whose}{meant}")


def explained(
    known: Known, of: Subject, supposed: Sequence[Edit], wall_s: int, *, most: int = MOST_OPERATIONS
) -> Explained:
    """Explain a group after these edits. Raises BadInput for one that is not possible here.

    ``most``: operations after which no further change is tried.
    """
    try:
        snapshot, of = after(with_residents(known.snapshot, now_ns=NOW_NS, wall_s=wall_s), of, supposed)
    except NotPossible as error:
        raise BadInput(f"--what-if {error}") from error
    trying = Trying(snapshot, of, NOW_NS, wall_s)
    found = ended(explanation.explaining(trying))
    helps, is_whole = suggestions_within(trying, most)
    return msgspec.structs.replace(found, helps=tuple(helps), is_cut=not is_whole)


def after(snapshot: Snapshot, of: Subject, supposed: Sequence[Edit]) -> tuple[Snapshot, Subject]:
    """Return the cluster as it would be after these edits, and the group in it. Raises NotPossible."""
    for edit in supposed:
        snapshot = snapshot.with_(*edit.changes(snapshot, of))
        of = _again(snapshot, of)
    return snapshot, of


def _again(snapshot: Snapshot, of: Subject) -> Subject:
    """The same group, as it is in another snapshot."""
    find = subject_of_pod if of.group is None else subject_of_group
    return find(snapshot, of.namespace, of.name) or of


def devices_left_out(found: Explained) -> Iterator[str]:
    """That further nodes bring no devices of common pools, of a group that waits and needs devices for its claims."""
    snapshot = found.trying.snapshot
    if found.outcome.starts or not found.trying.subject.needs_devices(snapshot):
        return
    if snapshot.devices.has_common_pools:
        yield NO_COPIES


def is_in_doubt(known: Known, of: Subject, found: Explained) -> bool:
    """Whether something that was not read may keep the group waiting, though it starts by all that was."""
    rules = known.has_doubtful_rules and any(each.claims for each in found.outcome.placed)
    return rules or not of.uids.isdisjoint(known.mounting | known.claiming)


def not_looked_at(known: Known, of: Subject, found: Explained) -> Iterator[str]:
    """What the answer leaves out."""
    if known.mounting & of.uids:
        yield "PersistentVolumeClaims of its pods, which may keep it waiting, too, or off some nodes"
    if known.claiming & of.uids:
        yield "ResourceClaims of its pods, which may keep it waiting, too, or off some nodes"
    yield from devices_left_out(found)
    if found.is_cut:
        yield CUT
    if found.room is not None:
        yield "PodDisruptionBudgets, which may protect pods that could be evicted"
