"""Pods that mount claims: where the volumes behind them let a pod be, and why it waits."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.core.cluster import Cluster
from scheduler.core.model.facts import Facts
from scheduler.core.model.plan import Gang
from scheduler.core.model.verdict import Code
from tests.scheduler.core.nodes.mounting import DISK, mounting, places, reasons, told
from tests.scheduler.core.objects import (
    Fed,
    attachment,
    bound,
    claim,
    cluster,
    commit,
    csi_node,
    feed,
    node,
    pod,
    pod_group,
    storage_class,
    volume,
)
from wire import names


def _in(key: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}


def _zone(name: str, zone: str, **more: str) -> Any:
    return node(name, labels={names.ZONE_LABEL: zone, **more})


_NODES = (_zone("a", "z1"), _zone("b", "z2"), node("c"))


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (volume("pv"), {"a", "b", "c"}),
        (volume("pv", affinity=[_in(names.HOSTNAME_LABEL, "b")]), {"b"}),
        (volume("pv", affinity=[_in(names.HOSTNAME_LABEL, "b"), _in(names.ZONE_LABEL, "z1")]), {"a", "b"}),
        (volume("pv", affinity=[]), set()),
        # A node without any label of a zone or a region is in all zones.
        (volume("pv", labels={names.ZONE_LABEL: "z2"}), {"b", "c"}),
        (volume("pv", labels={names.ZONE_LABEL: "z1__z2"}), {"a", "b", "c"}),
        (volume("pv", labels={names.ZONE_LABEL: "z2__"}), {"a", "b", "c"}),
        (volume("pv", labels={names.OLD_ZONE_LABEL: "z2"}), {"b", "c"}),
        (volume("pv", labels={names.REGION_LABEL: "r"}), {"c"}),
    ],
)
def test_a_bound_claim_is_used_where_its_volume_can_be(made: Any, expected: set[str]) -> None:
    for name in ("a", "b", "c"):
        waiting = mounting("p", "data", spec={"nodeSelector": {names.HOSTNAME_LABEL: name}})
        plan = cluster(*_NODES, claim("data", "pv"), made, waiting).decide(0)
        assert places(plan) == ({"p": name} if name in expected else {})


def test_all_volumes_of_a_pod_have_to_be_usable_on_its_node() -> None:
    volumes = [volume("x", of="one", affinity=[_in(names.ZONE_LABEL, "z1")]), volume("y", of="two")]
    made = cluster(*_NODES, *volumes, claim("one", "x"), claim("two", "y"), mounting("p", "one", "two"))
    assert places(made.decide(0)) == {"p": "a"}
    feed(made, volume("y", of="two", affinity=[_in(names.ZONE_LABEL, "z2")]))
    assert reasons(made) == {"volume-affinity": 3}


def test_it_is_told_by_node_why_a_volume_keeps_a_pod_off() -> None:
    one = volume("pv", labels={names.ZONE_LABEL: "z2"}, affinity=[_in(names.HOSTNAME_LABEL, "nowhere")])
    made = cluster(*_NODES, claim("data", "pv"), one, mounting("p", "data"))
    assert reasons(made) == {"volume-zone": 1, "volume-affinity": 2}


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ([], (Code.CLAIM_NOT_FOUND, "data")),
        ([claim("data", namespace="other")], (Code.CLAIM_NOT_FOUND, "data")),
        ([claim("data", "pv")], (Code.VOLUME_NOT_FOUND, "pv")),
        ([claim("data", "pv", phase="Lost"), volume("pv")], (Code.CLAIM_LOST, "data")),
        ([claim("data", "pv", deleting=True), volume("pv")], (Code.CLAIM_LEAVING, "data")),
        ([claim("data")], (Code.CLAIM_UNBOUND, "data")),
        ([claim("data", "pv", bound=False), volume("pv")], (Code.CLAIM_UNBOUND, "data")),
        ([claim("data", storage_class="fast")], (Code.CLAIM_UNBOUND, "data")),
        ([claim("data", storage_class="fast"), storage_class("fast", "Immediate")], (Code.CLAIM_UNBOUND, "data")),
        ([claim("data", storage_class="fast"), storage_class("fast", "WaitForFirstConsumer")], (Code.NO_NODE_FITS, "")),
        (
            [claim("data", "pv", bound=False, storage_class="fast"), storage_class("fast", "WaitForFirstConsumer")],
            (Code.CLAIM_UNBOUND, "data"),
        ),
    ],
)
def test_a_claim_that_is_not_ready_keeps_its_pod_waiting_until_it_is(
    facts: list[Fed], expected: tuple[Code, str]
) -> None:
    made = cluster(node("n"), *facts, mounting("p", "data"))
    assert told(made) == expected
    feed(made, volume("pv"), claim("data", "pv"))
    assert places(made.decide(0)) == {"p": "n"}


#: What a node, a claim, its class and its volume look like where everything can be read and the pod starts.
_USABLE: list[Fed] = [
    claim("data", "pv"),
    volume("pv", csi=(DISK, "h")),
    csi_node("a", **{DISK: 4}),
    attachment("x", "a", of="other", driver=DISK),
]
_NO_CLAIMS, _NO_VOLUMES = "persistentvolumeclaims", "persistentvolumes"
_NO_CLASSES = "storageclasses.storage.k8s.io"
_NO_LIMITS, _NO_ATTACHMENTS = "csinodes.storage.k8s.io", "volumeattachments.storage.k8s.io"


def _kinds(made: Cluster) -> dict[str, Facts[Any, Any]]:
    storage = made.storage
    return {
        _NO_CLAIMS: storage.claims,
        _NO_VOLUMES: storage.volumes,
        _NO_CLASSES: storage.classes,
        _NO_LIMITS: storage.attachments.limits,
        _NO_ATTACHMENTS: storage.attachments.attached,
    }


@pytest.mark.parametrize(
    ("kind", "never_read", "fed"),
    [
        (_NO_CLAIMS, True, []),
        (_NO_VOLUMES, True, [claim("data", "pv")]),
        (_NO_CLASSES, True, [claim("data", bound=False, storage_class="later")]),
        (_NO_LIMITS, True, [claim("data", "pv"), volume("pv", csi=(DISK, "h"))]),
        (_NO_ATTACHMENTS, True, _USABLE[:3]),
        # Read once, and not any more: what can have changed since does not count.
        (_NO_CLAIMS, False, []),
        (_NO_CLAIMS, False, [claim("data", bound=False)]),
        (_NO_CLAIMS, False, [claim("data", "pv", phase="Lost")]),
        (_NO_CLAIMS, False, [claim("data", "pv", deleting=True)]),
        (_NO_VOLUMES, False, [claim("data", "pv")]),
        (_NO_CLASSES, False, [claim("data", bound=False, storage_class="later")]),
        (_NO_ATTACHMENTS, False, _USABLE),
    ],
)
def test_a_pod_waits_and_says_so_while_a_kind_that_it_depends_on_cannot_be_read(
    kind: str, never_read: bool, fed: list[Fed]
) -> None:
    made = cluster(node("a", gpus=2), mounting("p", "data"), pod("other", gpus=1))
    facts = _kinds(made)[kind]
    facts.expect()
    if not never_read:
        facts.note_in_step(True)
    feed(made, *fed)
    facts.note_in_step(False)
    assert told(made) == (Code.NOT_READ, kind)
    assert places(made.decide(0)) == {"other": "a"}
    facts.note_in_step(True)
    feed(made, *_USABLE)
    assert places(made.decide(1)) == {"other": "a", "p": "a"}


@pytest.mark.parametrize("kind", [_NO_CLAIMS, _NO_VOLUMES, _NO_CLASSES, _NO_LIMITS])
def test_what_was_read_before_and_cannot_have_changed_counts_though_its_kind_cannot_be_read(kind: str) -> None:
    made = cluster(node("a"), mounting("p", "data"))
    feed(made, *_USABLE)
    _kinds(made)[kind].note_in_step(False)
    assert places(made.decide(0)) == {"p": "a"}


def test_the_claim_of_an_ephemeral_volume_has_to_be_the_pods_own() -> None:
    made = cluster(node("n"), volume("pv", of="p-scratch"), mounting("p", ephemeral="scratch"))
    assert told(made) == (Code.CLAIM_NOT_MADE, "p-scratch")
    feed(made, claim("p-scratch", "pv", owner="uid-of-another"))
    assert told(made) == (Code.CLAIM_NOT_OWN, "p-scratch")
    feed(made, claim("p-scratch", "pv", owner="uid-p"))
    assert places(made.decide(0)) == {"p": "n"}


def test_a_change_that_concerns_no_claim_of_a_pod_costs_no_decision() -> None:
    made = cluster(node("n", 0), claim("data", "pv"), volume("pv"), mounting("p", "data"))
    first = made.decide(0)
    feed(made, claim("other", "pw"), volume("pw", of="other"))
    assert made.decide(0) is first


def _alone(name: str) -> Any:
    return claim(name, "pv", modes=["ReadWriteOncePod"])


def test_a_claim_for_one_pod_is_used_by_one_at_a_time() -> None:
    first, second = mounting("p", "data", created="2026-01-02T00:00:00Z"), mounting("q", "data")
    made = cluster(node("n"), _alone("data"), volume("pv"), first, second)
    plan = made.decide(0)
    assert (places(plan), told(made)) == ({"q": "n"}, (Code.CLAIM_IN_USE, "data"))
    commit(made, plan)
    assert (places(made.decide(0)), told(made)) == ({}, (Code.CLAIM_IN_USE, "data"))
    feed(made, bound(second, "n"))
    assert (places(made.decide(0)), told(made)) == ({}, (Code.CLAIM_IN_USE, "data"))
    made.remove_pod("uid-q")
    assert places(made.decide(0)) == {"p": "n"}


def test_a_gang_that_does_not_start_keeps_no_claim() -> None:
    members = [mounting(f"m{i}", "data", group="g", priority=1) for i in range(2)]
    made = cluster(node("n"), _alone("data"), volume("pv"), pod_group("g", 2), *members, mounting("p", "data"))
    plan = made.decide(0)
    assert (places(plan), [e for e in plan.entries if isinstance(e, Gang)]) == ({"p": "n"}, [])


def test_pods_on_different_volumes_in_one_zone_are_judged_as_one_class() -> None:
    zoned = [volume(f"pv{i}", of=f"d{i}", labels={names.ZONE_LABEL: "z1"}) for i in range(3)]
    claims = [claim(f"d{i}", f"pv{i}") for i in range(3)]
    made = cluster(_zone("a", "z1"), *zoned, *claims, *(mounting(f"p{i}", f"d{i}") for i in range(3)))
    assert len({waiting.cls for waiting in made.waiting()}) == 1


def test_a_claim_that_many_pods_wait_for_is_looked_at_once_for_all_of_them() -> None:
    pods = [mounting(f"p{i:02}", "data") for i in range(50)]
    made = cluster(node("n"), _alone("data"), volume("pv"), *pods)
    asked: list[str] = []

    def is_on_its_way(uid: str) -> bool:
        asked.append(uid)
        return False

    holders = made.storage.holders(is_on_its_way)
    waiting = [record for each in pods if (record := made.pod(each.metadata.uid)) is not None]
    judged = [made.storage.judged(record, holders) for record in waiting]
    assert all(record.alone == ("data",) and record.blocker is None for record in judged)
    assert len(asked) == 50


def test_a_pod_that_waits_for_room_hears_at_once_that_another_one_uses_its_claim() -> None:
    made = cluster(node("n", 1), _alone("data"), volume("pv"), pod("busy", gpus=1, bound_to="n"), mounting("p", "data"))
    assert told(made)[0] is Code.NO_NODE_FITS
    feed(made, bound(mounting("r", "data"), "n"))
    assert told(made) == (Code.CLAIM_IN_USE, "data")


def test_what_keeps_a_pod_from_any_node_is_said_before_what_its_claims_lack() -> None:
    wrong = mounting("p", "data", annotations={names.GPU_FRACTION: "1.5"})
    assert told(cluster(node("n"), wrong))[0] is not Code.CLAIM_NOT_FOUND
    assert told(cluster(node("n"), mounting("p", "data")))[0] is Code.CLAIM_NOT_FOUND


def test_pods_with_claims_are_looked_at_again_once_after_something_that_concerns_all_of_them() -> None:
    made = cluster(node("n", 0), claim("data", "pv"), volume("pv"), mounting("p", "data"))
    made.decide(0)
    made.storage.touch_all()
    assert not made.scheduling_queue.touched
    feed(made, csi_node("n", **{DISK: 1}))
    made.storage.touch_all()
    assert made.scheduling_queue.touched == {"uid-p"}
