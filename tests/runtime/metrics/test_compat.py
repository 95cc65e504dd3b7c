from __future__ import annotations

import pytest
from prometheus_client.exposition import generate_latest

from nodeagent.core.enforcement.caps import Tenancy
from nodeagent.core.enforcement.overuse import MIB, Device, Process, Sample
from nodeagent.core.enforcement.usage import Measures, measures
from runtime.metrics.compat import COMPAT, HAMI, METAGPU, show_compat
from runtime.metrics.registry import Registry

HELD = [
    Tenancy("uid-p", "team/p", "GPU-1", 250_000_000, 1000, 1500),
    Tenancy("uid-q", "team/q", "GPU-1", 500_000_000, 2000),
]
MINE = Process(1, 1, 900 * MIB, 10, "uid-p"), Process(2, 1, None, None, "uid-q")
FOUND = measures(Sample(0, (Device("GPU-1", 4000 * MIB, 1000 * MIB, MINE, 40),)), HELD)
DEVICE = '{device_index="3",device_uuid="GPU-1",node_name="n1",resource_name="nvidia.com/gpu"}'


def tenant(pod: str) -> str:
    labels = {
        "cmdline": "-", "node_name": "n1", "pid": "-", "pod_name": pod, "pod_namespace": "team",
        "resource_name": "nvidia.com/gpu", "user": "-", "uuid": "GPU-1",
    }  # fmt: skip
    return "{" + ",".join(f'{key}="{value}"' for key, value in labels.items()) + "}"


def hami(pod: str) -> str:
    return f'{{container="-",device_uuid="GPU-1",namespace="team",pod="{pod}",vdevice_index="-"}}'


def shown(*systems: str, found: Measures = FOUND) -> set[str]:
    registry = Registry()
    show_compat(registry, systems, lambda: found, node="n1", index_of={"GPU-1": 3}.get)
    assert {metric.name for metric in registry.metrics} <= {metric.name for metric in COMPAT}
    lines = generate_latest(registry.collectors).decode().splitlines()
    return {line for line in lines if line.startswith(("hami_", "metagpu_"))}


def test_hamis_names_have_memory_and_cap_of_each_tenant() -> None:
    assert shown(HAMI) == {
        f"hami_vgpu_memory_used_bytes{hami('p')} 9.437184e+08",
        f"hami_vgpu_memory_limit_bytes{hami('p')} 1.572864e+09",
    }


def test_metagpus_names_have_devices_and_what_tenants_use_of_their_shares() -> None:
    assert shown(METAGPU) == {
        f"metagpu_device_shares{DEVICE} 100.0",
        f"metagpu_device_memory_total{DEVICE} 4000.0",
        f"metagpu_device_memory_free{DEVICE} 3000.0",
        f"metagpu_device_memory_used{DEVICE} 1000.0",
        f"metagpu_device_memory_share_size{DEVICE} 40.0",
        f"metagpu_process_max_allowed_metagpu_memory{tenant('p')} 1000.0",
        f"metagpu_process_absolute_gpu_utilization{tenant('p')} 10.0",
        f"metagpu_process_metagpu_relative_gpu_utilization{tenant('p')} 40.0",
        f"metagpu_process_memory_usage{tenant('p')} 900.0",
        f"metagpu_process_metagpu_relative_memory_utilization{tenant('p')} 90.0",
        f"metagpu_process_max_allowed_metagpu_memory{tenant('q')} 2000.0",
    }


@pytest.mark.parametrize("systems", [(), (HAMI, METAGPU)])
def test_without_a_warden_or_without_a_wish_there_is_nothing(systems: tuple[str, ...]) -> None:
    assert shown(*systems, found=FOUND if not systems else Measures()) == set()
