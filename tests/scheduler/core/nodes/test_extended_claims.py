"""Pods that ask for extended resources, on nodes with device plugins and on nodes where claims give them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.core.cluster import Cluster
from scheduler.core.model.plan import Bind, Nominate, Prepare
from scheduler.core.model.settings import Settings
from scheduler.core.model.verdict import Code
from scheduler.core.nodes.extended_claims import claim_name, class_by_resource
from tests.scheduler.core.device_objects import device, device_class, written_slice
from tests.scheduler.core.nodes.claiming import chosen, claimed, offered
from tests.scheduler.core.nodes.mounting import places, told
from tests.scheduler.core.objects import NANO, bound, cluster, feed, node, pod
from wire import names
from wire.core import Pod
from wire.resource import DeviceClass

_GPU = names.GPU_RESOURCE
_OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p", "controller": True}
_MADE: Any = {"annotations": {names.EXTENDED_RESOURCE_CLAIM: "true"}, "ownerReferences": [_OWNER]}
_NAME = claim_name("p", "uid-p")
_SHARE = bound(pod("q", fraction="0.5"), "a", ("g", NANO // 2))


def _class(name: str = "gpu", resource: str = _GPU, created: str = "") -> DeviceClass:
    meta = {"name": name, "creationTimestamp": created or None}
    return msgspec.convert({"metadata": meta, "spec": {"extendedResourceName": resource or None}}, DeviceClass)


def _named(wanted: Pod, name: str = _NAME, resource: str = _GPU) -> Pod:
    """A pod whose status names a claim."""
    written = msgspec.to_builtins(wanted)
    mapping = {"containerName": "main", "resourceName": resource, "requestName": "container-0-request-0"}
    written["status"]["extendedResourceClaimStatus"] = {"resourceClaimName": name, "requestMappings": [mapping]}
    return msgspec.convert(written, Pod)


def test_a_pod_gets_whole_gpus_by_a_claim_where_no_plugin_offers_them() -> None:
    made = cluster(node("a", gpus=0), _class(), offered("a", 2), pod("p", gpus=2))
    plan = made.decide(0)
    assert chosen(plan) == {"p": ("a", {_NAME: "d0,d1"})}
    (entry,) = (each for each in plan.entries if isinstance(each, Prepare))
    (choice,) = entry.placements[0].claims
    assert choice.made is not None
    assert choice.made.requests == (("container-0-request-0", "gpu", 2),)
    assert choice.made.resources == {_GPU}


def test_nothing_is_claimed_where_a_plugin_offers_them() -> None:
    made = cluster(node("a", gpus=1), _class(), offered("a"), pod("p", gpus=1))
    assert [type(entry) for entry in made.decide(0).entries] == [Bind]


def test_a_full_device_plugin_is_no_source_of_devices() -> None:
    made = cluster(node("a", gpus=1), _class(), offered("a"), pod("q", gpus=1, bound_to="a"), pod("p", gpus=1))
    assert told(made)[0] is Code.NO_NODE_FITS


@pytest.mark.parametrize("holder", [pod("q", gpus=1, bound_to="a"), _SHARE])
def test_devices_are_not_claimed_while_pods_hold_some_of_a_plugin_that_is_away(holder: Pod) -> None:
    made = cluster(node("a", gpus=2), _class(), offered("a", 2), holder)
    feed(made, node("a", gpus=0), pod("p", gpus=1))
    assert chosen(made.decide(0)) == {}
    made.remove_pod("uid-q")
    assert chosen(made.decide(0)) == {"p": ("a", {_NAME: "d0"})}


def test_the_cpu_of_a_pod_is_charged_and_its_gpus_are_not() -> None:
    made = cluster(node("a", gpus=0, cpu="4"), _class(), offered("a", 3))
    feed(made, *(pod(name, gpus=1, cpu="2") for name in ("p", "q", "r")))
    assert set(chosen(made.decide(0))) == {"p", "q"}
    feed(made, _named(pod("p", gpus=1, cpu="2", bound_to="a")))
    ledger = made.refresh()
    assert ledger.table.free[ledger.table.resources.index("nvidia.com/gpu"), ledger.row_of["a"]] == 0


def test_a_class_that_comes_later_wakes_pods_that_ask_for_its_resource() -> None:
    made = cluster(node("a", gpus=0), offered("a"), pod("p", gpus=1))
    assert told(made)[0] is Code.NO_NODE_FITS
    feed(made, _class())
    assert chosen(made.decide(0)) == {"p": ("a", {_NAME: "d0"})}


def test_the_name_of_a_class_is_a_resource() -> None:
    name = names.DEVICE_CLASS_PREFIX + "gpu"
    made = cluster(node("a", gpus=0), _class(resource=""), offered("a"), pod("p", extended={name: "1"}))
    assert chosen(made.decide(0)) == {"p": ("a", {_NAME: "d0"})}


def test_a_pod_that_asks_what_no_class_stands_for_is_as_before() -> None:
    made = cluster(node("a", gpus=0), _class(), offered("a"), pod("p", extended={"example.com/nic": "1"}))
    assert told(made)[0] is Code.NO_NODE_FITS
    assert made.claims.extended.ways(made.waiting()[0]) == ()


def test_each_node_gives_what_it_has_in_its_own_way() -> None:
    """One node offers NICs by a plugin, the other neither: there a claim gives both."""
    nic = "example.com/nic"
    drivers = (
        _class("gpu", _GPU),
        msgspec.convert(
            {
                "metadata": {"name": "nic"},
                "spec": {
                    "extendedResourceName": nic,
                    "selectors": [{"cel": {"expression": "device.driver == 'nic.example.com'"}}],
                },
            },
            DeviceClass,
        ),
    )
    made = cluster(
        *drivers,
        node("a", gpus=0, extended={nic: "1"}),
        node("b", gpus=0),
        offered("a"),
        offered("b"),
        written_slice("b-nics", device("n0"), driver="nic.example.com", nodeName="b"),
        *(pod(name, gpus=1, extended={nic: "1"}) for name in ("p", "q", "r")),
    )
    found = {node: {*claims.values()} for node, claims in chosen(made.decide(0)).values()}
    assert found == {"a": {"d0"}, "b": {"n0,d0"}}


def test_a_pod_is_bound_with_a_claim_that_this_process_made() -> None:
    made = cluster(node("a", gpus=0), _class(), offered("a"), pod("p", gpus=1))
    made.decide(0)
    wanted = _named(pod("p", gpus=1))
    feed(made, wanted, claimed(_NAME, on=("a", "d0"), by=("uid-p",), **_MADE))
    assert not made.claims.is_usable(made.waiting()[0])
    made.claims.note_own("uid-p", wanted.metadata.resource_version)
    assert places(made.decide(0)) == {"p": "a"}


@pytest.mark.parametrize(
    ("wanted", "claims"),
    [
        (pod("p", gpus=1), [claimed("x", **_MADE)]),
        (_named(pod("p", gpus=1)), []),
        (_named(pod("p", gpus=1)), [claimed("x", on=("a", "d0"), by=("uid-p",), **_MADE)]),
        (_named(pod("p", gpus=1)), [claimed(each, on=("a", "d0"), by=("uid-p",), **_MADE) for each in (_NAME, "x")]),
    ],
    ids=["not named", "named only", "another is named", "two"],
)
def test_a_pod_is_not_bound_with_any_other_claim_that_was_made_for_it(wanted: Pod, claims: list[Any]) -> None:
    made = cluster(node("a", gpus=0), node("b", gpus=1), _class(), offered("a", 2), *claims, wanted)
    made.claims.note_own("uid-p", wanted.metadata.resource_version)
    assert told(made)[0] is Code.RESOURCE_CLAIM_GIVEN_BACK
    assert [each.name for each in made.claims.held_by_waiting()] == ["p"]


@pytest.mark.parametrize(
    "claim",
    [
        claimed("x", on=("b", "d0"), by=("uid-q",), **_MADE),
        claimed("x", on=("b", "d0"), by=("uid-p", "uid-q"), **_MADE),
        claimed("x", namespace="other", **_MADE),
    ],
    ids=["used by another pod", "used by both", "in another namespace"],
)
def test_a_claim_that_is_not_the_pod_s_alone_keeps_no_pod_waiting(claim: Any) -> None:
    made = cluster(node("a", gpus=0), node("b", gpus=0), _class(), offered("a"), claim, pod("p", gpus=1))
    assert made.claims.held_by_waiting() == []
    assert chosen(made.decide(0)) == {"p": ("a", {_NAME: "d0"})}


def test_a_pod_is_decided_on_again_when_its_claims_are_gone_and_its_status_names_none() -> None:
    wanted = _named(pod("p", gpus=1))
    made = cluster(node("a", gpus=0), _class(), offered("a"), claimed("x", **_MADE), wanted)
    made.claims.note_leaving("uid-p")
    feed(made, pod("p", gpus=1))
    made.claims.note_left("uid-p", {"uid-x": ""})
    assert told(made)[0] is Code.RESOURCE_CLAIM_GIVEN_BACK
    (record,) = made.claims.claims.all()
    made.claims.claims.drop(record)
    assert chosen(made.decide(0)) == {"p": ("a", {_NAME: "d0"})}


def test_of_classes_that_name_one_resource_the_newest_stands_for_it() -> None:
    listed = [("old", "2026-01-01T00:00:00Z"), ("z-new", "2026-02-01T00:00:00Z"), ("b-new", "2026-02-01T00:00:00Z")]
    records = [msgspec.structs.replace(device_class(name), created=at, extended_resource=_GPU) for name, at in listed]
    for order in (records, records[::-1]):
        found = class_by_resource(order)
        assert found[_GPU] == "b-new"
        assert found[names.DEVICE_CLASS_PREFIX + "old"] == "old"


def test_names_of_claims_are_valid_and_differ_by_pod() -> None:
    long = f"{'a' * 223}.{'b' * 20}"
    made = claim_name(long, "u1")
    assert len(made) <= 253
    assert ".-" not in made
    assert claim_name("p", "u1") != claim_name("p", "u2")
    assert claim_name("p", "u1") == claim_name("p", "u1")


def test_of_many_claims_for_one_pod_a_few_are_looked_at_at_once() -> None:
    many = [claimed(f"x{number}", **_MADE) for number in range(100)]
    made = cluster(node("a", gpus=0), _class(), *many, pod("p", gpus=1))
    (record,) = made.claims.held_by_waiting()
    assert 0 < len(made.claims.held(record)) < 10


def test_classes_that_differ_by_what_claims_give_are_apart_and_equal_pods_are_one() -> None:
    made = cluster(node("a", gpus=0), _class(), offered("a", 9))
    feed(made, pod("p", gpus=1), pod("q", gpus=1), pod("r", gpus=2))
    assert len({each.cls for each in made.waiting()}) == 2


@pytest.mark.parametrize("gpus", [0, 1])
def test_others_are_evicted_for_gpus_of_a_plugin_and_not_for_those_of_a_claim(gpus: int) -> None:
    made = Cluster(Settings(preemption=True))
    running = pod("q", cpu="4", priority=1, bound_to="a", phase="Running")
    urgent = pod("p", cpu="2", gpus=1, priority=50)
    feed(made, node("a", gpus=gpus, cpu="4"), _class(), offered("a"), running, urgent)
    plans = [made.decide(seconds * 10**9, wall_s=1_800_000_000 + seconds) for seconds in (0, 60, 120)]
    rooms = [entry for plan in plans for entry in plan.entries if isinstance(entry, Nominate)]
    assert bool(rooms) is bool(gpus)
