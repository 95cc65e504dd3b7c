"""A pod that is deleted by force is gone from the API server, while its containers may still run.

On a control plane that is thrown away: the share is kept for two minutes (sharing/entries.py), for which a scene that
has to be empty in the end would wait.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.e2e.cluster import Scene, scene, share
from tests.e2e.tenant import Identity, tenant
from tools.cluster.deployment import Deployment, Options
from tools.cluster.plane import ControlPlane

pytestmark = pytest.mark.cluster


@pytest.fixture
async def thrown_away() -> AsyncIterator[tuple[Scene, Identity]]:
    options = Options(arguments={"binder": ["--idle-s", "1"]})
    with ControlPlane() as plane, Deployment(plane, options) as moorage:
        async with (
            scene(plane, "vanished", ["2x4x80GiB"], is_emptied=False) as made,
            tenant(plane, "vanished") as whoever,
        ):
            yield made, whoever
        moorage.check()


async def test_a_pod_deleted_by_force_keeps_its_share_while_it_may_still_run(
    thrown_away: tuple[Scene, Identity],
) -> None:
    made, whoever = thrown_away
    wanted = share("runs-on", "0.8")
    wanted["spec"]["terminationGracePeriodSeconds"] = 5
    await whoever.create(share("neighbour", "0.25"))
    await whoever.create(wanted)
    found = (await made.running(2))["runs-on"]
    (device,) = made.seen(found)["main"]
    await whoever.core.delete_namespaced_pod("runs-on", whoever.namespace, grace_period_seconds=0)
    assert "runs-on" not in await made.pods()
    for number in range(3):
        await whoever.create(share(f"beside-{number}", "0.25"))
    pods = await made.running(4)
    beside = [seen for name, each in pods.items() if name.startswith("beside") for seen in made.seen(each)["main"]]
    assert len(beside) == 3
    assert device not in beside
