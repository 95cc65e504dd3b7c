"""``inspect`` as a command: what it takes, what it reads of a cluster that runs, and under whose rights."""

from __future__ import annotations

import argparse
import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from cli import inspect
from cli.commands import plugin_parser
from cli.main import main
from kube.client.clock import SystemClock
from kube.client.errors import Forbidden
from kube.client.resources import GPU_NODES, NAMESPACES, NODES, POD_GROUPS, PODS, QUEUES
from runtime.text import BadInput
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import Fault
from simulator.apiserver.types import MOORAGE
from simulator.installation import SERVICE_ACCOUNTS
from simulator.world import World
from tests.scheduler import stage
from tests.scheduler.stage import TEAM, api_of, create, create_gang, pod, settle, share
from ui.commands import inspect as inspectprocess
from ui.inspect.values import Inspection, UseView
from ui.leaders import Leaders
from wire import names

VIRTUAL_TIME = True

ROOT = Path(__file__).parents[2]


def understood(*given: str) -> argparse.Namespace:
    arguments = plugin_parser().parse_args(["inspect", *given])
    inspect.put_right(arguments)
    return arguments


@pytest.mark.parametrize(
    ("given", "what", "of"),
    [
        ([], "cluster", []),
        (["cluster"], "cluster", []),
        (["node"], "node", []),
        (["nodes", "a", "b"], "node", ["a", "b"]),
        (["node/a"], "node", ["a"]),
        (["po", "p", "-n", "team"], "pod", ["p"]),
        (["pod", "-A"], "pod", []),
        (["podgroups"], "podgroup", []),
        (["pg", "g"], "podgroup", ["g"]),
        (["podgroup/g"], "podgroup", ["g"]),
        (["queues"], "queue", []),
        (["queue/a", "b"], "queue", ["a", "b"]),
    ],
)
def test_what_is_meant_is_written_as_for_kubectl(given: list[str], what: str, of: list[str]) -> None:
    arguments = understood(*given)
    assert (arguments.what, arguments.names) == (what, of)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["gpu"], "inspect gpu: allowed are cluster, node, pod, podgroup and queue"),
        (["cluster", "n1"], "did you mean inspect node n1?"),
        (["-n", "team", "-A"], "-n and -A: allowed is one of the two"),
        (["pod", "p", "-A"], "-A: pods that are named are of one namespace"),
        (["pg", "g", "-n", "a", "-n", "b"], "-n: podgroups that are named are of one namespace"),
        (["podgroup", "-f", "x"], "-f: allowed with queue"),
        (["podgroup", "--format", "aliyun"], "--format aliyun: allowed with cluster and node"),
        (["queue", "-n", "team"], "-n and -A: queues have no namespace"),
        (["pod", "-f", "x"], "-f: allowed with queue"),
        (["-d"], "-d: allowed with --format aliyun"),
        (["pod", "--format", "aliyun"], "--format aliyun: allowed with cluster and node"),
        (["--format", "aliyun", "-o", "yaml"], "-o yaml: allowed with --format aliyun are table, wide and json"),
        (["--kubeconfig", "/nowhere/to/be/found"], "/nowhere/to/be/found"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(
    given: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", *given]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line


async def looked(world: World, *given: str, own_namespace: str = TEAM) -> Inspection:
    return await inspectprocess.look(api_of(world, "someone"), understood(*given), own_namespace=own_namespace)


def refuse(plural: str, namespace: str = "") -> Callable[[Call], Fault | None]:
    """Rights that are missing."""

    def judge(call: Call) -> Fault | None:
        is_meant = call.user == "someone" and call.kind.plural == plural and call.namespace == namespace
        return Fault(refuse_with=403) if is_meant else None

    return judge


async def test_a_cluster_is_read_as_it_is() -> None:
    async with stage.stage("1x2x24GiB", "1x4x80GiB") as world:
        memory = pod("memory", annotations={names.GPU_MEMORY: "2000"})
        await create(world, share("half"), memory, pod("whole", gpus=3), pod("big", gpus=9))
        await settle()
        seen = await looked(world)
        by_name = {view.name: view for view in seen.pods}
        assert {name: view.dialect for name, view in by_name.items()} == {
            "half": "kai",
            "memory": "kai",
            "whole": "plugin",
            "big": "plugin",
        }
        assert by_name["half"].given[0].nano == 500_000_000
        assert by_name["memory"].given[0].mem_mib == 2000
        assert by_name["half"].given[0].uuid == by_name["memory"].given[0].uuid
        assert by_name["big"].waits is not None
        assert "didn't have enough resources: GPUs" in by_name["big"].waits.message
        assert sum(node.free_gpus for node in seen.nodes) == 2
        assert seen.unread == ()


@pytest.mark.parametrize(("nodes", "verbs"), [(16, ["get"] * 16), (17, ["list"])])
async def test_the_nodes_of_many_pods_are_read_by_one_list(nodes: int, verbs: list[str]) -> None:
    """Pods of a thousand nodes were a thousand calls, one after the other."""
    calls: list[str] = []

    def watch(call: Call) -> Fault | None:
        if call.user == "someone" and call.kind.plural == "nodes":
            calls.append(call.verb)
        return None

    async with stage.stage(f"{nodes + 1}x1x24GiB") as world:
        await create(world, *(pod(f"p{number}", gpus=1) for number in range(nodes)))
        await settle()
        world.server.faults.on_request.append(watch)
        seen = await looked(world, "pod")
        assert len(seen.pods) == nodes
        assert seen.unread == ()
        assert calls == verbs
        world.server.faults.on_request.append(refuse("nodes"))
        less = await looked(world, "pod")
        assert len(less.pods) == nodes
        assert all("you may not read this" in told for told in less.unread)
        assert less.unread


async def test_a_pod_in_a_book_is_read_by_its_name_before_its_share_is_called_kept() -> None:
    async with stage.stage("1x2x24GiB") as world:
        world.server.faults.on_request.append(
            lambda call: Fault(delay_s=9.0) if call.user == "binder" and call.subresource == "binding" else None
        )
        world.server.faults.on_request.append(refuse("bindrequests"))
        await create(world, share("a"))
        await settle(8)
        (tenant,) = (await looked(world, "node", "node-0")).nodes[0].devices[0].tenants
        assert (tenant.name, tenant.is_bound, tenant.is_kept) == ("a", False, False)
        world.server.faults.clear()
        await settle(30)


async def test_a_share_is_shown_as_kept_until_its_node_confirms_that_its_pod_is_gone() -> None:
    async with stage.stage("1x2x24GiB") as world:
        await create(world, share("a"), share("b"))
        await settle()
        await world.api.delete(PODS, "a", namespace=TEAM, grace_s=0)
        await settle(2)
        for seen in (await looked(world), await looked(world, "node", "node-0")):
            said = {one.name: one.is_kept for device in seen.nodes[0].devices for one in device.tenants}
            assert said == {"a": True, "b": False}
        await settle(200)
        (tenant,) = (await looked(world)).nodes[0].devices[0].tenants
        assert (tenant.name, tenant.is_kept) == ("b", False)


async def test_whoever_may_read_pods_alone_sees_what_these_say() -> None:
    async with stage.stage("1x2x24GiB") as world:
        await create(world, share("a"))
        await settle()
        for judge in (refuse("nodes"), refuse("pods", names.RESERVATION_NAMESPACE), refuse("bindrequests", TEAM)):
            world.server.faults.on_request.append(judge)
        seen = await looked(world, "pod", "a")
        (given,) = seen.pods[0].given
        assert (given.nano, given.index, given.mem_mib) == (500_000_000, -1, 0)
        assert given.uuid.startswith("GPU-")
        assert [said.partition(":")[0] for said in seen.unread] == [
            "node node-0",
            "reservations (pods of namespace kai-resource-reservation)",
            "bindrequests (what is on its way to a node)",
        ]
        world.server.faults.on_request.append(refuse("pods"))
        with pytest.raises(Forbidden):
            await looked(world, "node")


async def test_pods_are_of_the_contexts_namespace_unless_told_otherwise() -> None:
    async with stage.stage("1x2x24GiB") as world:
        await create(world, share("a"))
        await settle()
        assert [view.name for view in (await looked(world, "pod")).pods] == ["a"]
        assert (await looked(world, "pod", own_namespace="")).pods == ()
        assert (await looked(world, "pod", "-n", "other")).pods == ()
        assert [view.name for view in (await looked(world, "pod", "-A", own_namespace="other")).pods] == ["a"]
        with pytest.raises(BadInput, match="there is no pod a in namespace other"):
            await looked(world, "pod", "a", "-n", "other")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ([], "stderr"),
        (["node"], "stderr"),
        (["pod", "-A"], "stderr"),
        (["--format", "aliyun"], "stderr"),
        (["--format", "aliyun", "-o", "json"], "stderr"),
        (["-o", "json"], "stdout"),
    ],
)
async def test_each_view_says_that_no_scheduler_works(
    given: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with stage.stage("1x2x24GiB") as world:
        await settle()
        arguments = understood(*given)
        seen = await inspectprocess.look(api_of(world, "someone"), arguments, leaders=Leaders(SystemClock()))
        inspectprocess.show(seen, arguments)
        printed = capsys.readouterr()
        assert "no scheduler has worked here yet" in (printed.err if told == "stderr" else printed.out)
        assert (told == "stderr") == printed.err.startswith("warning: ")


async def test_who_may_not_read_leases_is_told_that_it_is_not_known_whether_anybody_works() -> None:
    async with stage.stage("1x2x24GiB") as world:
        world.server.faults.on_request.append(refuse("leases", names.SYSTEM_NAMESPACE))
        seen = await inspectprocess.look(api_of(world, "someone"), understood(), leaders=Leaders(SystemClock()))
        assert seen.unread == ("leases (whether scheduler and binder work): you may not read this",)
        assert seen.warnings == ()


@pytest.mark.parametrize("output", ["json", "yaml"])
async def test_programs_get_all_of_it_exactly(output: str, capsys: pytest.CaptureFixture[str]) -> None:
    async with stage.stage("1x2x24GiB") as world:
        await create(world, share("a", "0.123456789"))
        await settle()
        seen = await looked(world)
        inspectprocess.show(seen, understood("-o", output))
        told = capsys.readouterr().out
        read = json.loads(told) if output == "json" else yaml.safe_load(told)
        assert read == json.loads(msgspec.json.encode(seen))
        assert read["nodes"][0]["devices"][0]["usedNano"] == 123_456_789
        assert read["pods"][0]["record"]["asks"][0]["nano"] == 123_456_789


async def test_queues_are_told_as_the_scheduler_counts_them(capsys: pytest.CaptureFixture[str]) -> None:
    async with stage.stage("1x8x80GiB") as world:
        await create_queues(world)
        await create(
            world, *(queued(name, team, gpus) for name, team, gpus in (("a", "speech", 4), ("b", "vision", 8)))
        )
        await settle()
        seen = await looked(world, "queues")
        told = {view.name: (view.requested.gpu_nano, view.allocated.gpu_nano) for view in seen.queues}
        nano = 10**9
        assert told == {"research": (12 * nano, 4 * nano), "speech": (4 * nano, 4 * nano), "vision": (8 * nano, 0)}
        one = await looked(world, "queue", "vision")
        assert [view.name for view in one.queues] == ["vision"]
        with pytest.raises(BadInput, match="there is no queue audio"):
            await looked(world, "queue", "audio")
        inspectprocess.show(seen, understood("queues", "-o", "json"))
        assert json.loads(capsys.readouterr().out)["queues"][2]["fairShare"]["gpuNano"] == 8 * nano
        world.server.faults.on_request.append(refuse("queues"))
        with pytest.raises(Forbidden):
            await looked(world, "queues")


async def test_gangs_are_read_of_the_contexts_namespace_of_others_or_by_labels() -> None:
    async with stage.stage("1x4x80GiB") as world:
        for name, team in (("a", "x"), ("b", "y")):
            await create_gang(world, name, 1, pod(f"of-{name}", gpus=1))
            await world.api.patch(POD_GROUPS, name, {"metadata": {"labels": {"team": team}}}, namespace=TEAM)
        await settle()

        async def named(*given: str, **how: Any) -> list[str]:
            return [view.name for view in (await looked(world, "podgroup", *given, **how)).pod_groups]

        assert await named() == ["a", "b"]
        assert await named(own_namespace="other") == []
        assert await named("-A", own_namespace="other") == ["a", "b"]
        assert await named("-l", "team=y") == ["b"]
        world.server.faults.on_request.append(refuse("bindrequests", TEAM))
        seen = await looked(world, "podgroup")
        assert seen.unread == ("bindrequests (what is on its way to a node): you may not read this",)
        world.server.faults.on_request.append(refuse("pods", TEAM))
        with pytest.raises(Forbidden):
            await looked(world, "podgroup")


async def test_labels_select_nodes_pods_and_queues() -> None:
    async with stage.stage("2x2x24GiB") as world:
        await create_queues(world)
        labelled = share("a")
        labelled["metadata"]["labels"] = {"app": "web"}
        await create(world, labelled, share("b"), pod("w", gpus=7))
        await settle()
        await world.api.patch(NODES, "node-1", {"metadata": {"labels": {"zone": "x"}}})
        await world.api.patch(QUEUES, "speech", {"metadata": {"labels": {"zone": "x"}}})
        assert [view.name for view in (await looked(world, "pod", "-l", "app=web")).pods] == ["a"]
        assert [view.name for view in (await looked(world, "pod", "-A", "-l", "app!=web")).pods] == ["b", "w"]
        seen = await looked(world, "-l", "zone=x")
        assert [view.name for view in seen.nodes] == ["node-1"]
        assert {view.node for view in seen.pods} <= {"node-1", ""}
        assert "w" in {view.name for view in seen.pods}
        assert [view.name for view in (await looked(world, "queues", "-l", "zone in (x)")).queues] == ["speech"]
        with pytest.raises(BadInput, match="-l a in: "):
            await looked(world, "pod", "-l", "a in")


async def test_several_namespaces_are_read_and_no_others() -> None:
    async with stage.stage("1x4x24GiB") as world:
        for namespace in (TEAM, "two", "three"):
            made = share(f"in-{namespace}")
            made["metadata"]["namespace"] = namespace
            await world.api.create(PODS, made, namespace=namespace)
        await settle()
        world.server.faults.on_request += [refuse("pods", "three"), refuse("pods")]
        seen = await looked(world, "pod", "-n", TEAM, "-n", "two")
        assert {view.name for view in seen.pods} == {f"in-{TEAM}", "in-two"}


async def test_names_are_those_that_kubectl_takes(capsys: pytest.CaptureFixture[str]) -> None:
    async with stage.stage("1x2x24GiB") as world:
        await create_queues(world)
        await create(world, share("a"))
        await settle()
        for given, named in [
            ([], ["node/node-0"]),
            (["node"], ["node/node-0"]),
            (["pod"], ["pod/a"]),
            (["queue", "vision"], ["queue.scheduling.run.ai/vision"]),
        ]:
            inspectprocess.show(await looked(world, *given), understood(*given, "-o", "name"))
            assert capsys.readouterr().out.splitlines() == named


async def test_rows_come_alone_and_nothing_found_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    async with stage.stage("1x2x24GiB") as world:
        await create(world, share("a"), pod("w", gpus=7))
        await settle()
        inspectprocess.show(await looked(world), understood("--no-headers"))
        assert [row.split()[0] for row in capsys.readouterr().out.splitlines()] == ["node-0", "pieces", "team-a/w"]
        given = ("pod", "-l", "app=none")
        inspectprocess.show(await looked(world, *given), understood(*given))
        told = capsys.readouterr()
        assert (told.out, told.err) == ("", "nothing has these labels: app=none\n")


def queued(name: str, team: str, gpus: int) -> dict[str, Any]:
    """A pod of a queue."""
    made = pod(name, gpus=gpus)
    made["metadata"]["labels"] = {names.QUEUE_LABEL: team}
    return made


async def create_queues(world: World) -> None:
    """Those of docs/queues.md."""
    for queue in yaml.safe_load_all((ROOT / "tests" / "docs" / "given" / "queues.yaml").read_text(encoding="utf-8")):
        await world.api.create(QUEUES, queue)


async def test_the_documents_show_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    documents = (ROOT / "docs" / "inspect.md").read_text(encoding="utf-8")
    examples = re.findall(r"^\$ kubectl moorage inspect(.*)\n((?:.*\n)*?)```", documents, re.MULTILINE)
    assert len(examples) >= 5
    async with stage.stage("1x4x80GiB", "1x2x24GiB") as world:
        two = {names.GPU_FRACTION_NUM_DEVICES: "2"}
        memory = pod("notebook", annotations={names.GPU_MEMORY: "2000"})
        await create(world, share("train"), share("serve", "0.25"), memory, pod("whole", gpus=2))
        await create(world, share("pair", "0.3", **two), pod("huge", gpus=7))
        await settle(30)  # counts in reasons follow
        for given, printed in examples:
            arguments = understood(*given.split())
            inspectprocess.show(await looked(world, *given.split()), arguments)
            assert capsys.readouterr().out == printed, given


def test_kubectl_finds_the_plugin_by_its_name() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    assert scripts["kubectl-moorage"] == "cli.main:kubectl"


async def test_use_is_read_where_it_is_asked_for_and_as_far_as_one_may() -> None:
    async with stage.stage("1x2x24GiB") as world:
        await create(world, share("half"))
        await settle()
        (pod_view,) = (await looked(world, "pod", "half")).pods
        (given,), uid = pod_view.given, pod_view.uid
        tenant = {"podUID": uid, "pod": f"{TEAM}/half", "card": given.uuid, "memoryPercent": 15, "smPercent": 5}
        world.server.define(MOORAGE[0])
        await world.api.create(GPU_NODES, {"metadata": {"name": "node-0"}})
        await world.api.patch(GPU_NODES, "node-0", {"status": {"tenants": [tenant]}}, subresource="status")
        agent = {"nodeName": "node-0", "serviceAccountName": names.NODE_AGENT_SERVICE_ACCOUNT}
        account = {"metadata": {"name": names.NODE_AGENT_SERVICE_ACCOUNT}}
        await world.api.create(NAMESPACES, {"metadata": {"name": names.NODE_NAMESPACE}})
        await world.api.create(SERVICE_ACCOUNTS, account, namespace=names.NODE_NAMESPACE)
        body = {"metadata": {"name": "agent"}, "spec": {**agent, "containers": [{"name": "c", "image": "i"}]}}
        await world.api.create(PODS, body, namespace=names.NODE_NAMESPACE)

        async def read(*given: str) -> tuple[str, list[int | None], int]:
            seen = await looked(world, *given, "--use")
            assert isinstance(seen.use, UseView)
            (only,) = seen.use.nodes
            return only.state.value, [one.memory_percent for one in only.tenants], len(seen.unread)

        condition = {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        status = {"status": {"conditions": [condition]}}
        await world.api.patch(PODS, "agent", status, namespace=names.NODE_NAMESPACE, subresource="status")
        assert await read() == ("stale", [None], 0)
        condition["status"] = "True"
        await world.api.patch(PODS, "agent", status, namespace=names.NODE_NAMESPACE, subresource="status")
        for what in ([], ["node", "node-0"], ["pod"], ["pod", "half"]):
            assert await read(*what) == ("current", [15], 0)
        world.server.faults.on_request.append(refuse("pods", names.NODE_NAMESPACE))
        assert await read("pod") == ("unsure", [15], 1)
        world.server.faults.on_request.append(refuse("gpunodes"))
        seen = await looked(world, "pod", "--use")
        assert isinstance(seen.use, UseView)
        assert (seen.use.nodes, [each for each in seen.unread if each.startswith("gpunodes")]) == (
            (),
            ["gpunodes (what pods use): you may not read this"],
        )
        assert not isinstance((await looked(world, "pod")).use, UseView)
