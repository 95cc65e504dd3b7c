"""What a shared pod costs the API server: writes and LISTs, all components together."""

from __future__ import annotations

from collections import Counter

import pytest

from simulator.world import World
from tests.scheduler import stage
from tests.scheduler.stage import all_writes, create, phases, settle, share

_OURS = ("scheduler", "binder", "reservation")


def _counts(world: World, before: int) -> Counter[str]:
    ours = [entry for entry in world.server.audit[before:] if entry.user in _OURS and entry.resource != "leases"]
    return Counter(entry.verb if entry.verb in {"get", "list"} else "write" for entry in ours)


@pytest.mark.parametrize(("nodes", "halves"), [(1, 16), (8, 64)])
async def test_a_half_costs_four_and_a_half_writes_and_a_fraction_of_a_list(nodes: int, halves: int) -> None:
    """Of two halves of a device one costs 6 writes and the other 3 (docs/design/protocol.md)."""
    async with stage.stage(f"{nodes}x8x80GiB") as world:
        await settle(5)
        before = len(world.server.audit)
        await create(world, *(share(f"s-{number:02}") for number in range(halves)))
        await settle(30)
        counts = _counts(world, before)
        assert Counter(phases(world).values()) == {"Running": halves}
        assert counts["write"] <= 4.5 * halves
        # One answers for all devices of a node that were named meanwhile: here, all of them.
        assert counts["list"] <= nodes
        # The reservation process reads its own pod. Nobody else reads what a watch shows.
        assert counts["get"] <= 0.5 * halves
        assert not [entry for entry in all_writes(world, *_OURS) if entry.code >= 300]


async def test_further_shares_of_known_devices_cost_three_writes_and_no_read() -> None:
    async with stage.stage("2x8x80GiB") as world:
        await create(world, *(share(f"first-{number:02}", "0.6") for number in range(16)))
        await settle(30)
        before = len(world.server.audit)
        await create(world, *(share(f"further-{number:02}", "0.2") for number in range(16)))
        await settle(30)
        counts = _counts(world, before)
        assert set(phases(world).values()) == {"Running"}
        assert counts["write"] <= 3 * 16
        assert (counts["list"], counts["get"]) == (0, 0)
