"""``kubectl moorage inspect`` on a real API server: it shows what the containers really saw, under few rights."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import anyio.to_thread
import pytest
import yaml

from cli.main import main
from scheduler.report.inspect_api import PATH
from tests.e2e.cluster import PATIENCE_S, Scene, eventually, memory, pod, share
from tests.e2e.conftest import SetScene
from tools.cluster.deployment import Deployment
from tools.cluster.plane import ControlPlane
from tools.ports import free_port
from wire import names

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
KUBECTL = Path(sys.executable).with_name("kubectl")


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with the console script as it is installed, for kubectl to find."""
    script = tmp_path / "kubectl-moorage"
    load = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from cli.main import kubectl; sys.exit(kubectl())"
    script.write_text(f"#!{sys.executable}\n{load}\n", encoding="utf-8")
    script.chmod(0o755)
    return tmp_path


async def kubectl(programs: Path, *given: str) -> str:
    """Run kubectl, which finds the plugin on its PATH."""
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    ended = await anyio.run_process([KUBECTL, "moorage", *given], env=environment, check=False)
    assert ended.returncode == 0, ended.stderr.decode()
    return ended.stdout.decode()


async def told(capsys: pytest.CaptureFixture[str], plane: ControlPlane, *given: str) -> str:
    """Run the same in this process, which is quicker."""
    command = ["inspect", *given, "--kubeconfig", str(plane.kubeconfig_path)]
    assert await anyio.to_thread.run_sync(main, command) == 0
    return capsys.readouterr().out


def cells(lines: Sequence[str], first: str) -> list[str]:
    """The cells of the line that begins with this one."""
    (line,) = [line for line in lines if line.split("  ")[0] == first]
    return [cell.strip() for cell in line.split("   ") if cell.strip()]


async def test_kubectl_shows_what_the_containers_really_saw(
    set_scene: SetScene, control_plane: ControlPlane, programs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with set_scene(["1x2x24GiB"]) as scene:
        await scene.create(share("half", "0.5"), memory("some", 2000), pod("huge", gpus=9))
        await scene.running(2)
        # It may have been judged before one of the two GPUs was taken for shares; then its condition is written again.
        await scene.says("huge", "didn't have enough resources: GPUs. The best node lacks 8 GPU(s)")
        (node,) = scene.nodes.kubelets
        own = ["--kubeconfig", str(control_plane.kubeconfig_path)]

        seen = json.loads(await kubectl(programs, "inspect", "-n", scene.namespace, "-o", "json", *own))
        await _as_the_ground_truth_saw_it(scene, seen)

        table = (await kubectl(programs, "inspect", "--format", "aliyun", *own)).splitlines()
        assert table[0].split()[:4] == ["NAME", "IPADDRESS", "GPU0(Allocated/Total)", "GPU1(Allocated/Total)"]
        row = next(line for line in table if line.startswith(f"{node} ")).split()
        assert sorted(row[2:4]) == ["0/24", "14/24"]
        assert row[4] == "14/48"

        overview = (await told(capsys, control_plane)).splitlines()
        assert cells(overview, node)[1:8] == ["ready", "24576 MiB", "2", "1", "0", "1", "0.59"]
        assert f"{scene.namespace}/huge" in "\n".join(overview)
        devices = await told(capsys, control_plane, "node", node, "-o", "wide")
        assert all(f"{scene.namespace}/{name}" in devices for name in ("half", "some"))
        assert scene.seen(await scene.pod("half"))["main"][0] in devices
        pods = (await told(capsys, control_plane, "pod", "-n", scene.namespace)).splitlines()
        assert cells(pods, f"{scene.namespace}/half")[1:4] == ["Running", node, "kai"]
        assert cells(pods, f"{scene.namespace}/huge")[-1].startswith("Unschedulable: no nodes")
        assert yaml.safe_load(await told(capsys, control_plane, "-n", scene.namespace, "-o", "yaml")) == seen


async def test_a_standby_answers_what_gpushares_tools_ask(set_scene: SetScene, moorage: Deployment) -> None:
    address = f"127.0.0.1:{free_port()}"
    async with set_scene(["1x2x24GiB"]) as scene:
        await scene.create(share("half", "0.5"))
        await scene.running(1)
        (node,) = scene.nodes.kubelets
        moorage.start("scheduler-2", "--inspect-address", address)
        async with aiohttp.ClientSession(f"http://{address}") as session:

            async def answered() -> dict[str, Any] | None:
                with contextlib.suppress(aiohttp.ClientConnectionError):
                    async with session.get(f"{PATH}/{node}") as answer:
                        return await answer.json() if answer.status == 200 else None
                return None

            told = await eventually(answered, "the standby to answer", within_s=PATIENCE_S)
        moorage.stop("scheduler-2")
        (one,) = told["nodes"]
        assert (one["name"], one["totalGPU"], one["usedGPU"]) == (node, 48, 12)
        pods = [pod for device in one["devs"] for pod in device["pods"]]
        assert pods == [{"name": "half", "namespace": scene.namespace, "usedGPU": 12}]


async def _as_the_ground_truth_saw_it(scene: Scene, seen: dict[str, Any]) -> None:
    by_name = {one["name"]: one for one in seen["pods"]}
    assert {name: one["dialect"] for name, one in by_name.items()} == {"half": "kai", "some": "kai", "huge": "plugin"}
    for name in ("half", "some"):
        (given,) = by_name[name]["given"]
        assert (given["uuid"],) == scene.seen(await scene.pod(name))["main"]
    assert by_name["half"]["given"][0]["nano"] == 500_000_000
    assert by_name["some"]["given"][0]["memMib"] == 2000
    (node,) = [one for one in seen["nodes"] if one["name"] in scene.nodes.kubelets]
    (shared,) = [one for one in node["devices"] if one["kind"] == "shared"]
    assert sorted(tenant["name"] for tenant in shared["tenants"]) == ["half", "some"]
    (reservation,) = await scene.reservations()
    assert shared["uuid"] == reservation["metadata"]["annotations"][names.RESERVE_FOR_GPU_INDEX]
    assert shared["reservation"] == reservation["metadata"]["name"]
    assert by_name["huge"]["waits"]["reason"] == "Unschedulable"
    assert seen["unread"] == []


async def test_a_tenant_sees_its_own_pods_and_is_told_what_it_may_not_read(
    set_scene: SetScene, control_plane: ControlPlane, moorage: Deployment, capsys: pytest.CaptureFixture[str]
) -> None:
    async with set_scene(["1x2x24GiB"]) as scene:
        await scene.create(share("half", "0.5"))
        await scene.running(1)
        account = _may_read_pods(control_plane, scene.namespace)
        rights = partial(_may_list, control_plane, scene.namespace, account)
        await eventually(rights, "the API server to know the account's rights", within_s=PATIENCE_S)
        config = moorage.folder / f"{scene.namespace}.kubeconfig"
        config.write_text(_kubeconfig(control_plane, scene.namespace, account), encoding="utf-8")
        command = ["inspect", "pod", "-o", "json", "--kubeconfig", str(config)]
        assert await anyio.to_thread.run_sync(main, command) == 0
        seen = json.loads(capsys.readouterr().out)
        (given,) = seen["pods"][0]["given"]
        assert (given["uuid"],) == scene.seen(await scene.pod("half"))["main"]
        assert (given["nano"], given["index"]) == (500_000_000, -1)
        assert len(seen["unread"]) == 4
        assert await anyio.to_thread.run_sync(main, ["inspect", "--kubeconfig", str(config)]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert "nodes is forbidden" in line
        assert line.endswith("your own pods are shown by: inspect pod")


def _may_read_pods(plane: ControlPlane, namespace: str) -> str:
    """Make an account that may read pods of its namespace and nothing else; return its token."""
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}
    subject = {"kind": "ServiceAccount", "name": "reader", "namespace": namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}
    rest = plane.rest()
    rest.call("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "reader"}})
    rest.call("POST", f"{rbac}/roles", {"metadata": {"name": "reader"}, "rules": [rule]})
    binding = {"metadata": {"name": "reader"}, "roleRef": role, "subjects": [subject]}
    rest.call("POST", f"{rbac}/rolebindings", binding)
    return plane.service_account_token(namespace, "reader")


async def _may_list(plane: ControlPlane, namespace: str, account: str) -> bool | None:
    return plane.rest(account).send("GET", f"/api/v1/namespaces/{namespace}/pods")[0] == 200 or None


def _kubeconfig(plane: ControlPlane, namespace: str, token: str) -> str:
    config = yaml.safe_load(plane.kubeconfig_path.read_text(encoding="utf-8"))
    (cluster,) = config["clusters"]
    context = {"cluster": cluster["name"], "user": "reader", "namespace": namespace}
    config |= {
        "users": [{"name": "reader", "user": {"token": token}}],
        "contexts": [{"name": "reader", "context": context}],
        "current-context": "reader",
    }
    return yaml.safe_dump(config)
