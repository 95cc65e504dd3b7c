"""Anti-affinity of pods that others have placed, on the real control plane: it keeps ours off their nodes."""

from __future__ import annotations

import pytest

from tests.e2e.cluster import share
from tests.e2e.conftest import SetScene
from wire import names

pytestmark = pytest.mark.cluster


async def test_a_running_pod_keeps_others_off_its_node_by_the_labels_of_their_namespace(set_scene: SetScene) -> None:
    async with set_scene(["2x1x80GiB"]) as scene:
        first, second = (f"{scene.namespace}-{number}" for number in range(2))
        term = {
            "topologyKey": names.HOSTNAME_LABEL,
            "labelSelector": {"matchLabels": {"app": "noisy"}},
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": scene.namespace}},
        }
        rules = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        container = {"name": "main", "image": "app"}
        await scene.core.create_namespaced_pod(
            scene.namespace,
            {"metadata": {"name": "quiet"}, "spec": {"nodeName": first, "affinity": rules, "containers": [container]}},
        )
        await scene.running(1)
        await scene.create(*(share(f"noisy-{number}", "0.5", labels={"app": "noisy"}) for number in range(3)))
        await scene.running(3)
        await scene.create(share("other", "0.75"))
        found = await scene.running(4)
        placed = {name: pod["spec"]["nodeName"] for name, pod in found.items() if "nodeName" in pod["spec"]}
        assert placed.pop("other") == first
        assert placed.pop("quiet") == first
        assert set(placed.values()) == {second}
        assert len(placed) == 2
        (waiting,) = {"noisy-0", "noisy-1", "noisy-2"} - placed.keys()
        await scene.says(waiting, "1 node(s) didn't satisfy existing pods anti-affinity rules")
