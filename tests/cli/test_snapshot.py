"""``snapshot`` as a command: what it reads, what it leaves out, and what it refuses."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from cli.main import main
from cli.snapshots import command, file
from cli.snapshots.anonymous import anonymized
from cli.snapshots.cluster import cluster_of
from kube.client.resources import CONFIG_MAPS, PODS, QUEUES
from scheduler.app import Scheduler
from scheduler.core.model.settings import Settings
from scheduler.core.preemption import eviction_history, nomination_record
from scheduler.core.preemption.eviction_history import WHOLE, Counts, Hour, Piece, Taken
from scheduler.settings import SchedulerSettings
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import Fault
from simulator.world import WorldSettings
from tests.scheduler import stage
from tests.scheduler.stage import api_of, create, pod, settle
from wire import names

VIRTUAL_TIME = True

#: Its scheduler keeps no record of its own.
NO_ROOM = WorldSettings(seed=1, scheduler=SchedulerSettings(decisions=Settings(preemption=False)))
WALL_NS = 1_800_000_000 * 10**9


def refuse(*plurals: str) -> Any:
    def judge(call: Call) -> Fault | None:
        return Fault(refuse_with=403) if call.user == "someone" and call.kind.plural in plurals else None

    return judge


async def test_a_cluster_is_read_and_counted_as_its_scheduler_counts_it() -> None:
    async with stage.stage("1x8x80GiB") as world:
        await create(world, pod("a", gpus=6), pod("b", gpus=4))
        await settle()
        found = file.read(file.write(await command.read_cluster(api_of(world, "someone"), now_ns=WALL_NS)))
        assert (found.missing, found.unread) == ([], [])
        assert found.taken_at == "2027-01-15T08:00:00Z"
        cluster, problems = cluster_of(found, Settings())
        assert problems == ()
        assert cluster.validate() == []
        (scheduler,) = world.running.values()
        assert isinstance(scheduler, Scheduler)
        assert cluster.view("node-0") == scheduler.cache.cluster.view("node-0")
        assert [pod.name for pod in cluster.waiting()] == ["b"]


async def test_what_may_not_be_read_is_named_and_its_pods_wait() -> None:
    async with stage.stage("1x8x80GiB") as world:
        await create(world, pod("a", gpus=1))
        await settle()
        world.server.faults.on_request.append(refuse("queues", "configmaps", "persistentvolumes"))
        found = await command.read_cluster(api_of(world, "someone"), now_ns=WALL_NS)
        assert found.missing == ["queues", "persistentvolumes", "configmaps"]
        assert [note.partition(":")[0].partition(" ")[0] for note in found.unread] == found.missing
        cluster, _ = cluster_of(found, Settings())
        assert not cluster.queues.records.is_read
        assert not cluster.settings.preemption


async def test_records_of_evictions_of_all_pools_are_one() -> None:
    async with stage.stage("1x8x80GiB", settings=NO_ROOM) as world:
        metadata = {"name": "blue", "labels": {names.NODE_POOL_LABEL: "blue"}}
        await world.api.create(QUEUES, {"metadata": metadata, "spec": {}})
        for name, at_s in (
            (names.NOMINATIONS, 20),
            (f"{names.NOMINATIONS}-blue", 10),
            (f"{names.NOMINATIONS}-none", 5),
        ):
            hour = Hour().put(
                Piece(
                    0,
                    {
                        "team": Taken(
                            {"owner": (at_s,), name: (at_s,)},
                            counts={"others": Counts(given_up=2 * WHOLE)},
                            last_s=at_s,
                        )
                    },
                )
            )
            pieces = name.replace(names.NOMINATIONS, f"{names.EVICTIONS}-0")
            for each, key, text in (
                (name, nomination_record.KEY, nomination_record.written(nomination_record.Record())),
                (pieces, eviction_history.KEY, eviction_history.written(hour.pieces[0], nomination_record.Texts())),
            ):
                record = {"metadata": {"name": each}, "data": {key: text}}
                await world.api.create(CONFIG_MAPS, record, namespace=names.SYSTEM_NAMESPACE)
        found = await command.read_cluster(world.api, now_ns=30 * 10**9)
        said = nomination_record.read(found.nominations or "").record
        assert said.evicted == {"owner": (10, 20), names.NOMINATIONS: (20,), f"{names.NOMINATIONS}-blue": (10,)}
        assert said.waits == {"team": 40}


@pytest.mark.parametrize(
    ("arguments", "follows"), [(("--device-taint-rules=true",), True), ((), False), (("--config=/file",), None)]
)
async def test_it_has_whether_the_scheduler_follows_taint_rules_and_no_argument_of_its_pod(
    arguments: tuple[str, ...], follows: bool | None
) -> None:
    async with stage.stage("1x8x80GiB") as world:
        labels = {"app.kubernetes.io/component": "scheduler"}
        container = {"name": "scheduler", "image": "moorage", "args": ["scheduler", "--log-level=debug", *arguments]}
        body = {"metadata": {"name": "s", "labels": labels}, "spec": {"containers": [container]}}
        await world.api.create(PODS, body, namespace=names.SYSTEM_NAMESPACE)
        found = await command.read_cluster(api_of(world, "someone"), now_ns=WALL_NS)
        for each in (found, anonymized(found)):
            text = file.write(each)
            assert file.read(text).follows_taint_rules is follows
            assert b"--log-level" not in text
            # The cluster does not serve rules, so a scheduler that follows them lets claims wait.
            assert (file.read(text).missing == ["devicetaintrules"]) is bool(follows)


def test_nothing_is_printed_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["snapshot", "--kubeconfig", "/nowhere"]) == 2
    assert "redirect it, as in: moorage snapshot > cluster.json" in capsys.readouterr().err


def test_a_cluster_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["snapshot", "--kubeconfig", "/nowhere"]) == 2
    assert "/nowhere" in capsys.readouterr().err
