"""Objects that are deleted under us: what goes with them, and that work goes on when they are there again."""

from __future__ import annotations

import pytest

from kube.client import errors
from kube.client.resources import LEASES, NAMESPACES
from kube.lead.lease import LeaseSettings
from simulator.nodes.shape import KubeletSettings
from tests.verification.hostile.faults.grounds import stage
from verification.hostile.faults.objects import LeaseDeleted, NamespaceDeleted, ReservationsDeleted
from wire import names


async def test_with_its_namespace_a_pod_and_its_reservation_go_and_meanwhile_nothing_comes() -> None:
    async with stage(kubelet=KubeletSettings(stop_s=5.0)) as on:
        await on.pod("p", gpu_fraction="0.5")
        await on.until(10)
        on.strike(NamespaceDeleted(at_s=10, for_s=1))
        await on.until(11)
        with pytest.raises(errors.Forbidden, match="is being terminated"):
            await on.pod("q", gpu_fraction="0.5")
        await on.until(60)
        assert on.world.pods == []
        await on.pod("q", gpu_fraction="0.5")
        await on.until(90)
        assert await on.phase("q") == "Running"


async def test_the_reservations_namespace_goes_and_is_installed_again() -> None:
    async with stage() as on:
        await on.pod("p", gpu_fraction="0.5")
        await on.until(10)
        before = await on.world.api.get(NAMESPACES, names.RESERVATION_NAMESPACE)
        on.strike(ReservationsDeleted(at_s=10, for_s=30))
        await on.until(39)
        assert (await on.ground.reservations(), await on.phase("p")) == ([], "Running")
        await on.until(60)
        assert len(await on.ground.reservations()) == 1
        after = await on.world.api.get(NAMESPACES, names.RESERVATION_NAMESPACE)
        assert after.metadata.uid != before.metadata.uid
        await on.pod("q", gpu_fraction="0.5")
        await on.until(120)
        assert await on.phase("q") == "Running"


LEASE = LeaseSettings(duration_s=60, renew_deadline_s=45.0, retry_s=20.0, poll_s=15.0)


async def test_a_lease_goes_again_and_again_and_somebody_leads_in_the_end() -> None:
    async with stage(schedulers=2, election=LEASE) as on:
        before = await on.world.api.get(LEASES, "moorage-scheduler", namespace=names.SYSTEM_NAMESPACE)
        on.strike(LeaseDeleted(at_s=0, for_s=100, role="scheduler", every_s=30.0))
        await on.until(1)
        with pytest.raises(errors.NotFound):
            await on.world.api.get(LEASES, "moorage-scheduler", namespace=names.SYSTEM_NAMESPACE)
        await on.pod("p", gpu_fraction="0.5")
        await on.until(300)
        after = await on.world.api.get(LEASES, "moorage-scheduler", namespace=names.SYSTEM_NAMESPACE)
        assert after.metadata.uid != before.metadata.uid
        assert await on.phase("p") == "Running"


async def test_without_an_election_there_is_no_lease_to_delete() -> None:
    async with stage() as on:
        await LeaseDeleted(at_s=0, for_s=3, role="binder", every_s=1.0).strike(on.ground)
        await on.pod("p", gpu_fraction="0.5")
        await on.until(40)
        assert await on.phase("p") == "Running"
