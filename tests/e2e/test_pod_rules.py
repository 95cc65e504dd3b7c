"""Rules about other pods, on the real control plane: replicas keep apart, followers follow, ports are had once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.cluster import share
from tests.e2e.conftest import SetScene
from wire import names

pytestmark = pytest.mark.cluster
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def _term(app: str) -> dict[str, Any]:
    return {_REQUIRED: [{"topologyKey": names.HOSTNAME_LABEL, "labelSelector": {"matchLabels": {"app": app}}}]}


async def test_replicas_keep_apart_and_a_follower_follows(set_scene: SetScene) -> None:
    async with set_scene(["2x1x80GiB"]) as scene:
        replicas = [share(f"replica-{number}", "0.2", labels={"app": "replica"}) for number in range(3)]
        for replica in replicas:
            replica["spec"]["affinity"] = {"podAntiAffinity": _term("replica")}
        await scene.create(*replicas)
        found = await scene.running(2)
        placed = {name: pod["spec"]["nodeName"] for name, pod in found.items() if "nodeName" in pod["spec"]}
        assert len({*placed.values()}) == len(placed) == 2
        (third,) = {f"replica-{number}" for number in range(3)} - placed.keys()
        await scene.says(third, "2 node(s) didn't match pod anti-affinity rules")

        leader, follower = share("leader", "0.2", labels={"app": "leader"}), share("follower", "0.2")
        follower["spec"]["affinity"] = {"podAffinity": _term("leader")}
        await scene.create(follower)
        await scene.says("follower", "2 node(s) didn't match pod affinity rules")
        await scene.create(leader)
        found = await scene.running(4)
        assert found["follower"]["spec"]["nodeName"] == found["leader"]["spec"]["nodeName"]


async def test_a_gang_spreads_over_nodes_and_a_port_is_had_once(set_scene: SetScene) -> None:
    async with set_scene(["2x1x80GiB"]) as scene:
        members = [share(f"member-{number}", "0.1", labels={"app": "m"}) for number in range(4)]
        for member in members:
            member["spec"]["topologySpreadConstraints"] = [
                {
                    "topologyKey": names.HOSTNAME_LABEL,
                    "maxSkew": 1,
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": {"app": "m"}},
                }
            ]
        await scene.create_gang("g", 4, *members)
        found = await scene.running(4)
        on = [pod["spec"]["nodeName"] for pod in found.values()]
        assert sorted(map(on.count, {*on})) == [2, 2]

        serving = [share(f"server-{number}", "0.1") for number in range(3)]
        for server in serving:
            server["spec"]["containers"][0]["ports"] = [{"containerPort": 8080, "hostPort": 8080}]
        await scene.create(*serving)
        found = await scene.running(6)
        (third,) = (name for name, pod in found.items() if "nodeName" not in pod["spec"])
        await scene.says(third, "2 node(s) didn't have free ports for the requested pod ports")
