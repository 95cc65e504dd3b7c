"""What explanations rest on: the page's own reading says what the command says of the same cluster."""

from __future__ import annotations

import random
from typing import Any

import anyio
import pytest

from kube.client.api import Api
from kube.client.clock import SystemClock
from kube.client.config import Credentials
from kube.client.resources import CONFIG_MAPS, NODES, POD_GROUPS, PODS, PRIORITY_CLASSES, QUEUES
from kube.client.retry import Retry
from scheduler.core.preemption import nomination_record
from simulator.apiserver.server import MemoryApiServer
from tests.conftest import AnyioBackend
from tests.ui.explain.test_client import ANSWER, ApiServer
from ui.explain import explanation, tables
from ui.explain import explanation as client
from ui.explain.views import Asked, Unanswered
from ui.page import explanations
from ui.page.explanations import PageExplains, Question
from ui.page.objects import Objects
from ui.page.values import EVERYTHING, Table
from ui.page.watch import Following
from ui.queues import reader
from ui.tables import Sheet
from wire import names

CLOCK = SystemClock()


@pytest.fixture(scope="module")
def anyio_backend() -> AnyioBackend:
    return ("asyncio", {})


def pod(name: str, gpus: int, node: str = "", *, queue: str = "q", gang: str = "") -> dict[str, Any]:
    container = {"name": "main", "image": "i", "resources": {"limits": {names.GPU_RESOURCE: str(gpus)}}}
    spec = {"schedulerName": names.SCHEDULER_NAME, "containers": [container], **({"nodeName": node} if node else {})}
    annotations = {names.POD_GROUP_NAME: gang} if gang else {}
    metadata = {"name": name, "labels": {names.QUEUE_LABEL: queue}, "annotations": annotations}
    return {"metadata": metadata, "spec": spec}


async def busy(api: Api) -> None:
    """Two full nodes, a queue that has more than its share, and a gang and a pod that wait. Room is made."""
    for name in ("n1", "n2"):
        amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", names.GPU_RESOURCE: "4"}
        status = {"allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
        await api.create(NODES, {"metadata": {"name": name}, "status": status})
    for queue in ("q", "other"):
        gpu = {"quota": 4, "limit": -1, "overQuotaWeight": 1}
        await api.create(QUEUES, {"metadata": {"name": queue}, "spec": {"resources": {"gpu": gpu}}})
    for number in range(4):
        await api.create(PODS, pod(f"r{number}", 2, f"n{1 + number % 2}", queue="other"), namespace="other")
        running = {"status": {"phase": names.RUNNING}}
        await api.patch(PODS, f"r{number}", running, namespace="other", subresource="status")
    await api.create(PRIORITY_CLASSES, {"metadata": {"name": "urgent"}, "value": 90})
    spec = {"minMember": 3, "queue": "q", "priorityClassName": "urgent"}
    await api.create(POD_GROUPS, {"metadata": {"name": "g"}, "spec": spec}, namespace="ns")
    for member in range(3):
        await api.create(PODS, pod(f"g{member}", 4, gang="g"), namespace="ns")
    await api.create(PODS, pod("alone", 3), namespace="ns")
    record = {"metadata": {"name": names.NOMINATIONS}, "data": {nomination_record.KEY: ""}}
    await api.create(CONFIG_MAPS, record, namespace=names.SYSTEM_NAMESPACE)


def table(sheet: Sheet) -> Table:
    rows = tuple(tuple(cell.text for cell in row) for row in sheet.rows)
    return Table(title=sheet.title, columns=tuple(sheet.columns), rows=rows)


@pytest.mark.parametrize(("name", "verdict"), [("alone", "WaitsForVictims"), ("g1", "GangIncomplete")])
async def test_the_page_says_what_the_command_says(name: str, verdict: str) -> None:
    server = MemoryApiServer(clock=CLOCK, rng=random.Random(1), auto_namespaces=True)
    api = Api(server.transport("user"), retry=Retry(random.Random(2)))
    objects = Objects()
    following = Following(api, objects, rng=random.Random(3))
    async with anyio.create_task_group() as tasks:
        await tasks.start(server.run)
        await busy(api)
        await tasks.start(following.run)
        await following.settled()
        explains = PageExplains(explanations.cluster(api, objects, following, CLOCK), clock=CLOCK)
        found = await explains.explain(Question(namespace="ns", name=name, sight=EVERYTHING))
        known = await reader.read(api, wall_s=CLOCK.now_ns() // 10**9)
        tasks.cancel_scope.cancel()
    subject = explanation.subject(known, "pod", "ns", name)
    view = tables.group_view(explanation.explained(known, subject, [], CLOCK.now_ns() // 10**9))
    assert list(found.tables) == [table(sheet) for sheet in tables.group_sheets(view)]
    assert view.verdict == verdict
    assert not any(each.startswith("PriorityClasses") for each in found.unread)
    assert (view.preemption is not None, bool(view.helps)) == (not view.starts, not view.starts)


async def test_where_not_all_pods_are_read_nothing_is_said() -> None:
    server = MemoryApiServer(clock=CLOCK, rng=random.Random(1))
    api = Api(server.transport("user"), retry=Retry(random.Random(2)))
    objects = Objects()
    reads = explanations.cluster(api, objects, Following(api, objects, rng=random.Random(3), namespaces=["ns"]), CLOCK)
    with pytest.raises(Unanswered, match="not all pods are read here") as refused:
        await reads(None)
    assert refused.value.status == 409


async def test_a_reader_who_signed_in_asks_with_that_token_and_nothing_of_the_pages_own() -> None:
    server = ApiServer(200, ANSWER)

    async def pages_own() -> str:
        return "Bearer of-the-page"

    async with server.served() as url:
        credentials = Credentials(server=url, authorization=pages_own, headers=(("X-Own", "1"),))
        asked = Asked(kind="pod", namespace="team-a", name="p")
        await explanations.scheduler(credentials, signs_in=True)("Bearer of-the-reader", asked)
        await explanations.scheduler(credentials, signs_in=False)("", asked)
        with pytest.raises(client.NoAnswer, match="bearer token"):
            await explanations.scheduler(Credentials(server=url), signs_in=False)("", asked)
    headers = [(each.headers["Authorization"], each.headers[client.TOKEN_HEADER]) for each in server.asked]
    assert headers == [("Bearer of-the-reader",) * 2, ("Bearer of-the-page",) * 2]
    assert "X-Own" not in server.asked[0].headers


async def test_a_reader_without_a_token_is_nobody() -> None:
    server = ApiServer(401, b'{"error": "unauthorized"}')
    async with server.served() as url:
        asked = Asked(kind="pod", namespace="team-a", name="p")
        with pytest.raises(client.NoAnswer, match="401"):
            await explanations.scheduler(Credentials(server=url), signs_in=True)("", asked)
