"""Feeds the view from watches: pods of ours, PodGroups, names of PriorityClasses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from gpu.grant import has_ended
from kube.watch.reflector import in_turns
from podgrouper.core import patches, projection
from podgrouper.core.patches import Live
from podgrouper.watch.view import SeenPod, View
from wire import names
from wire.core import Pod, PriorityClass
from wire.crds.podgroup import PodGroup

#: Longer than what is read of usual pods, of 0.5 to 2 KiB, is; a longer one is read again when it is looked at.
POD_BYTES: Final = 8 << 10
#: The same in a list, before which the view can't count what its namespace has: as much as the rest of a pod takes.
LISTED_BYTES: Final = 1 << 10


def seen(pod: Pod) -> SeenPod | str:
    """Read a pod; of one that has ended, or is being deleted, only its UID."""
    meta = pod.metadata
    if has_ended(pod.status) or meta.deletion_timestamp is not None:
        return meta.uid
    read = projection.pod_as_read(pod)
    return SeenPod(
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        key=projection.key_of(read),
        group=projection.group_of(read),
        is_bound=bool(pod.spec.node_name),
        has_part=bool((meta.labels or {}).get(names.SUBGROUP_LABEL)),
        owner_kind=projection.owner_kind(read),
        fingerprint=projection.fingerprint(read),
        body=msgspec.json.encode(read),
    )


def _within(most: int, pod: SeenPod) -> SeenPod:
    """Return a pod, without its body if that is longer."""
    return pod if len(pod.body) <= most else msgspec.structs.replace(pod, body=b"")


class PodSink:
    """Feeds pods."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._is_read = False

    def keep(self, obj: Pod) -> SeenPod | str:
        """What the view keeps of a pod. A list may be long, and most of its pods are grouped: without their bodies."""
        pod = seen(obj)
        return pod if isinstance(pod, str) else _within(0 if pod.group or pod.is_bound else LISTED_BYTES, pod)

    async def replace(self, kept: Sequence[SeenPod | str]) -> None:
        """Take a list: what is not in it is gone."""
        self._view.keep_pods(pod.uid for pod in kept if isinstance(pod, SeenPod))
        pods = [pod for pod in kept if isinstance(pod, SeenPod)]
        if self._is_read:
            for pod in pods:
                self._view.pod_listed(pod)
        else:
            await in_turns(pods, self._view.pod_listed)
            self._is_read = True

    def upsert(self, obj: Pod) -> None:
        """Take a pod."""
        pod = seen(obj)
        if isinstance(pod, str):
            self._view.pod_gone(pod)
        else:
            self._view.pod_seen(_within(POD_BYTES, pod))

    def delete(self, obj: Pod) -> None:
        """Take a pod's last state."""
        self._view.pod_gone(obj.metadata.uid)


class GroupSink:
    """Feeds PodGroups."""

    def __init__(self, view: View) -> None:
        self._view = view

    def keep(self, obj: PodGroup) -> Live:
        """What the view keeps of a PodGroup."""
        return patches.live(obj)

    async def replace(self, kept: Sequence[Live]) -> None:
        """Take a list: what is not in it is gone."""
        self._view.keep_groups((group.namespace, group.name) for group in kept)
        for group in kept:
            self._view.group_seen(group)

    def upsert(self, obj: PodGroup) -> None:
        """Take a PodGroup."""
        self._view.group_seen(patches.live(obj))

    def delete(self, obj: PodGroup) -> None:
        """Take a PodGroup's last state."""
        self._view.group_gone(obj.metadata.namespace, obj.metadata.name)


class PriorityClassSink:
    """Feeds names of PriorityClasses. While they can't be read, any name counts as that of one."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._names: set[str] = set()
        self._is_in_step = False

    def keep(self, obj: PriorityClass) -> str:
        """What the view keeps of one."""
        return obj.metadata.name

    async def replace(self, kept: Sequence[str]) -> None:
        """Take a list."""
        self._names = set(kept)
        self._tell()

    def upsert(self, obj: PriorityClass) -> None:
        """Take a PriorityClass."""
        self._names.add(obj.metadata.name)
        self._tell()

    def delete(self, obj: PriorityClass) -> None:
        """Take a PriorityClass's last state."""
        self._names.discard(obj.metadata.name)
        self._tell()

    def in_step(self, is_in_step: bool) -> None:
        """Take whether changes come in."""
        self._is_in_step = is_in_step
        self._tell()

    def _tell(self) -> None:
        self._view.priority_classes = frozenset(self._names) if self._is_in_step else None
