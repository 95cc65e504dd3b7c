"""Entries of pods that are gone, and machines that say nothing: what the collector removes, and when."""

from __future__ import annotations

import math
import random

import anyio
import msgspec
import pytest

from binder.collect.collector import Due
from kube.client.resources import NODES, PODS
from simulator.apiserver.calls import Call
from tests.binder.cluster import BINDER, TEAM, Cluster, cluster
from wire.core import Node

# What is remembered of entries between looks, and for how long.


async def test_a_missing_pod_is_forgotten_when_somebody_else_takes_its_entry_out() -> None:
    async with cluster() as it:
        pod = await it.bound("p", "g")
        view, clearing = it.binder.view, it.binder._collector._clearing
        held = view.reservations["g"]
        del view.pods[pod.metadata.uid]  # as if not seen yet: that makes it look
        missing_since = {"uid-q": 1.0}
        cleared = await clearing.clear(held, missing_since)
        assert cleared is not None
        assert cleared.book == held.book
        assert missing_since == {}


def test_groups_are_taken_when_their_time_has_come_and_once() -> None:
    due = Due()
    due.put("a", 10.0)
    due.put("b", 5.0)
    assert due.next_at == 5.0
    assert due.take(4.9) == []
    assert due.take(5.0) == ["b"]
    assert "b" not in due
    assert due.next_at == 10.0
    assert due.take(20.0) == ["a"]
    assert (due.take(20.0), due.next_at) == ([], math.inf)


def test_the_earliest_time_of_a_group_counts() -> None:
    due = Due()
    for at in (10.0, 5.0, 7.0):
        due.put("a", at)
    assert due.next_at == 5.0
    assert due.take(20.0) == ["a"]
    due.put("a", 10.0)
    assert due.take(20.0) == ["a"]
    assert due.take(20.0) == []


def test_it_takes_what_a_table_of_all_times_would_give() -> None:
    rng = random.Random(7)
    for _ in range(200):
        due, table = Due(), dict[str, float]()
        for now in range(30):
            for _ in range(rng.randrange(4)):
                group, at = f"g{rng.randrange(5)}", float(now + rng.randrange(6))
                due.put(group, at)
                table[group] = min(at, table.get(group, math.inf))
            over = sorted(group for group, at in table.items() if at <= now)
            assert sorted(due.take(now)) == over
            table = {group: at for group, at in table.items() if group not in over}
            assert due.next_at == min(table.values(), default=math.inf)


# A tenant that vanished while its machine is away keeps its share until the machine is back and its grace is over.


async def _registers(it: Cluster, node: Node) -> None:
    """The same machine again: its Node object is a new one."""
    meta = msgspec.structs.replace(node.metadata, uid="", resource_version="")
    await it.api.create(NODES, msgspec.structs.replace(node, metadata=meta))


async def _says(it: Cluster, status: str, since: str) -> None:
    ready = {"type": "Ready", "status": status, "lastTransitionTime": since}
    await it.api.patch(NODES, "node-1", {"status": {"conditions": [ready]}}, subresource="status")


async def _is_given_back(it: Cluster) -> bool:
    return await it.reservations() == [] or await it.tenants() == set()


async def _vanishes_with_its_node(it: Cluster) -> Node:
    """As the controllers have it: the Node goes, then its pods by force, marked Failed. Return the Node as it was."""
    await it.bound()
    there = await it.api.get(NODES, "node-1")
    await it.api.delete(NODES, "node-1")
    collected = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}
    marked = {"status": {"phase": "Failed", "conditions": [collected]}}
    await it.api.patch(PODS, "p", marked, namespace=TEAM, subresource="status")
    await it.api.delete(PODS, "p", namespace=TEAM, grace_s=0)
    return there


@pytest.mark.parametrize("away_s", [1, 25, 600, 3000])
async def test_the_grace_begins_when_a_node_that_was_gone_registers_again(away_s: float) -> None:
    """Its kubelet did not learn of the deletion before, however long it was away."""
    async with cluster() as it:
        there = await _vanishes_with_its_node(it)
        await anyio.sleep(away_s)
        assert await it.tenants() == {"p"}
        await _registers(it, there)
        await anyio.sleep(145)
        assert await it.tenants() == {"p"}
        await anyio.sleep(30)
        assert await _is_given_back(it)


async def test_a_share_that_waits_for_its_machine_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    async with cluster() as it:
        await _vanishes_with_its_node(it)
        await anyio.sleep(600)
    (told,) = [record.getMessage() for record in caplog.records if "is kept" in record.getMessage()]
    assert told.startswith("the share of pod team/p on node-1, group g, is kept: the pod is gone, but its node is gone")


async def test_a_node_that_goes_and_comes_between_two_looks_makes_the_grace_begin_again() -> None:
    async with cluster() as it:
        await it.bound()
        await it.api.delete(PODS, "p", namespace=TEAM, grace_s=0)
        await anyio.sleep(135)
        there = await it.api.get(NODES, "node-1")
        await it.api.delete(NODES, "node-1")
        await _registers(it, there)
        await anyio.sleep(145)
        assert await it.tenants() == {"p"}
        await anyio.sleep(30)
        assert await _is_given_back(it)


async def test_a_node_that_registers_again_unseen_by_the_watch_makes_the_grace_begin_again() -> None:
    """The view is late, as a watch may be: an entry dies on what a quorum read says of the Node."""
    async with cluster() as it:
        await it.bound()
        it.server.faults.on_watch_line.append(_lateness_s)
        await it.api.delete(PODS, "p", namespace=TEAM, grace_s=0)
        await anyio.sleep(135)
        there = await it.api.get(NODES, "node-1")
        await it.api.delete(NODES, "node-1")
        await _registers(it, there)
        await anyio.sleep(30)
        assert await it.tenants() == {"p"}


def _lateness_s(call: Call, line: bytes) -> float:
    return 300.0 if call.user == BINDER and call.kind.plural == "nodes" else 0.0


async def test_a_binder_that_starts_while_the_node_is_gone_goes_on_waiting() -> None:
    async with cluster() as it:
        there = await _vanishes_with_its_node(it)
        it.kill()
        await it.start()
        await anyio.sleep(600)
        assert await it.tenants() == {"p"}
        it.kill()
        await _registers(it, there)
        await it.start()
        await anyio.sleep(165)
        assert await it.tenants() == {"p"}
        await anyio.sleep(60)
        assert await _is_given_back(it)


async def test_the_grace_begins_when_a_silent_kubelet_is_heard_of_again() -> None:
    """Who deletes a pod by force does so because its node does not answer."""
    async with cluster() as it:
        await it.bound()
        await _says(it, "Unknown", "2026-01-01T00:00:00Z")
        await it.api.delete(PODS, "p", namespace=TEAM, grace_s=0)
        await anyio.sleep(600)
        assert await it.tenants() == {"p"}
        await _says(it, "True", "2026-01-01T00:10:00Z")
        await anyio.sleep(145)
        assert await it.tenants() == {"p"}
        await anyio.sleep(30)
        assert await _is_given_back(it)


async def test_a_node_that_stays_ready_for_its_monitors_grace_though_its_kubelet_was_cut_off_frees_nothing() -> None:
    """The deletion by force comes just after the kubelet's last heartbeat: 55 s pass before the Node says Unknown."""
    async with cluster() as it:
        await it.bound()
        await it.api.delete(PODS, "p", namespace=TEAM, grace_s=0)
        await anyio.sleep(55)
        assert await it.tenants() == {"p"}
        await _says(it, "Unknown", "2026-01-01T00:00:00Z")
        await anyio.sleep(600)
        assert await it.tenants() == {"p"}
        await _says(it, "True", "2026-01-01T00:10:00Z")
        await anyio.sleep(145)
        assert await it.tenants() == {"p"}
        await anyio.sleep(30)
        assert await _is_given_back(it)
