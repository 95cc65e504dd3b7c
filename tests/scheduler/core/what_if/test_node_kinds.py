"""Which nodes are of one kind for a group, and which kinds come first."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.core.what_if.node_changes import kinds_of_nodes
from tests.scheduler.core.device_objects import DRIVER, ask, device, selectors, written_slice
from tests.scheduler.core.nodes.claiming import GPU, claimed, claiming, offered
from tests.scheduler.core.objects import node, pod, pod_group
from tests.scheduler.core.what_if.given import tries
from wire import names
from wire.core import Node
from wire.resource import DeviceClass

#: Nodes of four kinds, two of each.
CPU_NODES = [node(f"c{kind}-{number}", 0, cpu=str(8 + kind)) for kind in range(4) for number in range(2)]
WAITS = (GPU, claimed(), claiming("p", "c"))
#: A class that stands for what device plugins offer.
MAPPED = msgspec.convert(
    {"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": names.GPU_RESOURCE}}, DeviceClass
)
#: A class whose selector reads an attribute.
OF_TYPE = msgspec.convert(
    {"metadata": {"name": "gpu"}, "spec": {"selectors": selectors(f'device.attributes["{DRIVER}"].type == "gpu"')}},
    DeviceClass,
)


def model(name: str) -> str:
    """A selector of one model."""
    return f'device.attributes["{DRIVER}"].model == "{name}"'


def devices_of(node_name: str, *attributes: dict[str, Any]) -> list[Any]:
    """A node, and what its driver publishes: a device with each of these attributes."""
    listed = (device(f"d{number}", attributes=each) for number, each in enumerate(attributes))
    return [node(node_name, 0), written_slice(node_name, *listed)]


@pytest.mark.parametrize(
    ("objects", "found"),
    [
        ((*WAITS, node("z", 0), offered("z")), ["z", "c0-0", "c1-0", "c2-0"]),
        # Both sources count.
        (
            (MAPPED, pod("p", gpus=1), node("z", 0), offered("z"), node("y", 1)),
            ["y", "z", "c0-0", "c1-0"],
        ),
        # Of a gang those members count that need devices.
        (
            (
                *WAITS,
                pod_group("g", 2),
                claiming("m", "c", group="g"),
                pod("p1", group="g"),
                node("z", 0),
                offered("z"),
            ),
            ["z", "c0-0", "c1-0", "c2-0"],
        ),
        # Nobody needs devices.
        ((pod("p"), node("z", 0, cpu="64"), offered("z")), ["c0-0", "c1-0", "c2-0", "c3-0"]),
        (WAITS, ["c0-0", "c1-0", "c2-0", "c3-0"]),
    ],
    ids=["claims", "extended resources", "a gang", "no claims", "no devices"],
)
def test_kinds_without_devices_come_last_where_pods_need_some(objects: tuple[Any, ...], found: list[str]) -> None:
    name = "m" if any(getattr(each.metadata, "name", "") == "m" for each in objects) else "p"
    assert kinds_of_nodes(tries(*CPU_NODES, *objects, name=name)) == found


ONE, TWO = ["n1"], ["n1", "n2"]
OWN = [{"uuid": f"GPU-{number}", "pciBusID": f"0{number}:00.0", "model": "h100", "type": "gpu"} for number in range(2)]


@pytest.mark.parametrize(
    ("first", "second", "cel", "found"),
    [
        ({"model": "a100"}, {"model": "h100"}, model("h100"), TWO),
        ({f"{DRIVER}/model": "a100"}, {f"{DRIVER}/model": "h100"}, model("h100"), TWO),
        ({"type": "gpu"}, {"type": "mig"}, "", TWO),
        (*OWN, model("h100"), ONE),
        (*OWN, f'device.attributes["{DRIVER}"].uuid == "GPU-1"', ONE),
        ({"model": "a100"}, {"model": "h100"}, "", ONE),
    ],
    ids=["model", "model by its full name", "what a class reads", "of one model", "by UUID", "what nobody reads"],
)
def test_devices_are_told_apart_by_what_selectors_read(
    first: dict[str, Any], second: dict[str, Any], cel: str, found: list[str]
) -> None:
    asked = claimed("c", ask(cel=[cel] if cel else []))
    there = (*devices_of("n1", first), *devices_of("n2", second))
    assert kinds_of_nodes(tries(*there, OF_TYPE, asked, claiming("p", "c"))) == found


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [("ab", "bb", TWO), ("aa", "bb", ONE), ("ab", "cd", ONE), ("aab", "abb", TWO)],
)
def test_by_a_rule_between_devices_it_counts_which_of_them_agree(first: str, second: str, found: list[str]) -> None:
    listed = [devices_of(name, *({"root": each} for each in of)) for name, of in (("n1", first), ("n2", second))]
    rules = [{"requests": ["r"], "matchAttribute": f"{DRIVER}/root"}]
    asked = msgspec.to_builtins(claimed("c", ask(count=2)))
    asked["spec"]["devices"]["constraints"] = rules
    written = msgspec.convert(asked, type(claimed()))
    assert kinds_of_nodes(tries(*listed[0], *listed[1], GPU, written, claiming("p", "c"))) == found


SMALL, LARGE = ({"memory": {"value": amount}} for amount in ("40Gi", "80Gi"))
TAINT = [{"key": "ill", "value": "", "effect": "NoSchedule"}]


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        (["d0"], ["d0", "d1"], TWO),
        (["d0", "d1"], ["d1", "d0"], ONE),
        ([{"capacity": SMALL}], [{"capacity": LARGE}], TWO),
        # A second device may be unlike the first.
        ([{"capacity": SMALL}, {"capacity": SMALL}], [{"capacity": SMALL}, {"capacity": LARGE}], TWO),
        ([{"taints": TAINT}], [{}], TWO),
        ([{"allowMultipleAllocations": True}], [{}], TWO),
    ],
    ids=["number", "names", "capacity", "capacity of the second", "taints", "shared"],
)
def test_devices_are_told_apart_by_what_a_claim_may_need(first: list[Any], second: list[Any], found: list[str]) -> None:
    def offered_by(name: str, listed: list[Any]) -> tuple[Node, Any]:
        made = (
            device(each) if isinstance(each, str) else device(f"d{number}", **each)
            for number, each in enumerate(listed)
        )
        return node(name, 0), written_slice(name, *made)

    assert kinds_of_nodes(tries(*offered_by("n1", first), *offered_by("n2", second), *WAITS)) == found
