"""What Moorage does seldom, on the real control plane: so that the rights for it are known to be right, and needed."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import anyio
import pytest
from kubernetes_asyncio import client

from kube import config
from kube.api import Api
from kube.clock import SystemClock
from kube.events import EventRecorder, EventSettings
from kube.http import HttpTransport
from kube.retry import Retry
from tests.e2e.cluster import eventually, share
from tests.e2e.conftest import SetScene
from tools.cluster import ControlPlane
from tools.deployment import BINDER, SCHEDULER, Deployment
from wire import names
from wire.core import ObjectReference

pytestmark = pytest.mark.cluster


@pytest.fixture
async def impatient(moorage: Deployment) -> AsyncIterator[Deployment]:
    """A scheduler that soon evicts what is left of a broken gang; afterwards the usual one again."""
    for arguments in (["--default-staleness-grace-period", "2s"], []):
        moorage.stop(SCHEDULER)
        moorage.start(SCHEDULER, *arguments)
        if arguments:
            yield moorage


async def test_what_is_left_of_a_gang_that_lost_a_member_is_evicted(set_scene: SetScene, impatient: Deployment) -> None:
    async with set_scene(["1x2x80GiB"]) as scene:
        await scene.create_gang("gang", 2, share("stays", "0.5"), share("goes", "0.5"))
        await scene.running(2)
        await scene.delete("goes")

        async def is_evicted() -> bool | None:
            return not await scene.pods() or None

        await eventually(is_evicted, "the rest of the gang to go", within_s=30)
        events = await client.CoreV1Api(scene.core.api_client).list_namespaced_event(scene.namespace)
        notes = [event.message for event in events.items if event.reason == "Evict"]
        expected = "Workload doesn't meet the minimum required number of pods (2), evicting remaining pod: "
        assert notes == [f"{expected}{scene.namespace}/stays"]


@pytest.mark.parametrize("component", [SCHEDULER, BINDER])
async def test_an_event_that_is_said_again_becomes_a_series(
    control_plane: ControlPlane, moorage: Deployment, component: str
) -> None:
    """The components' own recorder under their own identities; they themselves wait a minute before a second write."""
    ca_file = anyio.Path(control_plane.folder / "rare-ca.pem")
    await ca_file.write_text(control_plane.ca_pem)
    token = control_plane.service_account_token(names.SYSTEM_NAMESPACE, f"moorage-{component}")
    credentials = config.plain(control_plane.url, ca_file=str(ca_file), token=token)
    about = ObjectReference(api_version="v1", kind="Pod", name=f"rare-{component}", namespace="default", uid="u")
    async with HttpTransport(credentials, user_agent=f"moorage-{component}") as transport:
        events = EventRecorder(
            Api(transport, retry=Retry(random.Random(1))),
            clock=SystemClock(),
            controller=component,
            instance="rare",
            settings=EventSettings(bundle_s=0.1),
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(events.run)
            for _ in range(2):
                events.record(about, reason="Rare", action="Testing", note="again")
                written = events.counts.written

                async def is_written(before: int = written) -> bool | None:
                    return events.counts.written > before or None

                await eventually(is_written, "the event to be written", within_s=10)
            tasks.cancel_scope.cancel()
        assert (events.counts.written, events.counts.refused) == (2, 0)
