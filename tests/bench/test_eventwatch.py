from __future__ import annotations

import anyio
import pytest

from bench.stage import EventWatch
from tests.conftest import AnyioBackend
from tests.kube.scripted import ScriptedTransport, Watch, ok

LISTED = ok({"metadata": {"resourceVersion": "7"}, "items": []})
WRITTEN = b'{"type":"ADDED","object":{}}'


@pytest.fixture(scope="module")
def anyio_backend(virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    return virtual_anyio_backend


async def test_events_that_are_written_count_and_later_changes_of_them_do_not() -> None:
    transport = ScriptedTransport()
    transport.answers.append(LISTED)
    transport.watches.append(Watch([WRITTEN, b'{"type":"MODIFIED","object":{}}', WRITTEN], pauses_s=1.0))
    async with anyio.create_task_group() as tasks:
        watch = EventWatch(transport, "/events")
        await tasks.start(watch.run)
        await watch.written(2, within_s=10.0)
        assert (watch.count, watch.last_at) == (2, 3.0)
        with pytest.raises(TimeoutError, match="2 of 3 events"):
            await watch.written(3, within_s=10.0)
        tasks.cancel_scope.cancel()
    assert transport.requests[1].query["resourceVersion"] == "7"
    assert transport.requests[1].query["fieldSelector"] == "reason=Scheduled"


async def test_a_watch_that_ends_voids_the_measurement() -> None:
    transport = ScriptedTransport()
    transport.answers.append(LISTED)
    transport.watches.append(Watch([WRITTEN], end="eof"))
    with pytest.raises(RuntimeError, match="ended"):
        await EventWatch(transport, "/events").run()
