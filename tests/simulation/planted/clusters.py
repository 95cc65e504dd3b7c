"""Faulty clusters: schedulers that decide on them forget, mix up, or keep what they should not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import msgspec
from typing_extensions import override

from scheduler.core.assumed.commits import Commits
from scheduler.core.cluster import Cluster
from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.model.records import NodeRecord, PodRecord, SeenPod
from scheduler.core.model.seen_pods import Pods
from scheduler.core.model.settings import Settings
from scheduler.core.nodes.node_usage import Charge
from wire.core import Pod


class NamesGroupsByPod(Cluster):
    """R1 once more: the group that a pod opens has one name, on whichever node and at whichever attempt."""

    @override
    def _put_node(self, record: NodeRecord) -> bool:
        return super()._put_node(msgspec.structs.replace(record, uid="anywhere"))

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.commits = _FirstAttempts(self._pods, settings=settings, changed=self._changed, touched=self._touch)


class _FirstAttempts(Commits):
    @override
    def next_number(self, uid: str) -> int:
        return 1


class ForgetsWhatItDecided(Cluster):
    """R5: what was decided a moment ago is charged only when the watch shows it."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.commits = _SeenOnly(self._pods, settings=settings, changed=self._changed, touched=self._touch)


class _SeenOnly(Commits):
    @override
    def charges_at(self, node: str) -> tuple[Charge, ...]:
        return (*self.hand_overs.charges_at(node), *self.promises.charges_at(node))


class NeverBacksOff(Cluster):
    """R8: an attempt that failed is made again at once, on the same node."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.commits = _NeverFailing(self._pods, settings=settings, changed=self._changed, touched=self._touch)


class _NeverFailing(Commits):
    @override
    def failed(self, pod_uid: str, node: str, reason: str, *, now_ns: int) -> None:
        self._changed()


class CountsTheDead(Cluster):
    """R9: pods that were members of a gang of that name count, though they are gone."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._dead: dict[str, PodRecord] = {}

    @override
    def take_pod(self, seen: SeenPod) -> None:
        if seen.has_ended:
            self._keep(seen.uid)
        super().take_pod(seen)

    @override
    def remove_pod(self, uid: str, *, has_ended: bool = False) -> None:
        self._keep(uid)
        super().remove_pod(uid, has_ended=has_ended)

    def _keep(self, uid: str) -> None:
        known = self.pod(uid)
        if known is not None and known.node:
            self._dead[uid] = msgspec.structs.replace(known, deleting=False)

    @override
    def members(self, namespace: str, pod_group: str) -> list[PodRecord]:
        return _WithDead(self._pods, self._dead).members(namespace, pod_group)

    @override
    def snapshot(self) -> Snapshot:
        snapshot = super().snapshot()
        return replace(snapshot, pods=cast("Pods", _WithDead(snapshot.pods, self._dead)))


class _WithDead:
    def __init__(self, pods: Pods, dead: Mapping[str, PodRecord]) -> None:
        self._pods = pods
        self._dead = dead

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pods, name)

    def members(self, namespace: str, pod_group: str) -> list[PodRecord]:
        dead = (pod for pod in self._dead.values() if (pod.namespace, pod.pod_group) == (namespace, pod_group))
        return [*self._pods.members(namespace, pod_group), *dead]


class KeepsEverything(Cluster):
    """R10: every version of every pod is kept whole."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._seen: list[Pod] = []

    @override
    def read_pod(self, pod: Pod) -> SeenPod:
        self._seen.append(pod)
        return super().read_pod(pod)
