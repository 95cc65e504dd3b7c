"""``moorage upgrade-crds`` on an API server in memory."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
from typing_extensions import override

from cli.checks.reader import Reader
from cli.upgrade_crds import CRDS, Outcome, Upgrade, told, told_meanwhile, upgrade
from kube.client.api import Api
from kube.client.retry import Retry
from runtime.output import Progress
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import NOTHING, Fault
from simulator.apiserver.server import MemoryApiServer
from simulator.apiserver.types import custom
from simulator.clock import VirtualClock
from tests.cli.terminal import Terminal
from wire.crds import gpunode, queue
from wire.crds.render import DEFINITIONS

VIRTUAL_TIME = True

Raw = dict[str, Any]
Change = Callable[[Raw], None]

QUEUES = queue.DEFINITION
KIND = custom(CRDS.group, CRDS.version, CRDS.plural, CRDS.kind, namespaced=False)


class Cluster:
    def __init__(self) -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        self.server = MemoryApiServer(clock=clock, rng=random.Random(1), extra_types=[KIND])
        self._api = Api(self.server.transport("administrator"), retry=Retry(random.Random(1)))
        self._reader = Reader(self.server.transport("administrator"))

    async def put(self, change: Change = lambda _: None) -> None:
        """Create the CRD of queues as this version has it, changed."""
        made = QUEUES.manifest()
        change(made)
        await self._api.create(CRDS, made)

    async def there(self) -> Raw:
        found = await self._reader.get(CRDS.path(name=QUEUES.name))
        assert found is not None
        return found

    async def upgraded(self) -> Upgrade:
        api = Api(self.server.transport("upgrader"), retry=Retry(random.Random(1)))
        (done,) = await upgrade(Reader(self.server.transport("upgrader")), api, [QUEUES])
        return done


def fields(made: Raw) -> Raw:
    properties: Raw = made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    return properties


def older(made: Raw) -> None:
    del fields(made)["priority"]
    fields(made)["displayName"]["maxLength"] = 5


def newer(made: Raw) -> None:
    fields(made)["theirs"] = {"type": "string"}


def another(made: Raw) -> None:
    older(made)
    newer(made)


async def test_an_older_one_is_brought_to_this_version_and_then_it_is_as_wanted() -> None:
    cluster = Cluster()
    await cluster.put(older)
    assert (await cluster.upgraded()).outcome is Outcome.UPGRADED
    assert (await cluster.there())["spec"] == QUEUES.manifest()["spec"]
    before = cluster.server.resource_version
    assert (await cluster.upgraded()).outcome is Outcome.AS_WANTED
    assert cluster.server.resource_version == before


async def test_what_others_said_besides_stays() -> None:
    def theirs(made: Raw) -> None:
        older(made)
        made["metadata"]["labels"] = {"of": "theirs"}
        made["spec"]["names"]["categories"] = ["all"]

    cluster = Cluster()
    await cluster.put(theirs)
    assert (await cluster.upgraded()).outcome is Outcome.UPGRADED
    found = await cluster.there()
    assert found["metadata"]["labels"] == {"of": "theirs"}
    assert found["spec"]["names"]["categories"] == ["all"]


@pytest.mark.parametrize(
    ("change", "outcome", "said"),
    [
        (newer, Outcome.NEWER, "this version does not know: v2 spec.theirs (string)"),
        (
            another,
            Outcome.FOREIGN,
            "this version does not know: v2 spec.theirs (string); it does not know: v2 spec.priority (integer)",
        ),
    ],
)
async def test_one_that_knows_more_is_left_as_it_is(change: Change, outcome: Outcome, said: str) -> None:
    cluster = Cluster()
    await cluster.put(change)
    before = await cluster.there()
    assert await cluster.upgraded() == Upgrade(QUEUES.name, outcome, said)
    assert await cluster.there() == before
    assert {entry.verb for entry in cluster.server.audit if entry.user == "upgrader"} == {"get"}


async def test_one_that_is_not_there_is_not_made() -> None:
    cluster = Cluster()
    assert (await cluster.upgraded()).outcome is Outcome.MISSING
    assert {entry.verb for entry in cluster.server.audit if entry.user == "upgrader"} == {"get"}


async def test_one_that_changes_meanwhile_is_judged_anew() -> None:
    """Somebody brings a newer one between our look and our write."""
    cluster = Cluster()
    await cluster.put(older)
    api = Api(cluster.server.transport("other"), retry=Retry(random.Random(1)))
    made = QUEUES.manifest()
    newer(made)

    class Meanwhile(Reader):
        @override
        async def get(self, path: str) -> Raw | None:
            found = await super().get(path)
            if not [entry for entry in cluster.server.audit if entry.user == "other"]:
                await api.patch(CRDS, QUEUES.name, {"spec": made["spec"]})
            return found

    ours = Api(cluster.server.transport("upgrader"), retry=Retry(random.Random(1)))
    (done,) = await upgrade(Meanwhile(cluster.server.transport("upgrader")), ours, [QUEUES])
    assert done.outcome is Outcome.NEWER
    assert (await cluster.there())["spec"] == made["spec"]


async def test_where_one_stops_the_upgrade_none_is_changed() -> None:
    cluster = Cluster()
    administrator = Api(cluster.server.transport("administrator"), retry=Retry(random.Random(1)))
    await cluster.put(older)
    before = await cluster.there()
    missing = next(definition for definition in DEFINITIONS if definition.name != QUEUES.name)
    done = await upgrade(Reader(cluster.server.transport("upgrader")), administrator, [QUEUES, missing])
    assert [each.outcome for each in done] == [Outcome.UNTOUCHED, Outcome.MISSING]
    assert await cluster.there() == before


async def test_a_kind_that_only_a_component_that_is_off_by_default_needs_may_be_missing() -> None:
    cluster = Cluster()
    administrator = Api(cluster.server.transport("administrator"), retry=Retry(random.Random(1)))
    await cluster.put(older)
    reader = Reader(cluster.server.transport("upgrader"))
    done = await upgrade(reader, administrator, [QUEUES, gpunode.DEFINITION])
    assert [each.outcome for each in done] == [Outcome.UPGRADED, Outcome.UNUSED]
    assert done[1].why == "the node agent needs it; helm/moorage/crds has it"


async def test_what_is_refused_is_told_and_the_others_are_done_all_the_same() -> None:
    cluster = Cluster()
    administrator = Api(cluster.server.transport("administrator"), retry=Retry(random.Random(1)))
    for definition in DEFINITIONS:
        await administrator.create(CRDS, definition.manifest())

    def forbidden(call: Call) -> Fault:
        is_meant = call.verb == "patch" and call.name == QUEUES.name
        return Fault(refuse_with=403) if is_meant else NOTHING

    cluster.server.faults.on_request.append(forbidden)
    api = Api(cluster.server.transport("upgrader"), retry=Retry(random.Random(1)))
    done = await upgrade(Reader(cluster.server.transport("upgrader")), api, DEFINITIONS)
    assert [each.outcome for each in done if each.name != QUEUES.name] == [Outcome.AS_WANTED] * 4
    (failed,) = [each for each in done if each.name == QUEUES.name]
    assert failed.outcome is Outcome.FAILED
    assert failed.why


@pytest.mark.parametrize(
    ("done", "is_good", "line"),
    [
        (Upgrade("a.b", Outcome.AS_WANTED), True, "a.b: is as this version wants it"),
        (Upgrade("a.b", Outcome.UPGRADED), True, "a.b: brought to this version"),
        (Upgrade("a.b", Outcome.NEWER, "why"), True, "a.b: left as it is, since it is newer: why"),
        (Upgrade("a.b", Outcome.UNTOUCHED), False, "a.b: left as it is, since another one stops the upgrade"),
        (Upgrade("a.b", Outcome.MISSING, "where"), False, "a.b: is not there: where"),
        (Upgrade("a.b", Outcome.UNUSED, "why"), True, "a.b: is not there, and not needed without its component: why"),
        (Upgrade("a.b", Outcome.FAILED, "why"), False, "a.b: could not be brought to this version: why"),
        (
            Upgrade("a.b", Outcome.FOREIGN, "why"),
            False,
            "a.b: left as it is, since it is another's: why; nothing else was done to it. Either take it as it is "
            "(the chart: crds.upgrade=false), or bring it to a version that knows both",
        ),
    ],
)
def test_each_has_a_line_and_only_some_are_good(done: Upgrade, is_good: bool, line: str) -> None:
    assert (told(done), done.outcome.is_good) == (line, is_good)


async def test_while_the_api_server_is_slow_a_person_reads_which_one_is_being_worked_on() -> None:
    server, out = Cluster().server, Terminal()
    admin = Api(server.transport("administrator"), retry=Retry(random.Random(1)))
    for definition in DEFINITIONS:
        await admin.create(CRDS, definition.manifest())
    server.faults.on_request.append(lambda call: Fault(delay_s=2.5))
    progress = Progress(out=out, now_s=asyncio.get_running_loop().time)
    done = await told_meanwhile(Reader(server.transport("upgrader")), admin, progress)
    assert {each.outcome for each in done} == {Outcome.AS_WANTED}
    said = out.getvalue().splitlines()
    count = len(DEFINITIONS)
    assert said[0] == f"moorage: reading CRD 1 of {count}: {DEFINITIONS[0].name} ..."
    assert said[-1].startswith(f"moorage: upgrading CRD {count} of {count}: {DEFINITIONS[-1].name}")
