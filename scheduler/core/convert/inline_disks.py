"""Reading disks that pods name in their volumes without a claim, of the kinds that two pods on a node can't share."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

import msgspec

from scheduler.core.convert import bounds
from scheduler.core.model.pod_rules import InlineDisk
from wire.core import Pod, Volume

#: Nobody means more, and each costs a look at all nodes.
MOST_DISKS: Final = 100


def inline_disks(pod: Pod) -> tuple[InlineDisk, ...]:
    """The disks of a pod, each once (core/v1 VolumeSource), one more than it may have at most."""
    found = dict.fromkeys(
        islice((disk for volume in pod.spec.volumes or () for disk in _disks(volume)), MOST_DISKS + 1)
    )
    return tuple(msgspec.structs.replace(disk, name=tuple(map(bounds.name, disk.name))) for disk in found)


def _disks(volume: Volume) -> Iterator[InlineDisk]:
    if (gce := volume.gce_persistent_disk) is not None:
        yield InlineDisk("gcePersistentDisk", (gce.pd_name,), gce.read_only)
    if (ebs := volume.aws_elastic_block_store) is not None:
        # Nobody can mount one twice, read-only or not.
        yield InlineDisk("awsElasticBlockStore", (ebs.volume_id,))
    if (iscsi := volume.iscsi) is not None:
        yield InlineDisk("iscsi", (iscsi.iqn,), iscsi.read_only)
    if (rbd := volume.rbd) is not None:
        for monitor in rbd.monitors or ():
            yield InlineDisk("rbd", (monitor, rbd.pool, rbd.image), rbd.read_only)
