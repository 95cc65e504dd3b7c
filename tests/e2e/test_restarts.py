"""The scheduler and the binder killed in the middle of bulk arrivals and gangs: no difference in the end."""

from __future__ import annotations

import anyio
import pytest
from kubernetes_asyncio import client

from tests.e2e.cluster import PATIENCE_S, Scene, eventually, pod, share
from tests.e2e.conftest import SetScene
from tests.e2e.tenant import MERGE
from tests.whole import IS_WHOLE
from tools.cluster.deployment import BINDER, SCHEDULER, Deployment
from wire import names

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420)]


@pytest.mark.parametrize("component", [SCHEDULER, BINDER])
@pytest.mark.parametrize("after_s", [0.05, 0.3, 0.6] if IS_WHOLE else [0.3])
async def test_a_crash_in_the_middle_of_sixteen_halves_makes_no_difference(
    set_scene: SetScene, moorage: Deployment, component: str, after_s: float
) -> None:
    async with set_scene(["1x8x80GiB"]) as scene:
        await scene.create(*(share(f"p{i}", "0.5") for i in range(16)))
        await anyio.sleep(after_s)
        moorage.kill(component)
        await _is_over(scene, component)
        moorage.start(component)
        pods = await scene.running(16)
        assert sorted(len(sharers) for sharers in scene.sharers(pods).values()) == [2] * 8
        await _leads(moorage, component)


@pytest.mark.parametrize(
    ("component", "form"),
    [(SCHEDULER, "halves"), (BINDER, "whole"), *([(BINDER, "halves"), (SCHEDULER, "whole")] if IS_WHOLE else [])],
)
async def test_a_crash_in_the_middle_of_a_gang_makes_no_difference(
    set_scene: SetScene, moorage: Deployment, component: str, form: str
) -> None:
    async with set_scene(["2x8x80GiB"]) as scene:
        count = 32 if form == "halves" else 16
        members = [share(f"m{i}", "0.5") if form == "halves" else pod(f"m{i}", gpus=1) for i in range(count)]
        await scene.create_gang("gang", count, *members)
        await anyio.sleep(0.3)
        moorage.kill(component)
        if form == "whole":
            await _is_over(scene, component)
        moorage.start(component)
        pods = await scene.running(count)
        assert sorted(len(sharers) for sharers in scene.sharers(pods).values()) == [count // 16] * 16
        await _leads(moorage, component)


async def _is_over(scene: Scene, component: str) -> None:
    """End the lease of who was killed: the next one works at once, and is not waited for each time for 15 s.

    Which is no easier for it: what its predecessor had sent has just come in.
    """
    leases = client.CoordinationV1Api(scene.core.api_client)
    given_back = {"spec": {"holderIdentity": None, "leaseDurationSeconds": None}}
    await leases.patch_namespaced_lease(f"moorage-{component}", names.SYSTEM_NAMESPACE, given_back, _content_type=MERGE)


async def _leads(moorage: Deployment, component: str) -> None:
    """Wait until who was killed leads again.

    A pod that goes before, and whose end no binder sees, keeps its share for 115 s (sharing/entries.py):
    the scene would take two minutes longer to be empty.
    """

    async def is_led() -> bool | None:
        return " leads" in moorage.log(component) or None

    await eventually(is_led, f"{component} to lead", within_s=PATIENCE_S)
