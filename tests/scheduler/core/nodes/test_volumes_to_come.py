"""A claim is not bound for a node that takes no more volumes of the driver that would make its volume."""

from __future__ import annotations

import pytest

from scheduler.core.cluster import Cluster
from scheduler.core.model.plan import Plan, Prepare
from tests.scheduler.core.nodes.mounting import DISK, disks, mounting, reasons
from tests.scheduler.core.objects import (
    Fed,
    bound,
    claim,
    cluster,
    commit,
    csi_node,
    feed,
    node,
    pod_group,
    storage_class,
)

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
