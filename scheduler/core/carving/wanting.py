"""Which pods wait for MIG slices, by what the last decision said of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Sequence
from typing import Final, TypeAlias

import msgspec

from gpu.slices import slice_resource
from scheduler.core.cluster import Cluster
from scheduler.core.model.plan import Explain
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.records import PodRecord
from scheduler.core.model.verdict import Code
from wire import names

#: Verdicts that other slices can change.
_FOR_WANT_OF_SLICES: Final = frozenset({Code.NO_NODE_FITS, Code.GANG_INCOMPLETE, Code.NO_CARD_CAN_BE_CARVED})
#: Pods of a gang that are looked at, and slices that one group may want: as many as 64 GPUs have.
_MOST_PODS: Final = 512
_MOST_SLICES: Final = 512


class SliceWant(msgspec.Struct, frozen=True, gc=False):
    """Slices that a pod alone, or the members of a gang together, wait for. ``resources``: each with its number.

    ``like``: pods alone for which the same can be said as for each other.
    """

    uids: tuple[str, ...]
    pod_group: tuple[str, str] | None
    resources: tuple[tuple[str, int], ...]
    like: tuple[PodClass, str, str] | None = None

    @property
    def kind(self) -> object:
        """What one looks at once: the gang, or all pods alone that are alike."""
        return self.pod_group or self.like or self.uids

    @property
    def text(self) -> str:
        """``2 nvidia.com/mig-1g.10gb, 1 nvidia.com/mig-3g.40gb``."""
        return ", ".join(f"{number} {name}" for name, number in self.resources)


def slice_wants(
    cluster: Cluster, explained: Iterable[Explain], *, now_ns: int, covered: Container[str]
) -> list[SliceWant]:
    """Return what is wanted, by priority and then by age. ``covered``: UIDs of pods for which slices are being made."""
    found: list[tuple[tuple[int, str, str], SliceWant]] = []
    asked = _Asked()
    for entry in explained:
        if entry.verdict.code not in _FOR_WANT_OF_SLICES:
            continue
        groups = [entry.pods] if entry.pod_group is not None else [(uid,) for uid in entry.pods]
        for uids in groups:
            pods = [pod for uid in uids[:_MOST_PODS] if (pod := waiting(cluster, uid, now_ns)) is not None]
            wanted = asked.by(pods)
            if 0 < sum(number for _, number in wanted) <= _MOST_SLICES and not any(pod.uid in covered for pod in pods):
                first = pods[0]
                like = None if entry.pod_group is not None else (first.cls, first.namespace, first.queue)
                want = SliceWant(tuple(pod.uid for pod in pods), entry.pod_group, wanted, like)
                found.append((min((-pod.priority, pod.created, pod.uid) for pod in pods), want))
    return [want for _, want in sorted(found, key=lambda each: each[0])]


def waiting(cluster: Cluster, uid: str, now_ns: int) -> PodRecord | None:
    """Return the pod, if it waits and may be placed now."""
    pod, setback = cluster.pod(uid), cluster.setback(uid)
    if pod is None or pod.node or pod.gated or (setback is not None and now_ns < setback.until_ns):
        return None
    return pod


_Amounts: TypeAlias = tuple[tuple[str, int], ...]


class _Asked:
    """Slices that pods take: pods alone are many, and of few classes."""

    def __init__(self) -> None:
        #: By the class's identity, with the class: it lives as long as its number is known here.
        self._known: dict[int, tuple[PodClass, _Amounts]] = {}

    def by(self, pods: Sequence[PodRecord]) -> _Amounts:
        """Each resource with its number, sorted."""
        if len(pods) == 1:
            return self._by_one(pods[0].cls)
        asked = Counter[str]()
        for pod in pods:
            asked.update(dict(self._by_one(pod.cls)))
        return tuple(sorted(asked.items()))

    def _by_one(self, cls: PodClass) -> _Amounts:
        """Whole ones, and one to share for each part of one that is asked for."""
        if id(cls) not in self._known:
            asked = Counter({name: amount for name, amount in cls.demand.extended if _is_slice(name)})
            asked.update(slice_resource(ask.profile) for ask in cls.request.shared if ask.profile)
            self._known[id(cls)] = cls, tuple(sorted(asked.items()))
        return self._known[id(cls)][1]


def _is_slice(name: str) -> bool:
    return name.startswith(names.MIG_RESOURCE_PREFIX)
