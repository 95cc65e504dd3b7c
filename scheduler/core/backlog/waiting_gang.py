"""A gang of which members wait, and what wakes it while it sleeps."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from scheduler.core.backlog.sayings import Key
from scheduler.core.model.pod_class import PodClass


class Until(enum.Enum):
    """What wakes a gang that sleeps, beside each change that touches it."""

    #: Nothing else: no node can help it now.
    TOUCHED = enum.auto()
    #: One of the classes of its members may fit: its minimum runs, and members beyond it wait.
    CLASS_FITS = enum.auto()
    #: What is kept of its last start does not hold any more.
    MAY_START = enum.auto()
    #: Its queue takes what it would use.
    QUEUE_TAKES = enum.auto()
    #: Nodes on which it would fit are kept for others no more, or other nodes may help.
    KEPT_OFF = enum.auto()


@dataclass(slots=True)
class WaitingGang:
    """Members of a gang that wait. ``classes``: of those that were looked at last."""

    key: Key
    classes: tuple[PodClass, ...] = ()
    until: Until = Until.TOUCHED
