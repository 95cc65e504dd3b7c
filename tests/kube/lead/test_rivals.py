from __future__ import annotations

import asyncio
import logging
import random

import anyio
import pytest

from kube.client.api import Api
from kube.client.resources import EVENTS
from kube.client.retry import Retry
from kube.events import EventRecorder
from kube.lead.replica import Rivals
from simulator.apiserver.server import MemoryApiServer
from simulator.clock import VirtualClock
from tests.conftest import AnyioBackend
from wire.coordination import Lease, LeaseSpec
from wire.core import ObjectMeta


@pytest.fixture(scope="module")
def anyio_backend(virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    return virtual_anyio_backend


def lease_of(holder: str) -> Lease:
    metadata = ObjectMeta(name="moorage-scheduler", namespace="kai-scheduler", uid="u")
    return Lease(metadata=metadata, spec=LeaseSpec(holder_identity=holder))


async def test_each_rival_is_told_of_once_in_the_log_and_by_an_event(caplog: pytest.LogCaptureFixture) -> None:
    clock = VirtualClock(asyncio.get_running_loop())
    server = MemoryApiServer(clock=clock, rng=random.Random(1), auto_namespaces=True)
    api = Api(server.transport(), retry=Retry(random.Random(1)))
    events = EventRecorder(api, clock=clock, controller="kai-scheduler", instance="me")
    rivals = Rivals(events)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(events.run)
        with caplog.at_level(logging.ERROR):
            for holder in ("a_1", "a_1", "b_2", "a_1"):
                rivals(lease_of(holder))
        await anyio.sleep(5.0)
        written = (await api.list(EVENTS, namespace="kai-scheduler")).items
        tasks.cancel_scope.cancel()
    assert [record.getMessage().split(" while ")[1] for record in caplog.records] == [
        "a_1 works, too: stop one",
        "b_2 works, too: stop one",
    ]
    assert sorted((event.note, event.type, event.reason) for event in written) == [
        (f"this process works without leader election (--no-leader-election) while {rival} works, too: stop one",
         "Warning", "NotAlone")
        for rival in ("a_1", "b_2")
    ]  # fmt: skip
    regarding = written[0].regarding
    assert regarding is not None
    assert (regarding.kind, regarding.name, regarding.namespace) == ("Lease", "moorage-scheduler", "kai-scheduler")
