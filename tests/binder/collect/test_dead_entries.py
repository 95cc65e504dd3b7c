"""What is remembered of entries between looks, and for how long."""

from __future__ import annotations

from tests.binder.cluster import cluster


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
