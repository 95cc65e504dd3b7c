"""``explain`` as a command: what it takes, what it reads, and what it prints."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.completion import suggested
from cli.main import main
from kube.client.errors import Forbidden
from kube.client.resources import CONFIG_MAPS, POD_GROUPS, QUEUES
from scheduler.conditions import advice
from scheduler.core.model.preemption import Action, Nomination, Place, Victim
from scheduler.core.model.settings import Settings
from scheduler.core.preemption.nomination_record import Record, written
from scheduler.settings import SchedulerSettings
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import Fault
from simulator.world import World, WorldSettings
from tests.scheduler import stage
from tests.scheduler.stage import api_of, create, create_gang, pod, settle
from ui.commands import explain
from ui.queues import reader
from wire import names

VIRTUAL_TIME = True

GIVEN = Path(__file__).parents[1] / "docs" / "given"
OFFLINE = ("-f", str(GIVEN / "queues.yaml"), "-f", str(GIVEN / "cluster.yaml"))
NANO = 10**9
WALL_S = 1_800_000_000


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["gpu", "a"], "explain gpu: allowed are pod, podgroup, node, queue and reason, and a name"),
        (["pod"], "explain pod: name one pod; names are listed by: inspect pod"),
        (["node", "n", "-n", "x"], "-n: a node has no namespace; allowed with pod and podgroup"),
        (["queue", "a", "--what-if", "gpus=2"], "--what-if: allowed with pod and podgroup, not with queue"),
        (["pod", "p", *["--what-if", "gpus=1"] * 9], "--what-if: 9 are given; allowed are 8 together"),
        (["pod", "train", *OFFLINE, "-n", "vision"], "there is no pod train in namespace vision that waits for this"),
        (
            ["pod", "train-2", "-n", "vision", "--what-if", "gpu=2", *OFFLINE],
            "--what-if gpu=2 is no what-if; allowed: ",
        ),
        (
            ["pod", "train-2", "-n", "vision", "--what-if", "members=2", *OFFLINE],
            "is a pod alone; allowed for a PodGroup",
        ),
        (["node", "node-9", *OFFLINE], "there is no node node-9; did you mean node-"),
        (["podgroup"], "explain podgroup: name one PodGroup; names are listed by: inspect pod"),
        (["podgroup", "train", *OFFLINE, "-n", "vision"], "there is no PodGroup train in namespace vision"),
        (["queue"], "explain queue: name one queue; names are listed by: inspect queues"),
        (["queue", "a", "b"], "explain queue: name one queue"),
        (["queue", "a", "-f", "x", "--context", "c"], "-f: not with options of a connection such as --context"),
        (["queue", "visio", *OFFLINE], "there is no queue visio; did you mean vision?"),
        (["queue", "a", "-f", "/no/such"], "/no/such: No such file or directory"),
        (["queue", "a", "--kubeconfig", "/nowhere"], "/nowhere"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(
    given: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", *given]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line


@pytest.mark.parametrize("given", [["queue", "vision"], ["queue/vision"], ["queues", "vision"]])
def test_a_queue_is_named_as_for_kubectl(given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", *given, *OFFLINE]) == 0
    told = capsys.readouterr()
    assert told.out.startswith("Queue vision < research can be used.")
    assert told.err == ""


@pytest.mark.parametrize(("output", "load"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_programs_get_exact_amounts(
    output: str, load: Callable[[str], Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", "queue", "vision", *OFFLINE, "-o", output]) == 0
    told = load(capsys.readouterr().out)["queue"]
    division = told["levels"][1]["divisions"][2]
    assert (division["resource"], division["unit"], division["total"]) == ("gpu", "nano", 24 * NANO)
    queues = [part["queue"] for part in division["queues"]]
    given = [sum(step["given"][at] for step in division["steps"]) for at, _ in enumerate(queues)]
    assert (queues, given) == (["speech", "vision"], [10 * NANO, 14 * NANO])
    assert told["path"][0]["fairShare"]["gpuNano"] == 14 * NANO
    assert told["orders"][-1]["turns"][1]["afterBy"] == "shareUsedWith"


@pytest.mark.parametrize("named", ["no-node-fits", "NoNodeFits"])
def test_what_helps_for_a_reason_is_printed(named: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "reason", named]) == 0
    assert capsys.readouterr().out == "See the nodes below; `explain` prints changes that help.\n"


def test_every_command_of_a_column_help_works(capsys: pytest.CaptureFixture[str]) -> None:
    codes = [each.value for each in advice.OF_CODES]
    for reason in (*codes, *advice.OF_NODES, *(each.value for each in advice.OF_KEPT)):
        command, *words = advice.link(reason).split()
        assert (command, main(words)) == ("moorage", 0)
        told = capsys.readouterr().out
        assert told.strip()
        assert "](" not in told


@pytest.mark.parametrize(
    ("words", "told"),
    [(["taints"], "the nearest: taint"), (["x"], "docs/pending.md lists them"), ([], "name one reason")],
)
def test_a_reason_that_there_is_not_is_refused_with_the_nearest(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", "reason", *words]) == 2
    assert told in capsys.readouterr().err


def test_names_of_queues_are_completed() -> None:
    def ask(kind: str, where: Any) -> list[str]:
        return [f"{kind}-1"]

    assert suggested(["explain", ""], ask=ask) == ["pod", "podgroup", "node", "queue", "reason", ":4"]
    assert suggested(["explain", "queue", ""], ask=ask) == ["queues-1", ":4"]
    assert suggested(["inspect", "queues", ""], ask=ask) == ["queues-1", ":4"]


# --- a cluster that runs ---------------------------------------------------------------------------------------------
def queue(name: str, parent: str = "", **gpu: float) -> dict[str, Any]:
    even = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    resources = {"cpu": even, "memory": even, "gpu": {**even, "quota": 0, **gpu}}
    return {"metadata": {"name": name}, "spec": {"parentQueue": parent, "resources": resources}}


async def create_queues(world: World, *queues: dict[str, Any]) -> None:
    for each in queues:
        await world.api.create(QUEUES, each)


def of(team: str, name: str, gpus: int) -> dict[str, Any]:
    made = pod(name, gpus=gpus)
    made["metadata"]["labels"] = {names.QUEUE_LABEL: team}
    return made


def refuse(plural: str) -> Callable[[Call], Fault | None]:
    def judge(call: Call) -> Fault | None:
        return Fault(refuse_with=403) if call.user == "someone" and call.kind.plural == plural else None

    return judge


async def test_a_cluster_is_explained_as_its_scheduler_decided(capsys: pytest.CaptureFixture[str]) -> None:
    async with stage.stage("1x8x80GiB") as world:
        await create_queues(world, queue("dept", limit=7), queue("a", "dept"), queue("b", "dept"))
        await create(world, of("a", "a1", 4), of("b", "b1", 3))
        await settle()
        await create(world, of("a", "a2", 4))
        await settle()
        explain.show_queue(await reader.read_listed(api_of(world, "someone")), "a", "json")
        told = json.loads(capsys.readouterr().out)["queue"]
        assert told["next"]["name"] == "a2"
        assert told["next"]["heldBack"]["message"] == stage.waits_because(world, "a2")
        assert [view["allocated"]["gpuNano"] // NANO for view in told["path"]] == [4, 7]


async def test_a_gang_is_one_workload(capsys: pytest.CaptureFixture[str]) -> None:
    async with stage.stage("1x2x80GiB") as world:
        await create_queues(world, queue("default-queue"))
        await create_gang(world, "gang", 3, *(pod(f"w{at}", gpus=1) for at in range(3)))
        await settle()
        explain.show_queue(await reader.read_listed(api_of(world, "someone")), "default-queue", "table")
        told = capsys.readouterr().out
        assert told.endswith("Next in default-queue: PodGroup team-a/gang, which requests 3 GPUs.\n")


async def test_a_pod_of_a_cluster_is_explained_as_it_is_told_and_with_who_is_evicted_for_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings = WorldSettings(seed=1, scheduler=SchedulerSettings(decisions=Settings(preemption=False)))
    async with stage.stage("1x2x80GiB", settings=settings) as world:
        await create_queues(world, queue("default-queue"), queue("b"))
        await create(world, of("b", "runs", 2))
        await settle()
        await create(world, pod("waits", gpus=2))
        await settle()
        arguments = Namespace(what="pod", names=["waits"], namespace=stage.TEAM, what_if=[], output="json")
        explain.show(await reader.read(api_of(world, "someone"), wall_s=WALL_S), arguments, WALL_S)
        told = json.loads(capsys.readouterr().out)["group"]
        assert told["message"].endswith(" ".join(stage.waits_because(world, "waits").split()))
        assert [each["message"] for each in told["helps"]] == ["end runs", "add 1 node like node-0"]
        assert (told["evictions"], told["preemption"]) == ([], None)
        await create_record(world)
        explain.show(await reader.read(api_of(world, "someone"), wall_s=WALL_S), arguments, WALL_S)
        (eviction,) = json.loads(capsys.readouterr().out)["group"]["evictions"]
        assert (eviction["rule"], eviction["isForThis"], eviction["victims"][0]["name"]) == ("reclaim", True, "runs")


async def create_record(world: World) -> None:
    """Have a record say that one pod is evicted for the other."""
    runs, waits = (stage.find(world, name)["metadata"]["uid"] for name in ("runs", "waits"))
    victim = Victim(pod_uid=runs, namespace=stage.TEAM, name="runs", node="node-0", owner=runs)
    places, team = (Place(waits, "node-0"),), stage.TEAM
    nomination = Nomination(id=f"{waits}-0", action=Action.RECLAIM, namespace=team, places=places, victims=(victim,))
    record = {"metadata": {"name": names.NOMINATIONS}, "data": {"nominations": written(Record((nomination,)))}}
    await world.api.create(CONFIG_MAPS, record, namespace=names.SYSTEM_NAMESPACE)


async def test_what_may_not_be_read_is_named_and_without_queues_nothing_is_said() -> None:
    async with stage.stage("1x2x80GiB") as world:
        group = {"metadata": {"name": "g"}, "spec": {"priorityClassName": "train"}}
        await world.api.create(POD_GROUPS, group, namespace=stage.TEAM)
        world.server.faults.on_request.append(refuse("priorityclasses"))
        known = await reader.read(api_of(world, "someone"))
        assert [note.partition(":")[0] for note in known.unread] == ["PriorityClasses"]
        world.server.faults.on_request += [refuse("podgroups"), refuse("bindrequests")]
        known = await reader.read(api_of(world, "someone"))
        assert [note.partition(" ")[0] for note in known.unread] == ["podgroups", "bindrequests"]
        world.server.faults.on_request.append(refuse("queues"))
        with pytest.raises(Forbidden):
            await reader.read(api_of(world, "someone"))
