"""Clusters in which something waits, for tests of what would help it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from scheduler.core.cluster import Cluster
from scheduler.core.decide.changes import Change
from scheduler.core.model.settings import Settings
from scheduler.core.what_if.edits import Edit, subject_of_group, subject_of_pod
from scheduler.core.what_if.suggestions import Finder
from scheduler.core.what_if.trials import Trying, answered
from tests.scheduler.core.objects import cluster

WALL_S = 1_800_000_000
#: Nobody is evicted for anybody.
NO_ROOM = Settings(preemption=False)


def trying(made: Cluster, name: str = "p", *, of_group: bool = False, wall_s: int = WALL_S) -> Trying:
    """Tries changes for a pod or PodGroup of this name."""
    find = subject_of_group if of_group else subject_of_pod
    snapshot = made.prepared(0)
    subject = find(snapshot, "ns", name)
    assert subject is not None
    return Trying(snapshot, subject, 0, wall_s)


def tries(*objects: Any, name: str = "p", settings: Settings | None = None) -> Trying:
    """Tries changes for a pod in a cluster of these objects."""
    return trying(cluster(*objects, settings=settings), name)


def edits(finder: Finder, tried: Trying) -> list[Edit]:
    """What a family finds for it."""
    return list(answered(tried, finder(tried)))


def spelled(found: Iterable[Edit]) -> list[str]:
    """As people write them."""
    return [edit.spelled() for edit in found]


def changes(tried: Trying, edit: Edit) -> tuple[Change, ...]:
    """What an edit means there."""
    return edit.changes(tried.snapshot, tried.subject)
