"""``moorage simulate -f`` on a real API server: what it says of a manifest comes true when the manifest is created."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

from cli.main import main
from tests.e2e.cluster import Scene, memory, pod, share
from tests.e2e.conftest import SetScene
from tools.cluster.plane import ControlPlane

pytestmark = pytest.mark.cluster


async def test_what_is_said_of_a_manifest_comes_true(
    set_scene: SetScene, control_plane: ControlPlane, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def said(scene: Scene, wanted: dict[str, Any]) -> dict[str, Any]:
        wanted["metadata"]["namespace"] = scene.namespace
        wanted["spec"]["nodeSelector"] = {"scene": scene.namespace}
        path = tmp_path / f"{wanted['metadata']['name']}.yaml"
        path.write_text(json.dumps(wanted), encoding="utf-8")
        command = ["simulate", "--kubeconfig", str(control_plane.kubeconfig_path), "-f", str(path), "-o", "json"]
        assert await anyio.to_thread.run_sync(main, command) == 0
        (found,) = json.loads(capsys.readouterr().out)["new"]["pods"]
        return dict(found)

    async with set_scene(["1x4x80GiB", "1x2x24GiB"]) as scene:
        manifests = [
            pod("whole", gpus=3),
            share("half", "0.5"),
            memory("large", 30_000),
            share("most", "0.9"),
            pod("too-many", gpus=5),
            pod("last", gpus=2),
        ]
        placed = 0
        for wanted in manifests:
            name = wanted["metadata"]["name"]
            foretold = await said(scene, wanted)
            await scene.create(wanted)
            if foretold["node"]:
                placed += 1
                found = (await scene.running(placed))[name]
                assert (name, found["spec"].get("nodeName")) == (name, foretold["node"])
            else:
                await scene.says(name, foretold["message"])
        assert 0 < placed < len(manifests)
