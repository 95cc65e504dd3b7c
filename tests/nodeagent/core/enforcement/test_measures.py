from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.enforcement.caps import Tenancy
from nodeagent.core.enforcement.messages import Done
from nodeagent.core.enforcement.overuse import MIB, Action, Deed, Device, Process, Sample
from nodeagent.core.enforcement.usage import DeviceMeasures, Measures, TenantMeasures, counted, measures

QUARTER = Tenancy("pod-a", "team/p", "GPU-1", 250_000_000, 1000, 1500)


def device(*processes: Process, uuid: str = "GPU-1") -> Device:
    return Device(uuid, 4000 * MIB, 1800 * MIB, processes, 40)


def test_a_tenant_has_the_sums_of_its_processes_and_a_device_what_is_nobodys() -> None:
    mine = Process(1, 1, 900 * MIB, 10, "pod-a"), Process(2, 1, 100 * MIB, 20, "pod-a")
    others = Process(3, 1, 700 * MIB, 5, "pod-b"), Process(4, 1, 100 * MIB, 5)
    found = measures(Sample(0, (device(*mine, *others),)), [QUARTER])
    assert found == Measures(
        (DeviceMeasures("GPU-1", 4000 * MIB, 1800 * MIB, 40, 250_000_000, 800 * MIB),),
        (TenantMeasures(QUARTER, 2, 1000 * MIB, 30, 1500 * MIB),),
    )
    (tenant,) = found.tenants
    assert (tenant.asked_bytes, tenant.sm_of_share_percent) == (1000 * MIB, 120)


def test_what_the_driver_does_not_tell_is_not_known() -> None:
    untold = Process(1, 1, 5, 10, "pod-a"), Process(2, 1, None, None, "pod-a")
    (tenant,) = measures(Sample(0, (device(*untold),)), [QUARTER]).tenants
    assert (tenant.processes, tenant.used_bytes, tenant.sm_percent, tenant.sm_of_share_percent) == (2, None, None, None)


def test_a_tenant_without_processes_uses_nothing_and_one_on_a_device_that_was_not_read_is_left_out() -> None:
    uncapped = Tenancy("pod-b", "team/q", "GPU-1", 1, 0)
    lost = Tenancy("pod-a", "team/p", "GPU-9", 1)
    assert measures(Sample(0, (device(),)), [uncapped, lost]).tenants == (TenantMeasures(uncapped, 0, 0, 0, None),)


PROCESSES = st.lists(
    st.builds(
        Process,
        st.integers(1, 99),
        st.just(1),
        st.integers(0, 2**40),
        st.integers(0, 100),
        st.sampled_from(["", "pod-a", "pod-b"]),
    ),
    max_size=8,
)


@given(PROCESSES)
def test_nothing_is_lost_between_tenants_and_nobody(processes: list[Process]) -> None:
    found = measures(Sample(0, (device(*processes),)), [QUARTER])
    told = sum(tenant.used_bytes or 0 for tenant in found.tenants) + found.devices[0].unattributed_bytes
    assert told == sum(one.used_bytes or 0 for one in processes)


def test_deeds_are_counted_by_what_was_done() -> None:
    largest, everybody = (
        Done(Deed("pod-a", "GPU-1", 5, 1, action, (), is_dry))
        for action, is_dry in ((Action.END_LARGEST, True), (Action.END_ALL, False))
    )
    once = counted({}, [largest, everybody, largest])
    assert once == {("largest", True): 2, ("all", False): 1}
    assert counted(once, [everybody]) == {("largest", True): 2, ("all", False): 2}
    assert counted(once, []) == once
