"""Devices that are shared on records."""

from __future__ import annotations

from itertools import count

import pytest

from gpu.bind_request import PlannedDevice
from gpu.share import NANO_PER_DEVICE
from scheduler.core.cluster import Cluster
from scheduler.core.model.settings import Settings
from simulator.traces.records import SharedDevices, node_record
from simulator.traces.trace import TraceNode

pytestmark = pytest.mark.thorough


def test_a_device_has_a_reservation_from_its_first_tenant_to_its_last() -> None:
    cluster, numbers = Cluster(Settings()), count(1)
    node = node_record(TraceNode(name="n", cpu_milli=1_000, mem_mib=1_000, gpus=1), 0)
    cluster.replace_nodes([node])
    shared = SharedDevices(cluster, lambda: str(next(numbers)))
    half = [PlannedDevice("g", NANO_PER_DEVICE // 2)]
    first, second = shared.join(half, node.name), shared.join(half, node.name)
    assert first == second
    assert (first[0].group, first[0].reservation) == ("g", "r-g")
    shared.leave(half)
    assert cluster.pod("r-g") is not None
    shared.leave(half)
    assert cluster.pod("r-g") is None
    with pytest.raises(KeyError):
        shared.leave(half)
