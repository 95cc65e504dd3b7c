"""How many volumes a node takes of a driver: each counts once, until it is detached."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.core.convert.volumes import attachment_record
from scheduler.core.model.plan import Explain, Gang
from scheduler.core.model.verdict import Code, NodeReason
from tests.scheduler.core.nodes.mounting import DISK, disks, mounting, places, reasons, told
from tests.scheduler.core.objects import (
    Fed,
    attachment,
    bind_request,
    bound,
    claim,
    cluster,
    commit,
    csi_node,
    feed,
    node,
    pod_group,
    volume,
)
from wire.core import Pod
from wire.storage import PersistentVolume


def test_a_node_takes_no_more_volumes_than_its_driver_says() -> None:
    pods = [mounting(f"p{i}", f"d{i}", created=f"2026-01-0{i + 1}T00:00:00Z") for i in range(5)]
    made = cluster(node("a"), node("b"), csi_node("a", **{DISK: 2}), csi_node("b", **{DISK: 1}), *disks(5), *pods)
    plan = made.decide(0)
    assert sorted(places(plan).values()) == ["a", "a", "b"]
    assert reasons(made, "uid-p3") == {"volumes": 2}
    commit(made, plan)
    assert (places(made.decide(0)), reasons(made, "uid-p3")) == ({}, {"volumes": 2})
    for one in pods:
        if (there := places(plan).get(one.metadata.name)) is not None:
            feed(made, bound(one, there))
    assert (places(made.decide(0)), reasons(made, "uid-p3")) == ({}, {"volumes": 2})
    feed(made, csi_node("b", **{DISK: 2}))
    assert places(made.decide(0)) == {"p3": "b"}
    made.remove_pod("uid-p0")
    assert places(made.decide(0)) == {"p3": "a", "p4": "b"}


def test_a_volume_counts_once_on_a_node_however_many_pods_use_it() -> None:
    running = bound(mounting("r", "d0"), "a")
    made = cluster(node("a"), csi_node("a", **{DISK: 1}), *disks(2), running, mounting("p", "d0"), mounting("q", "d1"))
    assert places(made.decide(0)) == {"p": "a"}
    assert reasons(made, "uid-q") == {"volumes": 1}


def test_a_volume_whose_pod_is_gone_counts_until_it_is_detached() -> None:
    left = attachment("x", "a", of="pv0", driver=DISK)
    made = cluster(node("a"), csi_node("a", **{DISK: 1}), left, *disks(2), mounting("p", "d1"))
    assert reasons(made) == {"volumes": 1}
    made.storage.attachments.attached.drop(attachment_record(left))
    assert places(made.decide(0)) == {"p": "a"}


def test_a_volume_that_is_attached_already_can_be_used_again() -> None:
    left = attachment("x", "a", of="pv0", driver=DISK)
    made = cluster(node("a"), csi_node("a", **{DISK: 1}), *disks(2), left, mounting("p", "d0"))
    assert places(made.decide(0)) == {"p": "a"}


@pytest.mark.parametrize("limits", [[], [csi_node("a", **{DISK: None})], [csi_node("a", other=0)]])
def test_without_a_limit_of_their_driver_volumes_are_not_counted(limits: list[Fed]) -> None:
    made = cluster(node("a"), *limits, *disks(3), *(mounting(f"p{i}", f"d{i}") for i in range(3)))
    assert len(places(made.decide(0))) == 3


def test_a_gang_that_does_not_start_leaves_no_volume_on_a_node() -> None:
    members = [mounting(f"m{i}", f"d{i}", group="g", priority=1) for i in range(3)]
    made = cluster(node("a"), csi_node("a", **{DISK: 2}), *disks(4), pod_group("g", 3), *members, mounting("p", "d3"))
    plan = made.decide(0)
    assert (places(plan), [e for e in plan.entries if isinstance(e, Gang)]) == ({"p": "a"}, [])
    (verdict,) = (e.verdict for e in plan.entries if isinstance(e, Explain))
    assert (verdict.code, verdict.node_reasons) == (Code.GANG_INCOMPLETE, (NodeReason("volumes", "", 1),))


def test_one_volume_of_a_limited_driver_is_enough_to_wait_while_attachments_cannot_be_read() -> None:
    other: list[Fed] = [claim("x", "pvx"), volume("pvx", of="x", csi=("free.csi.example", "x"))]
    made = cluster(node("a"), csi_node("a", **{DISK: 4}), *disks(1), *other, mounting("p", "x", "d0"))
    made.storage.attachments.attached.note_in_step(False)
    assert told(made) == (Code.NOT_READ, "volumeattachments.storage.k8s.io")


def test_a_volume_of_a_pod_on_its_way_counts_once_beside_a_pod_that_has_it_there() -> None:
    """On a node that has it already, it takes nothing of the limit; on another one it does."""
    ways = {"a": mounting("wa", "d0"), "b": mounting("wb", "d0")}
    for there, placed in (("a", {"p": "a"}), ("b", {})):
        made = cluster(
            node("a"),
            node("b", cordoned=True),
            csi_node("a", **{DISK: 2}),
            *disks(2),
            bound(mounting("r", "d0"), there),
            ways["a"],
            bind_request(ways["a"], "a"),
            bound(mounting("s", "d2"), "a"),
            claim("d2", "pv2"),
            volume("pv2", of="d2", csi=(DISK, "h2") if there == "b" else None),
            mounting("p", "d1"),
        )
        assert places(made.decide(0)) == placed


def test_a_volume_of_a_pod_on_its_way_takes_one_of_the_limit_and_not_two() -> None:
    way = mounting("w", "d0")
    made = cluster(node("a"), csi_node("a", **{DISK: 2}), *disks(3), way, bind_request(way, "a"), mounting("p", "d1"))
    assert places(made.decide(0)) == {"p": "a"}
    feed(made, mounting("q", "d2"))
    assert len(places(made.decide(0))) == 1


def test_a_volume_that_has_left_a_node_counts_there_no_more() -> None:
    first, second = bound(mounting("r", "d0"), "a"), bound(mounting("s", "d0"), "a")
    made = cluster(node("a"), csi_node("a", **{DISK: 1}), *disks(2), first, second, mounting("p", "d1"))
    assert places(made.decide(0)) == {}
    made.remove_pod("uid-r")
    assert places(made.decide(0)) == {}, "the other pod has it still"
    feed(made, mounting("q", "d0"))
    assert places(made.decide(0)) == {"q": "a"}
    made.remove_pod("uid-s")
    assert places(made.decide(0)) in ({"p": "a"}, {"q": "a"}), "one of the two volumes has room"


_CINDER = "cinder.csi.openstack.org"


def _cinder(name: str, handle: str, **asked: Any) -> Pod:
    """A pod that names a volume without a claim."""
    return mounting(name, spec={"volumes": [{"name": "v", "cinder": {"volumeID": handle}}]}, **asked)


def _in_tree(name: str, of: str, handle: str) -> PersistentVolume:
    spec = {"claimRef": {"namespace": "ns", "name": of}, "cinder": {"volumeID": handle}}
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, PersistentVolume)


def test_volumes_of_drivers_inside_kubernetes_count_against_the_limits_of_csi_drivers() -> None:
    limit = csi_node("a", **{_CINDER: 1})
    made = cluster(node("a"), limit, claim("d0", "pv0"), _in_tree("pv0", "d0", "x"), bound(mounting("r", "d0"), "a"))
    feed(made, _cinder("p", "y"), _cinder("same", "x"))
    assert places(made.decide(0)) == {"same": "a"}
    assert reasons(made) == {"volumes": 1}
    feed(made, csi_node("a", **{_CINDER: 2}))
    assert places(made.decide(0)) == {"same": "a", "p": "a"}


def test_a_volume_without_a_claim_counts_while_its_pod_is_there() -> None:
    made = cluster(node("a"), csi_node("a", **{_CINDER: 1}), bound(_cinder("r", "x"), "a"), _cinder("p", "y"))
    assert reasons(made) == {"volumes": 1}
    made.remove_pod("uid-r")
    assert places(made.decide(0)) == {"p": "a"}


def test_of_what_is_attached_volumes_of_drivers_inside_kubernetes_do_not_count() -> None:
    left = attachment("x", "a", of="pv0", driver=_CINDER)
    limited = csi_node("a", **{_CINDER: 1})
    made = cluster(node("a"), limited, left, claim("d0", "pv0"), _in_tree("pv0", "d0", "x"), _cinder("p", "y"))
    assert places(made.decide(0)) == {"p": "a"}
