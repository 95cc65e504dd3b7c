"""Reading disks that pods name."""

from __future__ import annotations

from scheduler.core.convert.pod_rules import inline_disks
from scheduler.core.model.pod_class import InlineDisk
from tests.scheduler.core.objects import pod


def test_each_disk_of_a_pod_is_read_once_and_an_image_once_for_each_monitor() -> None:
    disk = {"pdName": "d", "readOnly": True}
    image = {"monitors": ["m", "n"], "pool": "p", "image": "i"}
    sources: list[dict[str, object]] = [
        {"gcePersistentDisk": disk},
        {"gcePersistentDisk": disk},
        {"awsElasticBlockStore": {"volumeID": "v", "readOnly": True}},
        {"iscsi": {"iqn": "q"}},
        {"rbd": image},
        {"persistentVolumeClaim": {"claimName": "c"}},
    ]
    volumes: list[dict[str, object]] = [{"name": f"v{number}", **source} for number, source in enumerate(sources)]
    assert inline_disks(pod(spec={"volumes": volumes})) == (
        InlineDisk("gcePersistentDisk", ("d",), True),
        InlineDisk("awsElasticBlockStore", ("v",)),
        InlineDisk("iscsi", ("q",)),
        InlineDisk("rbd", ("m", "p", "i")),
        InlineDisk("rbd", ("n", "p", "i")),
    )
