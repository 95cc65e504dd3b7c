"""Filters that look at what a pod mounts and binds to: volumes, disks, claims and ports."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from typing_extensions import override

from scheduler.core.filters.host_ports import Clashing
from scheduler.core.model.pod_class import Constraints, HostPort, Requirement, Term, VolumeRule
from tests.scheduler.core.filters.beside import NODES, made, places, reasons, waiting
from tests.scheduler.core.filters.judging import reason_of
from tests.scheduler.core.objects import node, pod
from wire import names
from wire.core import Pod

# Where bound volumes let their pods be.

_IN_A = VolumeRule(zones=((names.ZONE_LABEL, ("a", "b")),))
_OLD = VolumeRule(zones=((names.OLD_ZONE_LABEL, ("a",)),))
_ON_SSD = VolumeRule(terms=(Term((Requirement("disk", "In", ("ssd",)),), ()),))
_ON_N1 = VolumeRule(terms=(Term((), (Requirement("metadata.name", "In", ("n1",)),)),))
_NOWHERE = VolumeRule(terms=())


@pytest.mark.parametrize(
    ("rules", "labels", "expected"),
    [
        ((_IN_A,), {names.ZONE_LABEL: "a"}, ""),
        ((_IN_A,), {names.ZONE_LABEL: "c"}, "volume-zone"),
        ((_IN_A,), {}, ""),
        ((_IN_A,), {names.REGION_LABEL: "r"}, "volume-zone"),
        ((_OLD,), {names.ZONE_LABEL: "a"}, ""),
        ((_OLD,), {names.OLD_ZONE_LABEL: "a", names.ZONE_LABEL: "c"}, ""),
        ((_OLD,), {names.ZONE_LABEL: "c"}, "volume-zone"),
        ((_IN_A, _ON_SSD), {names.ZONE_LABEL: "c"}, "volume-zone"),
        ((_ON_SSD,), {"disk": "ssd"}, ""),
        ((_ON_SSD,), {"disk": "hdd"}, "volume-affinity"),
        ((_ON_SSD, _ON_N1), {"disk": "ssd"}, ""),
        ((_ON_N1, _NOWHERE), {}, "volume-affinity"),
    ],
)
def test_a_node_is_out_where_a_volume_can_not_be_used(
    rules: tuple[VolumeRule, ...], labels: dict[str, str], expected: str
) -> None:
    assert reason_of(Constraints(volumes=rules), node("n1", labels=labels)) == expected


# Disks that pods name in their volumes.


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


# Ports of the host.


def _ports(*ports: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"containers": [{"name": "c", "ports": list(ports)}], **more}


_HTTP = {"hostPort": 80}


@pytest.mark.parametrize(
    ("one", "other", "clash"),
    [
        (HostPort("TCP", 80), HostPort("TCP", 80), True),
        (HostPort("TCP", 80), HostPort("UDP", 80), False),
        (HostPort("TCP", 80), HostPort("TCP", 81), False),
        (HostPort("TCP", 80, "10.0.0.1"), HostPort("TCP", 80), True),
        (HostPort("TCP", 80, "10.0.0.1"), HostPort("TCP", 80, "10.0.0.1"), True),
        (HostPort("TCP", 80, "10.0.0.1"), HostPort("TCP", 80, "10.0.0.2"), False),
    ],
)
def test_ports_clash_on_one_address(one: HostPort, other: HostPort, clash: bool) -> None:
    record = made(pod("r", bound_to="p")).pod("uid-r")
    assert record is not None
    assert Clashing((one,)).takes(msgspec.structs.replace(record, ports=(other,)), lambda _: None) is clash
    assert Clashing((other,)).takes(msgspec.structs.replace(record, ports=(one,)), lambda _: None) is clash


@pytest.mark.parametrize(
    ("there", "asked", "is_placed"),
    [
        (_ports(_HTTP), _ports(_HTTP), False),
        (_ports(_HTTP), _ports({"hostPort": 443}), True),
        (_ports(_HTTP), _ports({"containerPort": 80}), True),
        (_ports({"hostPort": 80, "hostIP": "0.0.0.0"}), _ports({"hostPort": 80, "hostIP": "127.0.0.1"}), False),  # noqa: S104
        (_ports({"hostPort": 80, "hostIP": "127.0.0.1"}), _ports({"hostPort": 80, "hostIP": "10.0.0.1"}), True),
        (_ports({"containerPort": 80}, hostNetwork=True), _ports(_HTTP), False),
        ({"initContainers": [{"name": "i", "ports": [_HTTP]}]}, _ports(_HTTP), True),
        ({"initContainers": [{"name": "i", "restartPolicy": "Always", "ports": [_HTTP]}]}, _ports(_HTTP), False),
    ],
)
def test_a_port_is_had_once_on_a_node(there: dict[str, Any], asked: dict[str, Any], is_placed: bool) -> None:
    running = pod("r", bound_to="p", scheduler="default-scheduler", spec=there)
    found = made(running, waiting(asked), nodes=NODES[:1])
    assert bool(places(found.decide(0))) is is_placed
    if not is_placed:
        assert reasons(found) == {"host-ports": 1}
        found.remove_pod("uid-r")
        assert places(found.decide(1)) == {"w": "p"}


def test_pods_of_one_decision_have_a_node_each_in_host_ports() -> None:
    found = made(*(waiting(_ports(_HTTP), f"w{i}") for i in range(5)))
    assert len({*places(found.decide(0)).values()}) == len(NODES)


class _Seen(tuple[HostPort, ...]):
    """Ports, and how often somebody looked at one."""

    __slots__ = ()
    looks = 0

    @override
    def __iter__(self) -> Iterator[HostPort]:
        for port in super().__iter__():
            _Seen.looks += 1
            yield port


def test_ports_of_two_pods_are_looked_at_once_each() -> None:
    there, asked = (_Seen(HostPort("TCP", first + i) for i in range(100)) for first in (1, 1_000))
    record = made(pod("r", bound_to="p")).pod("uid-r")
    assert record is not None
    _Seen.looks = 0
    assert not Clashing(asked).takes(msgspec.structs.replace(record, ports=there), lambda _: None)
    assert _Seen.looks == 200
