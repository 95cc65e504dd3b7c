from __future__ import annotations

from prometheus_client.exposition import generate_latest

from nodeagent.core.enforcement.caps import Tenancy
from nodeagent.core.enforcement.overuse import MIB, Device, Process, Sample
from nodeagent.core.enforcement.usage import Measures, measures
from runtime.metrics.nodeagent import TENANTS, show_tenants
from runtime.metrics.registry import Registry


def shown(measured: Measures, deeds: dict[tuple[str, bool], int]) -> set[str]:
    registry = Registry()
    show_tenants(registry, lambda: measured, lambda: deeds)
    assert {metric.name for metric in registry.metrics} == {metric.name for metric in TENANTS}
    lines = generate_latest(registry.collectors).decode().splitlines()
    return {line for line in lines if line.startswith("moorage_")}


def test_gpus_and_tenants_are_shown_as_they_were_measured() -> None:
    held = [
        Tenancy("uid-p", "team/p", "GPU-1", 250_000_000, 1000, 1500),
        Tenancy("uid-q", "team/q", "GPU-1", 500_000_000, 2000),
    ]
    mine = Process(1, 1, 900 * MIB, 10, "uid-p"), Process(2, 1, 100 * MIB, 20, "uid-p"), Process(3, 1, MIB, None, "")
    sample = Sample(2_400 * 10**9, (Device("GPU-1", 4000 * MIB, 1001 * MIB, mine, 40),))
    found = measures(sample, held, {("uid-q", "GPU-1"): 300 * 10**9, ("uid-p", "GPU-1"): None})
    card, p, q = (
        '{uuid="GPU-1"}',
        *(f'{{namespace="team",pod="{name}",pod_uid="uid-{name}",uuid="GPU-1"}}' for name in "pq"),
    )
    assert shown(found, {("largest", True): 2, ("all", False): 1}) == {
        f"moorage_gpu_memory_total_bytes{card} 4.194304e+09",
        f"moorage_gpu_memory_used_bytes{card} 1.049624576e+09",
        f"moorage_gpu_utilization_ratio{card} 0.4",
        f"moorage_gpu_asked_nano{card} 7.5e+08",
        f"moorage_unattributed_memory_bytes{card} 1.048576e+06",
        f"moorage_tenant_memory_used_bytes{p} 1.048576e+09",
        f"moorage_tenant_memory_asked_bytes{p} 1.048576e+09",
        f"moorage_tenant_memory_cap_bytes{p} 1.572864e+09",
        f"moorage_tenant_sm_ratio{p} 0.3",
        f"moorage_tenant_sm_of_share_ratio{p} 1.2",
        f"moorage_tenant_asked_nano{p} 2.5e+08",
        f"moorage_tenant_processes{p} 2.0",
        f"moorage_tenant_memory_used_bytes{q} 0.0",
        f"moorage_tenant_memory_asked_bytes{q} 2.097152e+09",
        f"moorage_tenant_sm_ratio{q} 0.0",
        f"moorage_tenant_sm_of_share_ratio{q} 0.0",
        f"moorage_tenant_asked_nano{q} 5e+08",
        f"moorage_tenant_processes{q} 0.0",
        f"moorage_tenant_idle_seconds{q} 2100.0",
        'moorage_limit_deeds_total{deed="largest",dry_run="true"} 2.0',
        'moorage_limit_deeds_total{deed="all",dry_run="false"} 1.0',
    }


def test_without_a_warden_nothing_is_shown() -> None:
    assert shown(Measures(), {}) == set()


def test_no_metric_of_a_component_has_one_of_these_names() -> None:
    from runtime.metrics.declared import COMPONENTS  # noqa: PLC0415 - for this test alone

    names = {metric.name for metrics in COMPONENTS.values() for metric in metrics}
    assert not names & {metric.name for metric in TENANTS}
