from __future__ import annotations

import asyncio
import random
from pathlib import Path

import anyio
import pytest

from kube.client.api import Api
from kube.client.clock import monotonic_ns
from kube.client.resources import EVENTS
from kube.client.retry import Retry
from kube.events import EventRecorder
from nodeagent.core.plugin.health import Health, State
from nodeagent.core.plugin.settings import Mistake
from nodeagent.plugin.node import NodeSources
from nodeagent.plugin.supervisor import Reports
from simulator.clock import VirtualClock
from tests.nodeagent.node import AGENT, NODE, Scene, scene
from tests.values import of_kind, there
from wire import names
from wire.core import Node, ObjectMeta
from wire.crds.gpunode import Missing
from wire.rfc3339 import parse_ns

GPU = "nvidia.com/gpu"


def reports(it: Scene, *, is_seen: bool = True) -> tuple[Reports, list[int]]:
    clock = VirtualClock(asyncio.get_running_loop())
    api = Api(it.server.transport(AGENT), retry=Retry(random.Random(5), tries=1))
    events = EventRecorder(api, clock=clock, controller="moorage-node-agent", instance="a")
    it.tasks.start_soon(events.run)
    made = Reports(events, clock, node=NODE, seen=lambda: it.agent.publishing.node if is_seen else None)
    changes: list[int] = []
    made.on_change = lambda: changes.append(len(changes))
    return made, changes


async def told(it: Scene) -> list[tuple[str, str]]:
    return sorted((each.reason, each.note) for each in (await it.api.list(EVENTS)).items)


async def test_a_refused_file_is_missing_and_an_event_until_it_is_served() -> None:
    async with scene() as it:
        await it.start()
        made, changes = reports(it)
        mistakes = [Mistake(f"a[{at}]", "'0' is not allowed", "1") for at in range(6)]
        for _ in range(3):
            made.refused(mistakes)
        await anyio.sleep(5)
        told_of = "; ".join(f"a[{at}]: '0' is not allowed; allowed: 1" for at in range(4)) + "; and 2 more"
        assert made.missing() == [Missing(what="device-plugin file", why=told_of)]
        assert await told(it) == [("AgentConfigRefused", told_of)]
        made.refused(())
        assert (made.missing(), len(changes)) == ([], 2)


@pytest.mark.parametrize("is_seen", [True, False])
async def test_a_rival_is_missing_and_an_event_about_the_node(is_seen: bool) -> None:
    async with scene() as it:
        await it.start()
        made, changes = reports(it, is_seen=is_seen)
        made.failed(GPU, "kubelet did not ask for devices")
        for _ in range(3):
            made.rival(GPU, "another answers")
        await anyio.sleep(5)
        assert made.missing() == [Missing(what=GPU, why="another answers")]
        assert await told(it) == [("PluginRival", f"{GPU} is not served: another answers")]
        (event,) = (await it.api.list(EVENTS)).items
        assert event.regarding is not None
        assert (event.regarding.kind, event.regarding.name) == ("Node", NODE)
        node = there(it.agent.publishing.node)
        assert event.regarding.uid == (node.metadata.uid if is_seen else NODE)
        made.rival(GPU, "")
        made.rival(GPU, "")
        assert (made.missing(), made.rivals, len(changes)) == ([], {}, 3)


async def test_what_failed_is_missing_until_kubelet_has_the_resource_or_it_is_withdrawn() -> None:
    async with scene() as it:
        await it.start()
        made, changes = reports(it)
        for name in (GPU, "b"):
            made.failed(name, "nobody listens")
        assert [each.what for each in made.missing()] == ["b", GPU]
        made.registered(GPU, (1, 2))
        made.withdrawn("b")
        made.withdrawn("c")
        assert (made.missing(), len(changes)) == ([], 4)


async def test_a_driver_that_does_not_answer_and_a_plugin_that_has_ended_are_missing() -> None:
    async with scene() as it:
        await it.start()
        made, changes = reports(it)
        made.unreadable("no driver")
        made.stopped("a bug")
        assert [each.why for each in made.missing()] == ["a bug", "no driver"]
        made.unreadable("")
        made.stopped("")
        assert (made.missing(), len(changes)) == ([], 4)


async def test_health_has_the_time_of_day_and_the_same_is_told_once() -> None:
    async with scene() as it:
        await it.start()
        made, changes = reports(it)
        clock = VirtualClock(asyncio.get_running_loop())
        ill = Health(state=State.ILL, reason="Xid79", since_ns=monotonic_ns() - 90_000_000_000)
        began_ns = clock.now_ns()
        for _ in range(3):
            made.health({"GPU-a": ill})
            await anyio.sleep(7.3)
        found = made.card_health["GPU-a"]
        assert (found.state, found.reason) == ("ill", "Xid79")
        since_ns = there(parse_ns(found.since or ""))
        assert 90 <= (began_ns - since_ns) / 1e9 < 91
        assert len(changes) == 1
        made.health({})
        assert (made.card_health, len(changes)) == ({}, 2)


class Seen:
    """A Node that is, or is not, seen."""

    def __init__(self, tmp_path: Path) -> None:
        self.node: Node | None = None
        self.folder = tmp_path / "files"
        self.folder.mkdir()
        self.kept = tmp_path / "run" / "node"

    def says(self, label: str = "", cleared: str = "") -> None:
        labels = {names.NODE_AGENT_CONFIG: label} if label else None
        annotations = {names.NODE_GPU_CLEARED: cleared} if cleared else None
        self.node = Node(metadata=ObjectMeta(name="n", labels=labels, annotations=annotations))

    def sources(self) -> NodeSources:
        return NodeSources(lambda: self.node, folder=self.folder, kept=self.kept)


@pytest.fixture
def seen(tmp_path: Path) -> Seen:
    return Seen(tmp_path)


def test_without_a_folder_there_is_no_file(seen: Seen) -> None:
    assert NodeSources(lambda: seen.node, folder=None, kept=seen.kept).file() is None


def test_the_node_names_a_file_of_the_folder(seen: Seen) -> None:
    sources = seen.sources()
    for name in ("default", "big", "..data", "..2026_11_27"):
        (seen.folder / name).touch()
    seen.says()
    assert sources.file() == seen.folder / "default"
    seen.says("big")
    assert sources.file() == seen.folder / "big"
    for name in ("none", "..data", "../big"):
        seen.says(name)
        found = of_kind(Mistake, sources.file())
        assert (found.path, found.allowed) == (names.NODE_AGENT_CONFIG, "big, default")


def test_a_folder_that_is_not_there_is_told(seen: Seen) -> None:
    seen.folder.rmdir()
    assert isinstance(seen.sources().file(), Mistake)


def test_a_word_of_the_administrators_counts_once_and_also_after_a_restart(seen: Seen) -> None:
    first = seen.sources()
    assert not first.cleared()
    seen.says(cleared="GPU-old")
    # It may be older than the illness.
    assert not first.cleared()
    seen.says(cleared="GPU-a")
    assert first.cleared() == {"GPU-a"}
    assert not first.cleared()
    seen.says(cleared="GPU-b")
    # Said while no agent ran.
    second = seen.sources()
    assert second.cleared() == {"GPU-b"}
    # It ended before its plug-in had taken that.
    third = seen.sources()
    assert third.cleared() == {"GPU-b"}
    assert not third.cleared()
    assert not seen.sources().cleared()


def test_without_its_node_an_agent_goes_by_what_the_one_before_it_saw(seen: Seen) -> None:
    (seen.folder / "big").touch()
    (seen.folder / "default").touch()
    first = seen.sources()
    knew = first.is_known
    seen.says("big", "GPU-a")
    assert (knew, first.is_known) == (False, True)
    first.cleared()
    first.cleared()
    seen.node = None
    second = seen.sources()
    assert second.is_known
    assert second.file() == seen.folder / "big"
    assert not second.cleared()


def test_what_can_not_be_kept_stops_nothing(seen: Seen) -> None:
    seen.kept.parent.write_text("a file, where a folder should be")
    sources = seen.sources()
    for cleared in ("GPU-a", "GPU-b"):
        seen.says(cleared=cleared)
        sources.cleared()
    assert not sources.cleared()
