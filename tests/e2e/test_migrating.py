"""The steps of docs/migrating on a real API server: each command in the order of the page, with what it prints."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from subprocess import CompletedProcess

import anyio
import anyio.to_thread
import pytest

from cli.main import main
from tests.docs.test_migrating import PAGES, STEPS, shown
from tests.e2e.cluster import PATIENCE_S, Scene, eventually, scene
from tools.cluster.deployment import Deployment
from tools.cluster.plane import ControlPlane
from wire import names

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
KUBECTL = Path(sys.executable).with_name("kubectl")
#: The names on the page.
NAMESPACE, NODE, MOVED = "vision", "gpu-1", "gpu-2"
LEFT = {"cpu": "2", "pods": "9", "aliyun.com/gpu-mem": "0"}


async def test_the_steps_and_the_way_back_go_as_the_page_says(
    control_plane: ControlPlane,
    moorage: Deployment,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    del moorage  # it is there
    # As the reader of the page has it: the commands name no cluster.
    monkeypatch.setenv("KUBECONFIG", str(control_plane.kubeconfig_path))
    (page,) = (page for page in PAGES if page.name == STEPS)
    steps = list(shown(page))
    assert len(steps) >= 8
    async with scene(control_plane, NAMESPACE, ["1x4x80GiB"]) as there:
        (node,) = there.nodes.kubelets
        applied = next(step.command for step in steps if " apply " in step.command)
        await there.core.create_node({"metadata": {"name": MOVED}})
        await there.core.patch_node_status(MOVED, {"status": {"capacity": LEFT, "allocatable": LEFT}})
        for step in steps:
            if step.command.endswith(f"{names.ADOPT}-"):
                assert await _is_refused_twice(applied, control_plane)
            await _ready_for(step.command, there)
            printed = await _run(step.command, control_plane, capsys)
            assert _cells(printed.replace(node, NODE)) == _cells(step.printed), f"{step.command}\n{printed}"
        await there.core.delete_node(MOVED)


async def _ready_for(command: str, there: Scene) -> None:
    """Wait for what a person would wait for: that a label is known to the API server, and that pods run."""
    if " apply " in command:
        adopts = (await there.core.read_namespace(NAMESPACE)).metadata.labels.get(names.ADOPT) == "true"
        await eventually(lambda: _is_made_so(there, adopts), f"{NAMESPACE} to adopt: {adopts}", within_s=PATIENCE_S)
    elif "PHASE" in command:
        await there.running(4)


async def _is_refused_twice(applied: str, plane: ControlPlane) -> bool:
    """As the page says of bare Pods: the file's scheduler and resources would have to come back."""
    ended = await _kubectl(applied, plane)
    return ended.returncode == 1 and b"pod updates may not change fields" in ended.stderr


async def _is_made_so(there: Scene, adopts: bool) -> bool | None:
    container = {"name": "main", "image": "work", "resources": {"limits": {"koordinator.sh/gpu": 50}}}
    probe = {"metadata": {"name": "probe"}, "spec": {"containers": [container]}}
    made = await there.core.create_namespaced_pod(NAMESPACE, probe, dry_run="All")
    return (made.spec.scheduler_name == names.SCHEDULER_NAME) is adopts or None


async def _run(command: str, plane: ControlPlane, capsys: pytest.CaptureFixture[str]) -> str:
    words = shlex.split(command)
    if "moorage" in words[:2]:
        assert await anyio.to_thread.run_sync(main, words[words.index("moorage") + 1 :]) == 0
        return capsys.readouterr().out
    ended = await _kubectl(command, plane)
    assert ended.returncode == 0, ended.stderr.decode()
    return ended.stdout.decode()


async def _kubectl(command: str, plane: ControlPlane) -> CompletedProcess[bytes]:
    environment = {**os.environ, "KUBECONFIG": str(plane.kubeconfig_path)}
    words = [str(KUBECTL), *shlex.split(command)[1:]]
    return await anyio.run_process(words, env=environment, cwd=ROOT, check=False)


def _cells(text: str) -> list[list[str]]:
    """Lines as words: how wide a column is follows from the names of nodes."""
    return [line.split() for line in text.splitlines()]
