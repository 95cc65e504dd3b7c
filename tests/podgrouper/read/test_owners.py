"""Owners are read by all of their identity, and kept within limits of bytes."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from typing import Any

import anyio
import pytest

from kube.client import errors
from kube.client.api import Api
from kube.client.resources import Resource
from kube.client.retry import Retry
from podgrouper.core.owner_chain import Absent
from podgrouper.read.discovery import OWNER_BYTES, Object
from podgrouper.read.owners import KEPT_BYTES, NAMESPACE_BYTES, Owners
from simulator.apiserver.server import MemoryApiServer
from simulator.apiserver.types import custom
from simulator.clock import VirtualClock
from tests.kube.scripted import ScriptedTransport, api_over, ok
from tests.podgrouper.cluster import USER
from wire.core import OwnerReference

JOBS: Resource[Object] = Resource(
    group="batch", version="v1", plural="jobs", kind="Job", namespaced=True, type=Object, most_bytes=16 << 20
)
THINGS: Resource[Object] = Resource(
    group="example.com", version="v1", plural="things", kind="Thing", namespaced=False, type=Object
)


class World:
    def __init__(self) -> None:
        types = (custom("example.com", "v1", "things", "Thing", namespaced=False),)
        self.server = MemoryApiServer(
            clock=VirtualClock(asyncio.get_running_loop()),
            rng=random.Random(5),
            auto_namespaces=True,
            extra_types=types,
        )
        self.api = Api(self.server.transport("test"), retry=Retry(random.Random(1)))
        self.owners = Owners(Api(self.server.transport(USER), retry=Retry(random.Random(2))), keep_s=60.0)

    async def job(self, namespace: str, name: str = "j", *, spec: Any = None, **meta: Any) -> OwnerReference:
        body = {"metadata": {"name": name, "labels": {"of": namespace}, **meta}, "spec": spec or {}}
        made = await self.api.create(JOBS, body, namespace=namespace)
        return OwnerReference(api_version="batch/v1", kind="Job", name=name, uid=made.metadata["uid"])

    @property
    def reads(self) -> list[str]:
        """Objects that were read, by kind and namespace."""
        return [f"{each.resource} {each.namespace}" for each in self.server.audit if each.user == USER and each.name]


async def labels_of(world: World, reference: OwnerReference, namespace: str) -> Any:
    found = await world.owners.read(reference, namespace)
    return found if isinstance(found, Absent) else found["metadata"].get("labels")


def answering(found: dict[str, Any]) -> Owners:
    """Owners of a server that has Jobs, and answers a read of one with this."""
    served = {"resources": [{"name": "jobs", "kind": "Job", "namespaced": True}]}
    return Owners(api_over(ScriptedTransport(deque([ok(served), ok(found)]))), keep_s=60.0)


def changed(reference: OwnerReference, **parts: str) -> OwnerReference:
    known = {name: getattr(reference, name) for name in ("api_version", "kind", "name", "uid")}
    return OwnerReference(**{**known, **parts})


async def test_an_owner_of_another_namespace_is_not_shown_by_its_uid() -> None:
    world = World()
    quiet = await world.job("victim", "quiet")
    assert await labels_of(world, quiet, "victim") == {"of": "victim"}
    assert await labels_of(world, quiet, "attacker") is Absent.NOT_FOUND
    # A Job of its own by that name has another UID.
    await world.job("attacker", "quiet")
    assert await labels_of(world, quiet, "attacker") is Absent.NOT_FOUND
    assert await labels_of(world, quiet, "victim") == {"of": "victim"}


@pytest.mark.parametrize(
    "forged",
    [
        pytest.param({"api_version": "nothing.dev/v1"}, id="group"),
        pytest.param({"api_version": "batch/v9"}, id="version"),
        pytest.param({"kind": "Nothing"}, id="kind"),
        pytest.param({"name": "other"}, id="name"),
    ],
)
@pytest.mark.parametrize("namespace", ["victim", "attacker"])
async def test_a_forged_reference_with_the_uid_of_an_owner_changes_nothing_of_it(
    forged: dict[str, str], namespace: str
) -> None:
    world = World()
    owner = await world.job("victim")
    answer = await labels_of(world, changed(owner, **forged), namespace)
    assert isinstance(answer, Absent)
    assert await labels_of(world, owner, "victim") == {"of": "victim"}


@pytest.mark.parametrize(
    "name", ["../../victim/jobs/j", "../../../../../../api/v1/pods", "?watch=true", "j?watch=true", "#", "", ".."]
)
async def test_what_is_no_name_reads_no_object_and_no_list(name: str) -> None:
    world = World()
    owner = await world.job("victim")
    await world.job("attacker")
    with anyio.fail_after(5):
        answer = await labels_of(world, changed(owner, name=name), "attacker")
    assert answer is Absent.NOT_FOUND
    verbs = {each.verb for each in world.server.audit if each.user == USER}
    assert verbs <= {"get"}
    assert "jobs victim" not in world.reads


@pytest.mark.parametrize("api_version", ["../../api/v1", "../v1", "a/../v1", "v1?watch=true", "batch/v1/jobs"])
async def test_what_is_no_api_version_is_served_nowhere(api_version: str) -> None:
    world = World()
    owner = await world.job("victim")
    assert isinstance(await labels_of(world, changed(owner, api_version=api_version), "victim"), Absent)


async def test_what_stands_above_all_namespaces_is_no_owner_that_is_read() -> None:
    world = World()
    made = await world.api.create(THINGS, {"metadata": {"name": "t", "labels": {"secret": "s"}}})
    reference = OwnerReference(api_version="example.com/v1", kind="Thing", name="t", uid=made.metadata["uid"])
    assert await labels_of(world, reference, "attacker") is Absent.FORBIDDEN
    assert world.reads == []


@pytest.mark.parametrize(
    "other",
    [
        {"kind": "CronJob"},
        {"apiVersion": "apps/v1"},
        {"metadata": {"name": "k", "namespace": "team", "uid": "u"}},
        {"metadata": {"name": "j", "namespace": "victim", "uid": "u"}},
        {"metadata": {"name": "j", "namespace": "team", "uid": "v"}},
    ],
)
async def test_an_answer_that_is_not_the_owner_that_was_asked_for_is_none(other: dict[str, Any]) -> None:
    asked = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "namespace": "team", "uid": "u"}}
    reference = OwnerReference(api_version="batch/v1", kind="Job", name="j", uid="u")
    assert isinstance(await answering(asked).read(reference, "team"), dict)
    assert await answering({**asked, **other}).read(reference, "team") is Absent.NOT_FOUND


async def test_an_owner_is_read_once_for_all_of_its_pods() -> None:
    world = World()
    owner = await world.job("team")
    for _ in range(5):
        assert await labels_of(world, owner, "team") == {"of": "team"}
    assert world.reads == ["jobs team"]


async def test_owners_take_no_more_than_the_share_of_their_namespace_and_of_all() -> None:
    world = World()
    small = await world.job("small")
    assert await labels_of(world, small, "small") == {"of": "small"}
    large = {f"a{number}": "x" * 200_000 for number in range(1)}
    most = 0
    for number in range(60):
        reference = await world.job("large", f"j{number}", annotations=large)
        await world.owners.read(reference, "large")
        most = max(most, world.owners.kept_bytes)
    assert NAMESPACE_BYTES * 0.9 < most < NAMESPACE_BYTES * 1.1
    for space in range(10):
        for number in range(42):
            reference = await world.job(f"n{space}", f"j{number}", annotations=large)
            await world.owners.read(reference, f"n{space}")
            assert world.owners.kept_bytes <= KEPT_BYTES
    before = len(world.reads)
    assert await labels_of(world, small, "small") == {"of": "small"}
    assert len(world.reads) == before
    await anyio.sleep(61)
    world.owners.forget()
    assert world.owners.kept_bytes == 0


async def test_an_owner_that_is_too_long_is_an_error_that_names_it() -> None:
    world = World()
    reference = await world.job("team", spec={"long": "x" * OWNER_BYTES})
    with pytest.raises(errors.TooLarge, match="namespaces/team/jobs/j: the answer is longer than 2097152 bytes"):
        await world.owners.read(reference, "team")


async def test_any_number_of_kinds_that_do_not_exist_has_no_other_asked_for_again() -> None:
    world = World()
    owner = await world.job("victim")
    await labels_of(world, owner, "victim")
    for number in range(1500):
        await labels_of(world, changed(owner, api_version=f"g{number}.dev/v1"), "attacker")
    world.owners.renew([owner], "victim")
    asked = len(world.server.audit)
    await labels_of(world, owner, "victim")
    assert [each.resource for each in world.server.audit[asked:]] == ["jobs"]


async def test_renewed_owners_are_read_again_and_those_of_others_are_not() -> None:
    world = World()
    ours, theirs = await world.job("team"), await world.job("other")
    for reference, namespace in ((ours, "team"), (theirs, "other")):
        await world.owners.read(reference, namespace)
    world.owners.renew([ours, theirs], "team")
    for reference, namespace in ((ours, "team"), (theirs, "other")):
        await world.owners.read(reference, namespace)
    assert world.reads == ["jobs team", "jobs other", "jobs team"]
