"""Another scheduler allocates devices of the same pools, and binds its pods by them."""

from __future__ import annotations

from kube.client.resources import RESOURCE_CLAIMS
from tests.verification.hostile.faults.grounds import Stage, stage
from tests.verification.hostile.faults.test_claims import pod, prepared
from verification.hostile.faults.devices import RIVALS, RivalAllocates


async def _given(on: Stage, namespace: str) -> list[str]:
    claims = (await on.world.api.list(RESOURCE_CLAIMS, namespace=namespace)).items
    allocations = [claim.status.allocation for claim in claims if claim.status.allocation is not None]
    return [each.device for allocation in allocations for each in allocation.devices.results or ()]


async def test_what_it_knows_is_old_so_it_gives_away_what_is_taken() -> None:
    async with stage() as on:
        await prepared(on)
        on.strike(RivalAllocates(at_s=2, for_s=20, count=1, late_s=8.0, seed=2))
        await on.until(2.05)
        await pod(on, "p", claims=("c",))
        await on.until(19)
        assert (await _given(on, RIVALS), await _given(on, "team")) == (["d0"], ["d0"])


async def test_it_takes_a_device_that_is_free_and_gives_it_back_at_the_end() -> None:
    async with stage() as on:
        await prepared(on)
        on.strike(RivalAllocates(at_s=2, for_s=20, count=2, late_s=0.0, seed=1))
        await on.until(15)
        assert await _given(on, RIVALS) == ["d0"]  # the others are tainted, and shared
        await pod(on, "p", claims=("c",))
        await on.until(60)
        assert (await _given(on, RIVALS), await _given(on, "team")) == ([], ["d2"])
        assert (await on.world.api.list(RESOURCE_CLAIMS, namespace=RIVALS)).items == []
