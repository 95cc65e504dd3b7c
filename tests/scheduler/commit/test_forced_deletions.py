"""A device of a claim is not given to another pod while the program of a pod that was deleted by force may run."""

from __future__ import annotations

from typing import Final

import pytest

from kube.client.resources import PODS
from sharing.entries import LEARNS_S, VANISHED_MARGIN_S
from tests.scheduler import stage
from tests.scheduler.commit.devices import claims_of, create_template, devices, given, using
from tests.scheduler.stage import TEAM, bound, create, phases, pod, settle

_GRACE_S: Final = 20
_WAIT_S: Final = LEARNS_S + _GRACE_S + VANISHED_MARGIN_S


@pytest.mark.parametrize("is_forced", [False, True])
async def test_the_next_pod_gets_a_device_when_the_program_of_the_last_must_have_ended(*, is_forced: bool) -> None:
    async with stage.stage("1x0") as world, devices(world, 1) as made:
        await create_template(made, "one")
        await create(world, using(pod("old", terminationGracePeriodSeconds=_GRACE_S), template="one"))
        await settle(10)
        await create(world, using(pod("next"), template="one"))
        await settle(10)
        assert bound(world) == {"old"}
        await world.api.delete(PODS, "old", namespace=TEAM, grace_s=0 if is_forced else None)
        await settle(_WAIT_S - 5)
        assert len(await claims_of(made)) == 1
        assert bound(world) == (set() if is_forced else {"next"})
        await settle(20)
        assert phases(world) == {"next": "Running"}
        assert [given(claim) for claim in (await claims_of(made)).values()] == [[("node-0", "d0")]]


async def test_meanwhile_other_devices_are_given_out() -> None:
    async with stage.stage("1x0") as world, devices(world, 2) as made:
        await create_template(made, "one")
        await create(world, using(pod("old"), template="one"))
        await settle(10)
        (claim,) = (await claims_of(made)).values()
        await world.api.delete(PODS, "old", namespace=TEAM, grace_s=0)
        await settle(1)
        await create(world, using(pod("next"), template="one"))
        await settle(10)
        assert bound(world) == {"next"}
        (other,) = (await claims_of(made)).values()
        assert set(given(other)).isdisjoint(given(claim))
