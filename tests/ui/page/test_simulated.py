"""A simulated run is recorded in virtual time: all that the API server had, and nothing of the run is different."""

from __future__ import annotations

import asyncio
import json
import random
import resource
import signal
from pathlib import Path

import anyio
import pytest

from cli.main import main
from kube.client.resources import PODS
from simulator.clock import VirtualClock
from simulator.manifests import load
from simulator.nodes import shape
from simulator.world import World
from tests.cli.simulation.test_manifests import pod
from tests.ui.page.test_frames import as_sets, drawn
from ui.page.index import Line, decode
from ui.page.objects import Objects
from ui.page.recording import recorded
from ui.page.stream import Frames
from ui.page.timeline import Recorded
from ui.page.watch import Following

VIRTUAL_TIME = True

BEGAN_MS = 1_767_225_600_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    path = tmp_path / "pods.yaml"
    half = 'gpu-fraction: "0.5"'
    text = pod("a", half) + pod("b", half) + pod("c", limits="nvidia.com/gpu: 4")
    path.write_text(text, encoding="utf-8")
    return path


def lines(path: Path) -> list[Line]:
    return [decode(line) for line in path.read_bytes().splitlines()]


async def test_each_moment_is_what_a_page_showed_that_followed_the_cluster(path: Path) -> None:
    """One page watches the cluster as it runs; the file shows the same at the same moment."""
    clock = VirtualClock(asyncio.get_running_loop())
    world = World(shape.parse(["2x2x80GiB"]), clock=clock)
    seen = {}
    with recorded(str(path), world.server, clock) as recorder:
        began_s = anyio.current_time()
        async with world:
            recorder.found()
            live = Objects()
            frames = Frames(live, "e")
            async with anyio.create_task_group() as tasks:
                following = Following(world.api, live, rng=random.Random(0))
                await tasks.start(following.run)
                await world.apply(
                    load(pod("a", 'gpu-fraction: "0.5"') + pod("c", limits="nvidia.com/gpu: 4"), origin="t")
                )
                for _ in range(12):
                    await anyio.sleep(0.731)
                    seen[round((anyio.current_time() - began_s) * 1000)] = as_sets(drawn(frames))
                await world.api.delete(PODS, "a", namespace="default")
                await anyio.sleep(60.5)
                seen[round((anyio.current_time() - began_s) * 1000)] = as_sets(drawn(frames))
                tasks.cancel_scope.cancel()
    assert len({str(each["pods"]) for each in seen.values()}) > 2
    again = Recorded(path)
    await again.read()
    for at_ms, expected in reversed(seen.items()):
        async with again.at(at_ms) as moment:
            assert as_sets(moment.frames.whole()) == expected
    assert again.about(1.0).began_ms == BEGAN_MS + round(began_s * 1000)
    again.close()


def test_a_simulation_is_recorded_until_it_is_looked_at(path: Path, manifest: Path) -> None:
    assert main(["simulate", "--nodes", "1x2x80GiB", str(manifest), "--record", str(path)]) == 0
    told = lines(path)
    assert told[0].began_ms == BEGAN_MS
    assert [line.is_in_step for line in told].count(True) == 1
    last = {line.pod.metadata.name: line.pod for line in told if line.pod}
    assert (last["a"].status.phase, last["c"].status.phase) == ("Running", "Pending")
    assert any(line.event and line.event.reason == "Scheduled" for line in told)
    assert not any(line.gone_pod for line in told), "what is deleted to judge the end is no part of it"


@pytest.mark.parametrize("how", [[], ["--delay", "200ms", "--seed", "7"], ["--until", "3s"]])
def test_a_simulation_is_the_same_when_it_is_recorded(
    path: Path, manifest: Path, how: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["simulate", "-o", "json", "--nodes", "2x2x80GiB", str(manifest), *how]
    results = []
    for more in ([], ["--record", str(path)]):
        assert main([*arguments, *more]) == 0
        results.append(json.loads(capsys.readouterr().out))
    assert results[0] == results[1]
    assert len(lines(path)) > 10


def test_a_full_disk_ends_the_recording_and_is_told(
    path: Path, manifest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, limits[1]))
    try:
        code = main(["simulate", "--nodes", "1x2x80GiB", str(manifest), "--record", str(path)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert code == 0
    assert capsys.readouterr().err == "moorage: the recording has ended: File too large\n"
