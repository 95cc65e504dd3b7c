"""Disks that pods name in their volumes: pods on a node share one only if each of them reads it only."""

from __future__ import annotations

import msgspec
from typing_extensions import override

from scheduler.core.filters.pod_rule import AnyOnNode, LabelsOf, PodRule
from scheduler.core.model.pod_class import InlineDisk, PodClass
from scheduler.core.model.records import PodRecord


class Mounting(msgspec.Struct, frozen=True, cache_hash=True):
    """Pods that mount one of some disks, and so exclude a pod with these disks from their node."""

    disks: tuple[InlineDisk, ...]

    @property
    def reads(self) -> None:
        """Disks alone."""
        return

    def effort(self) -> int:
        """What it takes to look at one pod that has some, in comparisons or so."""
        return len(self.disks)

    def takes(self, pod: PodRecord, labels_of: LabelsOf) -> bool:
        """Whether a pod is one of them."""
        del labels_of
        if not pod.disks:
            return False
        asked = {(disk.type, disk.name) for disk in self.disks}
        written = {(disk.type, disk.name) for disk in self.disks if not disk.is_read_only}
        return any((disk.type, disk.name) in (written if disk.is_read_only else asked) for disk in pod.disks)


class InlineDisks(PodRule):
    """Disks of Google and Amazon, iSCSI, Ceph RBD. Pods of all schedulers mount them."""

    kind = "disks"
    words = "node(s) had no available disk"

    @override
    def parts(self, cls: PodClass) -> tuple[AnyOnNode, ...]:
        """Nodes with a pod that has one of the disks."""
        return (AnyOnNode(Mounting(cls.rules.disks)),) if cls.rules is not None and cls.rules.disks else ()
