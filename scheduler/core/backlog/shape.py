"""Pods alone that wait for the same: of one namespace and one class. What holds for one of them holds for all."""

from __future__ import annotations

from typing import NamedTuple

from scheduler.core.backlog.ranked import Ranked
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.priority_order import rank_alone
from scheduler.core.model.records import PodRecord
from scheduler.core.model.verdict import Verdict


class ShapeKey(NamedTuple):
    """``uid``: of a pod that something sets apart from others of its class, "" for all others.

    ``is_fixed``: they can't be preempted, which counts in their queue.
    """

    namespace: str
    cls: PodClass
    uid: str = ""
    queue: str = ""
    is_fixed: bool = False


class Shape(Ranked):
    """Pods (UIDs) with their ranks. ``verdict``: why they fit nowhere, None as long as that is not known.

    ``apart``: pods with a verdict of their own, until the shape has its next one.
    """

    __slots__ = ("apart", "key", "verdict")

    def __init__(self, key: ShapeKey) -> None:
        super().__init__()
        self.key = key
        self.verdict: Verdict | None = None
        self.apart: set[str] = set()

    def put(self, pod: PodRecord) -> None:
        """Take a pod as it is now."""
        self.put_rank(rank_alone(pod))
