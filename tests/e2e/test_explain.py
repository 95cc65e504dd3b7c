"""``kubectl moorage explain queue`` on a real API server: it says what the scheduler that runs has decided."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import anyio.to_thread
import pytest

from cli.main import main
from tests.admission.objects.queues import raw
from tests.cluster.doors import Door, opened
from tests.e2e.cluster import pod, scheduled_message
from tests.e2e.conftest import SetScene
from tools.cluster.deployment import Deployment
from tools.cluster.plane import ControlPlane
from wire import names

pytestmark = pytest.mark.cluster

QUEUES = "/apis/scheduling.run.ai/v2/queues"
#: Parents first.
NAMES = ("explained-dept", "explained-team")
NANO = 10**9


@pytest.fixture
async def queues(control_plane: ControlPlane, moorage: Deployment) -> AsyncIterator[Door]:
    """A department that may use one GPU, and its team."""
    moorage.check()
    even = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    dept, team = NAMES
    async with opened(control_plane, {}) as door:
        for made in (
            raw(dept, resources={"cpu": even, "memory": even, "gpu": {**even, "quota": 0, "limit": 1}}),
            raw(team, dept, resources={"cpu": even, "memory": even, "gpu": {**even, "quota": 0}}),
        ):
            assert (await door.call("POST", QUEUES, made))[0] == 201
        yield door
        for name in reversed(NAMES):
            assert (await door.call("DELETE", f"{QUEUES}/{name}"))[0] == 200


def of_team(name: str) -> dict[str, Any]:
    made = pod(name, gpus=1)
    made["metadata"]["labels"] = {**made["metadata"].get("labels", {}), names.QUEUE_LABEL: NAMES[1]}
    return made


async def test_a_queue_at_its_limit_is_explained_in_the_words_of_its_pods(
    set_scene: SetScene, control_plane: ControlPlane, queues: Door, capsys: pytest.CaptureFixture[str]
) -> None:
    async def told(*given: str) -> str:
        command = [*given, "--kubeconfig", str(control_plane.kubeconfig_path)]
        assert await anyio.to_thread.run_sync(main, command) == 0
        return capsys.readouterr().out

    async with set_scene(["1x2x24GiB"]) as scene:
        await scene.create(of_team("one"), of_team("two"))
        pods = await scene.running(1)
        (waits,) = (name for name, found in pods.items() if found["status"]["phase"] != "Running")
        await scene.says(waits, "explained-dept quota has reached the allowable limit of GPUs")
        explained = json.loads(await told("explain", "queue", NAMES[1], "-o", "json"))
        assert explained["unread"] == []
        queue = explained["queue"]
        assert [view["name"] for view in queue["path"]] == ["explained-team", "explained-dept"]
        assert [view["allocated"]["gpuNano"] // NANO for view in queue["path"]] == [1, 1]
        assert [view["fairShare"]["gpuNano"] // NANO for view in queue["path"]] == [1, 1]
        assert (queue["next"]["name"], queue["next"]["namespace"]) == (waits, scene.namespace)
        assert queue["next"]["heldBack"]["message"] == scheduled_message(await scene.pod(waits))
        tree = (await told("inspect", "queues", *NAMES)).splitlines()
        assert [line.split() for line in tree[2:]] == [
            ["explained-dept", "0", "1", "1", "2", "1"],
            ["explained-team", "0", "1", "1", "2", "unlimited"],
        ]
        assert tree[3].startswith("  explained-team")
