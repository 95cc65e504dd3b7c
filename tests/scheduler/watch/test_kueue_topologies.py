"""Kueue's Topologies are read where they are served, and nothing of that holds up a scheduler."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import anyio
import pytest

from kube.client import errors
from kube.client.transport import Response
from scheduler.core.cluster import Cluster
from scheduler.core.model.settings import Settings
from scheduler.core.topology.topologies import Topologies
from scheduler.watch.cache import Cache
from scheduler.watch.listed import KueueTopologies
from tests.conftest import AnyioBackend
from tests.kube.scripted import Answer, ScriptedTransport, api_over, hang, ok, refusal

NEWEST, OLDER = (f"/apis/kueue.x-k8s.io/{version}/topologies" for version in ("v1beta2", "v1beta1"))
AGAIN_S = 60
UNREAD = "topologies.kueue.x-k8s.io"


@pytest.fixture(scope="module")
def anyio_backend(virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    return virtual_anyio_backend


def served(*names: str) -> Response:
    """A list of Topologies of one level, as Kueue's objects are: without aliases."""
    items = [{"metadata": {"name": name}, "spec": {"levels": [{"nodeLabel": "example.com/rack"}]}} for name in names]
    return ok({"metadata": {"resourceVersion": "7"}, "items": items})


NO_KIND = refusal(404, "NotFound")
NO_RIGHT = refusal(403, "Forbidden")
DOWN = errors.Unreachable("cut")
NO_SENSE = ok({"metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"name": "odd"}, "spec": {"levels": 3}}]})


async def looked(*answers: Answer, times: int = 1) -> tuple[Topologies, ScriptedTransport]:
    """Follow until they were looked at so often; what is known then, and what was asked."""
    transport, cache = ScriptedTransport(deque(answers)), Cache(Cluster(Settings()))
    async with anyio.create_task_group() as tasks:
        await tasks.start(KueueTopologies(api_over(transport), cache).run)
        await anyio.sleep(AGAIN_S * (times - 0.5))
        tasks.cancel_scope.cancel()
    return cache.cluster.topologies, transport


@pytest.mark.parametrize(
    ("answers", "known", "unread", "asked"),
    [
        pytest.param([served("a", "b")], "a b", "", [NEWEST], id="newest"),
        pytest.param([NO_KIND, served("a")], "a", "", [NEWEST, OLDER], id="older"),
        pytest.param([NO_KIND, NO_KIND], "", "", [NEWEST, OLDER], id="no-kueue"),
        pytest.param([NO_RIGHT], "", UNREAD, [NEWEST], id="no-right"),
        pytest.param([NO_SENSE], "", "", [NEWEST], id="one-does-not-decode"),
    ],
)
async def test_the_newest_version_that_is_served_is_read(
    answers: Sequence[Answer], known: str, unread: str, asked: Sequence[str]
) -> None:
    found, transport = await looked(*answers)
    assert " ".join(sorted(each.name for each in found.of_kueue.all())) == known
    assert found.not_read() == unread
    assert [request.path for request in transport.requests] == asked


@pytest.mark.parametrize(
    ("then", "known", "unread"),
    [
        pytest.param([served("b")], "b", "", id="others"),
        pytest.param([NO_KIND, NO_KIND], "", "", id="kueue-is-gone"),
        pytest.param([NO_RIGHT], "a", UNREAD, id="no-right-any-more"),
    ],
)
async def test_they_are_read_again_every_minute(then: Sequence[Answer], known: str, unread: str) -> None:
    found, _ = await looked(served("a"), *then, times=2)
    assert " ".join(each.name for each in found.of_kueue.all()) == known
    assert found.not_read() == unread


async def test_an_api_server_that_does_not_answer_holds_the_start_up_for_two_seconds_only() -> None:
    began_s, cache = anyio.current_time(), Cache(Cluster(Settings()))
    async with anyio.create_task_group() as tasks:
        await tasks.start(KueueTopologies(api_over(ScriptedTransport(deque([hang]))), cache).run)
        assert anyio.current_time() - began_s == pytest.approx(2)
        tasks.cancel_scope.cancel()
    assert cache.cluster.topologies.not_read() == UNREAD


async def test_a_right_that_is_missing_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    await looked(NO_RIGHT, NO_RIGHT, times=2)
    (said,) = caplog.messages
    assert "allow the verb list on them in the ClusterRole" in said
