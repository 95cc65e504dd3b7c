"""S12: a scheduler's ledger against a recount."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from fractions import Fraction
from typing import Any

import msgspec
import pytest
from typing_extensions import override

from kube.client.api import Api
from kube.client.resources import CONFIG_MAPS, PODS
from kube.client.retry import Retry
from scheduler.core.convert.demand import demand
from scheduler.core.model.settings import Settings
from scheduler.settings import SchedulerSettings
from simulator import manifests
from simulator.checks import facts, ledgers
from simulator.checks.checker import NODES
from simulator.checks.facts import PodFacts
from simulator.checks.ledgers import Ledger, Recount, Row
from simulator.checks.violations import HELD
from simulator.clock import VirtualClock
from simulator.nodes import shape
from simulator.world import World, WorldSettings
from tests.simulator.made_up import NODE, Story, granted, node, pod, reservation, whole
from tools.kubeoracle.drawing import amounts, snapshot
from wire.core import Pod

VIRTUAL_TIME = True

MIB = 16 * 1024
GPU = "nvidia.com/gpu"


def occupied() -> Story:
    """A node with a half of one device, a whole one, and a pod of half a core that another scheduler placed."""
    story = Story().sees(node(), kind=NODES).sees(reservation("r", "g", {"uid-p": 500_000_000}))
    story.sees(granted("p", "g")).sees(whole("w"))
    half = {"name": "main", "resources": {"requests": {"cpu": "500m", "memory": "1Mi"}}}
    return story.sees(pod("other", scheduler="default-scheduler", containers=[half]), by_hand=True)


def row(**changed: Any) -> Row:
    right = {"cpu_milli": 3500, "mem_mib": MIB - 1, "pods": 6, "devices": {GPU: 1}, "shared_nano": {"g": 500_000_000}}
    return Row(**{**right, **changed})


def ledger(row: Row, *, is_busy: bool = False) -> Ledger:
    return Ledger("scheduler", is_busy, {NODE: row})


@pytest.mark.parametrize(
    "changed",
    [
        {"cpu_milli": 4000},
        {"mem_mib": MIB},
        {"pods": 7},
        {"devices": {GPU: 2}},
        {"devices": {GPU: 1, "nvidia.com/mig-1g.10gb": 1}},
        {"shared_nano": {"g": 500_000_001}},
        {"shared_nano": {}},
        {"shared_nano": {"g": 500_000_000, "gone": 1}},
    ],
    ids=["cpu", "memory", "pod slots", "GPUs", "slices", "a nano", "a device forgotten", "a device that is not there"],
)
def test_a_ledger_that_differs_breaks_s12(changed: dict[str, Any]) -> None:
    story = occupied()
    assert story.checker.ledger(ledger(row(**changed)), 0.0)
    assert story.broken() == {"S12"}


@pytest.mark.parametrize(("others", "free"), [([], 1), (["r2"], 1)], ids=["nobody's", "another reservation's"])
def test_a_device_that_is_used_and_not_held_by_its_reservation_is_one_more(others: list[str], free: int) -> None:
    story = Story().sees(node(gpus=3), kind=NODES).sees(granted("p", "g"))
    held = [reservation("r", "g", {"uid-p": 500_000_000}), *(reservation(name, "h") for name in others)]
    for raw, uuid in zip(held, ("GPU-b", "GPU-a"), strict=False):
        raw["metadata"]["annotations"]["run.ai/reserve_for_gpu_index"] = uuid
        story.sees(raw)
    pods = 8 - len(others)
    assert story.checker.ledger(ledger(row(cpu_milli=4000, mem_mib=MIB, pods=pods, devices={GPU: free})), 0.0)
    assert story.broken() == set()


def test_a_node_that_the_ledger_does_not_know_breaks_s12() -> None:
    story = occupied().sees(node("node-1"), kind=NODES)
    assert story.checker.ledger(ledger(row()), 0.0)
    assert story.broken() == {"S12"}


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_what_has_ended_holds_nothing(phase: str) -> None:
    story = occupied().sees({**whole("w"), "status": {"phase": phase}})
    assert story.checker.ledger(ledger(row(devices={GPU: 2}, pods=7)), 0.0)
    assert story.broken() == set()


def test_a_lost_reservation_keeps_its_device_and_a_slot_to_come_back() -> None:
    story = occupied().sees(reservation("r", "g", {"uid-p": 500_000_000}), event="DELETED")
    assert story.checker.ledger(ledger(row()), 0.0)
    assert story.broken() == set()


# The recount behind S12 reads the objects of a node again when one of them changed, and only then.


class Counted(dict[str, PodFacts]):
    """Pods by UID that count how often one was read."""

    reads = 0

    @override
    def __getitem__(self, uid: str) -> PodFacts:
        self.reads += 1
        return super().__getitem__(uid)


def recounting_row(gpus: int, *, pods: int = 8, **shared: int) -> Row:
    return Row(cpu_milli=4000, mem_mib=MIB, pods=pods, devices={GPU: gpus}, shared_nano=shared)


def one_node(*pods: dict[str, Any]) -> tuple[Recount, Counted]:
    live = Counted({raw["metadata"]["uid"]: facts.pod(raw) for raw in pods})
    return Recount(live, {NODE: dict.fromkeys(live)}, {NODE: ledgers.node(node(gpus=3))}), live


def test_a_node_is_counted_once_while_nothing_of_it_changes() -> None:
    recount, live = one_node(whole("a"), whole("b"))
    for _ in range(3):
        assert list(recount.differences(Ledger("scheduler", False, {NODE: recounting_row(1)}))) == []
    assert live.reads == 2


@pytest.mark.parametrize(("resource", "free"), [("moorage.dev/gpu-share", 0), (GPU, 0), ("example.com/accelerator", 3)])
def test_gpus_of_a_device_plugin_are_not_free_where_claims_give_some(resource: str, free: int) -> None:
    mapping = {"containerName": "main", "resourceName": resource, "requestName": "r"}
    raw = pod("a", node=NODE)
    by_claim = {"resourceClaimName": "made", "requestMappings": [mapping]}
    recount, _ = one_node({**raw, "status": {**raw["status"], "extendedResourceClaimStatus": by_claim}})
    assert list(recount.differences(Ledger("scheduler", False, {NODE: recounting_row(free, pods=9)}))) == []


def test_a_row_that_changes_is_compared_though_no_object_changed() -> None:
    recount, _ = one_node(whole("a"))
    assert list(recount.differences(Ledger("scheduler", False, {NODE: recounting_row(2, pods=9)}))) == []
    wrong = Ledger("scheduler", False, {NODE: recounting_row(3, pods=9)})
    assert list(recount.differences(wrong)) == [f"{NODE}: 3 GPUs free, a recount gives 2"]
    assert list(recount.differences(wrong)) == [f"{NODE}: 3 GPUs free, a recount gives 2"]


def test_each_change_of_an_object_is_seen_by_the_next_comparison() -> None:
    story = Story().sees(node(gpus=3), kind=NODES)

    def agree(right: Row) -> bool:
        assert story.checker.ledger(Ledger("scheduler", False, {NODE: right}), story.now_s)
        return story.broken() == set()

    assert agree(recounting_row(3, pods=10))
    story.sees(whole("w"))
    assert agree(recounting_row(2, pods=9))
    story.sees(reservation("r", "g", {"uid-p": 500_000_000}))
    assert agree(recounting_row(1, g=500_000_000))
    story.sees(granted("p", "g"))
    assert agree(recounting_row(1, pods=7, g=500_000_000))
    story.sees({**whole("w"), "status": {"phase": "Succeeded"}})
    assert agree(recounting_row(2, g=500_000_000))
    story.sees(reservation("r", "g", {"uid-p": 750_000_000}))
    assert agree(recounting_row(2, g=250_000_000))
    story.sees(granted("p", "g"), event="DELETED").sees(reservation("r", "g"), event="DELETED")
    assert agree(recounting_row(3, pods=10))
    story.sees(node(gpus=4), kind=NODES)
    assert agree(recounting_row(4, pods=10))
    assert story.checker.comparisons == 8
    assert not agree(recounting_row(3, pods=10))


# A simulated run judges evictions by the record of nominations as it is stored.

PAIR = """
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  schedulerName: kai-scheduler
  containers: [{name: main, image: work, resources: {limits: {nvidia.com/gpu: 1}}}]
"""


def world() -> World:
    """A cluster whose record nobody writes but the test."""
    settings = WorldSettings(scheduler=SchedulerSettings(decisions=Settings(preemption=False)))
    return World(shape.parse(["1x1x1GiB"]), clock=VirtualClock(asyncio.get_running_loop()), settings=settings)


@pytest.mark.parametrize(
    ("name", "namespace", "s7"),
    [
        ("moorage-nominations", "kai-scheduler", True),
        ("moorage-nominations", "team", False),
        ("room", "kai-scheduler", False),
    ],
)
async def test_an_eviction_is_held_against_the_record_that_is_stored(name: str, namespace: str, s7: bool) -> None:
    async with world() as running:
        await running.apply(manifests.load(PAIR.replace("NAME", "v")))
        assert await running.until_idle()
        await running.apply(manifests.load(PAIR.replace("NAME", "h")))
        assert await running.until_idle()
        uids = {raw["metadata"]["name"]: raw["metadata"]["uid"] for raw in running.pods}
        victim = ["=" + uids["v"], "default", "v", "node-0", "=owner"]
        nomination = {"id": "a", "places": [["=" + uids["h"], "node-0"]], "victims": [victim]}
        scheduler = Api(running.server.transport("scheduler"), retry=Retry(random.Random(1)))
        written = {
            "metadata": {"name": name},
            "data": {"nominations": json.dumps({"nominations": [nomination], "evicted": {}})},
        }
        await scheduler.create(CONFIG_MAPS, written, namespace=namespace)
        await scheduler.evict("default", "v", uid=uids["v"])
        assert await running.until_idle()
        assert (await running.api.get(PODS, "h", namespace="default")).spec.node_name
        report = running.finish()
        assert (report["S7"] == HELD) is s7
        assert report["S14"] == HELD


# The recount counts a pod as the scheduler does, by code of its own.


def counted_by_the_recount(raw: dict[str, Any]) -> dict[str, int]:
    read = facts.pod(raw)
    named: dict[str, tuple[str, Fraction]] = {
        "cpu_milli": ("cpu", ledgers.MILLI),
        "mem_mib": ("memory", ledgers.MIB),
        "ephemeral_mib": ("ephemeral-storage", ledgers.MIB),
        "gpus": (GPU, Fraction(1)),
        "fpgas": ("example.com/fpga", Fraction(1)),
        "huge pages": ("hugepages-2Mi", Fraction(1)),
    }
    return {what: ledgers.demand(read, name, per=per) for what, (name, per) in named.items()}


def counted_by_the_scheduler(raw: dict[str, Any]) -> dict[str, int]:
    found = demand(msgspec.convert(raw, Pod))
    others = dict(found.extended)
    return {
        "cpu_milli": found.cpu_milli,
        "mem_mib": found.mem_mib,
        "ephemeral_mib": found.ephemeral_mib,
        "gpus": found.gpus,
        "fpgas": others.get("example.com/fpga", 0),
        "huge pages": others.get("hugepages-2Mi", 0),
    }


def test_every_pod_shape_of_the_oracle_counts_the_same_in_the_recount() -> None:
    shapes: Counter[str] = Counter()
    for seed in range(200):
        question = snapshot.draw(seed).question
        for raw in (question["pod"], *question["pods"]):
            assert counted_by_the_recount(raw) == counted_by_the_scheduler(raw), (seed, raw)
            shapes.update(amounts.asked(raw["spec"]) | amounts.resizes(raw))
    assert not {
        "sidecar", "init container", "overhead", "pod-level resources", "resize", "resize of sidecar",
        "resize of pod", "resize, infeasible",
    } - shapes.keys()  # fmt: skip


@pytest.mark.parametrize(
    ("containers", "cpu_milli", "mem_mib"),
    [(({"cpu": "500u"}, {"cpu": "500u"}), 2, 0), (({"memory": "1500m"}, {"memory": f"{2**20 - 3}"}), 0, 1)],
    ids=["parts of a thousandth of a CPU", "parts of a byte"],
)
def test_amounts_round_up_container_by_container(
    containers: tuple[dict[str, str], ...], cpu_milli: int, mem_mib: int
) -> None:
    listed = [{"name": f"c{at}", "resources": {"requests": asked}} for at, asked in enumerate(containers)]
    raw = pod("p", containers=listed)
    by_recount = counted_by_the_recount(raw)
    assert (by_recount["cpu_milli"], by_recount["mem_mib"]) == (cpu_milli, mem_mib)
    assert by_recount == counted_by_the_scheduler(raw)
