"""Disks that pods name in their volumes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.scheduler.core.filters.beside import NODES, made, places, reasons, waiting
from tests.scheduler.core.objects import pod
from wire.core import Pod


def _disk(**source: Any) -> dict[str, Any]:
    return {"volumes": [{"name": "v", **source}]}


def _gce(name: str, *, read_only: bool = False) -> dict[str, Any]:
    return _disk(gcePersistentDisk={"pdName": name, "readOnly": read_only})


def _iscsi(iqn: str, *, read_only: bool = False) -> dict[str, Any]:
    return _disk(iscsi={"targetPortal": "t", "iqn": iqn, "lun": 0, "readOnly": read_only})


def _rbd(*monitors: str, pool: str = "rbd", image: str = "i", read_only: bool = False) -> dict[str, Any]:
    return _disk(rbd={"monitors": list(monitors), "pool": pool, "image": image, "readOnly": read_only})


_EBS = {"volumeID": "vol-1"}


def _running(spec: dict[str, Any]) -> Pod:
    return pod("r", bound_to="p", scheduler="default-scheduler", spec=spec)


@pytest.mark.parametrize(
    ("there", "asked", "is_placed"),
    [
        (_gce("d"), _gce("d"), False),
        (_gce("d"), _gce("e"), True),
        (_gce("d", read_only=True), _gce("d"), False),
        (_gce("d"), _gce("d", read_only=True), False),
        (_gce("d", read_only=True), _gce("d", read_only=True), True),
        (_disk(awsElasticBlockStore=_EBS), _disk(awsElasticBlockStore={"volumeID": "vol-2"}), True),
        (
            _disk(awsElasticBlockStore={**_EBS, "readOnly": True}),
            _disk(awsElasticBlockStore={**_EBS, "readOnly": True}),
            False,
        ),
        (_iscsi("q"), _iscsi("q"), False),
        (_iscsi("q", read_only=True), _iscsi("q", read_only=True), True),
        (_iscsi("q"), _gce("q"), True),
        (_rbd("a", "b"), _rbd("b", "c"), False),
        (_rbd("a", "b"), _rbd("c"), True),
        (_rbd("a"), _rbd("a", pool="other"), True),
        (_rbd("a"), _rbd("a", image="other"), True),
        (_rbd("a", read_only=True), _rbd("a", read_only=True), True),
        (_rbd("a", read_only=True), _rbd("a"), False),
        (_rbd(), _rbd(), True),
        (_disk(emptyDir={}), _gce("d"), True),
    ],
)
def test_a_disk_is_shared_on_a_node_only_by_pods_that_read_it(
    there: dict[str, Any], asked: dict[str, Any], is_placed: bool
) -> None:
    found = made(_running(there), waiting(asked), nodes=NODES[:1])
    assert bool(places(found.decide(0))) is is_placed
    if not is_placed:
        assert reasons(found) == {"disks": 1}
        found.remove_pod("uid-r")
        assert places(found.decide(1)) == {"w": "p"}


def test_a_pod_that_both_reads_and_writes_a_disk_shares_it_with_nobody() -> None:
    both = {"volumes": [*_gce("d")["volumes"], {"name": "u", "gcePersistentDisk": {"pdName": "d", "readOnly": True}}]}
    assert not places(made(_running(_gce("d", read_only=True)), waiting(both), nodes=NODES[:1]).decide(0))


def test_pods_of_one_decision_have_a_node_each() -> None:
    found = made(*(waiting(_gce("d"), f"w{i}") for i in range(5)))
    assert len({*places(found.decide(0)).values()}) == len(NODES)
    assert len(places(made(*(waiting(_gce("d", read_only=True), f"w{i}") for i in range(5))).decide(0))) == 5


def test_a_pod_with_more_disks_than_anybody_means_waits() -> None:
    many = {"volumes": [{"name": f"v{i}", "gcePersistentDisk": {"pdName": f"d{i}"}} for i in range(101)]}
    record = made(waiting(many)).pod("uid-w")
    assert record is not None
    assert record.blocker is not None
    assert record.blocker.detail == "more than 100 disks and Ceph monitors in volumes"
