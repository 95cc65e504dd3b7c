"""How many volumes a node takes of a driver: each counts once, until it is detached."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from scheduler.core.cluster import Cluster
from scheduler.core.convert import volumes
from scheduler.core.convert.nodes import node_record
from scheduler.core.convert.volumes import attachment_record
from scheduler.core.filters.node_affinity import holds, meets
from scheduler.core.filters.volume_places import VolumeAffinity, VolumeZone
from scheduler.core.model.plan import Explain, Gang, Plan, Prepare
from scheduler.core.model.pod_class import Requirement, Term, VolumeRule
from scheduler.core.model.records import NodeRecord
from scheduler.core.model.verdict import Code, NodeReason
from scheduler.core.nodes.volume_limits import NodeIndex
from tests.scheduler.core.nodes.mounting import DISK, disks, mounting, places, reasons, told
from tests.scheduler.core.objects import (
    Fed,
    attachment,
    bind_request,
    bound,
    claim,
    cluster,
    commit,
    csi_capacity,
    csi_driver,
    csi_node,
    feed,
    free_volume,
    node,
    pod_group,
    storage_class,
    volume,
)
from tests.whole import seeds
from wire import names
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


# A claim is not bound for a node that takes no more volumes of the driver that would make its volume.

_WAITS = "WaitForFirstConsumer"
_NODES = (node("a"), node("b"))


def _wants(*claims: str) -> list[Fed]:
    return [claim(name, storage_class="fast", size="1Gi") for name in claims]


def _made(*others: Fed, provisioner: str = DISK, driver: str = DISK, on_a: int | None = 1, on_b: int = 1) -> Cluster:
    limits = csi_node("a", **{driver: on_a}), csi_node("b", **{driver: on_b})
    return cluster(*_NODES, storage_class("fast", _WAITS, provisioner=provisioner), *limits, *others)


def _prepared(plan: Plan) -> dict[str, str]:
    """Node by pod, of those whose claims are to be bound."""
    prepared = (entry for entry in plan.entries if isinstance(entry, Prepare))
    return {placement.name: placement.node for entry in prepared for placement in entry.placements}


@pytest.mark.parametrize(
    ("provisioner", "driver"),
    [(DISK, DISK), ("kubernetes.io/aws-ebs", "ebs.csi.aws.com"), ("kubernetes.io/gce-pd", "pd.csi.storage.gke.io")],
)
def test_no_volume_is_made_for_a_node_whose_limit_is_reached(provisioner: str, driver: str) -> None:
    made = _made(*_wants("x"), mounting("p", "x"), provisioner=provisioner, driver=driver, on_a=0)
    assert _prepared(made.decide(0)) == {"p": "b"}


def test_volumes_that_are_there_and_those_to_come_count_together() -> None:
    there = bound(mounting("r", "d0"), "a")
    made = _made(*disks(1), there, *_wants("x", "y"), mounting("p", "x", "y"), on_a=2, on_b=1)
    assert reasons(made) == {"volumes": 2}
    feed(made, csi_node("a", **{DISK: 3}))
    assert _prepared(made.decide(0)) == {"p": "a"}


def test_claims_that_are_being_bound_count_where_they_are_chosen_for() -> None:
    made = _made(*_wants("x", "y", "z"), *(mounting(f"p{name}", name) for name in ("x", "y", "z")))
    plan = made.decide(0)
    assert sorted(_prepared(plan).values()) == ["a", "b"]
    commit(made, plan)
    (left,) = {"px", "py", "pz"} - _prepared(plan).keys()
    assert (_prepared(made.decide(0)), reasons(made, f"uid-{left}")) == ({}, {"volumes": 2})


def test_a_gang_gets_its_volumes_on_several_nodes_or_waits_whole() -> None:
    made = _made(*_wants("x", "y"), pod_group("g", 2), *(mounting(f"p{n}", n, group="g") for n in ("x", "y")), on_a=0)
    assert _prepared(made.decide(0)) == {}
    feed(made, csi_node("a", **{DISK: 1}))
    assert sorted(_prepared(made.decide(0)).values()) == ["a", "b"]


def test_a_claim_of_several_pods_is_one_volume_on_a_node() -> None:
    made = _made(*_wants("x"), mounting("p", "x"), mounting("q", "x"), on_b=0)
    assert _prepared(made.decide(0)) == {"p": "a", "q": "a"}


def test_a_limit_of_another_driver_does_not_matter() -> None:
    made = _made(*_wants("x"), mounting("p", "x"), provisioner="another.example", on_a=0, on_b=0)
    assert _prepared(made.decide(0)) == {"p": "a"}


def test_without_a_limit_on_a_node_volumes_to_come_are_not_counted() -> None:
    made = _made(*_wants("x", "y"), mounting("p", "x", "y"), on_a=None)
    assert _prepared(made.decide(0)) == {"p": "a"}


# What there is for unbound claims: by class, and on which nodes, as looked up and as looked at one by one.

_KEYS = (names.HOSTNAME_LABEL, names.ZONE_LABEL, "disk")
_OPERATORS = ("In", "In", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Unheard")


def _nodes(rng: random.Random) -> list[NodeRecord]:
    made = []
    for number in range(rng.randint(0, 6)):
        labels = {key: rng.choice(["1", "2", "3"]) for key in _KEYS if rng.random() < 0.7}
        made.append(node_record(node(f"n{number}", labels=labels)))
    return made


def _requirements(rng: random.Random, keys: tuple[str, ...]) -> tuple[Requirement, ...]:
    return tuple(
        Requirement(rng.choice(keys), rng.choice(_OPERATORS), tuple(rng.choices(["1", "2", "n0", "n1"], k=2)))
        for _ in range(rng.randint(0, 3))
    )


def _term(rng: random.Random) -> Term:
    return Term(_requirements(rng, _KEYS), _requirements(rng, ("metadata.name",)) if rng.random() < 0.3 else ())


@pytest.mark.parametrize("seed", seeds(100))
def test_looking_nodes_up_finds_those_that_looking_at_each_finds(seed: int) -> None:
    rng = random.Random(seed)
    nodes = _nodes(rng)
    index = NodeIndex(nodes, {each.name: at for at, each in enumerate(nodes)})
    for _ in range(20):
        terms = tuple(_term(rng) for _ in range(rng.randint(0, 3)))
        zones = ((names.ZONE_LABEL, ("1", "2")),) if rng.random() < 0.5 else ()
        rule = VolumeRule(terms=rng.choice([terms, None]), zones=zones)
        expected = [
            at
            for at, each in enumerate(nodes)
            if VolumeZone().admits(each, (rule,))
            and (rule.terms is None or VolumeAffinity().admits(each, (rule.terms,)))
        ]
        assert index.of_rule(rule) == expected
        assert index.of_terms(terms) == [at for at, each in enumerate(nodes) if any(holds(t, each) for t in terms)]
        selector = _requirements(rng, _KEYS)
        found = [at for at, each in enumerate(nodes) if all(meets(one, each.labels) for one in selector)]
        assert index.of_labels(selector) == found
    assert index.of_rule(None) is None
    assert index.of_labels(None) == []


def test_what_is_gone_is_offered_no_more() -> None:
    storage = cluster(storage_class("slow", "WaitForFirstConsumer")).storage
    need = volumes.claim_record(claim("data", storage_class="slow")).need
    assert need is not None
    one, other = free_volume("pv1"), free_volume("pv2", of="fast")
    for each in (one, other):
        storage.volumes.put(volumes.volume_record(each))
    assert [name for _, name, _ in storage.offers.matching(need)] == ["pv1"]
    storage.volumes.put(volumes.volume_record(free_volume("pv1", phase="Bound")))
    assert storage.offers.matching(need) == []
    storage.volumes.put(volumes.volume_record(free_volume("pv2")))
    assert [name for _, name, _ in storage.offers.matching(need)] == ["pv2"]
    storage.volumes.drop(volumes.volume_record(free_volume("pv2")))
    assert storage.offers.matching(need) == []


def test_capacities_count_only_for_drivers_that_tell_them() -> None:
    made = cluster(storage_class("fast", "WaitForFirstConsumer", provisioner="disk"), csi_capacity("c", "fast", {}))
    offers = made.storage.offers
    assert offers.capacities_of("fast") is None
    feed(made, csi_driver("disk", tells_capacity=False))
    assert offers.capacities_of("fast") is None
    feed(made, csi_driver("disk"))
    assert [each.name for each in offers.capacities_of("fast") or ()] == ["c"]
    feed(made, csi_capacity("c", "other", {}))
    assert list(offers.capacities_of("fast") or ()) == []
