"""L1 of pods that wait though a claim could be made for them: devices of a class, or a part of a shared GPU."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.checks import claim_facts
from simulator.checks.claims_at_rest import backed_fitting
from simulator.checks.facts import pod as read
from simulator.checks.fit import Room
from simulator.checks.gangs import Minimums
from simulator.checks.ledgers import NodeFacts
from simulator.checks.messages import Scene
from tests.simulator.checks.claim_stories import DRIVER, ClaimStory
from tests.simulator.made_up import pod
from wire import names

_ACCELERATOR = "example.com/accelerator"
_FITS = ["it fits with a claim made for it on node-0"]


def _class(name: str, resource: str, no: str, **more: Any) -> dict[str, Any]:
    selector = {"cel": {"expression": f'{no}device.attributes["{DRIVER}"].big'}}
    spec = {"extendedResourceName": resource, "selectors": [selector], **more}
    return {"metadata": {"name": name}, "spec": spec}


def _story(*, gib: int = 16, devices: int = 1) -> ClaimStory:
    """A node with shared GPUs, and accelerators of a class of their own."""
    made = ClaimStory().stores("deviceclasses", _class("gpus", names.GPU_RESOURCE, "!"))
    made.stores("deviceclasses", _class("accelerators", _ACCELERATOR, ""))
    big = [{"name": f"a{number}", "attributes": {"big": {"bool": True}}} for number in range(devices)]
    shared = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": f"{gib}Gi"}}}
    pool = {"name": "node-0", "generation": 1, "resourceSliceCount": 1}
    listed = [*big, {"name": "d0", "attributes": {"big": {"bool": False}}, **shared}]
    spec = {"driver": DRIVER, "nodeName": "node-0", "pool": pool, "devices": listed}
    return made.stores("resourceslices", {"metadata": {"name": "s"}, "spec": spec})


def _share(fraction: str = "0.5", **more: Any) -> dict[str, Any]:
    limits = {"limits": {names.GPU_SHARE_RESOURCE: more.pop("by_claim", "1"), **more.pop("limits", {})}}
    env = [{"name": names.ENV_VISIBLE_DEVICES, "valueFrom": {"fieldRef": {"fieldPath": "x"}}}]
    asked = {names.GPU_MEMORY: fraction} if fraction.isdigit() else {names.GPU_FRACTION: fraction}
    containers = [{"name": "main", "resources": limits, "env": env}]
    return pod("p", node="", annotations=asked, containers=containers, **more)


def _whole(count: int = 1, resource: str = _ACCELERATOR, **more: Any) -> dict[str, Any]:
    return pod("p", node="", containers=[{"name": "main", "resources": {"limits": {resource: str(count)}}}], **more)


def _told(
    made: ClaimStory, raw: dict[str, Any], *, gpus: int = 0, used: int = 0, apart: tuple[str, ...] = (), **gangs: Any
) -> Any:
    node = NodeFacts("node-0", 8000, 8000, 8, {names.GPU_RESOURCE: gpus}, True, False, False)
    room = Room(name="node-0", gpus=gpus - used, cpu_milli=8000, mem_mib=8000, pods=8, smallest_mib=0)
    scene = Scene(nodes={"node-0": node}, rooms=[room], **{"members": {}, "minimums": {}, **gangs})
    found = backed_fitting([read(raw)], scene, made.claims.records, kept_from=lambda _: apart)
    return [text for _, text in found]


@pytest.mark.parametrize(
    ("story", "raw", "fits"),
    [
        (_story, _share(), True),
        (_story, _share("1024"), True),
        (lambda: _story(gib=2), _share("4096"), False),
        (lambda: _story().claim("c", "d0", part_gib=8), _share("0.5"), True),
        (lambda: _story().claim("c", "d0", part_gib=9), _share("0.5"), False),
        (lambda: _story().claim("c", "d0"), _share("0.5"), False),
        (_story, _share(by_claim="2"), False),
        (_story, _share(limits={_ACCELERATOR: "1"}), False),
        (lambda: _story(devices=2), _whole(2), True),
        (lambda: _story(devices=2).claim("c", "a0"), _whole(2), False),
        (_story, _whole(resource=names.GPU_RESOURCE), False),
        (lambda: _story().stores("deviceclasses", _class("more", _ACCELERATOR, "")), _whole(), False),
        (lambda: _story().stores("deviceclasses", _class("accelerators", _ACCELERATOR, "x")), _whole(), False),
        (_story, _whole(resource="example.com/other"), False),
    ],
    ids=[
        *("a fraction", "memory", "too little memory", "the other half", "more than is left", "all is taken"),
        *("no claimable container", "a share and a device", "both devices", "one is taken", "shared only"),
        *("two classes", "another selector", "no class"),
    ],
)
def test_a_pod_fits_where_a_claim_would_find_what_it_asks(story: Any, raw: dict[str, Any], fits: bool) -> None:
    assert _told(story(), raw) == _FITS * fits


@pytest.mark.parametrize(("gpus", "used", "fits"), [(0, 0, True), (2, 0, False), (2, 2, False), (0, 1, False)])
def test_gpus_come_by_claims_only_where_no_device_plugin_has_any(gpus: int, used: int, fits: bool) -> None:
    assert _told(_story(), _share(), gpus=gpus, used=used) == _FITS * fits
    assert _told(_story(), _whole(), gpus=gpus, used=used) == _FITS


@pytest.mark.parametrize(("minimum", "fits"), [(None, False), (1, True), (2, False)])
def test_of_a_gang_those_beyond_its_minimum_are_judged(minimum: int | None, fits: bool) -> None:
    waits, runs = _share(), pod("q", annotations={names.POD_GROUP_NAME: "g"})
    waits["metadata"]["annotations"][names.POD_GROUP_NAME] = "g"
    needs = {} if minimum is None else {("team", "g"): Minimums({"minMember": minimum})}
    members = {("team", "g"): [read(waits), read(runs)]}
    assert _told(_story(), waits, members=members, minimums=needs) == _FITS * fits


def test_devices_that_are_kept_and_nodes_that_others_keep_are_not_judged() -> None:
    raw = _share()
    told = "1 node(s) have devices free only when programs of Pods that were deleted by force must have ended"
    raw["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "x", "message": told}]
    assert _told(_story(), raw) == []
    assert _told(_story(), _share(), apart=("node-0",)) == []


@pytest.mark.parametrize(
    ("expression", "side"),
    [
        ('device.attributes["x"].big', True),
        ('!device.attributes["x"].big', False),
        ('device.attributes["x"].big || true', None),
        ("true", None),
    ],
)
def test_a_class_has_a_side_if_it_asks_for_the_attribute_alone(expression: str, side: bool | None) -> None:
    selector = {"cel": {"expression": expression}}
    assert claim_facts.side_of({"selectors": [selector]}) is side
    assert claim_facts.side_of({"selectors": [selector, selector]}) is None
    assert claim_facts.side_of({}) is None
