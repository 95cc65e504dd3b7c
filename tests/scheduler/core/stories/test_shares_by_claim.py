"""Pods with a share of a GPU, on nodes whose GPUs are given by claims."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from gpu.bound_pod import ClaimedShare
from scheduler.core.cluster import Cluster
from scheduler.core.model.devices import ClaimChoice
from scheduler.core.model.plan import Attempt, Bind, Plan, Prepare
from scheduler.core.model.verdict import Code
from scheduler.core.nodes.extended_claims import claim_name
from tests.scheduler.core.device_objects import DRIVER, device, written_slice
from tests.scheduler.core.nodes.claiming import chosen, claimed, claiming
from tests.scheduler.core.nodes.mounting import reasons, told
from tests.scheduler.core.objects import NANO, bound, by_claim, cluster, feed, node, pod, queue, reservation
from tests.values import there
from wire import names
from wire.core import Pod
from wire.resource import DeviceClass, ResourceSlice

_GIB = 2**30
_UUID = "GPU-0"
_ASKED: Mapping[str, str] = {names.GPU_SHARE_RESOURCE: "1"}
_NAME = claim_name("p", "uid-p")
_OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p", "controller": True}
_MADE: Any = {"annotations": {names.EXTENDED_RESOURCE_CLAIM: "true"}, "ownerReferences": [_OWNER]}
_TEAM: Mapping[str, str] = {names.QUEUE_LABEL: "team"}
_BOOKED = bound(pod("q", fraction="0.5"), "a", ("g", NANO // 2))
_CLASS: DeviceClass = msgspec.convert(
    {"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": names.GPU_RESOURCE}}, DeviceClass
)


def _shared(name: str = "d0", *, memory: str = "80Gi", uuid: str = _UUID, **more: Any) -> dict[str, Any]:
    """A device that several claims may have at once."""
    return device(
        name,
        attributes={"uuid": uuid} if uuid else {},
        capacity={"memory": {"value": memory, **more}},
        allowMultipleAllocations=True,
    )


def _offered(name: str, *devices: dict[str, Any]) -> ResourceSlice:
    return written_slice(name, *(devices or (_shared(),)))


def _share(name: str = "p", fraction: str = "0.5", **more: Any) -> Pod:
    return pod(name, fraction="" if more.get("mem") else fraction, extended=_ASKED, **more)


def _made(plan: Plan) -> dict[str, ClaimChoice]:
    """Pod -> what is to be written for the claim of its share."""
    return {
        placement.name: choice
        for entry in plan.entries
        if isinstance(entry, Prepare)
        for placement in entry.placements
        for choice in placement.claims
    }


def _given(plan: Plan) -> dict[str, tuple[str, int]]:
    """Pod -> device and its bytes of memory."""
    found = {name: choice.allocation.results[0] for name, choice in _made(plan).items()}
    return {name: (each.device, dict(each.consumed or ())["memory"] // NANO) for name, each in found.items()}


def _record(**more: Any) -> str:
    """A record of a half that says more of its device."""
    ask = {"container": "c0", "name": "main", "nano": NANO // 2, **more}
    return json.dumps({"version": 1, "dialect": "hami", "asks": [ask]})


def _named(wanted: Pod, share: ClaimedShare | str | None) -> Pod:
    """A pod whose status names the claim of its share."""
    return by_claim(wanted, share, claim=_NAME)


def _used_nano(made: Cluster) -> int:
    """What the queue has of GPUs."""
    made.refresh()
    accounts = made.snapshot().queues.accounts()
    (team,) = (each for each in accounts.tree.queues if each.name == "team")
    return accounts.of[team.number].held.gpu_nano


@pytest.mark.parametrize(
    ("asked", "part", "nano"),
    [
        ({"fraction": "0.5"}, 40 * _GIB, NANO // 2),
        ({"fraction": "0.333"}, 28604482191, 333_000_000),
        ({"mem": 8192}, 8 * _GIB, NANO // 10),
    ],
)
def test_a_share_gets_a_part_of_a_devices_memory_and_counts_as_that_part(
    asked: dict[str, Any], part: int, nano: int
) -> None:
    made = cluster(node("a", gpus=0), _CLASS, _offered("a"), _share(**asked))
    plan = made.decide(0)
    assert _given(plan) == {"p": ("d0", part)}
    claim = there(_made(plan)["p"].made)
    assert claim.requests == (("share", "gpu", 1),)
    assert claim.capacity == (("memory", part * NANO),)
    assert claim.share == ClaimedShare(driver=DRIVER, pool="a", device="d0", nano=nano, mem_mib=80 * 1024, uuid=_UUID)
    assert [(each.container, each.resource, each.request) for each in claim.mappings] == [
        ("main", names.GPU_SHARE_RESOURCE, "share")
    ]


def test_shares_that_add_up_to_a_device_fit_it_and_the_next_one_opens_another() -> None:
    """Of a memory that no ten parts divide evenly."""
    devices = (_shared("d0", memory="81559Mi"), _shared("d1", memory="81559Mi", uuid="GPU-1"))
    made = cluster(node("a", gpus=0), _CLASS, _offered("a", *devices))
    feed(made, *(_share(f"p{number}", "0.1") for number in range(11)))
    given = [name for name, _ in _given(made.decide(0)).values()]
    assert (given.count("d0"), given.count("d1")) == (10, 1)


def test_a_share_that_insists_on_its_cap_gets_no_claim_which_nobody_caps() -> None:
    place = node("a", gpus=0, annotations={names.NODE_ENFORCES: "memory-cap"})
    capped = {names.GPU_RECORD: _record(), names.REQUIRE_ENFORCEMENT: "true"}
    for wishes, is_given in ({}, True), ({"wishes": {"memoryCap": True}}, False):
        record = {**json.loads(capped[names.GPU_RECORD]), **wishes}
        wanted = _share(annotations={**capped, names.GPU_RECORD: json.dumps(record)})
        assert bool(_made(cluster(place, _CLASS, _offered("a"), wanted).decide(0))) is is_given


def test_a_part_is_rounded_up_to_what_the_driver_offers() -> None:
    policy: dict[str, Any] = {"requestPolicy": {"default": "80Gi", "validRange": {"min": "1Gi", "step": "1Gi"}}}
    made = cluster(node("a", gpus=0), _CLASS, _offered("a", _shared(**policy)), _share(mem=1500))
    assert _given(made.decide(0)) == {"p": ("d0", 2 * _GIB)}


@pytest.mark.parametrize(
    "wanted",
    [
        pod("p", fraction="0.5"),
        _share(devices=2),
        _share(annotations={names.GPU_RECORD: _record(index=0)}),
        _share(annotations={names.GPU_RECORD: _record(computePercent=50)}),
    ],
    ids=["not admitted for claims", "two devices", "a device by its index", "a cap on compute"],
)
def test_a_share_that_no_claim_can_give_waits_on_nodes_with_claims_only(wanted: Pod) -> None:
    made = cluster(node("a", gpus=0), _CLASS, _offered("a"), wanted)
    assert reasons(made) == {"claims-only": 1}


@pytest.mark.parametrize(
    ("devices", "kind"),
    [
        ([device("d0", capacity={"memory": {"value": "80Gi"}})], "claims-whole"),
        ([device("d0", allowMultipleAllocations=True)], "claims-whole"),
        ([_shared(memory="20Gi")], ""),
        ([device("d0", capacity={"memory": {"value": "80Gi"}}), _shared("d1")], ""),
    ],
    ids=["whole only", "without memory", "small", "one of two"],
)
def test_a_driver_that_shares_no_device_is_named_as_the_reason(devices: list[dict[str, Any]], kind: str) -> None:
    made = cluster(node("a", gpus=0), _CLASS, _offered("a", *devices), _share())
    if kind:
        assert reasons(made) == {kind: 1}
    else:
        assert _given(made.decide(0))["p"][0] == devices[-1]["name"]


def test_a_pod_is_bound_once_its_status_names_the_claim_and_asks_no_reservation() -> None:
    made = cluster(node("a", gpus=0), _CLASS, _offered("a"), _share())
    share = there(_made(made.decide(0))["p"].made)
    assert share.share is not None
    wanted = _named(_share(), share.share)
    feed(made, wanted, claimed(_NAME, on=("a", "d0"), by=("uid-p",), **_MADE))
    made.claims.note_own("uid-p", wanted.metadata.resource_version)
    (entry,) = made.decide(0).entries
    assert isinstance(entry, Bind)
    assert (entry.placement.node, entry.placement.devices) == ("a", ())


@pytest.mark.parametrize(
    "annotation", [None, "{", '{"driver":"d","pool":"a","device":"d0","nano":0,"memMib":1}'], ids=["none", "torn", "0"]
)
def test_a_claim_without_a_readable_share_is_given_back(annotation: str | None) -> None:
    made = cluster(node("a", gpus=0), _CLASS, _offered("a"), _share())
    written = _named(_share(), None if annotation is None else annotation)
    feed(made, written, claimed(_NAME, on=("a", "d0"), by=("uid-p",), **_MADE))
    assert told(made)[0] is Code.RESOURCE_CLAIM_GIVEN_BACK


def test_queues_count_the_part_while_the_claim_is_made_and_when_the_pod_runs() -> None:
    """The second pod of 0.5 is over a limit of one GPU beside 0.6, which only claims give."""
    made = cluster(node("a", gpus=0), _CLASS, _offered("a", _shared(), _shared("d1")), queue("team", gpu=(1, 1, 1)))
    feed(made, _share("p", "0.6", labels=_TEAM), _share("q", "0.5", labels=_TEAM))
    plan = made.decide(0)
    assert set(_given(plan)) == {"p"}
    for entry in plan.entries:
        for placement in entry.placements if isinstance(entry, Prepare) else ():
            made.commits.prepare(placement)
    assert _used_nano(made) == 600_000_000
    claim = there(_made(plan)["p"].made)
    assert claim.share is not None
    feed(made, _named(_share("p", "0.6", labels=_TEAM, bound_to="a"), claim.share))
    assert _used_nano(made) == 600_000_000
    assert told(made, "uid-q")[0] is Code.OVER_LIMIT


def test_the_gpus_of_a_plugin_that_comes_are_out_while_claims_give_shares() -> None:
    """The plugin and the driver may offer the same devices."""
    share = ClaimedShare(driver=DRIVER, pool="a", device="d0", nano=NANO // 2, mem_mib=81920)
    made = cluster(node("a", gpus=0), _CLASS, _offered("a"))
    feed(made, _named(_share("q", bound_to="a"), share), node("a", gpus=1))
    feed(made, pod("p", fraction="0.5"))
    assert reasons(made) == {"insufficient": 1}
    made.remove_pod("uid-q")
    assert [type(entry) for entry in made.decide(0).entries] == [Attempt]


@pytest.mark.parametrize("nominee", [pod("q", gpus=1, bound_to="a"), _BOOKED], ids=["whole", "shared"])
def test_no_share_is_claimed_while_pods_hold_gpus_of_a_plugin_that_is_away(nominee: Pod) -> None:
    made = cluster(node("a", gpus=2), _CLASS, _offered("a"), nominee)
    feed(made, node("a", gpus=0), _share())
    assert _given(made.decide(0)) == {}
    made.remove_pod("uid-q")
    assert _given(made.decide(0)) == {"p": ("d0", 40 * _GIB)}


def test_a_class_that_comes_later_wakes_a_share() -> None:
    made = cluster(node("a", gpus=0), _offered("a"), _share())
    assert told(made)[0] is Code.NO_NODE_FITS
    feed(made, _CLASS)
    assert _given(made.decide(0)) == {"p": ("d0", 40 * _GIB)}


@pytest.mark.parametrize(
    ("uuid", "phase", "is_given"),
    [("GPU-0", "Running", False), ("GPU-1", "Running", True), ("GPU-0", "Failed", True)],
    ids=["held", "another one", "it has ended"],
)
def test_no_claim_gets_a_device_that_a_reservation_holds(uuid: str, phase: str, is_given: bool) -> None:
    """A driver publishes what the device plugin offers as well, and the pod names its claim itself."""
    nominee = reservation("g", "a", uuid=uuid, phase=phase)
    made = cluster(node("a", gpus=1), _CLASS, _offered("a"), nominee, claimed("c"), claiming("p", "c"))
    if is_given:
        assert chosen(made.decide(0)) == {"p": ("a", {"c": "d0"})}
        return
    assert reasons(made) == {"claim-devices": 1}
    made.remove_pod(nominee.metadata.uid)
    assert chosen(made.decide(0)) == {"p": ("a", {"c": "d0"})}


def test_no_claim_gets_a_reserved_device_that_drivers_publish_more_than_once() -> None:
    """Twice in one pool, as itself and to be passed through, and by another driver."""
    twice = _offered("a", _shared("d0"), _shared("d0-passed"))
    other = written_slice("other", _shared("d0"), nodeName="a", driver="other.example.com")
    nominee = reservation("g", "a", uuid=_UUID)
    made = cluster(node("a", gpus=1), _CLASS, twice, other, nominee, claimed("c"), claiming("p", "c"))
    assert reasons(made) == {"claim-devices": 1}


def test_a_device_whose_name_another_node_has_in_the_same_pool_is_not_shared() -> None:
    """Nodes may reach one of them each, and what a share counts as goes by the name."""
    whole = device("d0", capacity={"memory": {"value": "80Gi"}})
    slices = [written_slice(name, each, pool="all", count=2) for name, each in (("a", whole), ("b", _shared("d0")))]
    made = cluster(node("a", gpus=0), node("b", gpus=0), _CLASS, *slices, _share())
    assert reasons(made) == {"claims-whole": 1, "claim-devices": 1}
